//! The seam for handlers whose transaction is another client's: the adapter
//! brings connections and statements, this crate the order of the steps.
//!
//! No public API: only crates of the same version use it.

use std::{
    borrow::Cow, error::Error as StdError, fmt, future::Future, panic::AssertUnwindSafe, sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::time::timeout;
use tracing::{Instrument, Span};
use walpost_postgres::shown::Author;
pub use walpost_postgres::shown::ServerMessage;

use crate::{
    BoxError, Event, Guard, HandlerError, SliceError,
    calls::{Calls, event_span},
    database_error::{Patience, Verdict},
    failpoint::Failpoint,
    points::{Points, Spot},
    pool::NoConnection,
    report::report,
};

/// Transactions of another client than `tokio_postgres`.
pub trait Store: Send + Sync {
    /// Whether another session holds the advisory lock `key` of the database:
    /// that is how two clients are found to have one database.
    fn sees_lock(&self, key: i64) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Runs `batch` in a transaction of its own, READ COMMITTED by name, and
    /// commits it; rolls back where that fails. A failure that
    /// [discards](StoreFailure::discards), and a future that is dropped, close
    /// the connection without waiting for it.
    fn apply<'a>(&'a self, batch: Batch<'a>) -> BoxFuture<'a, Result<Done, StoreFailure>>;
}

/// The statements of one transaction.
pub trait StoreTransaction: Send {
    /// Sends statements as text and drops their rows.
    fn run<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Returns the first column of the rows.
    fn dedup<'a>(&'a mut self, dedup: &'a Dedup<'a>)
    -> BoxFuture<'a, Result<Vec<i64>, StoreError>>;

    /// Sends one statement as text and returns its only column.
    fn numbers<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Result<Vec<i64>, StoreError>>;

    /// The application's handler.
    fn handle<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<(), SliceError>>;
}

/// A statement with its parameters, `$1` to `$6` in this order.
#[derive(Debug)]
#[non_exhaustive]
pub struct Dedup<'a> {
    /// The statement.
    pub sql: &'a str,
    /// Name of the consumer.
    pub consumer: &'a str,
    /// Id of the position.
    pub position: i32,
    /// Source of each event.
    pub sources: Vec<&'a str>,
    /// Id of each event.
    pub ids: Vec<&'a str>,
    /// Offset of each event.
    pub offsets: Vec<i64>,
    /// The run.
    pub run: i32,
}

/// What was committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub(crate) new: u64,
    pub(crate) duplicates: u64,
}

/// One batch, ready to run.
pub struct Batch<'a> {
    pub(crate) begin: String,
    /// What goes before the end: a parked event leaves.
    pub(crate) leave: Option<&'a str>,
    pub(crate) end: String,
    /// Between the handler and the end.
    pub(crate) undo: &'a str,
    /// Instead of a rollback.
    pub(crate) roll_back: &'a str,
    pub(crate) dedup: Option<Dedup<'a>>,
    pub(crate) events: &'a [Event],
    /// Forgets what is parked of these offsets, which follow: where a replay
    /// makes effects again.
    pub(crate) unpark: Option<String>,
    pub(crate) guard: &'a Guard,
    #[cfg(feature = "redis")]
    pub(crate) claiming: Option<crate::redis_guard::Claiming<'a>>,
    /// The one event may have been done before: a savepoint around it.
    pub(crate) behind_savepoint: bool,
    pub(crate) calls: &'a Calls,
    pub(crate) limit_ms: u64,
    pub(crate) points: &'a Points,
}

