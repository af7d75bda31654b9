use std::sync::Arc;

use tokio::sync::oneshot;
use walpost_librdkafka::Committed;

use crate::{Error, TopicPartition, inbox::Inbox};

/// One assignment of one partition to this member. A partition that is taken
/// away and given back has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AssignmentId(pub(super) u64);

/// What the group did.
#[derive(Debug)]
pub(crate) enum GroupEvent {
    /// Partitions are ours. Nothing is fetched until it is asked for.
    Assigned(Vec<(TopicPartition, AssignmentId)>),
    /// Partitions are taken away, once [`Kafka::release`](super::Kafka::release)
    /// has been called. `lost`: the group has given them to others already.
    Revoked { partitions: Vec<(TopicPartition, AssignmentId)>, lost: bool },
    /// The client cannot go on.
    Fatal(Error),
}

/// Which topic a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicIdentity {
    pub(crate) cluster_id: String,
    pub(crate) topic_id: String,
}

/// A topic with the numbers of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundTopic {
    pub(crate) identity: TopicIdentity,
    pub(crate) partitions: Vec<i32>,
}

/// Where to fetch from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first offset that is wanted.
    pub(crate) offset: i64,
    /// Leader epoch of the record before it, where that is to be looked at
    /// first: whether it is still the same record.
    pub(crate) leader_epoch_before: Option<i32>,
}

/// Why Kafka's thread did not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KafkaFailure {
    #[error("the partition is no longer assigned to this member")]
    NotAssigned,
    #[error("topic {0} does not exist in the cluster; create it, or correct the name")]
    UnknownTopic(Arc<str>),
    #[error("{attempted}: {problem}")]
    Other { attempted: &'static str, problem: String },
    #[error("the Kafka client is closed")]
    Closed,
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, KafkaFailure>>;

/// What Kafka's thread is asked to do.
#[derive(Debug)]
pub(super) enum Command {
    Ask(Question),
    Start(Start),
    Stop {
        partition: TopicPartition,
        assignment: AssignmentId,
        reply: Reply<()>,
    },
    Commit(Commit),
    /// A commit of the partition that waits for the interval waits no longer.
    Hurry(TopicPartition),
    Release {
        partitions: Vec<(TopicPartition, AssignmentId)>,
        reply: Reply<()>,
    },
    Close {
        reply: Reply<()>,
    },
}

/// What only the cluster knows. `uncommitted`: with transactions that are still
/// open, also where those are not read.
#[derive(Debug)]
pub(super) enum Question {
    Topic { topic: Arc<str>, reply: Reply<FoundTopic> },
    Committed { partition: TopicPartition, reply: Reply<Committed> },
    Watermarks { partition: TopicPartition, uncommitted: bool, reply: Reply<(i64, i64)> },
}

impl Question {
    /// Whether somebody still waits for the answer.
    pub(super) fn is_wanted(&self) -> bool {
        match self {
            Self::Topic { reply, .. } => !reply.is_closed(),
            Self::Committed { reply, .. } => !reply.is_closed(),
            Self::Watermarks { reply, .. } => !reply.is_closed(),
        }
    }
}

/// Fetches a partition from `place` into `inbox`.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) partition: TopicPartition,
    pub(super) assignment: AssignmentId,
    pub(super) place: Place,
    pub(super) inbox: Arc<Inbox>,
    pub(super) reply: Reply<()>,
}

/// Commits an offset with its marker.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) partition: TopicPartition,
    pub(super) assignment: AssignmentId,
    pub(super) offset: i64,
    pub(super) marker: String,
    /// Do not wait for the interval.
    pub(super) urgent: bool,
    pub(super) reply: Reply<()>,
}
