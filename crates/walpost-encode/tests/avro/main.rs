//! Values as Confluent's converter writes them, and a real schema registry.
//!
//! Needs Java 21 and Maven.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod asking;
mod datum;
mod registry;
mod schema;
