use tokio_postgres::Error as PgError;
use walpost_prepared::Left;

use crate::{
    HandlerError,
    database_error::Verdict,
    pool::{NoConnection, Slot},
    store::{HandlerFailed, StoreError},
};

/// Why a transaction was rolled back.
#[derive(Debug)]
pub(super) enum Failure {
    /// The fence, the connection, or what a batch does beside the handler.
    Database(PgError),
    /// The same by another client.
    Store(StoreError),
    /// The connection lacked what another one has.
    Connection,
    /// The handler, or what it left behind.
    Handler {
        error: HandlerError,
        /// Offset of the event that failed, if that is known.
        at: Option<i64>,
        /// The connection may not be used again.
        discard: bool,
    },
}

impl Failure {
    /// Of a transaction that was rolled back: itself, unless its connection alone
    /// is to blame.
    pub(super) fn unless_again(self, slot: &mut Slot, left: Option<Left>) -> Self {
        let lacked_statement =
            matches!(&self, Self::Handler { error, .. } if error.lacks_statement());
        match slot.rolled_back(left, lacked_statement) {
            true => Self::Connection,
            false => self,
        }
    }
}

impl From<NoConnection> for Failure {
    fn from(error: NoConnection) -> Self {
        Self::Store(error.into())
    }
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
