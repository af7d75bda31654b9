use rdkafka::{error::KafkaError, types::RDKafkaErrorCode as Code};

/// Whether a reading ends at an error that a poll has brought: by a right that is
/// missing, a record that cannot be read, or an offset that is not there.
///
/// rust-rdkafka returns every event of the client as such an error, also of one host of
/// `bootstrap.servers` that is away. librdkafka tries those again by itself; some are
/// about the group, which a reading of given partitions asks nothing of. They may come
/// as fast as they are polled for, and for ever: whoever reads on has a time limit.
///
/// ```
/// use rdkafka::{error::KafkaError, types::RDKafkaErrorCode as Code};
/// use walpost_librdkafka::ends_reading;
///
/// assert!(!ends_reading(&KafkaError::MessageConsumption(Code::BrokerTransportFailure)));
/// assert!(ends_reading(&KafkaError::MessageConsumption(Code::TopicAuthorizationFailed)));
/// ```
#[must_use]
pub fn ends_reading(error: &KafkaError) -> bool {
    let passes = match error {
        KafkaError::PartitionEOF(_) => true,
        KafkaError::MessageConsumption(code) => matches!(
            code,
            Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::OperationTimedOut
                | Code::Resolve
                // Another broker may let it in.
                | Code::SSL
                | Code::Authentication
                // One that has just started may know fewer topics.
                | Code::UnknownTopic
                | Code::UnknownPartition
                | Code::UnknownTopicOrPartition
                | Code::LeaderNotAvailable
                | Code::GroupAuthorizationFailed
                | Code::CoordinatorNotAvailable
                | Code::CoordinatorLoadInProgress
                | Code::NotCoordinator
        ),
        _ => false,
    };
    !passes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_away_and_what_concerns_the_group_end_no_reading() {
        for code in [
            Code::BrokerTransportFailure,
            Code::AllBrokersDown,
            Code::Resolve,
            Code::SSL,
            Code::GroupAuthorizationFailed,
            Code::UnknownTopicOrPartition,
        ] {
            assert!(!ends_reading(&KafkaError::MessageConsumption(code)), "{code:?}");
        }
        assert!(!ends_reading(&KafkaError::PartitionEOF(0)));
    }

    #[test]
    fn what_no_later_poll_can_mend_ends_it() {
        for code in [
            Code::TopicAuthorizationFailed,
            Code::AutoOffsetReset,
            Code::BadMessage,
            Code::NotImplemented,
            Code::MessageSizeTooLarge,
        ] {
            assert!(ends_reading(&KafkaError::MessageConsumption(code)), "{code:?}");
        }
        assert!(ends_reading(&KafkaError::MessageConsumptionFatal(Code::AllBrokersDown)));
    }
}
