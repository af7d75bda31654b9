//! Walpost's sink over Apache Kafka.
//!
//! A [`KafkaConnector`] opens a [`KafkaSink`] for each session of a pipeline.
//! Records land in the partition that Java's default partitioner would choose,
//! durable on all in-sync replicas, in commit order per key: a batch that the
//! broker refuses ends the producer, so that nothing behind it can land.
//!
//! `sink` glues together what each decides one thing: `topics` and `topic`
//! where a record goes and whether it may, `lane` whether it may go now,
//! `queue` whether there is room, `gather` whether it waits for others, `apart` whether it goes by itself, `batch`
//! what was too large, `rules` what a topic does not take. `read_back`, `appended`, `spans` and `nudge` read what a
//! predecessor has published, `tail` what others publish. `producer`, `questions`,
//! `transactor` and `brokers` are the threads and what they ask; `deliveries` is
//! what comes back, and `reach` when to tell that no broker answers. When a
//! transaction is over is said by the relay's `Transaction`.

mod apart;
mod appended;
mod batch;
mod brokers;
mod classify;
mod config;
mod creation;
mod deliveries;
mod gather;
mod lane;
mod log;
mod nudge;
mod partition;
mod producer;
mod questions;
mod queue;
mod reach;
mod read_back;
mod rules;
mod settings;
mod sink;
mod spans;
mod tail;
mod topic;
mod topics;
mod transactor;

pub use crate::{
    config::KafkaConnector,
    creation::TopicSettings,
    partition::{murmur2, partition_for_key},
    settings::ConfigError,
    sink::KafkaSink,
    tail::{Tail, TailRecord},
    topic::colliding_topics,
};
