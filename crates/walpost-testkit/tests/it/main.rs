//! Uses the real services.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod proxy;
mod services;
