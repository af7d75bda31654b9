//! The one place that sorts what PostgreSQL says.

/// What an error of the database means for the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It will pass: the connection, a lock, a resource, a shutdown.
    Transient,
    /// Data or a constraint: the event's fault.
    Data,
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

    fn of_state(state: &str) -> Self {
        match state {
            "WP001" => Self::GivenUp,
            "WP002" => Self::Mismatch,
            "WP004" => Self::HandlerEnded,
            "3F000" | "42P01" | "42883" => Self::NotMigrated,
            // lock_timeout, deadlock, serialisation; the idle time-out; being
            // cancelled or terminated; starting up and shutting down.
            "55P03" | "40P01" | "40001" | "25P03" | "25P04" | "57014" | "58000" | "58030" => {
                Self::Transient
            }
            // A handler that goes on after a failed statement.
            "25P02" => Self::Data,
            _ => match state.get(..2) {
                Some("08" | "53" | "57") => Self::Transient,
                Some("21" | "22" | "23" | "44" | "P0") => Self::Data,
                _ => Self::Unknown,
            },
        }
    }
}

fn has_io_cause(error: &tokio_postgres::Error) -> bool {
    let mut cause = std::error::Error::source(error);
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
    fn sorts_by_state() {
        let table = [
            ("08006", Verdict::Transient),
            ("40001", Verdict::Transient),
            ("40P01", Verdict::Transient),
            ("53300", Verdict::Transient),
            ("55P03", Verdict::Transient),
            ("57P01", Verdict::Transient),
            ("25P03", Verdict::Transient),
            ("22003", Verdict::Data),
            ("23505", Verdict::Data),
            ("P0001", Verdict::Data),
            ("25P02", Verdict::Data),
            ("WP001", Verdict::GivenUp),
            ("WP002", Verdict::Mismatch),
            ("WP003", Verdict::Unknown),
            ("WP004", Verdict::HandlerEnded),
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
