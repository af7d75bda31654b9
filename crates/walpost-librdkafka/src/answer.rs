use rdkafka::error::RDKafkaErrorCode;
use rdkafka_sys as native;

use crate::{
    admin::{Event, Refusal, answered, check},
    array::array,
    topic_id::{TopicId, TopicIdError, descriptions},
};

/// What a question of [`Questions`](crate::Questions) brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A topic.
    Topic(Result<Topic, AnswerError>),
    /// An end of a log.
    Offset(Result<LogEnd, AnswerError>),
}

/// An end of a partition's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// Its offset.
    pub offset: i64,
    /// The epoch of the leader, of the newest end; `None` where brokers are older
    /// than Kafka 2.1.
    pub leader_epoch: Option<i32>,
}

/// A topic that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its id.
    pub id: TopicId,
    /// Numbers of its partitions.
    pub partitions: Vec<i32>,
}

/// Why a question has no better answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The cluster refused, or did not answer in time.
    #[error("{reason}")]
    Kafka {
        /// librdkafka's code.
        code: RDKafkaErrorCode,
        /// librdkafka's text, with what it was waiting for.
        reason: String,
    },
    /// The brokers are older than topic ids (Kafka 2.8).
    #[error("the brokers do not know topic ids, Kafka 2.8 or newer is needed")]
    NoTopicId,
}

impl AnswerError {
    fn of(code: RDKafkaErrorCode) -> Self {
        Refusal::from(code).into()
    }
}

impl From<Refusal> for AnswerError {
    fn from(Refusal { code, detail }: Refusal) -> Self {
        Self::Kafka { code, reason: detail }
    }
}

/// `None` for an event that answers nothing.
pub(crate) fn read(event: &Event) -> Option<Answer> {
    // SAFETY: the event is alive.
    match unsafe { native::rd_kafka_event_type(event.ptr()) } {
        native::RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT => Some(Answer::Topic(topic(event))),
        native::RD_KAFKA_EVENT_LISTOFFSETS_RESULT => Some(Answer::Offset(offset(event))),
        _ => None,
    }
}

fn topic(event: &Event) -> Result<Topic, AnswerError> {
    answered(event)?;
    let found = descriptions(event).map_err(of_topic)?;
    let description = found.first().ok_or(AnswerError::of(RDKafkaErrorCode::UnknownTopic))?;
    let id = description.id().map_err(of_topic)?;
    Ok(Topic { id, partitions: description.partitions() })
}

fn of_topic(error: TopicIdError) -> AnswerError {
    match error {
        TopicIdError::Kafka(code) => AnswerError::of(code),
        TopicIdError::NotSupported => AnswerError::NoTopicId,
        TopicIdError::Name | TopicIdError::TimedOut { .. } => {
            AnswerError::of(RDKafkaErrorCode::Fail)
        }
    }
}

fn offset(event: &Event) -> Result<LogEnd, AnswerError> {
    answered(event)?;
    // SAFETY: the event is alive; another type of event gives a null.
    let result = unsafe { native::rd_kafka_event_ListOffsets_result(event.ptr()) };
    let mut count = 0;
    let first = if result.is_null() {
        std::ptr::null_mut()
    } else {
        // SAFETY: the result lives as long as the event, `count` is written.
        unsafe { native::rd_kafka_ListOffsets_result_infos(result, &raw mut count) }
    };
    // SAFETY: `count` pointers lie at `first`, owned by the event.
    let infos = unsafe { array(first, count) };
    let info = *infos.first().ok_or(AnswerError::of(RDKafkaErrorCode::UnknownPartition))?;
    // SAFETY: the information is alive.
    let found = unsafe { native::rd_kafka_ListOffsetsResultInfo_topic_partition(info) };
    // SAFETY: a partition that the information owns.
    let found = unsafe { &*found };
    check(found.err).map_err(AnswerError::of)?;
    // Of a leader that did not answer there is neither an error nor an offset.
    if found.offset < 0 {
        return Err(AnswerError::of(RDKafkaErrorCode::LeaderNotAvailable));
    }
    // SAFETY: the partition is alive.
    let epoch = unsafe { native::rd_kafka_topic_partition_get_leader_epoch(found) };
    Ok(LogEnd { offset: found.offset, leader_epoch: (epoch >= 0).then_some(epoch) })
}
