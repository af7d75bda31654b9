//! Topics, and reading them back with a consumer that has no part in what is
//! tested.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::{BorrowedMessage, Headers},
    metadata::MetadataPartition,
    types::RDKafkaErrorCode,
};

use crate::{
    services::{kafka, unique_name},
    wait::until,
};

const ADMIN_LIMIT: Duration = Duration::from_secs(30);
const READ_LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

/// What the controller says of a new topic while brokers that were away for a
/// moment are counted out.
const COUNTED_OUT: [RDKafkaErrorCode; 2] =
    [RDKafkaErrorCode::InvalidReplicationFactor, RDKafkaErrorCode::InvalidReplicaAssignment];

/// Which records of transactions are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Those of committed transactions, up to the first that is open.
    ReadCommitted,
    /// All, also of transactions that are open or were aborted.
    ReadUncommitted,
}

/// A record as it was read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRecord {
    /// Its partition.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// Its key, `None` for null.
    pub key: Option<Vec<u8>>,
    /// Its value, `None` for null (a tombstone).
    pub value: Option<Vec<u8>>,
    /// Its headers in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Its timestamp in milliseconds since 1970.
    pub timestamp_ms: Option<i64>,
}

impl ReadRecord {
    /// The key as text.
    ///
    /// # Panics
    ///
    /// When it is null or not UTF-8.
    #[must_use]
    pub fn key_text(&self) -> &str {
        text(self.key.as_deref(), "key")
    }

    /// The value as text.
    ///
    /// # Panics
    ///
    /// When it is null or not UTF-8.
    #[must_use]
    pub fn value_text(&self) -> &str {
        text(self.value.as_deref(), "value")
    }

    /// The first header of that name as text, if there is one.
    ///
    /// # Panics
    ///
    /// When it is null or not UTF-8.
    #[must_use]
    pub fn header_text(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(header, _)| header == name);
        header.map(|(_, value)| text(value.as_deref(), "header"))
    }
}

fn text<'a>(bytes: Option<&'a [u8]>, what: &str) -> &'a str {
    let bytes = bytes.unwrap_or_else(|| panic!("the {what} is null"));
    std::str::from_utf8(bytes).unwrap_or_else(|_| panic!("the {what} is not UTF-8"))
}

/// A new topic on the shared [`kafka`].
///
/// # Panics
///
/// When it cannot be created.
pub async fn fresh_topic(prefix: &str, partitions: i32) -> String {
    let name = unique_name(prefix);
    create_topic(kafka().bootstrap(), &name, partitions, &[]).await;
    name
}

/// A new topic with one replica. Returns when every partition has a leader.
///
/// # Panics
///
/// When it cannot be created.
pub async fn create_topic(bootstrap: &str, name: &str, partitions: i32, configs: &[(&str, &str)]) {
    let new = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    create(bootstrap, new, configs).await;
}

/// The same on the brokers of these numbers, of which the first leads all
/// partitions.
///
/// # Panics
///
/// When it cannot be created.
pub async fn create_replicated_topic(
    bootstrap: &str,
    name: &str,
    partitions: i32,
    brokers: &[i32],
    configs: &[(&str, &str)],
) {
    let assignment = vec![brokers; usize::try_from(partitions).expect("not fewer than none")];
    let new = NewTopic::new(name, partitions, TopicReplication::Variable(&assignment));
    create(bootstrap, new, configs).await;
}

async fn create(bootstrap: &str, new: NewTopic<'_>, configs: &[(&str, &str)]) {
    let admin: AdminClient<DefaultClientContext> =
        config(bootstrap).create().expect("an admin client");
    let (name, partitions) = (new.name, new.num_partitions);
    let topic = configs.iter().fold(new, |topic, (key, value)| topic.set(key, value));
    let options =
        AdminOptions::new().request_timeout(Some(ADMIN_LIMIT)).operation_timeout(Some(ADMIN_LIMIT));
    let start = Instant::now();
    loop {
        let results = admin.create_topics([&topic], &options).await;
        let results =
            results.unwrap_or_else(|error| panic!("cannot create the topic {name}: {error}"));
        let Some((_, code)) = results.into_iter().find_map(Result::err) else { break };
        let may_pass = COUNTED_OUT.contains(&code) && start.elapsed() < ADMIN_LIMIT;
        assert!(may_pass, "cannot create the topic {name}: {code}");
        tokio::time::sleep(POLL).await;
    }
    let (bootstrap, name) = (bootstrap.to_owned(), name.to_owned());
    blocking(move || await_replicas(&bootstrap, &name, partitions)).await;
}

/// Every record of a topic up to its end, as seen by
/// [`Isolation::ReadCommitted`], in the order of partition and offset.
///
/// # Panics
///
/// When the end is not reached within 2 minutes.
pub async fn read_all(bootstrap: &str, topic: &str) -> Vec<ReadRecord> {
    read_all_with(bootstrap, topic, Isolation::ReadCommitted).await
}

/// Every record of a topic up to its end, in the order of partition and
/// offset.
///
/// # Panics
///
/// When the end is not reached within 2 minutes.
pub async fn read_all_with(bootstrap: &str, topic: &str, isolation: Isolation) -> Vec<ReadRecord> {
    let (bootstrap, topic) = (bootstrap.to_owned(), topic.to_owned());
    blocking(move || read_to_end(&bootstrap, &topic, isolation)).await
}

