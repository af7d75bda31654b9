use std::{fmt, future::Future};

use sqlx::{Executor, PgPool, PgTransaction};
use walpost_consumer::{
    Event, Handler, HandlerError,
    store::{Store, one_of, undo_session},
    tokio_postgres::Transaction,
};

use crate::Failed;

/// What an application does with an event, inside a transaction of sqlx that
/// also stores the event's offset and its deduplication row.
///
/// The contract is that of [`Handler`]: what it writes through `tx` commits
/// exactly once per event and consumer, or not at all. It must not end the
/// transaction, nor write through another connection. Savepoints, such as
/// those of sqlx's nested `begin`, are fine.
pub trait SqlxHandler: Send + Sync + 'static {
    /// Applies one event.
    fn handle(
        &self,
        tx: &mut PgTransaction<'_>,
        event: &Event,
    ) -> impl Future<Output = Result<(), Failed>> + Send;

    /// Applies events of one partition, in their order; all or none of them
    /// take effect. By default one after another, with a round trip between two
    /// that undoes what the first one set in its session; override it to write
    /// many with one statement.
    fn handle_slice(
        &self,
        tx: &mut PgTransaction<'_>,
        events: &[Event],
    ) -> impl Future<Output = Result<(), Failed>> + Send {
        async move {
            for (index, event) in events.iter().enumerate() {
                if let Some(undo) = undo_session().filter(|_| index > 0) {
                    // What fails here, the event before has left behind.
                    let undone = (&mut **tx).execute(&*undo).await;
                    undone.map_err(|error| Failed::at(index - 1, error))?;
                }
                let handled = one_of(events, event, self.handle(tx, event)).await;
                handled.map_err(|error| Failed::at(index, error))?;
            }
            Ok(())
        }
    }
}

/// A handler with the pool of its transactions, for
/// [`Builder::handler`](walpost_consumer::Builder::handler).
pub struct Sqlx<H> {
    pub(crate) pool: PgPool,
    pub(crate) handler: H,
}

impl<H: SqlxHandler> Sqlx<H> {
    /// Transactions from `pool`, which leads to the consumer's database.
    pub fn new(pool: PgPool, handler: H) -> Self {
        Self { pool, handler }
    }
}

impl<H: SqlxHandler> Handler for Sqlx<H> {
    /// Never called: the transactions are those of [`store`](Handler::store).
    async fn handle(&self, _: &Transaction<'_>, _: &Event) -> Result<(), HandlerError> {
        Err(HandlerError::halt("a handler of sqlx was given a transaction of another client"))
    }

    fn store(&self) -> Option<&dyn Store> {
        Some(self)
    }
}

impl<H> fmt::Debug for Sqlx<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sqlx")
    }
}
