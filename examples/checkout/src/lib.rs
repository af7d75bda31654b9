//! A checkout that charges a card and makes a shipment, each at most once,
//! whoever dies, retries or does not answer in between.
//!
//! - `checkout.rs` says what is to be done next: pure.
//! - `advance.rs` does it, step by step, for a request's run and for the sweeper.
//! - `table.rs` is the row, its steps, and the event of a refund.
//! - `route.rs` is `POST /checkouts`; `others.rs` asks the provider and the
//!   warehouse.
//! - `sweeper.rs` ends what nobody comes back for, `refunds.rs` carries refunds.
//! - `outside/`, `customers.rs` and `report.rs` are there to look on.

mod advance;
mod checkout;
mod customers;
mod failpoint;
mod others;
mod outside;
mod parts;
mod refunds;
mod report;
mod route;
mod settings;
mod sweeper;
mod table;

pub use stand::Failed;

#[cfg(feature = "failpoints")]
#[doc(hidden)]
pub use crate::failpoint::failpoints;
pub use crate::parts::run;

use crate::settings::Settings;