/// The same once no transaction is open in the topic. A commit is durable as
/// soon as the coordinator has it, and only then do the partitions get the
/// markers by which readers see its records.
///
/// # Panics
///
/// When a transaction stays open for 2 minutes, or the end is not reached.
pub async fn read_decided(bootstrap: &str, topic: &str) -> Vec<ReadRecord> {
    until(READ_LIMIT, "the end of all transactions of the topic", async || {
        let ends = end_offsets(bootstrap, topic).await;
        ends == end_offsets_with(bootstrap, topic, Isolation::ReadCommitted).await
    })
    .await;
    read_all(bootstrap, topic).await
}

/// The end offset of every partition, by partition number: one more than the
/// offset of its last record or transaction marker.
///
/// # Panics
///
/// When the broker does not say within 30 s.
pub async fn end_offsets(bootstrap: &str, topic: &str) -> Vec<i64> {
    end_offsets_with(bootstrap, topic, Isolation::ReadUncommitted).await
}

async fn end_offsets_with(bootstrap: &str, topic: &str, isolation: Isolation) -> Vec<i64> {
    let (bootstrap, topic) = (bootstrap.to_owned(), topic.to_owned());
    blocking(move || {
        let consumer = consumer(&bootstrap, isolation);
        let end = |partition| end_offset(&consumer, &topic, partition);
        partitions(&consumer, &topic).into_iter().map(end).collect()
    })
    .await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    config
}

fn consumer(bootstrap: &str, isolation: Isolation) -> BaseConsumer {
    let level = match isolation {
        Isolation::ReadCommitted => "read_committed",
        Isolation::ReadUncommitted => "read_uncommitted",
    };
    config(bootstrap)
        .set("group.id", "walpost-testkit-reader")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("isolation.level", level)
        .set("fetch.wait.max.ms", "50")
        .create()
        .expect("a consumer")
}

/// The consumer is assigned by hand, so its group is never joined. The ends are
/// those of the start: beside a writer that never pauses no partition is ever
/// reported as read to its end.
fn read_to_end(bootstrap: &str, topic: &str, isolation: Isolation) -> Vec<ReadRecord> {
    let consumer = consumer(bootstrap, isolation);
    let mut open = HashMap::new();
    let mut assignment = TopicPartitionList::new();
    for partition in partitions(&consumer, topic) {
        open.insert(partition, end_offset(&consumer, topic, partition));
        assignment
            .add_partition_offset(topic, partition, Offset::Beginning)
            .expect("the beginning is an offset");
    }
    open.retain(|_, end| *end > 0);
    consumer.assign(&assignment).expect("a list of partitions can be assigned");
    let start = Instant::now();
    let mut records = Vec::new();
    while !open.is_empty() {
        assert!(start.elapsed() < READ_LIMIT, "waited {READ_LIMIT:?} for the end of {topic}");
        match consumer.poll(POLL) {
            None => {}
            Some(Ok(message)) => {
                let (partition, offset) = (message.partition(), message.offset());
                let Some(end) = open.get(&partition).copied() else { continue };
                if offset < end {
                    records.push(ReadRecord::from(&message));
                }
                if offset + 1 >= end {
                    open.remove(&partition);
                }
            }
            // The last offsets may be markers of transactions.
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                open.remove(&partition);
            }
            Some(Err(error)) => panic!("cannot read {topic}: {error}"),
        }
    }
    records.sort_unstable_by_key(|record| (record.partition, record.offset));
    records
}

fn end_offset(consumer: &BaseConsumer, topic: &str, partition: i32) -> i64 {
    let started = Instant::now();
    loop {
        match consumer.fetch_watermarks(topic, partition, ADMIN_LIMIT) {
            Ok((_, end)) => return end,
            // A broker that was killed or frozen hands over what it led.
            Err(KafkaError::MetadataFetch(
                RDKafkaErrorCode::NotLeaderForPartition | RDKafkaErrorCode::LeaderNotAvailable,
            )) if started.elapsed() < ADMIN_LIMIT => std::thread::sleep(POLL),
            Err(error) => panic!("cannot read the end of {topic}: {error}"),
        }
    }
}

impl From<&BorrowedMessage<'_>> for ReadRecord {
    fn from(message: &BorrowedMessage<'_>) -> Self {
        let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
        Self {
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers
                .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)))
                .collect(),
            timestamp_ms: message.timestamp().to_millis(),
        }
    }
}

/// A broker knows a topic a moment after its creation was answered.
fn partitions(consumer: &BaseConsumer, topic: &str) -> Vec<i32> {
    let start = Instant::now();
    loop {
        let metadata = consumer
            .fetch_metadata(Some(topic), ADMIN_LIMIT)
            .unwrap_or_else(|error| panic!("cannot read the partitions of {topic}: {error}"));
        let found = metadata.topics().iter().flat_map(|topic| topic.partitions());
        let mut partitions: Vec<i32> = found.map(|partition| partition.id()).collect();
        if !partitions.is_empty() {
            partitions.sort_unstable();
            return partitions;
        }
        assert!(start.elapsed() < ADMIN_LIMIT, "there is no topic {topic}");
        std::thread::sleep(POLL);
    }
}

fn await_replicas(bootstrap: &str, topic: &str, partitions: i32) {
    let consumer = consumer(bootstrap, Isolation::ReadUncommitted);
    let start = Instant::now();
    let led = || {
        let metadata = consumer.fetch_metadata(Some(topic), ADMIN_LIMIT).ok()?;
        let found = metadata.topics().first()?;
        let is_led = |partition: &&MetadataPartition| {
            partition.leader() >= 0 && partition.isr().len() == partition.replicas().len()
        };
        i32::try_from(found.partitions().iter().filter(is_led).count()).ok()
    };
    while led() != Some(partitions) {
        assert!(start.elapsed() < ADMIN_LIMIT, "not all replicas of {topic} are in sync");
        std::thread::sleep(Duration::from_millis(10));
    }
}
