//! Topics, their ends, and where a reader begins.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
};

/// Partitions of a topic, unless said otherwise.
pub(crate) const PARTITIONS: i32 = 12;

const ADMIN_LIMIT: Duration = Duration::from_secs(30);
const LEADER_POLL: Duration = Duration::from_millis(20);

/// Creates a topic and waits until every partition has a leader.
pub(crate) fn create(bootstrap: &str, topic: &str) -> Result<()> {
    create_of(bootstrap, topic, PARTITIONS)
}

/// The same with so many partitions.
pub(crate) fn create_of(bootstrap: &str, topic: &str, partitions: i32) -> Result<()> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    let admin: AdminClient<DefaultClientContext> = config.create()?;
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let options =
        AdminOptions::new().request_timeout(Some(ADMIN_LIMIT)).operation_timeout(Some(ADMIN_LIMIT));
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    for result in runtime.block_on(admin.create_topics([&new], &options))? {
        result.map_err(|(topic, code)| anyhow!("creating the topic {topic}: {code}"))?;
    }
    Ends::open(bootstrap, topic).map(drop)
}

/// Where a topic ends, asked in one request for all its partitions.
pub(crate) struct Ends {
    consumer: BaseConsumer,
    partitions: TopicPartitionList,
}

impl Ends {
    /// Connects, and waits until every partition answers.
    pub(crate) fn open(bootstrap: &str, topic: &str) -> Result<Self> {
        let consumer = consumer(bootstrap)?;
        let count = partitions(&consumer, topic)?;
        let mut partitions = TopicPartitionList::new();
        for partition in 0..count {
            partitions.add_partition_offset(topic, partition, Offset::End)?;
        }
        let ends = Self { consumer, partitions };
        let start = Instant::now();
        while let Err(error) = ends.records() {
            if start.elapsed() > ADMIN_LIMIT {
                return Err(error);
            }
            thread::sleep(LEADER_POLL);
        }
        Ok(ends)
    }

    /// Records in the topic: what has been appended since it was created.
    pub(crate) fn records(&self) -> Result<u64> {
        let ends = self
            .consumer
            .offsets_for_times(self.partitions.clone(), ADMIN_LIMIT)
            .context("asking for the end of a topic")?;
        let mut records = 0;
        for partition in ends.elements() {
            partition.error()?;
            match partition.offset() {
                Offset::Offset(end) => records += u64::try_from(end)?,
                other => bail!("partition {} ends at {other:?}", partition.partition()),
            }
        }
        Ok(records)
    }
}

/// How many partitions a topic has, once the brokers know it.
fn partitions(consumer: &BaseConsumer, topic: &str) -> Result<i32> {
    let start = Instant::now();
    loop {
        let metadata = consumer.fetch_metadata(Some(topic), ADMIN_LIMIT)?;
        let count = metadata.topics().first().map_or(0, |topic| topic.partitions().len());
        if count > 0 {
            return Ok(i32::try_from(count)?);
        }
        if start.elapsed() > ADMIN_LIMIT {
            bail!("the brokers do not know the topic {topic}");
        }
        thread::sleep(LEADER_POLL);
    }
}

/// A consumer of all partitions from their beginning, in no group.
pub(crate) fn read_from_beginning(bootstrap: &str, topic: &str) -> Result<BaseConsumer> {
    let consumer = consumer(bootstrap)?;
    let mut partitions = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        partitions.add_partition_offset(topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&partitions)?;
    Ok(consumer)
}

/// Waits for more than one record are short, so that latency is the
/// publisher's and not the reader's.
fn consumer(bootstrap: &str) -> Result<BaseConsumer> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "walpost-bench")
        .set("enable.auto.commit", "false")
        .set("fetch.min.bytes", "1")
        .set("fetch.wait.max.ms", "10");
    config.create().context("creating a Kafka consumer")
}
