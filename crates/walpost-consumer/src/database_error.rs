//! The one place that sorts what PostgreSQL says.

use std::{borrow::Cow, error::Error as StdError, time::Duration};

use tokio_postgres::error::SqlState;
use walpost_event::RetrySchedule;
use walpost_postgres::shown::driver_error;

use crate::{BoxError, sql::needed_rights};

/// What an error of the database means for the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It will pass: the connection, a lock, a resource, a shutdown.
    Transient,
    /// Data or a constraint: the event's fault.
    Data,
    /// A statement was cancelled: too long for the role, or by somebody.
    Cancelled,
    /// Another owner has claimed the partition.
    GivenUp,
    /// The stored row belongs to another group, cluster or topic.
    Mismatch,
    /// The handler ended the transaction.
    HandlerEnded,
    /// Tables or functions are missing.
    NotMigrated,
    /// All else.
    Unknown,
}

impl Verdict {
    pub(crate) fn of(error: &tokio_postgres::Error) -> Self {
        match error.code() {
            Some(state) => Self::of_state(state.code()),
            // Everything without a SQLSTATE happened on the way to the server,
            // except what the client refused to send.
            None if error.is_closed() || has_io_cause(error) => Self::Transient,
            None => Self::Data,
        }
    }

    pub(crate) fn of_state(state: &str) -> Self {
        match state {
            "WP001" => Self::GivenUp,
            "WP002" => Self::Mismatch,
            "WP004" => Self::HandlerEnded,
            // The transaction is read-only for the next event: this one goes alone.
            "WP006" => Self::Data,
            "3F000" | "42P01" | "42883" => Self::NotMigrated,
            // lock_timeout, deadlock, serialisation; the idle time-out; being
            // terminated; starting up and shutting down.
            "55P03" | "40P01" | "40001" | "25P03" | "25P04" | "58000" | "58030" => Self::Transient,
            // A standby that is not yet promoted, or a primary that is switched over.
            READ_ONLY_STATE => Self::Transient,
            "57014" => Self::Cancelled,
            // A handler that goes on after a failed statement.
            "25P02" => Self::Data,
            _ => match state.get(..2) {
                Some("08" | "53" | "57") => Self::Transient,
                Some("21" | "22" | "23" | "44" | "54" | "P0") => Self::Data,
                _ => Self::Unknown,
            },
        }
    }
}

/// Longest wait for another event that may cure the error of one.
const CURE_MS: u64 = 1_000;

/// How often an event is tried on which the database refused a statement of the
/// handler. The partition stands still meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Time does not cure it: once.
    None,
    /// A concurrent transaction may have caused it, and has ended since: once
    /// more at once, in a new transaction.
    Again,
    /// An event of another partition may cure it: once more at once, and a last
    /// time after [`CURE_MS`].
    Brief,
    /// Unknown: by the retry schedule.
    Schedule,
}

impl Patience {
    /// By SQLSTATE: the one table of it.
    pub(crate) fn of_state(state: &str) -> Self {
        match state {
            // The row of a concurrent transaction; a handler that looks first finds it now.
            "23505" | "23P01" => Self::Again,
            // The row that is referred to, or still refers to this one.
            "23503" | "23001" => Self::Brief,
            _ => match state.get(..2) {
                Some("21" | "22" | "23" | "44" | "54") => Self::None,
                // What a function raises, a cancelled statement, a failed statement that the
                // handler went on after.
                _ => Self::Schedule,
            },
        }
    }

    pub(crate) fn of(error: &tokio_postgres::Error) -> Self {
        match error.code() {
            Some(state) => Self::of_state(state.code()),
            // `query_one` without a row: another event may bring it.
            None if error.to_string() == NO_ROW => Self::Brief,
            None => Self::None,
        }
    }

    /// How long to wait after so many attempts; `None` for no further one.
    pub(crate) fn delay(
        self,
        attempts: u32,
        schedule: &RetrySchedule,
        jitter: f64,
    ) -> Option<Duration> {
        match (self, attempts) {
            (Self::Again | Self::Brief, 0 | 1) => Some(Duration::ZERO),
            (Self::Brief, 2) => Some(Duration::from_millis(CURE_MS)),
            (Self::None | Self::Again | Self::Brief, _) => None,
            (Self::Schedule, _) => Some(schedule.delay(attempts, jitter).unwrap_or_default()),
        }
    }
}

/// What `tokio_postgres` says of a number of rows that it did not expect.
const NO_ROW: &str = "query returned an unexpected number of rows";

/// What a database refused of a handler, with how often that is worth an attempt.
/// Errors that the application sorts itself are none. It prints nothing: its cause
/// says everything.
#[derive(Debug, thiserror::Error)]
#[error("")]
pub(crate) struct Rejected {
    pub(crate) patience: Patience,
    #[source]
    pub(crate) error: BoxError,
}

