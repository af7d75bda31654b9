//! Debezium and Kafka Connect themselves as the oracle: the same values, rows
//! and payloads, compared byte for byte.
//!
//! Needs Java 19 or newer with a compiler, Maven and PostgreSQL.

pub(crate) mod ask;
mod catalog;
mod columns;
mod converters;
mod expansion;
mod literals;
mod messages;
pub(crate) mod notation;
pub(crate) mod random;
