//! The interface over HTTP, on a table of a real PostgreSQL, with connectors that
//! are told what becomes of them.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod errors;
mod leading;
mod life;
mod secrets;
mod support;