/// The PostgreSQL error in `error` or among its causes.
pub(crate) fn postgres_error(error: &BoxError) -> Option<&tokio_postgres::Error> {
    let mut next: Option<&(dyn StdError + 'static)> = Some(&**error);
    while let Some(error) = next {
        if let Some(found) = driver_error(error) {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// What to do about a server that refuses a connection.
pub(crate) fn how_to_connect(error: Option<&tokio_postgres::Error>) -> &'static str {
    match error.and_then(|error| error.code()).map(SqlState::code) {
        Some(state) if state.starts_with("28") => {
            "check user and password, and pg_hba.conf of the server"
        }
        Some("3D000") => "correct the name of the database, or create it",
        Some("42501") => "grant connect on the database to the user",
        Some(_) => "see what the server says",
        None => "check the connection string; a server that wants TLS needs Database::connect_with",
    }
}

/// What to do if a transient error does not end by itself: empty for most.
pub(crate) fn how_to_end(error: &tokio_postgres::Error) -> String {
    match error.code().map(SqlState::code) {
        Some(READ_ONLY_STATE) => format!("; if this does not end, {READ_ONLY}"),
        _ => String::new(),
    }
}

/// What to do about a server that refuses a statement of the consumer's own.
pub(crate) fn how_to_use(error: &tokio_postgres::Error) -> Cow<'static, str> {
    how_to_use_state(error.code().map(SqlState::code))
}

/// The same for a SQLSTATE.
pub(crate) fn how_to_use_state(state: Option<&str>) -> Cow<'static, str> {
    match state {
        Some("42501") => format!("grant the role {}", needed_rights()).into(),
        Some(READ_ONLY_STATE) => READ_ONLY.into(),
        _ => "see what the server says".into(),
    }
}

/// What to do about a server that refuses a statement of the handler, by
/// SQLSTATE.
pub(crate) fn how_to_handle(state: Option<&str>) -> &'static str {
    match state {
        Some("3F000" | "42P01" | "42703" | "42704" | "42883") => {
            "create what is missing in the database of the effects, or correct the statement"
        }
        Some("42501") => "grant the consumer's role what the statement needs",
        Some("42601") => "correct the statement",
        _ => "mend that",
    }
}

const READ_ONLY_STATE: &str = "25006";
pub(crate) const READ_ONLY: &str = "connect to the primary, this server is a standby or read-only";

fn has_io_cause(error: &tokio_postgres::Error) -> bool {
    let mut cause = StdError::source(error);
    while let Some(error) = cause {
        if error.is::<std::io::Error>() {
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
    fn a_right_that_is_missing_is_named_with_all_that_are_granted() {
        let text = how_to_use_state(Some("42501"));
        for (rights, tables) in crate::sql::GRANTS {
            let expected = format!("{rights} on {}", tables.join(", "));
            assert!(text.contains(&expected), "{expected:?} is not in {text}");
        }
        assert!(text.contains("select, insert, update on position, done, consumer;"), "{text}");
        assert!(!how_to_use_state(Some("25006")).contains("grant"));
    }

    #[test]
    fn attempts_are_for_what_may_change() {
        let schedule = RetrySchedule::new([Duration::from_secs(60)]).repeating_last();
        let waits = |state: &str| {
            let next = |attempts| Patience::of_state(state).delay(attempts, &schedule, 0.0);
            (1..).map_while(next).take(4).map(|wait| wait.as_millis()).collect::<Vec<_>>()
        };
        for state in ["21000", "22P02", "23502", "23514", "44000", "54000"] {
            assert_eq!(waits(state), [0u128; 0], "{state}");
        }
        for state in ["23505", "23P01"] {
            assert_eq!(waits(state), [0], "{state}");
        }
        for state in ["23503", "23001"] {
            assert_eq!(waits(state), [0, 1_000], "{state}");
        }
        for state in ["P0001", "57014", "25P02"] {
            assert_eq!(waits(state).len(), 4, "{state}");
        }
    }

    #[test]
    fn sorts_by_state() {
        let table = [
            ("08006", Verdict::Transient),
            ("40001", Verdict::Transient),
            ("40P01", Verdict::Transient),
            ("53300", Verdict::Transient),
            ("55P03", Verdict::Transient),
            ("57P01", Verdict::Transient),
            ("57014", Verdict::Cancelled),
            ("25P03", Verdict::Transient),
            ("25006", Verdict::Transient),
            ("22003", Verdict::Data),
            ("54000", Verdict::Data),
            ("23505", Verdict::Data),
            ("P0001", Verdict::Data),
            ("25P02", Verdict::Data),
            ("WP001", Verdict::GivenUp),
            ("WP002", Verdict::Mismatch),
            ("WP003", Verdict::Unknown),
            ("WP004", Verdict::HandlerEnded),
            ("WP006", Verdict::Data),
            ("42P01", Verdict::NotMigrated),
            ("42501", Verdict::Unknown),
            ("28P01", Verdict::Unknown),
            ("", Verdict::Unknown),
        ];
        for (state, verdict) in table {
            assert_eq!(Verdict::of_state(state), verdict, "{state}");
        }
    }
}
