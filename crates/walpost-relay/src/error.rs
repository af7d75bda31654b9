use std::{fmt, io, time::Duration};

use tokio_postgres::error::{DbError, SqlState};
use walpost_event::{Lsn, Position};
use walpost_pgoutput::DecodeError;
use walpost_postgres::{
    ConnectError,
    shown::{Author, ServerMessage, StatementError},
};

use crate::{config::TableName, wal::rights};

/// An ErrorResponse of PostgreSQL. Its text and `Debug` show what
/// [`walpost_postgres::shown`] lets them.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ServerError {
    /// SQLSTATE, five characters.
    pub code: String,
    message: String,
    text: String,
}

impl ServerError {
    /// The primary message, to compare it: it may quote a row.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerError({self})")
    }
}

impl From<ServerMessage<'_>> for ServerError {
    fn from(message: ServerMessage<'_>) -> Self {
        Self {
            code: message.state.to_owned(),
            message: message.message.to_owned(),
            text: message.to_text(Author::Walpost),
        }
    }
}

impl From<&DbError> for ServerError {
    fn from(error: &DbError) -> Self {
        ServerMessage::from(error).into()
    }
}

/// A source failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The replication connection could not be opened.
    #[error("cannot open the replication connection")]
    Connect(#[from] ConnectError),
    /// The connection broke.
    #[error("the replication connection broke")]
    Io(#[from] io::Error),
    /// The server closed the stream.
    #[error("the server ended the replication stream")]
    Ended,
    /// Nothing came for longer than the server promises to be silent.
    #[error("nothing heard from the server for {} s", .0.as_secs())]
    Silent(Duration),
    /// The server refused a command or ended the stream with an error.
    #[error("the server refused: {0}")]
    Server(ServerError),
    /// The login needs something that is not there.
    #[error("cannot log in: {0}")]
    Login(&'static str),
    /// The server said something that the protocol does not have here.
    #[error("unexpected message from the server: {0}")]
    Protocol(String),
    /// A frame of the stream cannot be decoded.
    #[error("cannot decode the WAL stream at {position}")]
    Decode {
        /// WAL position of the frame.
        position: Lsn,
        /// Why.
        #[source]
        source: DecodeError,
    },
    /// The other implementation of the source failed.
    #[cfg(feature = "pgwire")]
    #[error("pgwire-replication failed")]
    Pgwire(#[source] pgwire_replication::PgWireError),
    /// The two connections lead to different servers, as during a failover, or
    /// with a name that stands for several hosts.
    #[error(
        "the replication connection leads to {found}, the SQL session to {expected}; name one \
         server"
    )]
    OtherServer {
        /// What the SQL session is connected to.
        expected: String,
        /// What the replication connection is connected to.
        found: String,
    },
    /// Another process streams from the slot.
    #[error("the slot {slot:?} is in use by another process: {detail}")]
    SlotInUse {
        /// Name of the slot.
        slot: String,
        /// What the server said.
        detail: String,
    },
}

/// Why the relay stopped, or a session of it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// The source failed.
    #[error("reading the WAL failed")]
    Source(#[from] SourceError),
    /// No SQL session.
    #[error("cannot open a SQL session")]
    Connect(#[from] ConnectError),
    /// A statement failed.
    #[error("{attempt} failed")]
    Sql {
        /// What was attempted.
        attempt: &'static str,
        /// What the server said, without what may quote a row.
        #[source]
        source: StatementError,
    },
    /// Rows of parked events could not be written. Without what the server
    /// quotes of them.
    #[error("parking events failed")]
    Parking(#[source] ServerError),
    /// A statement of ours did not end in time.
    #[error("{attempt} did not end within {} s", .limit.as_secs())]
    SqlTimeout {
        /// What was attempted.
        attempt: &'static str,
        /// The bound.
        limit: Duration,
    },
    /// Something has to be set up first. Each names what, and how.
    #[error("{problem}; {remedy}")]
    Prerequisite {
        /// What is missing or wrong.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// Another run of the relay has taken the pipeline over.
    #[error("another relay has taken over pipeline {pipeline:?}")]
    TakenOver {
        /// Name of the pipeline.
        pipeline: String,
    },
    /// The publication is not the one that the session began with. The next
    /// session says what is to be done.
    #[error("the publication of pipeline {pipeline:?} was changed while it was read")]
    PublicationChanged {
        /// Name of the pipeline.
        pipeline: String,
    },
    /// An outbox table is not what it was when the session began. The next session
    /// says what is to be done.
    #[error("{detail}; pipeline {pipeline:?} looks at its tables again")]
    TableChanged {
        /// Name of the pipeline.
        pipeline: String,
        /// What has happened.
        detail: String,
    },
    /// A table has come that the filters mean: its rows are events as soon as it is
    /// known. Nothing of them was passed.
    #[error("table {table} has come, and the filters mean it; start again to publish its events")]
    NewTable {
        /// The table.
        table: TableName,
    },
    /// Something else has to be done first, by another pipeline or the next session.
    #[error("pipeline {pipeline:?} waits: {detail}")]
    Waits {
        /// Name of the pipeline.
        pipeline: String,
        /// For what, and what to do.
        detail: String,
    },
    /// The sink failed as a whole.
    #[error("the sink failed: {detail}")]
    Sink {
        /// What it said.
        detail: String,
        /// Whether it may come back by itself.
        transient: bool,
    },
    /// The sink lets nobody in by these settings.
    #[error("the sink is closed to us: {problem}; {remedy}")]
    SinkAccess {
        /// What it said.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// The schema registry lets nobody in by these settings.
    #[error("the schema registry is closed to us: {problem}; {remedy}")]
    RegistryAccess {
        /// What it said.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// Too many events in a row could not be delivered.
    #[error(
        "{count} events in a row could not be delivered, the last at {position}: {reason}; this is \
         no poison but a fault: mend the route or the topic, then start again"
    )]
    Halted {
        /// How many.
        count: u32,
        /// The last one.
        position: Position,
        /// Why.
        reason: String,
    },
    /// A row was changed in a way that the configuration calls fatal.
    #[error("{0}")]
    Fatal(String),
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(String),
}

/// Names each variant, and refuses to compile without one of them.
macro_rules! kinds {
    ($($variant:ident),+ $(,)?) => {
        impl RelayError {
            /// The names of all variants, for the test that provokes each.
            #[doc(hidden)]
            pub const KINDS: &[&str] = &[$(stringify!($variant)),+];

            /// The name of the variant.
            #[doc(hidden)]
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => stringify!($variant),)+
                }
            }
        }
    };
}

kinds!(
    Source,
    Connect,
    Sql,
    Parking,
    SqlTimeout,
    Prerequisite,
    TakenOver,
    PublicationChanged,
    TableChanged,
    NewTable,
    Waits,
    Sink,
    SinkAccess,
    RegistryAccess,
    Halted,
    Fatal,
    Config,
);

impl RelayError {
    /// Whether a new session may succeed without anybody doing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Source(source) => source.is_transient(),
            Self::Connect(source) => source.is_transient(),
            Self::Sql { source, .. } => is_transient_sql(source),
            Self::Parking(source) => is_transient_code(&source.code),
            // The other relay has the slot: this one stands by.
            Self::SqlTimeout { .. }
            | Self::TakenOver { .. }
            | Self::PublicationChanged { .. }
            | Self::TableChanged { .. }
            | Self::Waits { .. } => true,
            Self::Sink { transient, .. } => *transient,
            Self::NewTable { .. }
            | Self::SinkAccess { .. }
            | Self::RegistryAccess { .. }
            | Self::Prerequisite { .. }
            | Self::Halted { .. }
            | Self::Fatal(_)
            | Self::Config(_) => false,
        }
    }

    /// Whether a statement took longer than it may.
    pub(crate) fn is_timeout(&self) -> bool {
        match self {
            Self::SqlTimeout { .. } => true,
            Self::Sql { source, .. } => source.code() == Some(&SqlState::QUERY_CANCELED),
            _ => false,
        }
    }

    /// Whether a statement waited for a lock longer than it may.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        matches!(self, Self::Sql { source, .. }
            if source.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
    }

    /// Whether the server names the process `pid` as the holder of the slot.
    pub(crate) fn names_process(&self, pid: i32) -> bool {
        let Self::Source(SourceError::SlotInUse { detail, .. }) = self else { return false };
        let pid = pid.to_string();
        detail.split(|letter: char| !letter.is_ascii_digit()).any(|number| number == pid)
    }

    pub(crate) fn sql(attempt: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Self {
        move |source| match rights::hides(&source) {
            Some(hides) => hides,
            None => Self::Sql { attempt, source: source.into() },
        }
    }

    pub(crate) fn prerequisite(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Prerequisite { problem: problem.into(), remedy: remedy.into() }
    }
}

