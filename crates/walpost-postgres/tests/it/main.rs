//! Connections to real servers, with certificates made for each test.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod replication;
mod server;
mod shown;
mod silent;
mod tls;
