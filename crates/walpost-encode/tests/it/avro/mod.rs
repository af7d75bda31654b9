//! Values as Confluent's converter writes them, and a real schema registry.
//!
//! Needs Java 21, Maven, Python and pip.

mod asking;
mod datum;
mod python;
mod registry;
mod schema;
