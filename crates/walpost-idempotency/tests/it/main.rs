//! Idempotency keys on a real PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod core;
mod expiry;
mod grants;
mod lease;
mod support;
