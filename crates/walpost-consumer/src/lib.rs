//! Kafka to handler: offset, deduplication and effect in one PostgreSQL
//! transaction.
//!
//! A [`Consumer`] reads topics as a member of a Kafka consumer group, and gives
//! each event to a [`Handler`] together with an open transaction. What the
//! handler writes through it commits together with the event's offset and its
//! deduplication row: the effect is there exactly once, whatever is killed,
//! paused or taken over, and however often the record was published.
//!
//! Resetting the group's offsets with Kafka's own tools, while the consumer is
//! stopped, replays; [`OnReset`] says what that means for effects that are
//! there already.
//!
//! ```no_run
//! use walpost_consumer::{
//!     Consumer, Database, Event, Handler, HandlerError, tokio_postgres::Transaction,
//! };
//!
//! struct Shipping;
//!
//! impl Handler for Shipping {
//!     async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
//!         let order: i64 = event.json()?;
//!         tx.execute("insert into shipment (order_id) values ($1)", &[&order]).await?;
//!         Ok(())
//!     }
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let consumer = Consumer::builder("shipping")
//!     .kafka("bootstrap.servers", "localhost:9092")
//!     .topics(["outbox.event.order"])
//!     .database(Database::config("host=localhost user=app dbname=shop".parse()?))
//!     .handler(Shipping)?;
//! let terminated = async { /* wait for SIGTERM */ };
//! consumer.run(terminated).await?;
//! # Ok(())
//! # }
//! ```
//!
//! No payload, key or header value is in a log line, an error or a status of
//! this crate; [`HandlerError`] says what becomes of a handler's own text.
//! `tokio_postgres` logs parameters of statements under its own name at the
//! level `debug`: leave that off where contents are not to be logged.
//!
//! The tables come from `walpost migrate`. Semver covers `tokio_postgres`,
//! which is re-exported; Kafka's client is an implementation detail, and its
//! settings are text.

mod builder;
mod consumer;
mod database;
mod database_error;
mod decide;
mod error;
mod event;
mod failpoint;
mod handler;
mod inbox;
mod kafka;
mod ledger;
mod marker;
mod metrics;
mod partition;
mod report;
mod settings;
mod sizing;
mod sql;
mod status;

pub use tokio_postgres;
pub use walpost_event::RetrySchedule;

pub use crate::{
    builder::Builder,
    consumer::Consumer,
    database::Database,
    decide::{FirstStart, OnReset},
    error::Error,
    event::{Event, EventBuilder},
    handler::{BoxError, Handler, HandlerError, SliceError},
    status::{Counts, PartitionState, PartitionStatus, Status, TopicPartition},
};
