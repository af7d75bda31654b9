//! Records to bytes. Vectors are those that Kafka Connect's real converters
//! gave.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod avro;
mod confluent;
mod fixture;
mod headers;
mod json;
mod oracle;
mod properties;
mod raw;
mod typed;
