use tokio_postgres::Error as PgError;

use crate::{
    HandlerError,
    database_error::Verdict,
    store::{HandlerFailed, StoreError},
};

/// Why a transaction was rolled back.
#[derive(Debug)]
pub(super) enum Failure {
    /// The fence, the connection, or what a batch does beside the handler.
    Database(PgError),
    /// The same by another client.
    Store(StoreError),
    /// The handler, or what it left behind.
    Handler {
        error: HandlerError,
        /// Offset of the event that failed, if that is known.
        at: Option<i64>,
        /// The connection may not be used again.
        discard: bool,
    },
}

impl From<HandlerFailed> for Failure {
    fn from(failed: HandlerFailed) -> Self {
        let HandlerFailed { error, at, discard } = failed;
        Self::Handler { error, at, discard }
    }
}

impl From<PgError> for Failure {
    /// At the end of a transaction: what data and constraints refuse there is
    /// the handler's, such as a deferred constraint.
    fn from(error: PgError) -> Self {
        match Verdict::of(&error) {
            Verdict::Data | Verdict::Cancelled | Verdict::HandlerEnded => {
                let (error, at, discard) = (HandlerError::from(error), None, false);
                Self::Handler { error, at, discard }
            }
            Verdict::Transient
            | Verdict::GivenUp
            | Verdict::Mismatch
            | Verdict::NotMigrated
            | Verdict::Unknown => Self::Database(error),
        }
    }
}
