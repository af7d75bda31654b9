use std::fmt::Display;

use rdkafka::types::RDKafkaErrorCode;
use walpost_event::Message;

use crate::{deliveries::Unusable, partition::partition_for_key, rules::Rules};

/// What a record batch of one record needs beside key, value and headers.
const FRAMING_BYTES: usize = 128;
/// Largest record that is tried where the brokers do not tell a topic's limit:
/// they close a connection that brings a larger request, which would be tried
/// for ever. `socket.request.max.bytes` is 100 MiB by default.
const UNTOLD_MAX_BYTES: usize = 100 * 1024 * 1024;
/// Records without a key that go to one partition before the next.
const KEYLESS_RUN: u32 = 64;

/// What the sink has to know of a topic before it sends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopicLimits {
    pub(crate) partitions: i32,
    pub(crate) max_message_bytes: MaxMessageBytes,
    pub(crate) rules: Rules,
}

/// A topic's `max.message.bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaxMessageBytes {
    /// As the brokers tell it.
    Told(usize),
    /// They do not tell it to us: what is too large, only they can say.
    Denied,
    /// They do not know the question, or the setting.
    Untold,
}

impl MaxMessageBytes {
    /// Reads the answer to a question about the setting.
    ///
    /// # Errors
    /// What is worth asking again: everything but a definite answer.
    pub(crate) fn read(
        answer: Result<Option<String>, RDKafkaErrorCode>,
    ) -> Result<Self, RDKafkaErrorCode> {
        use RDKafkaErrorCode as Code;
        match answer {
            Ok(value) => {
                let bytes = value.and_then(|value| value.parse().ok());
                Ok(bytes.map_or(Self::Untold, Self::Told))
            }
            Err(Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed) => {
                Ok(Self::Denied)
            }
            Err(Code::UnsupportedFeature | Code::UnsupportedVersion) => Ok(Self::Untold),
            Err(code) => Err(code),
        }
    }

    /// The limit, where it is known.
    pub(crate) fn told(self) -> Option<usize> {
        match self {
            Self::Told(bytes) => Some(bytes),
            Self::Denied | Self::Untold => None,
        }
    }
}

impl TopicLimits {
    /// Reads the answer to a question about the settings.
    ///
    /// # Errors
    /// What is worth asking again: everything but a definite answer.
    pub(crate) fn read(
        partitions: i32,
        answer: Result<Vec<Option<String>>, RDKafkaErrorCode>,
    ) -> Result<Self, RDKafkaErrorCode> {
        let rules = answer.as_ref().map_or_else(|_| Rules::default(), |of| Rules::read(&of[1..]));
        let limit = answer.map(|mut values| values.swap_remove(0));
        Ok(Self { partitions, max_message_bytes: MaxMessageBytes::read(limit)?, rules })
    }

    /// Whether the brokers tell the topic's settings.
    pub(crate) fn are_told(&self) -> bool {
        self.max_message_bytes.told().is_some()
    }

    /// Whether a record with that many bytes in key, value and headers may be
    /// sent.
    ///
    /// # Errors
    /// Why never.
    pub(crate) fn check_size(&self, record_bytes: usize) -> Result<(), String> {
        let bytes = record_bytes + FRAMING_BYTES;
        match self.max_message_bytes {
            MaxMessageBytes::Told(limit) if bytes > limit => Err(format!(
                "the record has {bytes} bytes, max.message.bytes of the topic is {limit}"
            )),
            MaxMessageBytes::Denied | MaxMessageBytes::Untold if bytes > UNTOLD_MAX_BYTES => {
                Err(format!(
                    "the record has {bytes} bytes, the brokers do not tell max.message.bytes of \
                     the topic, and {UNTOLD_MAX_BYTES} bytes are the most that is tried; grant \
                     DescribeConfigs on the topic"
                ))
            }
            _ => Ok(()),
        }
    }

