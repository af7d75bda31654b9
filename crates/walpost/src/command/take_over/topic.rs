//! The offsets topic of Kafka Connect. Blocks.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, ClientContext, Message, Offset, TopicPartitionList,
    config::{FromClientConfig, FromClientConfigAndContext, RDKafkaLogLevel},
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::KafkaError,
    producer::{BaseProducer, BaseRecord, Producer},
};
use walpost_kafka::partition_for_key;
use walpost_librdkafka::{ends_reading, without_value};

use super::offsets::Stored;
use crate::command::brokers;

/// Longest wait for one answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest wait for a transaction that a stopped connector has left open.
const TRANSACTION_LIMIT: Duration = Duration::from_secs(60);
/// Longest reading: a compacted topic is small.
const READ_LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

/// The topic, and how to reach its brokers.
#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) settings: BTreeMap<String, String>,
}

impl Topic {
    /// The last value of each key, as committed.
    pub(super) fn read(&self) -> Result<Vec<Stored>, String> {
        let reader = self.reader("read_committed")?;
        let partitions = self.partitions(&reader)?;
        self.no_open_transaction(&reader, &partitions)?;
        let failed = |error: KafkaError| format!("reading topic {}: {error}", self.name);
        let mut list = TopicPartitionList::new();
        for partition in &partitions {
            list.add_partition_offset(&self.name, *partition, Offset::Beginning).map_err(failed)?;
        }
        reader.assign(&list).map_err(failed)?;
        let (mut unread, mut last): (BTreeSet<i32>, _) = (partitions, BTreeMap::new());
        let (deadline, mut said) = (Instant::now() + READ_LIMIT, String::new());
        while !unread.is_empty() {
            if Instant::now() > deadline {
                let limit = READ_LIMIT.as_secs();
                return Err(format!("topic {} was not read within {limit} s{said}", self.name));
            }
            match reader.poll(POLL) {
                None => {}
                Some(Ok(message)) => {
                    let Some(key) = message.key() else { continue };
                    let stored = Stored {
                        key: key.to_vec(),
                        value: message.payload().map(<[u8]>::to_vec),
                        place: format!(
                            "topic {}, partition {}, offset {}",
                            self.name,
                            message.partition(),
                            message.offset()
                        ),
                        partition: Some(message.partition()),
                    };
                    last.insert((message.partition(), stored.key.clone()), stored);
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    unread.remove(&partition);
                }
                Some(Err(error)) if ends_reading(&error) => return Err(failed(error)),
                Some(Err(error)) => said = format!("; last error: {error}"),
            }
        }
        Ok(last.into_values().collect())
    }

    /// Writes one offset, in a transaction of its own, where the key stands
    /// already, or where Kafka Connect would put it.
    pub(super) fn write(
        &self,
        key: &[u8],
        value: &[u8],
        partition: Option<i32>,
    ) -> Result<(), String> {
        let partition = match partition {
            Some(partition) => partition,
            None => {
                let count = self.partitions(&self.reader("read_committed")?)?.len();
                partition_for_key(key, i32::try_from(count).unwrap_or(i32::MAX))
            }
        };
        let failed = |what: &str| {
            let what = format!("writing to topic {}: {what}", self.name);
            move |error: KafkaError| format!("{what}: {error}")
        };
        let mut config = self.config();
        config
            .set("transactional.id", format!("walpost-take-over-{}", self.name))
            .set("acks", "all")
            .set("message.timeout.ms", "10000");
        let producer = BaseProducer::from_config(&config)
            .map_err(|error| format!("making a producer failed: {}", without_value(&error)))?;
        producer.init_transactions(LIMIT).map_err(failed("taking the transactional id"))?;
        producer.begin_transaction().map_err(failed("beginning a transaction"))?;
        let record = BaseRecord::to(&self.name).partition(partition).key(key).payload(value);
        producer.send(record).map_err(|(error, _)| failed("sending")(error))?;
        producer.commit_transaction(LIMIT).map_err(failed("committing the transaction"))
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.extend(self.settings.clone());
        config
    }

    fn reader(&self, isolation: &str) -> Result<BaseConsumer<Quiet>, String> {
        let mut config = self.config();
        brokers::ask(&config)?;
        config
            // Names the client in the brokers' logs; nothing is committed.
            .set("group.id", "walpost-take-over")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "error")
            .set("isolation.level", isolation)
            .set("allow.auto.create.topics", "false")
            .set("fetch.wait.max.ms", "50");
        let made = BaseConsumer::from_config_and_context(&config, Quiet);
        made.map_err(|error| format!("making a Kafka client failed: {}", without_value(&error)))
    }

    fn partitions(&self, client: &BaseConsumer<Quiet>) -> Result<BTreeSet<i32>, String> {
        let failed = |error: KafkaError| format!("asking for topic {}: {error}", self.name);
        let metadata = client.fetch_metadata(Some(&self.name), LIMIT).map_err(failed)?;
        let topic = metadata.topics().iter().find(|topic| topic.name() == self.name);
        let partitions: BTreeSet<i32> =
            topic.into_iter().flat_map(|topic| topic.partitions()).map(|one| one.id()).collect();
        match partitions.is_empty() {
            true => Err(format!("topic {} does not exist", self.name)),
            false => Ok(partitions),
        }
    }

    /// What a connector has stored in a transaction counts once that is committed.
    fn no_open_transaction(
        &self,
        committed: &BaseConsumer<Quiet>,
        partitions: &BTreeSet<i32>,
    ) -> Result<(), String> {
        let all = self.reader("read_uncommitted")?;
        let deadline = Instant::now() + TRANSACTION_LIMIT;
        for partition in partitions {
            let end = |client: &BaseConsumer<Quiet>| {
                let ends = client.fetch_watermarks(&self.name, *partition, LIMIT);
                ends.map(|(_, end)| end).map_err(|error| {
                    format!("asking for the end of {}[{partition}]: {error}", self.name)
                })
            };
            let until = end(&all)?;
            while end(committed)? < until {
                if Instant::now() > deadline {
                    return Err(format!(
                        "a transaction is open on {}[{partition}]: stop the connectors that write \
                         there, and wait until their transaction.timeout.ms has passed",
                        self.name
                    ));
                }
                std::thread::sleep(POLL);
            }
        }
        Ok(())
    }
}

/// What librdkafka would log is in the errors already.
struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}
    fn error(&self, _: KafkaError, _: &str) {}
}

impl ConsumerContext for Quiet {}
