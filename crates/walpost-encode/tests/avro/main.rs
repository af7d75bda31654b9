//! Values as Confluent's converter writes them, and a real schema registry.
//!
//! Needs Java 21, Maven, Python and pip.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod asking;
mod datum;
mod python;
mod registry;
mod schema;
