//! What topics keep, asked with a client of its own: these questions block.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use walpost_librdkafka::topic_settings;

use super::config::client_config;
use crate::{retention::Kept, settings::Settings};

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
        client_config(settings).create().map_err(|error| error.to_string())?;
    let metadata = client.fetch_metadata(None, LIMIT).map_err(|error| error.to_string())?;
    let broker = metadata.brokers().first().ok_or("the cluster names no broker")?.id();
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    let ask = |setting: &str| -> Result<Vec<String>, String> {
        let asked = topic_settings(client.client(), &names, setting, broker, LIMIT);
        let asked = asked.map_err(|code| format!("asking for {setting}: {code}"))?;
        let value = |(name, answer): (&&str, Result<Option<String>, _>)| match answer {
            Ok(value) => Ok(value.unwrap_or_default()),
            Err(code) => Err(format!(
                "asking for {setting} of topic {name}: {code}; the right DescribeConfigs on the \
                 topic is needed"
            )),
        };
        names.iter().zip(asked).map(value).collect()
    };
    let (retention, segment, policy) =
        (ask("retention.ms")?, ask("segment.ms")?, ask("cleanup.policy")?);
    let kept = names.iter().zip(retention).zip(segment).zip(policy);
    let kept = kept.map(|(((name, retention), segment), policy)| {
        Kept::parse(name, &retention, &segment, &policy)
    });
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
    Ok((kept.collect(), partitions.iter().map(low).collect::<Result<_, String>>()?))
}
