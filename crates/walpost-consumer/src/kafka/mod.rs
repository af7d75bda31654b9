//! Everything that touches librdkafka but dead letters: one OS thread owns the
//! client, and the rest of the consumer talks to it by [`Kafka`].

mod asking;
mod client;
mod command;
mod commits;
mod config;
mod context;
mod fatal;
mod fetch;
mod kept;
mod position;
mod reach;
mod read;
mod signal;
mod thread;

#[cfg(feature = "redis")]
pub(crate) use self::config::admin_config;
pub(crate) use self::{
    client::{Kafka, start},
    command::{AssignmentId, FoundTopic, GroupEvent, KafkaFailure, Place, TopicIdentity},
    config::{heartbeat_interval_ms, producer_config},
    kept::kept,
    signal::Signal,
};
