//! Starts the real programs.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod guard;
mod kafka;
mod postgres;
mod redis;
mod registry;
