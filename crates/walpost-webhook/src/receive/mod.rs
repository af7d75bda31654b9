//! Webhooks received: verified, taken once, and applied once.
//!
//! A [`Receiver`] is an axum router with a path for each [`Source`]. What comes
//! there is verified over its bytes, and inserted once into the table of
//! [`walpost_inbox`]. In the mode *inline* a handler applies it in the same
//! transaction, before the answer; in the mode *inbox* a
//! [`Processor`](walpost_inbox::Processor) does, behind it. The handler is the
//! same.
//!
//! ```
//! use axum::Router;
//! use walpost_inbox::{
//!     Database, Event, Handler, HandlerError, Head, tokio_postgres::Transaction,
//! };
//! use walpost_webhook::receive::{Receiver, Source};
//!
//! struct Logistics;
//!
//! impl Handler for Logistics {
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
//!         let id = event.head().event_id();
//!         tx.execute("insert into shipment (invoice_event) values ($1)", &[&id]).await?;
//!         // walpost_outbox::write(tx, …) writes an event of one's own here.
//!         Ok(())
//!     }
//! }
//!
//! let key = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD".parse()?;
//! let receiver = Receiver::builder(Database::config("host=localhost user=app".parse()?))
//!     .inline("/webhooks/finance", Source::standard("finance", [key]), Logistics)
//!     .inbox("/webhooks/github", Source::github("github", ["It's a Secret to Everybody"]))
//!     .build()?;
//! let app: Router = Router::new().merge(receiver.router());
//! // axum::serve(listener, app), and behind its end receiver.drained().
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - 200 says that the event is stored, and in the mode inline that its effect is
//!   committed with it. A copy gets `"already_processed":true`, and beside it
//!   `processing_state` where it is not done.
//! - 4xx says that the sender is at fault; 503 with `Retry-After` that the store is
//!   away or the time is over; 500 that the handler failed, and nothing is stored.
//! - Twins at the same time: the second one waits for the transaction of the first,
//!   within the time in which it is answered.
//! - A handler that gives an event up leaves it in the inbox as given up, as with a
//!   processor; sent again, it would fail again.
//! - A sender that goes away changes nothing: what was begun is ended.
//! - No body, signature or secret is in a log line, an answer or a metric.
//!
//! The role of the database needs what `inbox_grant` calls `receiver`, and in the
//! mode inline `processor` as well. How long a request's head may take, and how
//! many connections there may be, is the server's business.

mod body;
mod connections;
mod metrics;
mod place;
mod problem;
mod receiver;
mod serve;
mod source;
mod store;

pub use self::{
    place::Place,
    receiver::{Builder, Receiver, SettingError},
    source::{OnChanged, Source},
};
