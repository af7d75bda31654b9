//! A subscription at a billing provider, which takes requests more than once and
//! tells what came of them by webhooks: nothing there that we do not know of, and
//! nothing twice.
//!
//! - `route.rs` validates a request and enqueues it; nobody is called.
//! - `requests.rs` carries what is enqueued to the provider.
//! - `news.rs` is what the provider tells, by webhook or when it is asked:
//!   `inbox.rs` has it from its webhooks, `reconcile.rs` asks.
//! - `state.rs` says what news change: pure. `table.rs` is the rows.
//! - `outside/`, `customers.rs` and `report.rs` are there to look on.

mod customers;
mod failpoint;
mod inbox;
mod news;
mod outside;
mod parts;
mod reconcile;
mod report;
mod requests;
mod route;
mod settings;
mod state;
mod table;

pub use stand::Failed;

#[cfg(feature = "failpoints")]
#[doc(hidden)]
pub use crate::failpoint::failpoints;
pub use crate::parts::run;

use crate::settings::Settings;