    /// The partition of a record, after `keyless` records without a key.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn partition(&self, message: &Message, keyless: u32) -> Result<i32, String> {
        let count = self.partitions;
        match (message.partition, &message.key) {
            (Some(partition), _) if (0..count).contains(&partition) => Ok(partition),
            (Some(partition), _) => Err(format!("no partition {partition}, there are {count}")),
            (None, Some(key)) => Ok(partition_for_key(key, count)),
            (None, None) => Ok((keyless / KEYLESS_RUN % count.cast_unsigned()).cast_signed()),
        }
    }
}

/// Whether Kafka takes this as the name of a topic
/// (`org.apache.kafka.common.internals.Topic`).
pub(crate) fn is_legal_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name.bytes().all(legal) && name != "." && name != ".."
}

/// Those of `names` that keep the brokers from creating a topic of this name: they
/// take `.` and `_` for one in the names of their metrics, and refuse the second.
///
/// ```
/// use walpost_kafka::colliding_topics;
///
/// let names = ["shop_order", "shop.order", "shop-order"];
/// assert_eq!(colliding_topics("shop.order", names).collect::<Vec<_>>(), ["shop_order"]);
/// ```
pub fn colliding_topics<'a>(
    name: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> impl Iterator<Item = &'a str> {
    let same =
        |one: u8, other: u8| one == other || matches!((one, other), (b'.', b'_') | (b'_', b'.'));
    names.into_iter().filter(move |other| {
        let mut bytes = name.bytes().zip(other.bytes());
        *other != name && other.len() == name.len() && bytes.all(|(one, other)| same(one, other))
    })
}

/// Why the brokers will not create a topic, and what to do about it.
pub(crate) fn collides(topic: &str, other: &str) -> Unusable {
    let reason = format!(
        "topic {topic:?} does not exist, and Kafka refuses to create it beside topic {other:?}: \
         its metrics take \".\" and \"_\" for one; route these events to a topic of another \
         name, or delete {other:?} if it is not used"
    );
    Unusable { reason: reason.into(), is_its_own: true, is_missing: true }
}

/// Why a topic cannot be used, and what to do about it.
pub(crate) fn explain(topic: &str, code: RDKafkaErrorCode) -> Unusable {
    use RDKafkaErrorCode as Code;
    let is_its_own = matches!(
        code,
        Code::UnknownTopicOrPartition
            | Code::UnknownTopic
            | Code::TopicAuthorizationFailed
            | Code::InvalidTopic
    );
    let reason = match code {
        Code::UnknownTopicOrPartition | Code::UnknownTopic => format!(
            "topic {topic:?} does not exist and the broker does not create it; create it, for \
             example with kafka-topics.sh --create --topic {topic}"
        ),
        Code::TopicAuthorizationFailed => format!(
            "the broker denies access to topic {topic:?}; grant Describe, DescribeConfigs, \
             Read and Write on it"
        ),
        Code::InvalidTopic if is_legal_name(topic) => format!(
            "the broker refuses topic {topic:?}, though its name is legal; see with \
             kafka-topics.sh --list whether there is one that differs by '.' and '_' alone, and \
             route these events to another name"
        ),
        Code::InvalidTopic => {
            format!("{topic:?} is no topic name: letters, digits, '.', '_' and '-', at most 249")
        }
        code => format!(
            "topic {topic:?} cannot be used now: {code}; see with kafka-topics.sh --describe \
             --topic {topic} whether its partitions have leaders"
        ),
    };
    let is_missing = is_its_own && code != Code::TopicAuthorizationFailed;
    Unusable { reason: reason.into(), is_its_own, is_missing }
}

/// Why a question about a topic has no answer yet, and what to do about it.
pub(crate) fn unanswered(topic: &str, asked_for: &str, reason: &dyn Display) -> Unusable {
    let reason = format!(
        "cannot read {asked_for} of topic {topic:?}: {reason}; it is tried again, see whether the \
         brokers run and can be reached"
    );
    Unusable { reason: reason.into(), is_its_own: false, is_missing: false }
}

#[cfg(test)]
mod tests {
    use walpost_event::{Bytes, Headers};

    use super::*;

    fn limits(partitions: i32, max_message_bytes: MaxMessageBytes) -> TopicLimits {
        TopicLimits { partitions, max_message_bytes, rules: Rules::default() }
    }

