use std::{ffi::CString, time::Duration};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{Consumer, ConsumerContext},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
};
use rdkafka_sys as native;

/// Beyond every log.
const BEYOND: i64 = i64::MAX / 2;

/// Moves assigned partitions, each with the epoch of its leader, behind what
/// their leaders have appended so far, also what is not replicated yet, which no
/// consumer may see. The end of a partition (`enable.partition.eof`), or a
/// record, then comes when all of that can be read.
///
/// An offset that is given with an epoch is compared with the end of that
/// epoch's log before anything is fetched, and an offset beyond it is moved back
/// there (KIP-320). The end of the current leader's epoch is that of its log and
/// not that of what is replicated. Where the brokers do not compare, or the epoch
/// is gone, the end of what is replicated takes its place. The consumer needs an
/// `auto.offset.reset` other than `error`.
///
/// # Errors
/// If a name contains a NUL, a partition is not assigned, or the seek is not
/// taken within `limit`.
pub fn seek_behind_appended<C: ConsumerContext>(
    consumer: &impl Consumer<C>,
    partitions: &[(&str, i32, i32)],
    limit: Duration,
) -> KafkaResult<()> {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for (topic, partition, epoch) in partitions {
        list.add_partition_offset(topic, *partition, Offset::Offset(BEYOND))?;
        let name = CString::new(*topic)?;
        // SAFETY: the list and the name are alive.
        let element = unsafe {
            native::rd_kafka_topic_partition_list_find(list.ptr(), name.as_ptr(), *partition)
        };
        assert!(!element.is_null(), "what was added to a list is found in it");
        // SAFETY: an element of the list, which nothing else borrows.
        unsafe { native::rd_kafka_topic_partition_set_leader_epoch(element, *epoch) };
    }
    let sought = consumer.seek_partitions(list, limit)?;
    for element in sought.elements() {
        if let Err(error) = element.error() {
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
            return Err(KafkaError::Seek(code.to_string()));
        }
    }
    Ok(())
}
