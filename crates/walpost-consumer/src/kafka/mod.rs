//! Everything that touches librdkafka but dead letters: one OS thread owns the
//! client, and the rest of the consumer talks to it by [`Kafka`].

mod asking;
mod assignments;
mod client;
mod command;
mod commits;
mod config;
mod context;
mod fatal;
mod fetch;
mod group_offsets;
mod instance;
mod kept;
#[cfg(feature = "test-kit")]
mod memory;
mod position;
mod reach;
mod read;
mod signal;
mod thread;

#[cfg(feature = "redis")]
pub(crate) use self::kept::all_kept;
#[cfg(feature = "test-kit")]
pub use self::memory::Cluster;
#[cfg(feature = "test-kit")]
pub(crate) use self::memory::start_in_memory;
pub(crate) use self::{
    client::{Kafka, Started, start},
    command::{AssignmentId, FoundTopic, GroupEvent, KafkaFailure, Place, TopicIdentity},
    config::{heartbeat_interval_ms, producer_config},
    kept::kept,
    signal::Signal,
};
