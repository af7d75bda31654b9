use walpost_postgres::shown::StatementError;

use crate::Set;

/// Migrating, or asking how far a database is, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name cannot be used.
    #[error("cannot use a name")]
    Name(#[from] NameError),
    /// What is applied does not fit what this version brings.
    #[error("cannot tell what to apply")]
    Plan(#[from] PlanError),
    /// Partitions are asked for, and the outbox is one table already. Nothing
    /// was applied.
    #[error(
        "the outbox of schema {schema:?} is one table, and no table becomes a partitioned one; \
         create another schema with `walpost migrate --partitioned --schema NEW` and a \
         publication of its own, start a second pipeline on its outbox, have all writers write \
         there, and stop the first pipeline once it has published everything; or leave \
         --partitioned out"
    )]
    NotPartitioned {
        /// The schema.
        schema: String,
    },
    /// The server is too old.
    #[error("PostgreSQL {version} is too old; Walpost needs 14 or newer")]
    ServerTooOld {
        /// `server_version` as the server gives it.
        version: String,
    },
    /// The role lacks a right. Nothing of the file was applied.
    #[error(
        "role {role:?} lacks a right, while {attempt}; run as its owner or a superuser: {grant}"
    )]
    MissingRight {
        /// `current_user`.
        role: String,
        /// What was attempted.
        attempt: String,
        /// The statement that gives the right.
        grant: String,
        /// What the server said.
        #[source]
        source: StatementError,
    },
    /// Something of that name is there and is not Walpost's. Nothing of the
    /// file was applied.
    #[error(
        "something that {attempt} creates exists already and was not created by Walpost's \
         migrations; rename or drop it, or choose another schema or publication"
    )]
    Exists {
        /// What was attempted.
        attempt: String,
        /// What the server said; names the object.
        #[source]
        source: StatementError,
    },
    /// A lock was not to be had within `lock_timeout_ms`. Nothing of the file
    /// was applied.
    #[error("waited {lock_timeout_ms} ms in vain for a lock, while {attempt}; try again")]
    LockTimeout {
        /// What was attempted.
        attempt: String,
        /// The limit.
        lock_timeout_ms: u32,
        /// What the server said.
        #[source]
        source: StatementError,
    },
    /// A setting is out of bounds.
    #[error("lock_timeout_ms is {lock_timeout_ms}; it lies between 1 and 3600000")]
    LockTimeoutBounds {
        /// The setting.
        lock_timeout_ms: u32,
    },
    /// A statement failed. Nothing of the file was applied.
    #[error("{attempt} failed")]
    Sql {
        /// What was attempted.
        attempt: String,
        /// What the server or the connection said.
        #[source]
        source: StatementError,
    },
}

/// A name cannot be used for a schema or publication.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// PostgreSQL would cut it, or it is empty.
    #[error("{what} is {name:?}; it has 1 to 63 bytes")]
    Length {
        /// `schema` or `publication`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// It has a character that the SQL cannot hold everywhere.
    #[error("{what} is {name:?}; it has no {character:?}")]
    Character {
        /// `schema` or `publication`.
        what: &'static str,
        /// The name.
        name: String,
        /// A dollar or a control character.
        character: char,
    },
    /// PostgreSQL keeps it for itself.
    #[error("{what} is {name:?}; names that begin with pg_ belong to PostgreSQL")]
    Reserved {
        /// `schema`.
        what: &'static str,
        /// The name.
        name: String,
    },
}

/// What is applied is not the beginning of what this version brings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A newer version has migrated this database.
    #[error(
        "the database has migration {set}/{number:04}_{name}, which this version of Walpost does \
         not know; use the version that applied it, or a newer one"
    )]
    Unknown {
        /// Its set.
        set: Set,
        /// Its number.
        number: u32,
        /// Its name, as recorded.
        name: String,
    },
    /// The text that was applied is not the text that this version has.
    #[error(
        "migration {set}/{number:04}_{name} was applied with another text than this version has; \
         use a released version of Walpost, and find out who changed the file"
    )]
    Changed {
        /// Its set.
        set: Set,
        /// Its number.
        number: u32,
        /// Its name.
        name: &'static str,
    },
    /// One in the middle was never applied.
    #[error(
        "migration {set}/{number:04}_{name} is not recorded as applied and {later:04} is; apply \
         its printed SQL by hand, which also records it"
    )]
    Gap {
        /// Its set.
        set: Set,
        /// The number that is missing.
        number: u32,
        /// Its name.
        name: &'static str,
        /// A later number that is applied.
        later: u32,
    },
}
