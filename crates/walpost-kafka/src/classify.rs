use rdkafka::{error::KafkaError, types::RDKafkaErrorCode};
use walpost_relay::DeliveryErrorKind;

/// What a delivery error says about its message. The one place that reads
/// librdkafka's codes.
pub(crate) fn classify(error: &KafkaError) -> DeliveryErrorKind {
    use RDKafkaErrorCode as Code;
    match error.rdkafka_error_code() {
        // Told of each message of a batch, also where one of them is the reason:
        // the relay sends them alone to find it.
        Some(Code::InvalidMessage | Code::InvalidRecord | Code::InvalidTimestamp) => {
            DeliveryErrorKind::Rejected
        }
        // A batch may be too large while none of its messages is: the sink
        // makes smaller ones and tries again.
        Some(
            Code::MessageSizeTooLarge
            | Code::InvalidMessageSize
            | Code::MessageBatchTooLarge
            | Code::PurgeQueue
            | Code::InvalidDifferentRecord,
        ) => DeliveryErrorKind::NotSent,
        Some(
            Code::TopicAuthorizationFailed | Code::UnknownTopicOrPartition | Code::UnknownTopic,
        ) => DeliveryErrorKind::Unavailable,
        Some(
            Code::ClusterAuthorizationFailed
            | Code::UnknownPartition
            | Code::PolicyViolation
            | Code::InvalidTopic
            | Code::InvalidRequiredAcks
            | Code::ProducerFenced
            | Code::Fenced,
        ) => DeliveryErrorKind::Refused,
        _ => DeliveryErrorKind::Unknown,
    }
}

/// What a delivery error is told as: with what to do where its own text names a
/// cause that nobody would look for.
pub(crate) fn detail(error: &KafkaError) -> String {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::InvalidTimestamp) => format!(
            "{error}; the record's time is too far from the broker's: raise \
             message.timestamp.after.max.ms or message.timestamp.before.max.ms of the topic, or \
             take another column for router.event_timestamp"
        ),
        _ => error.to_string(),
    }
}

/// Whether the batch, not a message, was too large.
pub(crate) fn is_batch_too_large(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::MessageBatchTooLarge)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: RDKafkaErrorCode) -> DeliveryErrorKind {
        classify(&KafkaError::MessageProduction(code))
    }

    #[test]
    fn only_a_record_that_is_invalid_itself_is_rejected() {
        assert_eq!(kind(RDKafkaErrorCode::InvalidRecord), DeliveryErrorKind::Rejected);
        assert_eq!(kind(RDKafkaErrorCode::InvalidDifferentRecord), DeliveryErrorKind::NotSent);
        assert_eq!(kind(RDKafkaErrorCode::MessageSizeTooLarge), DeliveryErrorKind::NotSent);
    }

    #[test]
    fn what_is_said_of_one_topic_is_not_said_of_all() {
        for code in [RDKafkaErrorCode::TopicAuthorizationFailed, RDKafkaErrorCode::UnknownTopic] {
            assert_eq!(kind(code), DeliveryErrorKind::Unavailable, "{code:?}");
        }
        let of_all = RDKafkaErrorCode::ClusterAuthorizationFailed;
        assert_eq!(kind(of_all), DeliveryErrorKind::Refused);
    }

    #[test]
    fn what_may_have_landed_is_unknown() {
        for code in [
            RDKafkaErrorCode::PurgeInflight,
            RDKafkaErrorCode::GaplessGuarantee,
            RDKafkaErrorCode::Fatal,
            RDKafkaErrorCode::RequestTimedOut,
            RDKafkaErrorCode::NotEnoughReplicasAfterAppend,
        ] {
            assert_eq!(kind(code), DeliveryErrorKind::Unknown, "{code:?}");
        }
    }
}
