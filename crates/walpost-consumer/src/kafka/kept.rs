//! What topics keep, asked with a client of its own: these questions block.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
#[cfg(feature = "redis")]
use rdkafka::{
    error::{KafkaError, RDKafkaErrorCode},
    metadata::MetadataBroker,
};
#[cfg(feature = "redis")]
use walpost_librdkafka::KeptError;
use walpost_librdkafka::{Kept, topics_kept, without_value};

use super::config::client_config;
use crate::settings::Settings;

/// Longest wait for each answer.
const LIMIT: Duration = Duration::from_secs(10);

/// How long each of `topics` keeps records, and the oldest offset of each of
/// `partitions`, `None` where the topic or partition is no more. Blocks.
pub(crate) fn kept(
    settings: &Settings,
    topics: &[String],
    partitions: &[(String, i32)],
) -> Result<(Vec<Kept>, Vec<Option<i64>>), String> {
    let client: BaseConsumer =
        client_config(settings).create().map_err(|error| without_value(&error))?;
    let metadata = client.fetch_metadata(None, LIMIT).map_err(|error| error.to_string())?;
    let broker = metadata.brokers().first().ok_or("the cluster names no broker")?.id();
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let kept = topics_kept(client.client(), &names, broker, LIMIT);
    let kept = kept.map_err(|error| error.to_string())?;
    let is_there = |topic: &str, partition: i32| {
        let mut found = metadata.topics().iter().filter(|found| found.name() == topic);
        found.any(|found| found.partitions().iter().any(|one| one.id() == partition))
    };
    let low = |(topic, partition): &(String, i32)| {
        if !is_there(topic, *partition) {
            return Ok(None);
        }
        let ends = client.fetch_watermarks(topic, *partition, LIMIT);
        ends.map(|(low, _)| Some(low))
            .map_err(|error| format!("asking for the start of {topic}[{partition}]: {error}"))
    };
    Ok((kept, partitions.iter().map(low).collect::<Result<_, String>>()?))
}

/// How long each of the consumer's topics keeps records. Blocks.
#[cfg(feature = "redis")]
pub(crate) fn all_kept(settings: &Settings) -> Result<Vec<Kept>, KeptError> {
    let code = |error: KafkaError| error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
    let failed = |error: KafkaError| KeptError::Kafka(code(error));
    let client: BaseConsumer = client_config(settings).create().map_err(failed)?;
    let metadata = client.fetch_metadata(None, LIMIT).map_err(failed)?;
    let broker = metadata.brokers().first().map(MetadataBroker::id);
    let broker = broker.ok_or(KeptError::Kafka(RDKafkaErrorCode::BrokerNotAvailable))?;
    let names: Vec<&str> = settings.topics.iter().map(String::as_str).collect();
    topics_kept(client.client(), &names, broker, LIMIT)
}
