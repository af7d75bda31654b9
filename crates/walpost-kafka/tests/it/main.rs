//! The sink against real brokers.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod limits;
mod order;
mod rig;
mod topics;
