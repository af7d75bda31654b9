use std::{borrow::Cow, fmt, future::Future};

use tokio_postgres::Transaction;

use crate::{
    Event, Head, JsonError,
    report::{Verdict, report_handlers},
};

/// The two functions that an application writes: which events it knows, and
/// what it does with one.
///
/// ```
/// use walpost_inbox::{Event, Handler, HandlerError, Head, tokio_postgres::Transaction};
///
/// enum Work {
///     Ship,
///     Refund,
/// }
///
/// struct Billing;
///
/// impl Handler for Billing {
///     type Work = Work;
///
///     fn select(&self, event: &Head) -> Option<Work> {
///         match event.event_type() {
///             "invoice.paid" => Some(Work::Ship),
///             "invoice.refunded" => Some(Work::Refund),
///             _ => None,
///         }
///     }
///
///     async fn process(
///         &self,
///         tx: &Transaction<'_>,
///         work: &Work,
///         event: &Event,
///     ) -> Result<(), HandlerError> {
///         let invoice: i64 = event.json()?;
///         let sql = match work {
///             Work::Ship => "insert into shipment (invoice) values ($1)",
///             Work::Refund => "delete from shipment where invoice = $1",
///         };
///         tx.execute(sql, &[&invoice]).await?;
///         Ok(())
///     }
/// }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// What [`select`](Self::select) found to be done.
    type Work: Send + Sync + 'static;

    /// What is done with events of this type, `None` where it is unknown: then
    /// [`Builder::on_unknown`](crate::Builder::on_unknown) decides. Called
    /// within a claim: look and decide, wait for nothing. An event at which it
    /// panics goes to review.
    fn select(&self, event: &Head) -> Option<Self::Work>;

    /// Applies an event. What it writes through `tx` commits together with the
    /// event's state, exactly once, or not at all: an attempt whose claim was
    /// given up meanwhile is refused by the database.
    ///
    /// It may be called for an event again, after an attempt that left nothing.
    /// It must not end the transaction, must not write through another
    /// connection, and should wait for nothing but the database; what it does
    /// outside of it may happen more than once. Savepoints are fine. A panic and
    /// a time-out are failed attempts. A panic's message is printed by the
    /// process's panic hook, so name no contents in it.
    fn process(
        &self,
        tx: &Transaction<'_>,
        work: &Self::Work,
        event: &Event,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Why an event was not applied. The transaction is rolled back.
///
/// A reason is shown, in the log and in the column `reason`. It is a constant of
/// the program, so no contents can be in it. Of a PostgreSQL error there remain
/// SQLSTATE, the names of constraint, table, column and type, and the message
/// where it quotes no values.
///
/// ```
/// use walpost_inbox::HandlerError;
///
/// let busy = HandlerError::transient("the ledger is closed for the night");
/// assert_eq!(busy.to_string(), "the ledger is closed for the night");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerError {
    pub(crate) kind: FailureKind,
    pub(crate) reason: Cow<'static, str>,
}

/// What becomes of an event after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// Again by the schedule.
    Retry,
    /// Again after a while; it does not count.
    Transient,
    /// Again at once; it does not count.
    Conflict,
    /// The same, on a connection that has the statement which this one lacks.
    Unprepared,
    /// Never, unless an operator says so.
    GiveUp,
    /// Somebody else has the event.
    Lost,
}

impl HandlerError {
    /// The event failed: tried again by the schedule of retries, then given up.
    pub fn retry(reason: &'static str) -> Self {
        Self { kind: FailureKind::Retry, reason: reason.into() }
    }

    /// The surroundings failed, not the event: tried again for ever with
    /// back-off, and not counted.
    pub fn transient(reason: &'static str) -> Self {
        Self { kind: FailureKind::Transient, reason: reason.into() }
    }

    /// The event will never succeed: given up at once.
    pub fn give_up(reason: &'static str) -> Self {
        Self { kind: FailureKind::GiveUp, reason: reason.into() }
    }

    /// Whether the same, from the beginning of its transaction, may succeed at
    /// once: it met another transaction.
    pub fn is_conflict(&self) -> bool {
        matches!(self.kind, FailureKind::Conflict | FailureKind::Unprepared)
    }

    /// Whether the surroundings failed, and not the event: the same may succeed
    /// later. Conflicts are that as well.
    pub fn is_transient(&self) -> bool {
        self.kind == FailureKind::Transient || self.is_conflict()
    }

    /// Whether the event will never succeed.
    pub fn is_final(&self) -> bool {
        self.kind == FailureKind::GiveUp
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for HandlerError {}

/// Sorts by SQLSTATE: a deadlock or a serialisation failure is tried again at
/// once, connections, resources and locks are transient, all else is the
/// event's.
impl From<tokio_postgres::Error> for HandlerError {
    fn from(error: tokio_postgres::Error) -> Self {
        let kind = match Verdict::of(&error) {
            Verdict::Conflict => FailureKind::Conflict,
            Verdict::Transient => FailureKind::Transient,
            Verdict::GivenUp => FailureKind::Lost,
            Verdict::HandlerEnded => FailureKind::GiveUp,
            Verdict::Unprepared => FailureKind::Unprepared,
            Verdict::NotMigrated | Verdict::Denied | Verdict::Other => FailureKind::Retry,
        };
        Self { kind, reason: report_handlers(&error).into() }
    }
}

/// Given up: the payload stays what it is.
impl From<JsonError> for HandlerError {
    fn from(error: JsonError) -> Self {
        Self { kind: FailureKind::GiveUp, reason: error.to_string().into() }
    }
}
