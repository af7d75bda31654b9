//! One file for each command: its arguments, and what it does.

mod beside;
pub(crate) mod brokers;
mod cells;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod connector;
pub(crate) mod consumer;
#[cfg(feature = "contracts")]
pub(crate) mod contracts;
#[cfg(not(feature = "contracts"))]
#[path = "contracts_absent.rs"]
pub(crate) mod contracts;
pub(crate) mod demo;
pub(crate) mod demo_consumer;
pub(crate) mod grants;
mod held;
pub(crate) mod idempotency;
pub(crate) mod inbox;
mod instant;
mod kafka_sink;
pub(crate) mod migrate;
pub(crate) mod parked;
pub(crate) mod pipeline;
pub(crate) mod prune;
mod pruners;
pub(crate) mod replay;
pub(crate) mod requeue;
pub(crate) mod retention;
pub(crate) mod run;
pub(crate) mod senders;
pub(crate) mod serve;
pub(crate) mod shadow;
pub(crate) mod slot;
pub(crate) mod source;
pub(crate) mod sql;
pub(crate) mod status;
pub(crate) mod take_over;
pub(crate) mod webhook;
