use std::{error::Error as StdError, io};

use tokio_postgres::Error as PgError;
use walpost_postgres::shown::{Author, chain};

/// What was asked of the tables could not be done.
///
/// No text of it has contents: PostgreSQL's errors are shown by
/// [`walpost_postgres::shown`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A text of a delivery is too short or too long. Nothing was sent.
    #[error("the delivery's {what} has {bytes} bytes; it has {min_bytes} to {max_bytes}")]
    Bounds {
        /// Which.
        what: &'static str,
        /// How many it has.
        bytes: usize,
        /// How many it has at least.
        min_bytes: usize,
        /// How many it has at most.
        max_bytes: usize,
    },
    /// A delivery's body is larger than is taken. Nothing was created.
    #[error(
        "the delivery's body has {bytes} bytes, and {max_bytes} are taken; send a link to what \
         is larger, or raise Deliveries::body_max_bytes"
    )]
    BodyTooLarge {
        /// How many it has.
        bytes: usize,
        /// How many it may have.
        max_bytes: usize,
    },
    /// A setting of a processor cannot work.
    #[error("setting {setting}: {problem}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The tables are missing.
    #[error(
        "schema {schema} has not the tables of webhooks ({detail}); run \
         `walpost migrate --set webhook` on this database, or apply migrations/webhook"
    )]
    NotMigrated {
        /// Schema that was looked at.
        schema: String,
        /// What the database said.
        detail: String,
    },
    /// The role lacks a right.
    #[error(
        "{attempted} was refused ({detail}); have the owner run \
         select {schema}.webhook_grant('{kind}', '<role>')"
    )]
    Denied {
        /// What was attempted.
        attempted: &'static str,
        /// What the database said.
        detail: String,
        /// Schema of the tables, quoted where it has to be.
        schema: String,
        /// Kind of role that may do it.
        kind: &'static str,
    },
    /// The server refused a statement.
    #[error("{attempted} was refused ({detail})")]
    Refused {
        /// What was attempted.
        attempted: &'static str,
        /// What the database said.
        detail: String,
    },
    /// The connection, or the server, failed for a while.
    #[error("{attempted} failed ({detail}); try again")]
    Unavailable {
        /// What was attempted.
        attempted: &'static str,
        /// What happened.
        detail: String,
    },
}

impl StoreError {
    /// Whether the same may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// From the driver. `schema` is quoted, `kind` of role may do what was
    /// attempted.
    pub(crate) fn from_driver(
        attempted: &'static str,
        (schema, kind): (&str, &'static str),
        error: &PgError,
    ) -> Self {
        let detail = chain(error, Author::Walpost);
        let schema = schema.to_owned();
        let Some(code) = error.code().map(|code| code.code()) else {
            let is_passing = error.is_closed() || has_io_cause(error);
            return match is_passing {
                true => Self::Unavailable { attempted, detail },
                false => Self::Refused { attempted, detail },
            };
        };
        match code {
            "3F000" | "42P01" | "42883" | "42703" => Self::NotMigrated { schema, detail },
            "42501" => Self::Denied { attempted, detail, schema, kind },
            _ if is_passing(code) => Self::Unavailable { attempted, detail },
            _ => Self::Refused { attempted, detail },
        }
    }
}

/// Conflicts, locks, resources, shutdowns, and the way to the server; a server that
/// is a standby, a transaction that took too long a break, and a queue of notifications
/// that is full until whoever listens reads on.
fn is_passing(code: &str) -> bool {
    matches!(code.get(..2), Some("08" | "40" | "53" | "55" | "57" | "58"))
        || matches!(code, "25006" | "25P03" | "54000")
}

fn has_io_cause(error: &PgError) -> bool {
    let mut cause = StdError::source(error);
    while let Some(error) = cause {
        if error.is::<io::Error>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_tried_again() {
        for code in
            ["08006", "40001", "40P01", "53300", "55P03", "57P01", "25006", "25P03", "54000"]
        {
            assert!(is_passing(code), "{code}");
        }
        for code in ["22021", "23505", "25001", "25P02", "42501", "42601", "WP010"] {
            assert!(!is_passing(code), "{code}");
        }
    }
}
