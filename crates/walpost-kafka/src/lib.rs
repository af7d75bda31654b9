//! Walpost's sink over Apache Kafka.
//!
//! A [`KafkaConnector`] opens a [`KafkaSink`] for each session of a pipeline.
//! Records land in the partition that Java's default partitioner would choose,
//! durable on all in-sync replicas, in commit order per key: a batch that the
//! broker refuses ends the producer, so that nothing behind it can land.

mod classify;
mod config;
mod deliveries;
mod partition;
mod sink;
mod topic;

pub use crate::{
    config::{ConfigError, KafkaConnector},
    partition::{murmur2, partition_for_key},
    sink::KafkaSink,
};