impl<'a> Batch<'a> {
    /// Rolls the transaction back, and what a rollback leaves of the session. Another
    /// transaction has begun then, to be rolled back by the client.
    pub fn roll_back(&self) -> &'a str {
        self.roll_back
    }

    /// Everything between BEGIN and COMMIT.
    ///
    /// # Errors
    /// What the fence or the handler says.
    pub async fn run(self, tx: &mut impl StoreTransaction) -> Result<Done, StoreFailure> {
        tx.run(&self.begin).await?;
        let events = self.new_events(tx).await?;
        self.points.reached(Failpoint::AfterBegin, self.events.first().map(Spot::from)).await;
        let total = self.events.len() as u64;
        let new = if events.is_empty() {
            0
        } else if self.behind_savepoint {
            self.guarded(tx, &events).await?
        } else {
            let handled = handling(self.calls, tx.handle(&events), &events, self.limit_ms).await;
            if let Err(failed) = self.points.handled(&events, handled) {
                return Err(self.or_ended(tx, failed).await);
            }
            events.len() as u64
        };
        // The rest is ours, and not for a role that the handler took.
        if !events.is_empty() && (self.unpark.is_some() || self.leave.is_some()) {
            tx.run(self.undo).await.map_err(StoreFailure::at_end)?;
        }
        if let Some(unpark) = self.unpark.as_ref().filter(|_| new > 0) {
            let offsets: Vec<String> =
                events.iter().map(|event| event.offset().to_string()).collect();
            tx.run(&format!("{unpark} ({})", offsets.join(", "))).await?;
        }
        self.points.reached(Failpoint::BeforeCommit, self.events.first().map(Spot::from)).await;
        if let Some(leave) = self.leave {
            tx.run(leave).await?;
        }
        let end = if events.is_empty() { self.end.clone() } else { self.end_of_handler() };
        tx.run(&end).await.map_err(StoreFailure::at_end)?;
        Ok(Done { new, duplicates: total - new })
    }

    fn end_of_handler(&self) -> String {
        format!("{}; {}", self.undo, self.end)
    }

    async fn new_events(
        &self,
        tx: &mut impl StoreTransaction,
    ) -> Result<Cow<'_, [Event]>, StoreFailure> {
        #[cfg(feature = "redis")]
        if let Some(claiming) = &self.claiming {
            return claiming.new_events(tx, self.events).await;
        }
        let Some(dedup) = &self.dedup else {
            return Ok(distinct(self.events));
        };
        let mut new = tx.dedup(dedup).await?;
        new.sort_unstable();
        Ok(select_new(self.events, &new))
    }

    async fn guarded(
        &self,
        tx: &mut impl StoreTransaction,
        events: &[Event],
    ) -> Result<u64, StoreFailure> {
        tx.run(SAVEPOINT).await?;
        let handled = handling(self.calls, tx.handle(events), events, self.limit_ms).await;
        match self.points.handled(events, handled) {
            Ok(()) => Ok(events.len() as u64),
            Err(failed) if !failed.discard && self.guard.says_done(&failed.error) => {
                tx.run(ROLLBACK_TO_SAVEPOINT).await?;
                Ok(0)
            }
            Err(failed) => Err(self.or_ended(tx, failed).await),
        }
    }

    /// Why a handler failed; that it ended its transaction comes before all
    /// else, since what it wrote behind that stays, and must not be made again.
    async fn or_ended(
        &self,
        tx: &mut impl StoreTransaction,
        failed: HandlerFailed,
    ) -> StoreFailure {
        if failed.discard {
            return failed.into();
        }
        match tx.run(&self.end_of_handler()).await {
            Err(error) if error.verdict() == Verdict::HandlerEnded => StoreFailure::at_end(error),
            _ => failed.into(),
        }
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("events", &self.events).finish_non_exhaustive()
    }
}

/// Before the handler of an event whose effect may be there.
pub(crate) const SAVEPOINT: &str = "savepoint walpost_guard";
/// After it was.
pub(crate) const ROLLBACK_TO_SAVEPOINT: &str =
    "rollback to savepoint walpost_guard; release savepoint walpost_guard";

/// A handler that failed, in this crate's terms.
#[derive(Debug)]
pub(crate) struct HandlerFailed {
    pub(crate) error: HandlerError,
    /// Offset of the event, if that is known.
    pub(crate) at: Option<i64>,
    /// The connection may not be used again.
    pub(crate) discard: bool,
}

/// One of `events` that is handled alone, within a span of its own unless it is
/// the only one.
pub fn one_of<T>(
    events: &[Event],
    event: &Event,
    handled: impl Future<Output = T>,
) -> impl Future<Output = T> {
    let span = if events.len() > 1 { event_span(None, event) } else { Span::none() };
    handled.instrument(span)
}

tokio::task_local! {
    static UNDO: Arc<str>;
}

/// What goes between two events that are handled one after another in one
/// transaction, so that nothing of the session reaches the second one. `None` outside of a
/// consumer.
pub fn undo_session() -> Option<Arc<str>> {
    UNDO.try_with(Arc::clone).ok()
}

