//! What rust-rdkafka leaves out of librdkafka, and nothing else: the ids of
//! topics, the metadata of committed offsets and the headers of messages as
//! bytes, the outcome of asynchronous commits, and leader epochs.
//!
//! The only crate of Walpost with `unsafe` code.

mod commit;
mod committed;
mod headers;
mod topic_id;

pub use crate::{
    commit::commit_async,
    committed::{Committed, committed, message_leader_epoch},
    headers::{MessageHeaders, message_headers},
    topic_id::{TopicId, TopicIdError, topic_ids},
};
