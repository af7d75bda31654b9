//! What PostgreSQL says: what it means, and as text by the rule of [`shown`].

use std::{error::Error as StdError, io};

use tokio_postgres::Error as PgError;
use walpost_postgres::shown::{self, Author};

/// What an error of the database means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The transaction met another one: the same again may succeed at once.
    Conflict,
    /// It will pass: the connection, a lock, a resource, a shutdown.
    Transient,
    /// The claim was given up to somebody else.
    GivenUp,
    /// The handler ended the transaction.
    HandlerEnded,
    /// Tables or functions are missing.
    NotMigrated,
    /// A right is missing.
    Denied,
    /// All else: data, constraints, statements.
    Other,
}

impl Verdict {
    pub(crate) fn of(error: &PgError) -> Self {
        match error.code() {
            Some(state) => Self::of_state(state.code()),
            // Everything without a SQLSTATE happened on the way to the server,
            // except what the client refused to send or to read.
            None if error.is_closed() || has_io_cause(error) => Self::Transient,
            None => Self::Other,
        }
    }

    fn of_state(state: &str) -> Self {
        match state {
            "40001" | "40P01" => Self::Conflict,
            "WP030" => Self::GivenUp,
            "WP031" => Self::HandlerEnded,
            "3F000" | "42P01" | "42883" | "42703" => Self::NotMigrated,
            "42501" => Self::Denied,
            // 25006: a server that has become a standby, or not yet the primary.
            "55P03" | "25006" | "25P03" | "25P04" | "58000" | "58030" => Self::Transient,
            // The statement's own time-out is the handler's.
            "57014" => Self::Other,
            _ if matches!(state.get(..2), Some("08" | "53" | "57")) => Self::Transient,
            _ => Self::Other,
        }
    }
}

/// An error of a statement of ours as text.
pub(crate) fn report(error: &PgError) -> String {
    shown::chain(error, Author::Walpost)
}

/// The same of a statement of the handler's.
#[cfg(feature = "axum")]
pub(crate) fn report_handlers(error: &PgError) -> String {
    shown::chain(error, Author::Application)
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
    fn sorts_by_state() {
        for (state, verdict) in [
            ("40001", Verdict::Conflict),
            ("40P01", Verdict::Conflict),
            ("WP030", Verdict::GivenUp),
            ("WP031", Verdict::HandlerEnded),
            ("WP010", Verdict::Other),
            ("42P01", Verdict::NotMigrated),
            ("42501", Verdict::Denied),
            ("08006", Verdict::Transient),
            ("53300", Verdict::Transient),
            ("57P01", Verdict::Transient),
            ("25006", Verdict::Transient),
            ("57014", Verdict::Other),
            ("23505", Verdict::Other),
            ("", Verdict::Other),
        ] {
            assert_eq!(Verdict::of_state(state), verdict, "{state}");
        }
    }
}
