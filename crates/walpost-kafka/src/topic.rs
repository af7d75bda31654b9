use std::{sync::Arc, time::Duration};

use rdkafka::{
    admin::{AdminClient, AdminOptions, ResourceSpecifier},
    client::DefaultClientContext,
    producer::{BaseProducer, Producer},
    types::RDKafkaErrorCode,
};

use crate::{config::KafkaConnector, deliveries::Context};

/// Bound on each request to a broker.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// What the sink has to know of a topic before it sends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopicLimits {
    pub(crate) partitions: i32,
    pub(crate) max_message_bytes: usize,
}

/// Asks the brokers for a topic. Blocks for at most two [`REQUEST_TIMEOUT`]s.
pub(crate) fn resolve(
    producer: &BaseProducer<Context>,
    connector: &KafkaConnector,
    topic: &str,
) -> Result<TopicLimits, String> {
    let metadata = producer
        .client()
        .fetch_metadata(Some(topic), REQUEST_TIMEOUT)
        .map_err(|error| format!("cannot read the metadata of topic {topic:?}: {error}"))?;
    let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
        return Err(format!("the broker says nothing of topic {topic:?}"));
    };
    if let Some(error) = found.error() {
        return Err(explain(topic, error.into()));
    }
    let partitions = i32::try_from(found.partitions().len()).unwrap_or(i32::MAX);
    if partitions == 0 {
        return Err(explain(topic, RDKafkaErrorCode::UnknownTopicOrPartition));
    }
    let broker = metadata.brokers().first().map(rdkafka::metadata::MetadataBroker::id);
    let max_message_bytes = max_message_bytes(connector, topic, broker);
    Ok(TopicLimits { partitions, max_message_bytes })
}

/// Whether Kafka takes this as the name of a topic
/// (`org.apache.kafka.common.internals.Topic`).
pub(crate) fn is_legal_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name.bytes().all(legal) && name != "." && name != ".."
}

fn explain(topic: &str, code: RDKafkaErrorCode) -> String {
    match code {
        RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => format!(
            "topic {topic:?} does not exist and the broker does not create it; create it, for \
             example with kafka-topics.sh --create --topic {topic}"
        ),
        RDKafkaErrorCode::TopicAuthorizationFailed => format!(
            "the broker denies access to topic {topic:?}; grant Describe, DescribeConfigs and \
             Write on it"
        ),
        RDKafkaErrorCode::InvalidTopic => {
            format!("{topic:?} is no topic name: letters, digits, '.', '_' and '-', at most 249")
        }
        code => format!("topic {topic:?} cannot be used now: {code}"),
    }
}

/// The topic's own limit, or Kafka's default where the broker does not tell.
fn max_message_bytes(connector: &KafkaConnector, topic: &str, broker: Option<i32>) -> usize {
    describe(connector, topic, broker).unwrap_or_else(|reason| {
        tracing::debug!(topic, reason, "max.message.bytes is not known; using Kafka's default");
        connector.default_max_message_bytes
    })
}

fn describe(connector: &KafkaConnector, topic: &str, broker: Option<i32>) -> Result<usize, String> {
    let admin: AdminClient<DefaultClientContext> =
        connector.admin_config().create().map_err(|error| error.to_string())?;
    // Any broker knows; by itself librdkafka would wait for the controller.
    let options = AdminOptions::new().request_timeout(Some(REQUEST_TIMEOUT)).broker_id(broker);
    let resource = ResourceSpecifier::Topic(topic);
    let described = admin.describe_configs([&resource], &options);
    let described = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| error.to_string())?
        .block_on(async { tokio::time::timeout(2 * REQUEST_TIMEOUT, described).await })
        .map_err(|_| "no answer".to_owned())?
        .map_err(|error| error.to_string())?;
    let resource = described.into_iter().next().ok_or("no answer")?.map_err(|e| e.to_string())?;
    let entry = resource.get("max.message.bytes").ok_or("not among the topic's settings")?;
    entry.value.as_deref().and_then(|value| value.parse().ok()).ok_or_else(|| "no number".into())
}

/// A topic as the sink knows it.
#[derive(Debug)]
pub(crate) enum Topic {
    /// Being asked for.
    Resolving,
    /// Usable.
    Known { limits: TopicLimits, first_lane: Vec<u32>, keyless: u32 },
}

/// The result of one question about a topic.
pub(crate) type Resolved = (Arc<str>, Result<TopicLimits, String>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_legal_as_kafka_has_it() {
        for name in ["a", "outbox.event.order", "A-b_9", "...", &"x".repeat(249)] {
            assert!(is_legal_name(name), "{name}");
        }
        for name in ["", ".", "..", "a b", "ä", "a/b", "a!", &"x".repeat(250)] {
            assert!(!is_legal_name(name), "{name}");
        }
    }
}
