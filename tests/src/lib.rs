//! A shop with an outbox, and the programs that move its events: what the
//! whole-chain tests share.
//!
//! Everything panics with what it tried when it cannot do its work.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod binary;
pub mod chaos;
mod connect_worker;
pub mod differential;
mod http;
mod receiver;
mod shop;
mod writer;
mod zombie;

use walpost_testkit::{Seeded, until_some};

pub use crate::{
    binary::{release_binary, test_consumer_binary, test_receiver_binary, walpost_binary},
    connect_worker::ConnectWorker,
    http::{http_ask, http_get},
    receiver::Receiver,
    shop::{Effect, LIMIT, POLLED_COLUMNS, SETTLES, Shop},
    writer::Writer,
    zombie::{STOPS_AFTER_COMMIT, wake_beside_successor},
};

/// Waits until a count is as high as this, however long that takes while it rises.
pub async fn rises_to(target: i64, what: &str, mut count: impl AsyncFnMut() -> i64) {
    let mut last = count().await;
    while last < target {
        let more = format!("{target} {what}, of which there are {last}");
        let risen = async || Some(count().await).filter(|now| *now > last);
        last = until_some(LIMIT, &more, risen).await;
    }
}

/// Of everything random in a test: `WALPOST_TEST_SEED`, or another one each time;
/// it is printed.
pub fn seeded() -> Seeded {
    let seed = std::env::var("WALPOST_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(u64::from(std::process::id()));
    println!("WALPOST_TEST_SEED={seed}");
    Seeded::new(seed)
}
