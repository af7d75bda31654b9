use std::sync::Arc;

use rdkafka::{
    error::{KafkaError, RDKafkaErrorCode},
    message::{BorrowedMessage, Message},
};
use walpost_librdkafka::{message_headers, message_leader_epoch};

use crate::{
    Event,
    inbox::{FetchFailure, Fetched},
};

/// What a partition's queue gave, as an event of ours.
pub(super) fn fetched(
    topic: &Arc<str>,
    polled: Option<Result<BorrowedMessage<'_>, KafkaError>>,
) -> Fetched {
    match polled {
        None => Fetched::Nothing,
        Some(Ok(message)) => Fetched::Event(event(topic, &message)),
        Some(Err(KafkaError::PartitionEOF(_))) => Fetched::End,
        Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset))) => {
            Fetched::Failed(FetchFailure::OutOfRange)
        }
        Some(Err(error)) => Fetched::Failed(FetchFailure::Lost(error.to_string())),
    }
}

fn event(topic: &Arc<str>, message: &BorrowedMessage<'_>) -> Event {
    let headers = || message_headers(message);
    let header_bytes: usize =
        headers().map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len)).sum();
    let mut builder = Event::builder(Arc::clone(topic))
        .position(message.partition(), message.offset())
        .leader_epoch(message_leader_epoch(message))
        .timestamp_ms(message.timestamp().to_millis());
    builder.reserve(message.key_len() + message.payload_len() + header_bytes);
    builder = builder.key(message.key()).value(message.payload());
    for (name, value) in headers() {
        builder = builder.header(&String::from_utf8_lossy(name), value);
    }
    builder.build()
}