/// Waits for a handler, within its time, and catches its panics.
pub(crate) async fn handling(
    calls: &Calls,
    handler: impl Future<Output = Result<(), SliceError>>,
    events: &[Event],
    limit_ms: u64,
) -> Result<(), HandlerFailed> {
    let handling = AssertUnwindSafe(UNDO.scope(calls.undo(), handler)).catch_unwind();
    let handling = timeout(Duration::from_millis(limit_ms), handling);
    let outcome = calls.measure(events, handling, |ended| matches!(ended, Ok(Ok(Ok(()))))).await;
    let alone = match events {
        [event] => Some(event.offset()),
        _ => None,
    };
    let dropped = |reason: String| {
        Err(HandlerFailed { error: HandlerError::retry(reason), at: alone, discard: true })
    };
    match outcome {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(error))) => {
            let at = error.index().and_then(|index| events.get(index)).map(Event::offset);
            Err(HandlerFailed { error: error.into_inner(), at: at.or(alone), discard: false })
        }
        Ok(Err(_)) => dropped("the handler panicked".to_owned()),
        Err(_) => dropped(format!("the handler took longer than {limit_ms} ms")),
    }
}

/// The events at the offsets `new`, ascending. Copies none if all are new.
pub(crate) fn select_new<'a>(events: &'a [Event], new: &[i64]) -> Cow<'a, [Event]> {
    if new.len() == events.len() {
        return Cow::Borrowed(events);
    }
    let is_new = |event: &&Event| new.binary_search(&event.offset()).is_ok();
    Cow::Owned(events.iter().filter(is_new).cloned().collect())
}

/// The first of each id.
pub(crate) fn distinct(events: &[Event]) -> Cow<'_, [Event]> {
    let mut seen = std::collections::HashSet::with_capacity(events.len());
    let first: Vec<i64> = events
        .iter()
        .filter(|event| seen.insert((event.source(), event.id())))
        .map(Event::offset)
        .collect();
    select_new(events, &first)
}

/// Why a batch was rolled back.
#[derive(Debug)]
pub struct StoreFailure {
    pub(crate) kind: FailureKind,
}

#[derive(Debug)]
pub(crate) enum FailureKind {
    /// The fence, the connection, or what a batch does beside the handler.
    Store(StoreError),
    /// The connection lacked what another one has.
    Connection,
    Handler(HandlerFailed),
}

impl StoreFailure {
    /// Whether the connection may not be used again.
    pub fn discards(&self) -> bool {
        matches!(self.kind, FailureKind::Handler(HandlerFailed { discard: true, .. }))
    }

    pub(crate) fn lacks_statement(&self) -> bool {
        matches!(&self.kind, FailureKind::Handler(failed) if failed.error.lacks_statement())
    }

    /// At the end of a transaction: what data and constraints refuse there is
    /// the handler's. If the handler ended its transaction, what it set in the session stays.
    pub fn at_end(error: StoreError) -> Self {
        let verdict = error.verdict();
        let kind = match verdict {
            Verdict::Data | Verdict::Cancelled | Verdict::HandlerEnded => {
                FailureKind::Handler(HandlerFailed {
                    error: error.into(),
                    at: None,
                    discard: verdict == Verdict::HandlerEnded,
                })
            }
            Verdict::Transient
            | Verdict::GivenUp
            | Verdict::Mismatch
            | Verdict::NotMigrated
            | Verdict::Unknown => FailureKind::Store(error),
        };
        Self { kind }
    }
}

impl From<StoreError> for StoreFailure {
    fn from(error: StoreError) -> Self {
        Self { kind: FailureKind::Store(error) }
    }
}

impl From<NoConnection> for StoreFailure {
    fn from(error: NoConnection) -> Self {
        StoreError::from(error).into()
    }
}

impl From<HandlerFailed> for StoreFailure {
    fn from(failed: HandlerFailed) -> Self {
        Self { kind: FailureKind::Handler(failed) }
    }
}

/// An error of another client, without what quotes contents.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct StoreError {
    text: String,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Server {
        state: String,
        constraint: Option<String>,
    },
    Away,
    Data,
    /// Another event may bring the row.
    NoRow,
    Unusable,
}

impl StoreError {
    /// The server's own.
    pub fn server(said: &ServerMessage<'_>) -> Self {
        let cause = Cause::Server {
            state: said.state.to_owned(),
            constraint: said.constraint.map(str::to_owned),
        };
        Self { text: said.to_text(Author::Application), cause }
    }

    /// On the way to the server, or for want of a connection: it will pass.
    pub fn away(text: impl Into<String>) -> Self {
        Self { text: text.into(), cause: Cause::Away }
    }

