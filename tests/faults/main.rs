//! Programs killed and paused at the worst moments.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod chaos;
mod consumers;
mod kills;
mod late;
mod lost_slots;
mod pollers;
mod shards;
mod switches;
mod zombie_relays;
mod zombies;

/// The consumer under test.
const CONSUMER: &str = env!("CARGO_BIN_EXE_walpost-test-consumer");
