//! A shop with an outbox, and the programs that move its events: what the
//! whole-chain tests share.
//!
//! Everything panics with what it tried when it cannot do its work.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod binary;
pub mod chaos;
mod receiver;
mod shop;
mod writer;
mod zombie;

pub use crate::{
    binary::{release_binary, test_consumer_binary, test_receiver_binary, walpost_binary},
    receiver::Receiver,
    shop::{Effect, LIMIT, Shop},
    writer::Writer,
    zombie::{STOPS_AFTER_COMMIT, wake_beside_successor},
};
