//! What an application links to write events into its outbox.
//!
//! An event is written inside the transaction that changes the state, so both
//! commit or neither does. Every function here takes a
//! [`tokio_postgres::Transaction`] (also one of a pool that dereferences to it);
//! there is no way to write outside of one. After the commit, the relay reads
//! the event from the WAL and publishes it: by default to the topic
//! `outbox.event.<aggregate type>`, under the aggregate id as key.
//!
//! ```no_run
//! use serde::Serialize;
//! use walpost_outbox::{NewEvent, OutboxTable, tokio_postgres::Client, write};
//!
//! #[derive(Serialize)]
//! struct OrderPlaced {
//!     total_cents: i64,
//! }
//!
//! async fn place_order(
//!     client: &mut Client,
//!     order: i64,
//!     total_cents: i64,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     let tx = client.transaction().await?;
//!     tx.execute("insert into orders (id, total_cents) values ($1, $2)", &[&order, &total_cents])
//!         .await?;
//!     let event = NewEvent::new("order", order.to_string(), "OrderPlaced")
//!         .json(&OrderPlaced { total_cents })?
//!         .header("tenant", "acme");
//!     write(&tx, &OutboxTable::default(), &event).await?;
//!     tx.commit().await?;
//!     Ok(())
//! }
//! ```
//!
//! - The table is `walpost.outbox`, which `walpost migrate` creates, or one of
//!   your own: [`OutboxTable`] says how to name it, here and for the relay, and
//!   [`OutboxTable::partitioned`] what `walpost migrate --partitioned` creates. The
//!   role needs `usage` on the schema and `insert` on the table; also `select`,
//!   where ids come from the database and for [`write_once`].
//! - [`write()`] and [`write_all`] fail when an idempotency key is taken, and the
//!   transaction with them; [`write_once`] answers [`Written::AlreadyWritten`]
//!   instead. There is never a second event with the same key.
//! - [`emit`] needs no table: the event goes into the WAL alone.
//! - With the feature `contracts`, `OutboxTable::with_contracts` has each event
//!   held to the contract of its type, a document with a schema.
//! - [`Error`] says after which errors the transaction goes on.
//!
//! Nothing is kept in the session, no prepared statement and no setting, so all
//! of it works through a pooler that gives each transaction another session.
//!
//! Events of one aggregate are published in commit order. To make that the
//! order in which they were written, let the writers of one aggregate exclude
//! each other, as an update of the aggregate's row does, before they write.

#[cfg(feature = "contracts")]
mod contract;
mod emit;
mod error;
mod event;
mod event_id;
mod insert;
mod message;
mod names;
mod param;
mod payload;
mod table;
mod write;

pub use tokio_postgres;
pub use uuid::Uuid;
#[cfg(feature = "contracts")]
pub use walpost_contracts;

pub use crate::{
    emit::emit,
    error::Error,
    event::NewEvent,
    event_id::EventId,
    table::{IdColumn, OutboxTable, OutboxTableBuilder, PayloadColumn},
    write::{Written, write, write_all, write_once},
};
