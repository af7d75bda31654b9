//! What rust-rdkafka leaves out of librdkafka, and nothing else: the ids,
//! partitions, settings and making of topics, the metadata of committed offsets and the
//! headers of messages as bytes, what became of messages and asynchronous
//! commits, questions that do not block, the members of a group, leader epochs, which
//! errors end a reading, where a log ended, which brokers to believe, and what to do
//! where brokers let nobody in.
//!
//! The only crate of Walpost with `unsafe` code.

mod access;
mod admin;
mod answer;
mod appended;
mod array;
mod census;
mod commit;
mod committed;
mod group;
mod headers;
mod kept;
mod new_topic;
mod owned;
mod partition_log;
mod questions;
mod reading;
mod refused;
mod status;
mod topic_id;
mod topics;

pub use crate::{
    access::NoAccess,
    answer::{Answer, AnswerError, LogEnd, Topic},
    appended::seek_behind_appended,
    census::{Census, Existence, census, existence},
    commit::commit_async,
    committed::{Committed, committed, message_leader_epoch},
    group::{Group, GroupMember, GroupState, group, member_metadata},
    headers::{MessageHeaders, message_headers},
    kept::{Kept, KeptError, topics_kept},
    new_topic::{NewTopic, NotCreated, create_topic},
    partition_log::{LogRecord, PartitionLog, Read},
    questions::{End, Questions},
    reading::ends_reading,
    refused::without_value,
    status::may_have_landed,
    topic_id::{TopicId, TopicIdError, topic_ids},
    topics::{SettingValues, TopicsInUse, topic_settings, topics_in_use, topics_settings},
};
