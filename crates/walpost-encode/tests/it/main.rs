//! Records to bytes. Vectors are those that Kafka Connect's real converters
//! gave.

mod fixture;
mod headers;
mod json;
mod properties;
mod raw;
mod typed;
