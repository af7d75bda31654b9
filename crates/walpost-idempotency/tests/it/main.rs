//! Idempotency keys on a real PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod call;
mod core;
mod cost;
mod expiry;
mod grants;
mod handler;
mod http;
mod kills;
mod lease;
mod leased;
mod load;
mod member;
mod outage;
mod pooled;
mod pruner;
mod session;
mod support;
mod twins;
