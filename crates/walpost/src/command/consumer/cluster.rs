//! What Kafka has of a consumer's topics and its group. The calls of librdkafka
//! block, so each question is put from a thread for that.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, ClientContext, Message, Offset, TopicPartitionList,
    config::{FromClientConfigAndContext, RDKafkaLogLevel},
    consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext},
    error::{KafkaError, RDKafkaErrorCode},
};
use walpost_librdkafka::{
    Committed, Kept, committed, ends_reading, topic_ids, topics_kept, without_value,
};

use super::stored::Position;
use crate::{command::brokers, config::Config, failure::Failure};

/// Longest wait for one answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest wait for records that tell how far behind a consumer is.
const LAG_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);

/// How to reach the brokers, as members of the group do.
#[derive(Clone)]
pub(super) struct Cluster {
    settings: BTreeMap<String, String>,
}

/// One partition in Kafka.
#[derive(Clone, Debug)]
pub(super) struct Log {
    /// The oldest offset that is kept.
    pub(super) low: i64,
    /// Behind the newest record that a consumer may see.
    pub(super) high: i64,
    /// The first offset at the time that was asked for.
    pub(super) at_time: Option<i64>,
    /// What the group holds.
    pub(super) committed: Committed,
    pub(super) cluster_id: String,
    pub(super) topic_id: String,
}

/// An offset to commit, with what stands beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) marker: String,
}

/// Why offsets were not committed.
#[derive(Debug)]
pub(super) enum NotCommitted {
    /// The group has members, whose own commits alone are taken.
    HasMembers,
    Failed(String),
}

impl Cluster {
    /// The configured brokers.
    pub(super) fn of(config: &Config) -> Result<Self, Failure> {
        Ok(Self { settings: config.kafka_client()? })
    }

    /// The same, `None` where none are configured.
    pub(super) fn of_if_any(config: &Config) -> Result<Option<Self>, Failure> {
        let brokers = config.settings.kafka.get("bootstrap.servers");
        let any = brokers.is_some_and(|brokers| !brokers.trim().is_empty());
        any.then(|| Self::of(config)).transpose()
    }

    /// Each partition's log and the group's offset, in the order of
    /// `positions`, which are all of one group.
    pub(super) async fn logs(
        &self,
        positions: &[Position],
        time_ms: Option<i64>,
    ) -> Result<Vec<Log>, String> {
        let (this, positions) = (self.clone(), positions.to_vec());
        blocking(move || this.ask(&positions, time_ms)).await
    }

    fn ask(&self, positions: &[Position], time_ms: Option<i64>) -> Result<Vec<Log>, String> {
        let Some(first) = positions.first() else { return Ok(Vec::new()) };
        let mut config = ClientConfig::new();
        config.extend(self.settings.clone());
        brokers::ask(&config)?;
        let client = self.client(&first.group)?;
        let cluster_id =
            client.client().fetch_cluster_id(LIMIT).ok_or("no broker has told the cluster's id")?;
        let mut topics: Vec<&str> = positions.iter().map(|one| &*one.topic).collect();
        topics.dedup();
        let ids = topic_ids(client.client(), &topics, LIMIT).map_err(|error| error.to_string())?;
        let mut topic_id = BTreeMap::new();
        for (topic, id) in topics.iter().zip(ids) {
            let id = id.map_err(|error| format!("topic {topic}: {error}"))?;
            topic_id.insert(*topic, id.to_string());
        }
        let of: Vec<(&str, i32)> =
            positions.iter().map(|one| (&*one.topic, one.partition)).collect();
        let failed = |what: &str| {
            let what = what.to_owned();
            move |error: KafkaError| format!("{what}: {error}")
        };
        let group = format!("asking for the offsets of group {}", first.group);
        let held = committed(&client, &of, LIMIT).and_then(|held| held.into_iter().collect());
        let held: Vec<Committed> = held.map_err(failed(&group))?;
        let at = time_ms.map(|time_ms| offsets_at(&client, &of, time_ms)).transpose()?;
        let mut logs = Vec::new();
        for (index, ((topic, partition), committed)) in of.iter().zip(held).enumerate() {
            let what = format!("asking for the ends of {topic}[{partition}]");
            let ends = client.fetch_watermarks(topic, *partition, LIMIT).map_err(failed(&what))?;
            let (low, high) = ends;
            // No record is that new: the end.
            let at_time = at.as_ref().map(|at| at[index].unwrap_or(high));
            let (cluster_id, topic_id) = (cluster_id.clone(), topic_id[topic].clone());
            logs.push(Log { low, high, at_time, committed, cluster_id, topic_id });
        }
        Ok(logs)
    }

    /// How long topics keep their records.
    pub(super) async fn kept(&self, topics: Vec<String>) -> Result<Vec<Kept>, String> {
        let this = self.clone();
        blocking(move || this.ask_kept(&topics)).await
    }

    fn ask_kept(&self, topics: &[String]) -> Result<Vec<Kept>, String> {
        let client = self.client("walpost-look")?;
        let metadata = client.fetch_metadata(None, LIMIT).map_err(|error| error.to_string())?;
        let broker = metadata.brokers().first().ok_or("the cluster names no broker")?.id();
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        let kept = topics_kept(client.client(), &names, broker, LIMIT);
        kept.map_err(|error| error.to_string())
    }

