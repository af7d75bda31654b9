//! One batch in one transaction of sqlx.

use futures_util::future::BoxFuture;
use sqlx::{Connection, Executor, PgPool, PgTransaction, Postgres, Row, pool::PoolConnection};
use walpost_consumer::{
    Event, SliceError,
    store::{Batch, Dedup, Done, Store, StoreError, StoreFailure, StoreTransaction},
};

use crate::{Sqlx, SqlxHandler, error::store_error};

impl<H: SqlxHandler> Store for Sqlx<H> {
    fn sees_lock(&self, key: i64) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(async move {
            let taken = sqlx::query("select pg_try_advisory_xact_lock($1)").persistent(false);
            let row = taken.bind(key).fetch_one(&self.pool).await;
            let row = row.map_err(|error| store_error(&error))?;
            let taken: bool = row.try_get(0).map_err(|error| store_error(&error))?;
            Ok(!taken)
        })
    }

    fn apply<'a>(&'a self, batch: Batch<'a>) -> BoxFuture<'a, Result<Done, StoreFailure>> {
        Box::pin(async move {
            let mut connection = Lent::from(&self.pool).await?;
            let done = apply(&mut connection, &self.handler, batch).await?;
            connection.give_back();
            Ok(done)
        })
    }
}

/// A connection is given back when a transaction on it has ended, and closed
/// otherwise.
async fn apply(
    connection: &mut Lent,
    handler: &impl SqlxHandler,
    batch: Batch<'_>,
) -> Result<Done, StoreFailure> {
    let failed = |error: sqlx::Error| store_error(&error);
    // By name: the fence has to see what it waited for.
    let lent =
        connection.connection.as_deref_mut().ok_or_else(|| StoreError::away("no connection"))?;
    let roll_back = batch.roll_back();
    let mut tx = lent.begin_with("begin isolation level read committed").await.map_err(failed)?;
    match batch.run(&mut Running { tx: &mut tx, handler }).await {
        Ok(done) => {
            tx.commit().await.map_err(|error| StoreFailure::at_end(failed(error)))?;
            Ok(done)
        }
        Err(failure) if failure.discards() => Err(failure),
        Err(failure) => {
            (&mut *tx).execute(roll_back).await.map_err(failed)?;
            tx.rollback().await.map_err(failed)?;
            connection.ended = true;
            Err(failure)
        }
    }
}

struct Running<'a, 'c, H> {
    tx: &'a mut PgTransaction<'c>,
    handler: &'a H,
}

impl<H: SqlxHandler> StoreTransaction for Running<'_, '_, H> {
    fn run<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let ran = (&mut **self.tx).execute(sql).await;
            ran.map(drop).map_err(|error| store_error(&error))
        })
    }

    fn dedup<'a>(
        &'a mut self,
        dedup: &'a Dedup<'a>,
    ) -> BoxFuture<'a, Result<Vec<i64>, StoreError>> {
        Box::pin(async move {
            let insert = sqlx::query_scalar::<Postgres, i64>(dedup.sql).persistent(false);
            let insert = insert.bind(dedup.consumer).bind(dedup.position).bind(&dedup.sources);
            let insert = insert.bind(&dedup.ids).bind(&dedup.offsets).bind(dedup.run);
            insert.fetch_all(&mut **self.tx).await.map_err(|error| store_error(&error))
        })
    }

    fn numbers<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Result<Vec<i64>, StoreError>> {
        Box::pin(async move {
            let numbers = sqlx::query_scalar::<Postgres, i64>(sql).persistent(false);
            numbers.fetch_all(&mut **self.tx).await.map_err(|error| store_error(&error))
        })
    }

    fn handle<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<(), SliceError>> {
        Box::pin(async move {
            let handled = self.handler.handle_slice(self.tx, events).await;
            handled.map_err(crate::Failed::into_slice_error)
        })
    }
}

/// A connection of the pool that is closed, without waiting for what it is
/// at, unless it is given back: it may be within a statement or a transaction.
struct Lent {
    connection: Option<PoolConnection<Postgres>>,
    /// Whether no transaction is open.
    ended: bool,
}

impl Lent {
    async fn from(pool: &PgPool) -> Result<Self, StoreError> {
        let connection = pool.acquire().await.map_err(|error| store_error(&error))?;
        Ok(Self { connection: Some(connection), ended: false })
    }

    fn give_back(mut self) {
        self.ended = true;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let connection = self.connection.take();
        if !self.ended {
            drop(connection.map(PoolConnection::detach));
        }
    }
}
