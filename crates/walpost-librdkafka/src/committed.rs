use std::{slice, time::Duration};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{Consumer, ConsumerContext},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    message::BorrowedMessage,
};
use rdkafka_sys::{
    RDKafkaRespErr, RDKafkaTopicPartition, rd_kafka_message_leader_epoch,
    rd_kafka_topic_partition_get_leader_epoch,
};

/// What the broker holds for a group in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Topic name.
    pub topic: String,
    /// Partition number.
    pub partition: i32,
    /// The offset, `None` where the group has none.
    pub offset: Option<i64>,
    /// Metadata as it was committed; empty for none. Any bytes: a tool of
    /// another language may have written them.
    pub metadata: Vec<u8>,
    /// Leader epoch that was committed with the offset.
    pub leader_epoch: Option<i32>,
}

/// Asks the group's coordinator for the offsets of `partitions`, in the order
/// in which they are given.
///
/// Unlike rust-rdkafka's accessor, metadata that is no UTF-8 is no panic.
///
/// # Errors
/// If the coordinator does not answer within `timeout`, or for one partition, if
/// it answers with an error for that.
pub fn committed<C: ConsumerContext>(
    consumer: &impl Consumer<C>,
    partitions: &[(&str, i32)],
    timeout: Duration,
) -> KafkaResult<Vec<KafkaResult<Committed>>> {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for (topic, partition) in partitions {
        list.add_partition(topic, *partition);
    }
    let list = consumer.committed_offsets(list, timeout)?;
    let find = |(topic, partition): &(&str, i32)| {
        elements(&list)
            .iter()
            .zip(list.elements())
            .find(|(_, element)| element.topic() == *topic && element.partition() == *partition)
            .map(|(raw, _)| read(raw, topic))
            .ok_or(KafkaError::OffsetFetch(RDKafkaErrorCode::UnknownPartition))?
    };
    Ok(partitions.iter().map(find).collect())
}

/// Leader epoch of the partition when `message` was fetched, `None` where the
/// broker did not say.
pub fn message_leader_epoch(message: &BorrowedMessage<'_>) -> Option<i32> {
    // SAFETY: the pointer of a `BorrowedMessage` is valid while it lives, and
    // rust-rdkafka only makes one from a message without an error.
    let epoch = unsafe { rd_kafka_message_leader_epoch(message.ptr()) };
    (epoch >= 0).then_some(epoch)
}

pub(crate) fn read(raw: &RDKafkaTopicPartition, topic: &str) -> KafkaResult<Committed> {
    if raw.err != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Err(KafkaError::OffsetFetch(raw.err.into()));
    }
    // SAFETY: `raw` is an element of a list that librdkafka allocated, which
    // the caller borrows.
    let epoch = unsafe { rd_kafka_topic_partition_get_leader_epoch(raw) };
    Ok(Committed {
        topic: topic.to_owned(),
        partition: raw.partition,
        offset: match Offset::from_raw(raw.offset) {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        },
        metadata: metadata(raw).to_vec(),
        leader_epoch: (epoch >= 0).then_some(epoch),
    })
}

fn elements(list: &TopicPartitionList) -> &[RDKafkaTopicPartition] {
    if list.count() == 0 {
        return &[];
    }
    // SAFETY: `ptr` is the list itself, valid as long as `list`.
    let native = unsafe { &*list.ptr() };
    // SAFETY: librdkafka keeps `cnt` initialised elements at `elems`, and
    // nothing changes them while `list` is borrowed.
    unsafe { slice::from_raw_parts(native.elems, list.count()) }
}

fn metadata(raw: &RDKafkaTopicPartition) -> &[u8] {
    if raw.metadata.is_null() || raw.metadata_size == 0 {
        return &[];
    }
    // SAFETY: librdkafka keeps `metadata_size` bytes at `metadata`, owned by
    // the element.
    unsafe { slice::from_raw_parts(raw.metadata.cast(), raw.metadata_size) }
}
