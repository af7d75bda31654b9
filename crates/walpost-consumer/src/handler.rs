use std::{error::Error as StdError, fmt, future::Future};

use tokio_postgres::{Transaction, error::SqlState};

use crate::{
    Event,
    database_error::{Patience, Rejected, Verdict, how_to_handle, postgres_error},
    report::error_chain,
    store::{Store, StoreError, one_of, undo_session},
};

/// The cause inside a [`HandlerError`].
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// What an application does with an event, inside the transaction that also
/// stores the event's offset and its deduplication row.
///
/// What it writes through `tx` commits exactly once per event and consumer, or
/// not at all. It must not end the transaction (that is refused, and the
/// partition halts), must not write through another connection, must not keep a
/// prepared statement for its next call, and should
/// not wait for anything but the database. Savepoints are fine.
///
/// What it sets in its session does not reach the next event: the consumer
/// undoes settings and roles, with or without `local`, temporary tables,
/// cursors, LISTEN, statements of SQL's PREPARE, and advisory locks of the
/// session. That costs about 50 microseconds of the server's time for each call
/// of [`handle`](Self::handle) and for each transaction. Settings that the
/// connection began with stay: give them in its `options`, or by
/// `alter role … set`. The mode of constraints (`set constraints`) lasts to the
/// end of the batch.
///
/// ```
/// use walpost_consumer::{Event, Handler, HandlerError, tokio_postgres::Transaction};
///
/// struct Shipping;
///
/// impl Handler for Shipping {
///     async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
///         let order: i64 = event.json()?;
///         tx.execute("insert into shipment (order_id) values ($1)", &[&order]).await?;
///         Ok(())
///     }
/// }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// Applies one event.
    fn handle(
        &self,
        tx: &Transaction<'_>,
        event: &Event,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Applies events of one partition, in their order; all or none of them
    /// take effect. By default one after another; override it to write many
    /// with one statement. What an override sets in its session is undone after
    /// the slice, not between its events.
    fn handle_slice(
        &self,
        tx: &Transaction<'_>,
        events: &[Event],
    ) -> impl Future<Output = Result<(), SliceError>> + Send {
        async move {
            for (index, event) in events.iter().enumerate() {
                // Sent with the first statement of the event, so it costs no round trip.
                let undone = match undo_session().filter(|_| index > 0) {
                    Some(undo) => Some(tx.client().simple_query_raw(&undo).await?),
                    None => None,
                };
                let handled = one_of(events, event, self.handle(tx, event)).await;
                if let Some(undone) = undone {
                    // What fails there, the event before has left behind.
                    walpost_prepared::drain(undone)
                        .await
                        .map_err(|error| SliceError::at(index - 1, error))?;
                }
                handled.map_err(|error| SliceError::at(index, error))?;
            }
            Ok(())
        }
    }

    /// For adapters to other clients: where this handler's transactions are
    /// instead.
    #[doc(hidden)]
    fn store(&self) -> Option<&dyn Store> {
        None
    }
}

