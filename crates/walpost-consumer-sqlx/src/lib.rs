//! Handlers of [`walpost_consumer`] whose transaction is that of
//! [sqlx].
//!
//! What a [`SqlxHandler`] writes through the transaction that it is given
//! commits together with the event's offset and its deduplication row, on
//! sqlx's connection: the same fence, the same exactly-once effects, the same
//! settings as with `tokio_postgres`. Wrap it in [`Sqlx`] with a pool:
//!
//! ```no_run
//! use walpost_consumer::{Consumer, Database, Event};
//! use walpost_consumer_sqlx::{
//!     Failed, Sqlx, SqlxHandler,
//!     sqlx::{self, PgPool, PgTransaction},
//! };
//!
//! struct Shipping;
//!
//! impl SqlxHandler for Shipping {
//!     async fn handle(&self, tx: &mut PgTransaction<'_>, event: &Event) -> Result<(), Failed> {
//!         let order: i64 = event.json()?;
//!         let insert = sqlx::query("insert into shipment (order_id) values ($1)");
//!         insert.bind(order).execute(&mut **tx).await?;
//!         Ok(())
//!     }
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = PgPool::connect("postgres://app@localhost/shop").await?;
//! let consumer = Consumer::builder("shipping")
//!     .kafka("bootstrap.servers", "localhost:9092")
//!     .topics(["outbox.event.order"])
//!     .database(Database::config("postgres://app@localhost/shop".parse()?))
//!     .handler(Sqlx::new(pool, Shipping))?;
//! consumer.run(std::future::pending()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Connections
//!
//! The consumer keeps its own connections, by [`Database`], for claims,
//! resets and parked events. The pool must lead to the same database, which
//! is looked at before the group is joined. A batch takes one connection of
//! the pool while it runs, and so many batches run at a time as
//! [`Builder::max_connections`] allows: give the pool as many connections,
//! besides what else uses it. A pool that has none in time is waited for, and
//! that is no attempt of the event.
//!
//! [`Builder::max_connections`]: walpost_consumer::Builder::max_connections
//!
//! A handler that panics or takes too long costs its connection, which is
//! closed and not given back.
//!
//! No session state is used, so PgBouncer in transaction mode is fine where
//! sqlx itself is (`statement_cache_capacity(0)`).
//!
//! TLS is a feature of sqlx: name it in your own `Cargo.toml`.
//!
//! [`Database`]: walpost_consumer::Database

mod error;
mod handler;
mod store;

pub use sqlx;

pub use crate::{
    error::Failed,
    handler::{Sqlx, SqlxHandler},
};
