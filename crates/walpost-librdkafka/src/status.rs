use rdkafka::message::BorrowedMessage;
use rdkafka_sys::{rd_kafka_message_status, rd_kafka_msg_status_t as Status};

/// Whether a message of a delivery report may be in the log, although its
/// delivery failed: it was sent at least once, and what the broker did is not
/// known.
///
/// One that is taken out of the queue by a purge may have been sent before.
pub fn may_have_landed(message: &BorrowedMessage<'_>) -> bool {
    // SAFETY: the pointer of a `BorrowedMessage` is valid while it lives.
    let status = unsafe { rd_kafka_message_status(message.ptr()) };
    status != Status::RD_KAFKA_MSG_STATUS_NOT_PERSISTED
}
