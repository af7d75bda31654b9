//! Errors after which librdkafka's client is of no use, and what to do: pure.

use rdkafka::error::RDKafkaErrorCode as Code;

/// What was attempted, with the next step.
pub(super) fn attempted(code: Option<Code>) -> &'static str {
    match code {
        Some(Code::FencedInstanceId) => {
            "staying in the group: another process has joined under this group.instance.id and \
             taken its place, or this one was silent for longer than its session; give each \
             process that runs an id of its own, and start one that ends again"
        }
        Some(Code::UnreleasedInstanceId) => {
            "joining the group: a member under this group.instance.id is there; give each process \
             that runs an id of its own, or start again once the session of a killed one has ended"
        }
        Some(Code::UnsupportedAssignor) => {
            "joining the group: the brokers have no such group.remote.assignor; name one of theirs, \
             such as uniform or range, or leave it out"
        }
        Some(Code::UnsupportedVersion | Code::UnsupportedFeature) => {
            "joining the group: the brokers do not have what it needs; with group.protocol = \
             consumer Kafka 4.0 or later, else leave that out"
        }
        _ => "reading from Kafka",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_can_mend_says_how() {
        assert!(attempted(Some(Code::FencedInstanceId)).contains("taken its place"));
        assert!(attempted(Some(Code::UnreleasedInstanceId)).contains("start again once"));
        assert!(attempted(Some(Code::UnsupportedVersion)).contains("group.protocol"));
        assert_eq!(attempted(None), "reading from Kafka");
    }
}
