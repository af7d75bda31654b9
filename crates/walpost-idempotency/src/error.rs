use tokio_postgres::{Error as PgError, error::SqlState};

use crate::report::{Verdict, report};

/// A header that cannot be stored with responses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the header {name} is not stored with responses: it has a secret, or belongs to one connection"
)]
pub struct KeepError {
    /// Its name, in lower case.
    pub name: String,
}

/// What was asked of the table could not be done.
///
/// No text of it, `Debug` neither, has a key or a response: of what PostgreSQL
/// says there remain SQLSTATE, names of objects, and messages that quote no
/// values.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The tables are missing.
    #[error(
        "schema {schema} has not the table and functions of idempotency keys ({detail}); run \
         `walpost migrate --set idempotency` on this database, or apply migrations/idempotency"
    )]
    NotMigrated {
        /// Schema that was looked at, quoted where it has to be.
        schema: String,
        /// What the database said.
        detail: String,
    },
    /// The role lacks a right.
    #[error(
        "{attempted} was refused ({detail}); have the owner run \
         select {schema}.idempotency_grant('{kind}', '<role>')"
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
    /// A concurrent transaction was first. Roll back and run it again.
    #[error("{attempted} met a concurrent transaction ({}); roll back and run it again", .code.code())]
    Conflict {
        /// What was attempted.
        attempted: &'static str,
        /// `40001` or `40P01`.
        code: SqlState,
    },
    /// The claim was given up: somebody else has the request. Nothing of the
    /// transaction is committed.
    #[error("{attempted} was refused: the claim was given up; roll back")]
    GivenUp {
        /// What was attempted.
        attempted: &'static str,
    },
    /// The handler has ended the transaction that it was given. What it committed
    /// so is there without the response, and may come twice.
    #[error(
        "{attempted} was refused: the transaction of the claim was ended in between; let the \
         handler neither commit nor roll back"
    )]
    HandlerEnded {
        /// What was attempted.
        attempted: &'static str,
    },
    /// The server refused a statement.
    #[error("{attempted} was refused ({detail})")]
    Refused {
        /// What was attempted.
        attempted: &'static str,
        /// What the database said.
        detail: String,
        /// SQLSTATE.
        code: Option<SqlState>,
    },
    /// The connection, or the server, failed for a while. Whether a commit that
    /// ends so has happened is not known; the request, sent again, finds out.
    #[error("{attempted} failed ({detail}); try again")]
    Unavailable {
        /// What was attempted.
        attempted: &'static str,
        /// What happened.
        detail: String,
    },
}

impl Error {
    /// Whether the same, from the beginning of its transaction, may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Conflict { .. } | Self::Unavailable { .. })
    }

    /// From the driver. `schema` is quoted, `kind` of role may do what was
    /// attempted.
    pub(crate) fn from_driver(
        attempted: &'static str,
        (schema, kind): (&str, &'static str),
        error: &PgError,
    ) -> Self {
        let detail = report(error);
        let schema = schema.to_owned();
        match (Verdict::of(error), error.code()) {
            (Verdict::Conflict, Some(code)) => Self::Conflict { attempted, code: code.clone() },
            (Verdict::Conflict | Verdict::Transient, _) => Self::Unavailable { attempted, detail },
            (Verdict::GivenUp, _) => Self::GivenUp { attempted },
            (Verdict::HandlerEnded, _) => Self::HandlerEnded { attempted },
            (Verdict::NotMigrated, _) => Self::NotMigrated { schema, detail },
            (Verdict::Denied, _) => Self::Denied { attempted, detail, schema, kind },
            (Verdict::Other, code) => Self::Refused { attempted, detail, code: code.cloned() },
        }
    }
}
