use tokio_postgres::{Error as PgError, error::SqlState};

use crate::report::{Verdict, report};

/// What was asked of the inbox could not be done.
///
/// No text of it, `Debug` neither, has a payload: of what PostgreSQL says there
/// remain SQLSTATE, names of objects, and messages that quote no values.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is out of its bounds.
    #[error("setting {setting}: {problem}")]
    Setting {
        /// The method of the builder.
        setting: &'static str,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A text or the payload of an event is too short or too long. Nothing was
    /// sent, the transaction goes on.
    #[error("the event's {what} has {bytes} bytes; it has {min_bytes} to {max_bytes}")]
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
    /// A text that PostgreSQL cannot store. Nothing was sent, the transaction
    /// goes on.
    #[error("the event's {what} holds a NUL character, which PostgreSQL's text cannot")]
    Nul {
        /// Which.
        what: &'static str,
    },
    /// The tables of the inbox are missing.
    #[error(
        "schema {schema} has not the tables and functions of the inbox ({detail}); run \
         `walpost migrate --set inbox` on this database, or apply migrations/inbox"
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
         select {schema}.inbox_grant('{kind}', '<role>')"
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
    /// The claim was given up: its lease has expired, or somebody else has the
    /// event. Nothing of it was committed.
    #[error("{attempted} was refused: the claim was given up; roll back")]
    GivenUp {
        /// What was attempted.
        attempted: &'static str,
    },
    /// Terminal rows were to leave while their keys must be remembered.
    #[error(
        "rows would be kept for {keep_days} days, and their keys have to be remembered for \
         {window_days}; keep them longer, or let the owner shorten dedup_window in \
         {schema}.inbox_window to what no sender repeats itself beyond"
    )]
    Window {
        /// As asked for.
        keep_days: u32,
        /// As the database has it, rounded up.
        window_days: u32,
        /// Schema of the tables, quoted where it has to be.
        schema: String,
    },
    /// An event was there and gone, again and again: something deletes rows, or
    /// hides them from this role.
    #[error("the inbox refuses the event's id and shows no event with it; check row security")]
    Unstable,
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
    /// The connection, or the server, failed for a while.
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
            (Verdict::NotMigrated, _) => Self::NotMigrated { schema, detail },
            (Verdict::Denied, _) => Self::Denied { attempted, detail, schema, kind },
            (Verdict::HandlerEnded | Verdict::Unprepared | Verdict::Other, code) => {
                Self::Refused { attempted, detail, code: code.cloned() }
            }
        }
    }
}
