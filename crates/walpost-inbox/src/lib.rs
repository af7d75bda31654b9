//! A log of received events in PostgreSQL, each once, and their processor.
//!
//! Whoever receives events from outside, by webhooks say, gets them at least
//! once: repeated, at the same time twice, and again after days. The inbox makes
//! that harmless. [`Inbox::insert_once`] writes an event in the caller's
//! transaction, or says that it is there; a [`Processor`] claims it and has a
//! [`Handler`] apply it, and its effect commits together with its state.
//!
//! ```no_run
//! use walpost_inbox::{
//!     Database, Event, Handler, HandlerError, Head, Processor, tokio_postgres::Transaction,
//! };
//!
//! struct Billing;
//!
//! impl Handler for Billing {
//!     type Work = ();
//!
//!     fn select(&self, event: &Head) -> Option<()> {
//!         (event.event_type() == "invoice.paid").then_some(())
//!     }
//!
//!     async fn process(
//!         &self,
//!         tx: &Transaction<'_>,
//!         (): &(),
//!         event: &Event,
//!     ) -> Result<(), HandlerError> {
//!         let invoice: i64 = event.json()?;
//!         tx.execute("insert into shipment (invoice) values ($1)", &[&invoice]).await?;
//!         Ok(())
//!     }
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let database = Database::config("host=localhost user=app dbname=shop".parse()?);
//! let processor = Processor::builder(database).handler(Billing)?;
//! processor.run(async { /* wait for SIGTERM */ }).await?;
//! # Ok(())
//! # }
//! ```
//!
//! - `walpost migrate --set inbox` creates the tables. Their triggers refuse
//!   every step between [`State`]s that is not in the table there, whoever asks
//!   for it.
//! - A claim is a short transaction of its own, which counts the attempt, under
//!   a lease and a fence. The effect's transaction ends with the event's state
//!   by compare-and-set on that fence: whoever lost the lease is refused by the
//!   database, with all that it wrote.
//! - An attempt that fails is made again by a [`RetrySchedule`], and given up
//!   behind its last. Deadlocks, serialisation failures and a database that is
//!   away do not count.
//! - No payload is in a log line, an error, a metric or a `Debug` of this crate.
//!   `tokio_postgres` logs parameters under its own name at the level `debug`:
//!   leave that off.
//! - Roles get what they need by `select walpost.inbox_grant(kind, role)`, where
//!   `kind` is `reader` (everything but payloads and their hashes), `receiver`, `processor`,
//!   `operator` or `pruner`.
//!
//! Nothing is kept in a session but by the connection that listens, so all else
//! works through a pooler that gives each transaction another session.
//!
//! Semver covers `tokio_postgres`, which is re-exported.

mod apply;
mod attempt;
mod builder;
mod claim;
mod database;
mod error;
mod event;
mod handler;
mod inbox;
mod insert;
mod manual;
mod metrics;
mod operator;
mod processor;
mod prune;
mod pruner;
mod report;
mod snapshot;
mod sql;
mod state;

pub use tokio_postgres;
/// From here it is `walpost_inbox::RetrySchedule`.
#[doc(inline)]
pub use walpost_event::RetrySchedule;
#[doc(inline)]
pub use walpost_prune::Pass;

pub use crate::{
    apply::{Applied, ApplyError},
    builder::{Builder, OnUnknown, Order},
    database::Database,
    error::Error,
    event::{Event, Head, JsonError, NewEvent},
    handler::{Handler, HandlerError},
    inbox::Inbox,
    insert::{Duplicate, Insert},
    manual::{Claim, ClaimTerms},
    operator::{Changed, Entry, Filter},
    processor::Processor,
    prune::{Prune, Pruned},
    pruner::Pruner,
    snapshot::{Backlog, Snapshot},
    state::{ParseStateError, State},
};