#[cfg(feature = "pgwire")]
impl From<pgwire_replication::PgWireError> for SourceError {
    fn from(error: pgwire_replication::PgWireError) -> Self {
        let pgwire_replication::PgWireError::Server(said) = &error else {
            return Self::Pgwire(error);
        };
        let said = said.strip_suffix(')').and_then(|said| said.rsplit_once(" (SQLSTATE "));
        // Without a state nothing tells whether another session would succeed.
        let (message, state) = said.unwrap_or(("an error without SQLSTATE", "08006"));
        let is_in_statement = true;
        let message = ServerMessage {
            severity: "ERROR",
            state,
            message,
            is_in_statement,
            ..ServerMessage::default()
        };
        Self::Server(message.into())
    }
}

impl SourceError {
    /// Whether a new session may succeed without anybody doing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect(source) => source.is_transient(),
            Self::Io(_)
            | Self::Ended
            | Self::Silent(_)
            | Self::OtherServer { .. }
            | Self::SlotInUse { .. } => true,
            Self::Server(error) => is_transient_code(&error.code),
            #[cfg(feature = "pgwire")]
            Self::Pgwire(error) => {
                use pgwire_replication::PgWireError as Pgwire;
                !matches!(error, Pgwire::Auth(_) | Pgwire::Tls(_) | Pgwire::MessageTooLarge { .. })
            }
            Self::Login(_) | Self::Protocol(_) | Self::Decode { .. } => false,
        }
    }
}

fn is_transient_sql(error: &tokio_postgres::Error) -> bool {
    error.code().is_none_or(|code| is_transient_code(code.code()))
}

/// Connection trouble (08), resources (53), operator intervention (57), system
/// errors (58), conflicts that a retry solves (40, 55006, 55P03), a session that
/// the server ended because its transaction stood still (25P03, 25P04).
fn is_transient_code(code: &str) -> bool {
    matches!(code.get(..2), Some("08" | "40" | "53" | "57" | "58"))
        || matches!(code, "55006" | "55P03" | "25P03" | "25P04")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_by_itself_is_transient() {
        for code in ["08006", "40001", "53300", "57P01", "57P03", "55006", "25P03", "25P04"] {
            assert!(is_transient_code(code), "{code}");
        }
        for code in ["42P01", "42501", "28P01", "42704", "55000", "25P02", "XX000"] {
            assert!(!is_transient_code(code), "{code}");
        }
    }
}
