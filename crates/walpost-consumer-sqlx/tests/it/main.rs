//! Handlers of sqlx against a real Kafka and a real PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod apply;
mod poison;
mod session;
mod support;
