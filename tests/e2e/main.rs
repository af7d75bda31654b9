//! The whole chain on real PostgreSQL and Kafka.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod atomicity;
mod bad_input;
mod big_transaction;
mod dead_letters;
mod examples;
mod identity;
mod records;
mod replay;
mod topics;

/// The consumer under test.
const CONSUMER: &str = env!("CARGO_BIN_EXE_walpost-test-consumer");