/// Why a handler did not apply an event. The transaction is rolled back.
///
/// Its text and those of its causes are shown: in the log, in the column
/// `reason` of `walpost.consumer_parked`, and in [`Status`](crate::Status). So
/// what you put into it is your choice, and should name no contents.
///
/// An error of PostgreSQL, also as a cause of an error of yours, is shown by
/// severity, SQLSTATE with the name of its condition, and the names of constraint,
/// schema, table, column and type. Its message is shown only if it cannot quote a
/// value: for example of a missing right, a conflict or a time-out. Every other
/// message, DETAIL, HINT, and the text that a function raises (`raise exception`)
/// are in the server's log alone, and the row of a parked event has the event
/// itself. An error of yours that prints PostgreSQL's text as its own keeps it.
///
/// ```
/// use walpost_consumer::HandlerError;
///
/// let unknown = HandlerError::park("no such customer");
/// assert_eq!(unknown.to_string(), "the handler gave the event up");
///
/// let busy = HandlerError::transient(std::io::Error::other("the bank is closed"));
/// assert!(matches!(busy, HandlerError::Transient(_)));
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum HandlerError {
    /// The surroundings failed, not the event: tried again for ever with
    /// back-off, never counted as an attempt.
    #[error("a transient fault stopped the handler")]
    Transient(#[source] BoxError),
    /// The event failed: tried again by the retry schedule, then parked.
    ///
    /// `?` makes this of a database's error about data or constraints, with fewer
    /// attempts, since the partition stands still meanwhile:
    ///
    /// | SQLSTATE | attempts |
    /// |---|---|
    /// | classes 21, 22, 23, 44, 54, and what the client could not send or read | 1: time cures none of these |
    /// | 23505 and 23P01 (unique, exclusion) | 2, the second at once: a concurrent transaction may have written the row |
    /// | 23503 and 23001 (foreign key, restrict), and a query that found no row | 3, the second at once, the third after a second, at most once in ten seconds: an event of another partition may bring the row |
    /// | P0001 and others of class P0, 57014, 25P02 | by the retry schedule |
    ///
    /// [`Builder::max_attempts`](crate::Builder::max_attempts) is the limit for all. To
    /// decide otherwise, sort the error yourself: `map_err(HandlerError::retry)` retries
    /// by the schedule, `map_err(HandlerError::park)` parks at once.
    #[error("the handler failed")]
    Retry(#[source] BoxError),
    /// The event will never succeed: parked at once.
    #[error("the handler gave the event up")]
    Park(#[source] BoxError),
    /// Nothing of this partition may go on until somebody has looked.
    #[error("the handler halted its partition")]
    Halt(#[source] BoxError),
}

impl HandlerError {
    /// A [`Transient`](Self::Transient) error of a text or another error.
    pub fn transient(cause: impl Into<BoxError>) -> Self {
        Self::Transient(cause.into())
    }

    /// A [`Retry`](Self::Retry) error of a text or another error.
    pub fn retry(cause: impl Into<BoxError>) -> Self {
        Self::Retry(cause.into())
    }

    /// A [`Park`](Self::Park) error of a text or another error.
    pub fn park(cause: impl Into<BoxError>) -> Self {
        Self::Park(cause.into())
    }

    /// A [`Halt`](Self::Halt) error of a text or another error.
    pub fn halt(cause: impl Into<BoxError>) -> Self {
        Self::Halt(cause.into())
    }

    fn sorted(verdict: Verdict, patience: Patience, how: &'static str, error: BoxError) -> Self {
        match verdict {
            Verdict::Transient | Verdict::GivenUp => Self::Transient(error),
            // An event that takes longer than the role's statement_timeout is
            // one that fails.
            Verdict::Data | Verdict::Cancelled => Self::retry(Rejected { patience, error }),
            Verdict::HandlerEnded => Self::halt(Refused::Ended(error)),
            Verdict::Mismatch | Verdict::NotMigrated | Verdict::Unknown => {
                Self::halt(Refused::Otherwise { how, error })
            }
        }
    }

    /// How often the event is worth an attempt, if it counts as one.
    pub(crate) fn patience(&self) -> Patience {
        match self {
            Self::Transient(_) => Patience::Schedule,
            Self::Retry(cause) => {
                cause.downcast_ref::<Rejected>().map_or(Patience::Schedule, |it| it.patience)
            }
            Self::Park(_) | Self::Halt(_) => Patience::None,
        }
    }

    /// Its text with those of its causes, for a table or a log line.
    pub(crate) fn report(&self) -> String {
        match self.refused() {
            Some(refused) => error_chain(refused),
            None => error_chain(self),
        }
    }

    /// Why the partition halts, from `place` on, and how to go on.
    pub(crate) fn halt_reason(&self, place: &str) -> String {
        let how = self.refused().map_or("mend that", Refused::how);
        format!(
            "{place}: {}; {how}, then restart the consumer: it begins there, and nothing is lost",
            self.report()
        )
    }

    /// Whether a prepared statement was missing, on this connection alone perhaps.
    pub(crate) fn lacks_statement(&self) -> bool {
        let (Self::Transient(cause) | Self::Retry(cause) | Self::Park(cause) | Self::Halt(cause)) =
            self;
        let state = postgres_error(cause).and_then(|error| error.code());
        state.is_some_and(|state| *state == SqlState::INVALID_SQL_STATEMENT_NAME)
    }

    fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Halt(cause) => cause.downcast_ref(),
            Self::Transient(_) | Self::Retry(_) | Self::Park(_) => None,
        }
    }
}

/// As it is reported, without what PostgreSQL quotes.
impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandlerError").field(&self.report()).finish()
    }
}

/// Sorts by SQLSTATE: connections, resources, lock time-outs, deadlocks and
/// serialisation failures are transient; data and constraint errors are the
/// event's, with as many attempts as [`HandlerError::Retry`] says; all else (a missing table, a missing grant, an ended transaction)
/// halts.
impl From<tokio_postgres::Error> for HandlerError {
    fn from(error: tokio_postgres::Error) -> Self {
        let how = how_to_handle(error.code().map(SqlState::code));
        Self::sorted(Verdict::of(&error), Patience::of(&error), how, error.into())
    }
}

/// The same sorting for what another client has from the server.
impl From<StoreError> for HandlerError {
    fn from(error: StoreError) -> Self {
        let how = how_to_handle(error.state());
        Self::sorted(error.verdict(), error.patience(), how, error.into())
    }
}

/// What of a database's answers halts.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the handler ended the transaction that it was given")]
    Ended(#[source] BoxError),
    #[error("the database refused a statement of the handler")]
    Otherwise {
        how: &'static str,
        #[source]
        error: BoxError,
    },
}

impl Refused {
    fn how(&self) -> &'static str {
        match self {
            Self::Ended(_) => "remove COMMIT and ROLLBACK from it (savepoints are fine)",
            Self::Otherwise { how, .. } => how,
        }
    }
}

/// Why a slice was not applied, and at which of its events if that is known.
///
/// ```
/// use walpost_consumer::{HandlerError, SliceError};
///
/// let third = SliceError::at(2, HandlerError::park("no such customer"));
/// assert_eq!(third.index(), Some(2));
/// // Any of them: they are tried in smaller slices until it is found.
/// assert_eq!(SliceError::from(HandlerError::retry("full")).index(), None);
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SliceError {
    index: Option<usize>,
    #[source]
    error: HandlerError,
}

impl SliceError {
    /// The event at `index` of the slice failed. It is tried alone, those
    /// before it first.
    pub fn at(index: usize, error: impl Into<HandlerError>) -> Self {
        Self { index: Some(index), error: error.into() }
    }

    /// Index of the event that failed, `None` if any of them may have.
    pub fn index(&self) -> Option<usize> {
        self.index
    }

    /// The error itself.
    pub fn into_inner(self) -> HandlerError {
        self.error
    }
}

impl From<HandlerError> for SliceError {
    fn from(error: HandlerError) -> Self {
        Self { index: None, error }
    }
}

impl From<tokio_postgres::Error> for SliceError {
    fn from(error: tokio_postgres::Error) -> Self {
        HandlerError::from(error).into()
    }
}
