//! What is read by hand, against the broker inside librdkafka and a real one.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod group;
mod mock;
mod producer;
mod real;
mod support;