    #[test]
    fn names_are_legal_as_kafka_has_it() {
        for name in ["a", "outbox.event.order", "A-b_9", "...", &"x".repeat(249)] {
            assert!(is_legal_name(name), "{name}");
        }
        for name in ["", ".", "..", "a b", "ä", "a/b", "a!", &"x".repeat(250)] {
            assert!(!is_legal_name(name), "{name}");
        }
    }

    #[test]
    fn names_collide_by_dots_and_underscores_alone() {
        let names = ["a_b.c", "a.b.c", "a.b_c", "a.b.cd", "a-b.c", "a.b", ""];
        let colliding = |name| colliding_topics(name, names).collect::<Vec<_>>();
        assert_eq!(colliding("a.b.c"), ["a_b.c", "a.b_c"]);
        assert_eq!(colliding("a_b_c"), ["a_b.c", "a.b.c", "a.b_c"]);
        assert!(colliding("a.b.d").is_empty());
    }

    #[test]
    fn only_a_definite_answer_ends_the_question_for_the_limit() {
        use RDKafkaErrorCode as Code;
        let read = MaxMessageBytes::read;
        assert_eq!(read(Ok(Some("5000".into()))), Ok(MaxMessageBytes::Told(5_000)));
        assert_eq!(read(Ok(None)), Ok(MaxMessageBytes::Untold));
        assert_eq!(read(Err(Code::UnsupportedFeature)), Ok(MaxMessageBytes::Untold));
        for code in [Code::TopicAuthorizationFailed, Code::ClusterAuthorizationFailed] {
            assert_eq!(read(Err(code)), Ok(MaxMessageBytes::Denied), "{code:?}");
        }
        for code in [
            Code::OperationTimedOut,
            Code::RequestTimedOut,
            Code::BrokerTransportFailure,
            Code::NotController,
            Code::UnknownTopicOrPartition,
        ] {
            assert_eq!(read(Err(code)), Err(code), "worth another question");
        }
    }

    #[test]
    fn a_record_is_refused_beforehand_only_by_a_limit_that_was_told() {
        let told = limits(1, MaxMessageBytes::Told(2_000));
        assert_eq!(told.check_size(1_872), Ok(()));
        assert!(told.check_size(1_873).unwrap_err().contains("max.message.bytes of the topic is"));
        for untold in [MaxMessageBytes::Denied, MaxMessageBytes::Untold] {
            assert_eq!(limits(1, untold).check_size(50_000_000), Ok(()), "the broker decides");
            let refusal = limits(1, untold).check_size(200_000_000).unwrap_err();
            assert!(refusal.contains("DescribeConfigs"), "{refusal}");
        }
    }

    #[test]
    fn records_without_a_key_go_around_in_runs() {
        let message = Message {
            topic: "t".into(),
            partition: None,
            key: None,
            value: Some(Bytes::from_static(b"v")),
            headers: Headers::new(),
            timestamp_ms: None,
        };
        let three = limits(3, MaxMessageBytes::Untold);
        let partitions: Vec<i32> = [0, 63, 64, 128, 192, u32::MAX]
            .iter()
            .map(|keyless| three.partition(&message, *keyless).unwrap())
            .collect();
        assert_eq!(partitions, [0, 0, 1, 2, 0, 0]);
    }

    #[test]
    fn what_is_in_the_way_names_the_topic_and_what_to_do() {
        use RDKafkaErrorCode as Code;
        let explain = |code| explain("shop", code);
        for (unusable, step, is_its_own) in [
            (explain(Code::UnknownTopicOrPartition), "--create --topic shop", true),
            (explain(Code::TopicAuthorizationFailed), "grant Describe", true),
            (explain(Code::LeaderNotAvailable), "--describe --topic shop", false),
            (explain(Code::InvalidTopic), "differs by '.' and '_' alone", true),
            (collides("shop", "s_op"), "delete \"s_op\"", true),
            (unanswered("shop", "the metadata", &"timed out"), "see whether the brokers", false),
        ] {
            let text = unusable.reason;
            assert_eq!(unusable.is_its_own, is_its_own, "{text}");
            assert!(text.contains("\"shop\"") && text.contains(step), "{text}");
        }
    }
}
