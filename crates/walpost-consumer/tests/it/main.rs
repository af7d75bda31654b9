//! The consumer against a real Kafka and a real PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod apply;
mod embedded;
mod fault;
mod fence;
mod group;
mod member;
mod poison;
mod reset;
mod setup;
mod support;