    /// A statement that had to return a row returned none.
    pub fn no_row(text: impl Into<String>) -> Self {
        Self { text: text.into(), cause: Cause::NoRow }
    }

    /// A value that the client could not send or read.
    pub fn data(text: impl Into<String>) -> Self {
        Self { text: text.into(), cause: Cause::Data }
    }

    /// The client cannot be used as it is.
    pub fn unusable(text: impl Into<String>) -> Self {
        Self { text: text.into(), cause: Cause::Unusable }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        match &self.cause {
            Cause::Server { state, .. } => Verdict::of_state(state),
            Cause::Away => Verdict::Transient,
            Cause::Data | Cause::NoRow => Verdict::Data,
            Cause::Unusable => Verdict::Unknown,
        }
    }

    pub(crate) fn patience(&self) -> Patience {
        match &self.cause {
            Cause::Server { state, .. } => Patience::of_state(state),
            Cause::NoRow => Patience::Brief,
            Cause::Away | Cause::Data | Cause::Unusable => Patience::None,
        }
    }

    /// SQLSTATE, if the server said it.
    pub(crate) fn state(&self) -> Option<&str> {
        match &self.cause {
            Cause::Server { state, .. } => Some(state),
            Cause::Away | Cause::Data | Cause::NoRow | Cause::Unusable => None,
        }
    }

    /// State and constraint of such an error in `error` or among its causes.
    pub(crate) fn constraint_in(error: &BoxError) -> Option<(String, String)> {
        let mut next: Option<&(dyn StdError + 'static)> = Some(&**error);
        while let Some(error) = next {
            if let Some(Self { cause: Cause::Server { state, constraint }, .. }) =
                error.downcast_ref()
            {
                return Some((state.clone(), constraint.clone()?));
            }
            next = error.source();
        }
        None
    }
}

impl From<NoConnection> for StoreError {
    fn from(error: NoConnection) -> Self {
        Self::away(error.to_string())
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        let cause = match (error.as_db_error(), Verdict::of(&error)) {
            (Some(said), _) => Cause::Server {
                state: said.code().code().to_owned(),
                constraint: said.constraint().map(str::to_owned),
            },
            (None, Verdict::Transient) => Cause::Away,
            (None, _) => Cause::Data,
        };
        Self { text: report(&error), cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_events_are_handled_and_in_order() {
        let events: Vec<Event> =
            (5..10).map(|offset| Event::builder("t").position(0, offset).build()).collect();
        let offsets = |new: &[i64]| -> Vec<i64> {
            select_new(&events, new).iter().map(Event::offset).collect()
        };
        assert_eq!(offsets(&[5, 6, 7, 8, 9]), [5, 6, 7, 8, 9]);
        assert_eq!(offsets(&[6, 9]), [6, 9]);
        assert_eq!(offsets(&[]), [0i64; 0]);
    }

    #[test]
    fn of_copies_in_one_batch_the_first_is_handled() {
        let event = |offset, id: &str| {
            Event::builder("t").position(0, offset).header("id", Some(id.as_bytes())).build()
        };
        let events = [event(3, "a"), event(4, "b"), event(5, "a"), event(6, "c")];
        let first: Vec<i64> = distinct(&events).iter().map(Event::offset).collect();
        assert_eq!(first, [3, 4, 6]);
    }

    #[test]
    fn an_error_is_sorted_by_its_state() {
        let server = |state| {
            StoreError::server(&ServerMessage { state, ..ServerMessage::default() }).verdict()
        };
        assert_eq!(server("40001"), Verdict::Transient);
        assert_eq!(server("22003"), Verdict::Data);
        assert_eq!(server("WP001"), Verdict::GivenUp);
        assert_eq!(StoreError::away("x").verdict(), Verdict::Transient);
        assert_eq!(StoreError::data("x").verdict(), Verdict::Data);
        assert_eq!(StoreError::unusable("x").verdict(), Verdict::Unknown);
        let end = |state| {
            let error = StoreError::server(&ServerMessage { state, ..ServerMessage::default() });
            matches!(StoreFailure::at_end(error).kind, FailureKind::Handler(_))
        };
        assert!(end("23505") && end("WP004") && !end("08006") && !end("WP001"));
        let discards = |state| {
            let error = StoreError::server(&ServerMessage { state, ..ServerMessage::default() });
            StoreFailure::at_end(error).discards()
        };
        assert!(discards("WP004") && !discards("23505"));
    }
}