    /// The timestamps of the records at the stored offsets, in milliseconds
    /// since 1970; `None` where there is no record, or none was read in time.
    pub(super) async fn timestamps(
        &self,
        positions: &[Position],
    ) -> Result<Vec<Option<i64>>, String> {
        let (this, positions) = (self.clone(), positions.to_vec());
        blocking(move || this.read_timestamps(&positions)).await
    }

    fn read_timestamps(&self, positions: &[Position]) -> Result<Vec<Option<i64>>, String> {
        let (mut found, start) = (Vec::new(), Instant::now());
        for of_topic in positions.chunk_by(|one, next| one.topic == next.topic) {
            found.extend(self.read_topic(of_topic, start)?);
        }
        Ok(found)
    }

    fn read_topic(
        &self,
        positions: &[Position],
        start: Instant,
    ) -> Result<Vec<Option<i64>>, String> {
        let failed = |error: KafkaError| format!("reading at the stored offsets: {error}");
        let client = self.client("walpost-look")?;
        let mut list = TopicPartitionList::new();
        for one in positions {
            let offset = Offset::Offset(one.next_offset.unwrap_or_default());
            list.add_partition_offset(&one.topic, one.partition, offset).map_err(failed)?;
        }
        client.assign(&list).map_err(failed)?;
        let mut found = BTreeMap::new();
        while found.len() < positions.len() && start.elapsed() < LAG_LIMIT {
            match client.poll(POLL) {
                None => {}
                Some(Ok(message)) => {
                    let timestamp = message.timestamp().to_millis();
                    found.entry(message.partition()).or_insert(timestamp);
                }
                // Behind the offset are markers of transactions at most.
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    found.entry(partition).or_insert(None);
                }
                Some(Err(error)) if ends_reading(&error) => return Err(failed(error)),
                Some(Err(_)) => {}
            }
        }
        Ok(positions.iter().map(|one| found.get(&one.partition).copied().flatten()).collect())
    }

    /// Commits for a group without members. What was acknowledged is read back.
    pub(super) async fn commit(&self, group: &str, commits: &[Commit]) -> Result<(), NotCommitted> {
        let (this, group, commits) = (self.clone(), group.to_owned(), commits.to_vec());
        let done = tokio::task::spawn_blocking(move || this.commit_now(&group, &commits)).await;
        done.unwrap_or_else(|error| Err(NotCommitted::Failed(error.to_string())))
    }

    fn commit_now(&self, group: &str, commits: &[Commit]) -> Result<(), NotCommitted> {
        let failed = |error: KafkaError| match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::UnknownMemberId
                | RDKafkaErrorCode::IllegalGeneration
                | RDKafkaErrorCode::RebalanceInProgress
                | RDKafkaErrorCode::StaleMemberEpoch,
            ) => NotCommitted::HasMembers,
            _ => NotCommitted::Failed(format!("committing offsets of group {group}: {error}")),
        };
        let client = self.client(group).map_err(NotCommitted::Failed)?;
        let mut list = TopicPartitionList::new();
        for one in commits {
            let mut element = list.add_partition(&one.topic, one.partition);
            element.set_offset(Offset::Offset(one.offset)).map_err(failed)?;
            element.set_metadata(&one.marker);
        }
        client.commit(&list, CommitMode::Sync).map_err(failed)?;
        let of: Vec<(&str, i32)> = commits.iter().map(|one| (&*one.topic, one.partition)).collect();
        let held = committed(&client, &of, LIMIT).and_then(|held| held.into_iter().collect());
        let held: Vec<Committed> = held.map_err(failed)?;
        let is_held = |(one, held): (&Commit, &Committed)| {
            held.offset == Some(one.offset) && held.metadata == one.marker.as_bytes()
        };
        if commits.iter().zip(&held).all(is_held) {
            return Ok(());
        }
        Err(NotCommitted::Failed(format!("group {group} holds other offsets than were committed")))
    }

    pub(super) fn client(&self, group: &str) -> Result<BaseConsumer<Quiet>, String> {
        let mut config = ClientConfig::new();
        config.extend(self.settings.clone());
        config
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_committed")
            .set("allow.auto.create.topics", "false")
            .set("fetch.wait.max.ms", "50");
        let made = BaseConsumer::from_config_and_context(&config, Quiet);
        made.map_err(|error| format!("making a Kafka client failed: {}", without_value(&error)))
    }
}

fn offsets_at(
    client: &BaseConsumer<Quiet>,
    of: &[(&str, i32)],
    time_ms: i64,
) -> Result<Vec<Option<i64>>, String> {
    let failed = |error: KafkaError| format!("asking for the offsets of a time: {error}");
    let mut times = TopicPartitionList::new();
    for (topic, partition) in of {
        times.add_partition_offset(topic, *partition, Offset::Offset(time_ms)).map_err(failed)?;
    }
    let found = client.offsets_for_times(times, LIMIT).map_err(failed)?;
    let mut offsets = Vec::new();
    for (topic, partition) in of {
        let element = found.find_partition(topic, *partition);
        let element = element.ok_or("the brokers left a partition out")?;
        element.error().map_err(failed)?;
        offsets.push(match element.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        });
    }
    Ok(offsets)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(error.to_string()))
}

/// What librdkafka would log is in the errors already.
pub(super) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}
    fn error(&self, _: KafkaError, _: &str) {}
}

impl ConsumerContext for Quiet {}
