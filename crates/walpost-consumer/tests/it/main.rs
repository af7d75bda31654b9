//! The consumer against a real Kafka and a real PostgreSQL.

mod apply;
mod support;
