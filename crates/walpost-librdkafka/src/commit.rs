use std::ptr;

use rdkafka::{
    TopicPartitionList,
    consumer::{Consumer, ConsumerContext},
    error::{KafkaError, KafkaResult},
};
use rdkafka_sys::{
    RDKafkaErrorCode, RDKafkaRespErr, rd_kafka_commit_queue, rd_kafka_queue_destroy,
    rd_kafka_queue_get_consumer,
};

/// Commits `offsets` asynchronously, and has the consumer's
/// [`commit_callback`](ConsumerContext::commit_callback) called with the
/// outcome by one of its next polls.
///
/// rust-rdkafka's own asynchronous commit never calls it: it sets no callback,
/// and librdkafka reports such commits nowhere else.
///
/// # Errors
/// If the commit cannot be handed to librdkafka.
pub fn commit_async<C: ConsumerContext>(
    consumer: &impl Consumer<C>,
    offsets: &TopicPartitionList,
) -> KafkaResult<()> {
    let client = consumer.client().native_ptr();
    // SAFETY: the client lives as long as `consumer` is borrowed.
    let queue = unsafe { rd_kafka_queue_get_consumer(client) };
    if queue.is_null() {
        return Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::UnknownGroup));
    }
    // SAFETY: client, list and queue are alive. The list is copied, and the
    // commit keeps a reference to the queue of its own.
    let error =
        unsafe { rd_kafka_commit_queue(client, offsets.ptr(), queue, None, ptr::null_mut()) };
    // SAFETY: the reference that was taken above, given back once.
    unsafe { rd_kafka_queue_destroy(queue) };
    match error {
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        error => Err(KafkaError::ConsumerCommit(error.into())),
    }
}
