//! The sink against real brokers.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod creation;
mod cut_off;
mod faults;
mod gather;
mod isolation;
mod limits;
mod lost_log;
#[cfg(feature = "oidc")]
mod oidc;
mod order;
mod read_back;
mod replicas;
mod rig;
mod security;
mod tail;
mod topics;
mod transactions;
