//! Contracts of events.
//!
//! A contract is a document, `<domain>/<event>.md`, that says what an event is,
//! whose it is, and what its payload looks like. [`Contracts::load`] reads a
//! folder of them (`document.rs` has the form, `folder.rs` the folder),
//! [`Contracts::breaks_since`] tells which changes would break those who read
//! the events (`schema.rs` compares), and [`Contracts::check_payload`] holds a
//! writer to them (`payload.rs`).
//!
//! ```
//! use walpost_contracts::Contracts;
//!
//! # let folder = tempfile::tempdir()?;
//! # std::fs::create_dir(folder.path().join("shop"))?;
//! # std::fs::write(folder.path().join("shop/order-placed.md"), walpost_contracts::EXAMPLE)?;
//! let contracts = Contracts::load(folder.path())?;
//! contracts.check_payload("OrderPlaced", br#"{"order_id": 42}"#)?;
//! let refused = contracts.check_payload("OrderPlaced", br#"{"order_id": "a"}"#);
//! assert!(refused.is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compatibility;
mod contract;
mod document;
mod error;
mod folder;
mod json;
mod payload;
mod schema;

pub use self::{
    compatibility::{Break, Compatibility},
    contract::Contract,
    error::{DocumentError, Error, PayloadError},
    folder::Contracts,
};

/// A whole contract, as a document has it.
pub const EXAMPLE: &str = include_str!("example.md");
