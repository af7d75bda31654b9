//! A shop with an outbox, and the programs that move its events: what the
//! whole-chain tests share.
//!
//! Everything panics with what it tried when it cannot do its work.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod binary;
mod shop;
mod writer;

pub use crate::{
    binary::walpost_binary,
    shop::{Effect, LIMIT, Shop},
    writer::Writer,
};
