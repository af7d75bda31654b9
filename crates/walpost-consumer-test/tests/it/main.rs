//! The test kit against handlers that are right and such that are not.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod faults;
mod limits;
mod outcomes;
mod redis;
mod repeated;
mod sqlx;
mod support;
mod ways;
