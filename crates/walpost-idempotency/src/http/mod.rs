//! The core as a tower layer for axum, with extractors.
//!
//! ```no_run
//! use axum::{Router, http::StatusCode, routing::post};
//! use walpost_idempotency::{
//!     Policy,
//!     http::{Database, IdempotencyLayer, Tx, TxError},
//! };
//!
//! /// The order, and the answer, commit together: once for each key.
//! async fn place_order(tx: Tx, body: String) -> Result<(StatusCode, String), TxError> {
//!     let id: i64 = tx
//!         .run(|tx| {
//!             Box::pin(async move {
//!                 let sql = "insert into orders (body) values ($1) returning id";
//!                 let id = tx.query_one(sql, &[&body]).await?.get(0);
//!                 // walpost_outbox::write(tx, …) writes the event here.
//!                 Ok::<_, TxError>(id)
//!             })
//!         })
//!         .await?;
//!     Ok((StatusCode::CREATED, id.to_string()))
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let database = Database::config("host=localhost user=app dbname=shop".parse()?);
//! let layer = IdempotencyLayer::new(database, Policy::new("POST /orders"), |request| {
//!     // Whoever the authentication before this layer has found.
//!     request.extensions.get::<String>().cloned()
//! })?;
//! let router: Router = Router::new().route("/orders", post(place_order).layer(layer));
//! # Ok(())
//! # }
//! ```
//!
//! Order of layers: authentication outside of this one, which asks for the
//! principal; compression and tracing outside as well.
//!
//! - A client that goes away changes nothing: what was begun is ended, and its
//!   response stored. [`IdempotencyLayer::drained`] waits for that at a shutdown.
//! - A handler that panics, takes too long, or whose response has no end is
//!   rolled back, and its key is free.
//! - Writes of a response that is an error, 4xx or 5xx, are undone, also where the
//!   response is stored.
//! - A handler runs in a task of its own, within the span of the request;
//!   task-locals are not there.

mod database;
mod extract;
mod handling;
mod layer;
mod leased;
mod metrics;
mod queue;
mod request;
mod respond;
mod transactional;
mod tx_error;

pub use self::{
    database::Database,
    extract::{Run, Tx},
    layer::{IdempotencyLayer, Idempotent},
    tx_error::TxError,
};
