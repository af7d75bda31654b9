use std::time::Duration;

use rdkafka::{
    client::{Client, ClientContext},
    error::RDKafkaErrorCode,
};

use crate::topic_settings;

/// How long a topic keeps records at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Name of the topic.
    pub name: String,
    /// Milliseconds, `None` for ever.
    pub keeps: Option<u64>,
}

impl Kept {
    /// By the topic's settings `retention.ms`, `segment.ms` and
    /// `cleanup.policy`. Kafka removes whole segments once their last record is
    /// too old, and closes one after `segment.ms`. A topic that compacts keeps
    /// the last record of a key for ever.
    pub fn parse(name: &str, retention_ms: &str, segment_ms: &str, cleanup_policy: &str) -> Self {
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let keeps = match (number(retention_ms), number(segment_ms)) {
            _ if cleanup_policy.contains("compact") => None,
            (Some(retention), Some(segment)) => Some(retention.saturating_add(segment)),
            _ => None,
        };
        Self { name: name.to_owned(), keeps }
    }
}

/// Why it is not known how long topics keep records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeptError {
    /// The brokers do not tell us.
    #[error(
        "asking how long topic {topic} keeps records was refused: the right DescribeConfigs on it \
         is needed"
    )]
    Denied {
        /// Name of the topic.
        topic: String,
    },
    /// Another answer about one topic.
    #[error("asking how long topic {topic} keeps records: {code}")]
    Topic {
        /// Name of the topic.
        topic: String,
        /// The answer.
        code: RDKafkaErrorCode,
    },
    /// No answer.
    #[error("asking how long topics keep records: {0}")]
    Kafka(RDKafkaErrorCode),
}

/// Asks `broker` how long each of `topics` keeps records. Blocks up to three
/// times `timeout`.
///
/// # Errors
/// Of the first topic that has one.
pub fn topics_kept<C: ClientContext>(
    client: &Client<C>,
    topics: &[&str],
    broker: i32,
    timeout: Duration,
) -> Result<Vec<Kept>, KeptError> {
    let ask = |setting: &str| -> Result<Vec<String>, KeptError> {
        let asked = topic_settings(client, topics, setting, broker, timeout);
        let asked = asked.map_err(KeptError::Kafka)?;
        let value = |(topic, answer): (&&str, Result<Option<String>, _>)| {
            answer.map(Option::unwrap_or_default).map_err(|code| refused(topic, code))
        };
        topics.iter().zip(asked).map(value).collect()
    };
    let (retention, segment, policy) =
        (ask("retention.ms")?, ask("segment.ms")?, ask("cleanup.policy")?);
    let kept = topics.iter().zip(retention).zip(segment).zip(policy);
    let parse = |(((topic, retention), segment), policy): (((&&str, String), String), String)| {
        Kept::parse(topic, &retention, &segment, &policy)
    };
    Ok(kept.map(parse).collect())
}

fn refused(topic: &str, code: RDKafkaErrorCode) -> KeptError {
    let topic = topic.to_owned();
    match code {
        RDKafkaErrorCode::TopicAuthorizationFailed
        | RDKafkaErrorCode::ClusterAuthorizationFailed => KeptError::Denied { topic },
        code => KeptError::Topic { topic, code },
    }
}
