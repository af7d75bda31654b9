//! A few cases of `cargo xtask debezium`.

#![allow(clippy::unwrap_used, reason = "a test that fails")]
