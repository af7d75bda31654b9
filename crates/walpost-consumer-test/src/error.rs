use std::fmt;

use walpost_consumer::{BoxError, error_chain};

use crate::Step;

/// Why a test could not be run. What a handler does is no error: it is in the
/// [`Report`](crate::Report).
///
/// `Display` prints the error itself, which ends with the next step; `Debug`
/// prints it in one line with its causes, so that a test which returns it or
/// unwraps it is readable.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address of the server cannot be used.
    #[error(
        "the address of the server cannot be read; give a URL such as \
         postgres://app@localhost:5432/postgres"
    )]
    Address,
    /// The server refused something, or is away.
    #[error("{attempted}")]
    Database {
        /// What was attempted, with the next step.
        attempted: String,
        /// What the server said.
        #[source]
        source: BoxError,
    },
    /// The consumer's tables could not be made.
    #[error("creating the consumer's tables in database {database} failed")]
    Migration {
        /// Name of the database.
        database: String,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// The consumer did not start, or ended.
    #[error("the consumer ended; mend what it says")]
    Consumer(#[from] walpost_consumer::Error),
    /// The consumer was not through with the events in time.
    #[error(
        "the events were not done within {limit_ms} ms: {doing}; raise HandlerTest::limit_ms, or \
         look at what the handler waits for"
    )]
    TooLong {
        /// The limit, in milliseconds.
        limit_ms: u64,
        /// How far it had come.
        doing: String,
    },
    /// No transaction came to the step at which it was to be interrupted.
    #[error(
        "no transaction came to the step {step}, so nothing was interrupted; deliver new events"
    )]
    NotReached {
        /// The step.
        step: Step,
    },
    /// There is nothing to deliver.
    #[error("there are no events to deliver; give at least one")]
    NoEvents,
    /// A table is too large to be compared.
    #[error(
        "table {table} is too large to be compared: more than {limit}; empty it in the setup, \
         raise HandlerTest::max_rows, or name the tables to look at by HandlerTest::tables"
    )]
    TooLarge {
        /// The table.
        table: String,
        /// What it is more than, with its unit.
        limit: String,
    },
    /// A table or column that was named does not exist.
    #[error(
        "there is no {what} in the test's database; correct the name, or create it in the setup"
    )]
    Unknown {
        /// What was named.
        what: String,
    },
    /// Two runs without any disturbance came to different numbers of rows.
    #[error(
        "two undisturbed runs of the same events left different numbers of rows in {table}, so \
         nothing can be told from it; make the handler depend on its events alone, or leave the \
         table out by HandlerTest::tables"
    )]
    Unsteady {
        /// The table.
        table: String,
    },
    /// The run that the others are compared with did not come to its end.
    #[error("the handler does not come to an end with these events even undisturbed: {reason}")]
    Undisturbed {
        /// Why.
        reason: String,
    },
    /// The embedded server did not start.
    #[error(
        "starting the embedded PostgreSQL failed; install one (Debian: postgresql), or use \
         TestDatabase::create with a server of yours"
    )]
    Embedded(#[source] BoxError),
}

impl Error {
    pub(crate) fn database(attempted: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self::Database { attempted: attempted.into(), source: source.into() }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&error_chain(self))
    }
}
