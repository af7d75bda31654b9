//! The offsets topic of Kafka Connect. Blocks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, ClientContext, Offset, TopicPartitionList,
    config::{FromClientConfig, FromClientConfigAndContext, RDKafkaLogLevel},
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::KafkaError,
    producer::{BaseProducer, BaseRecord, Producer},
};
use walpost_kafka::partition_for_key;
use walpost_librdkafka::{LogRecord, PartitionLog, Read, ends_reading, without_value};

use super::offsets::Stored;
use crate::command::brokers;

/// Longest wait for one answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest wait for a transaction that a stopped connector has left open.
const TRANSACTION_LIMIT: Duration = Duration::from_secs(60);
/// Longest reading: a compacted topic is small.
const READ_LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);
/// Between two looks at what was read.
const READ_POLL: Duration = Duration::from_millis(10);

/// The topic, and how to reach its brokers.
#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) settings: BTreeMap<String, String>,
}

impl Topic {
    /// The last value of each key, as committed.
    pub(super) fn read(&self) -> Result<Vec<Stored>, String> {
        let reader = Arc::new(self.reader("read_committed")?);
        let partitions = self.partitions(&reader)?;
        let ends = self.no_open_transaction(&reader, &partitions)?;
        let failed = |error: KafkaError| format!("reading topic {}: {error}", self.name);
        let mut list = TopicPartitionList::new();
        let mut open = Vec::new();
        for (partition, end) in ends {
            list.add_partition_offset(&self.name, partition, Offset::Beginning).map_err(failed)?;
            let log = PartitionLog::split(&reader, &self.name, partition);
            open.push((partition, end, log.ok_or("librdkafka gives no queue for a partition")?));
        }
        reader.assign(&list).map_err(failed)?;
        let (mut last, mut said) = (BTreeMap::new(), String::new());
        let deadline = Instant::now() + READ_LIMIT;
        while !open.is_empty() {
            if Instant::now() > deadline {
                let limit = READ_LIMIT.as_secs();
                return Err(format!("topic {} was not read within {limit} s{said}", self.name));
            }
            let mut left = Vec::with_capacity(open.len());
            for (partition, end, log) in open {
                let mut note = |record: &LogRecord<'_>| self.note(&mut last, partition, record);
                match look(&log, end, &mut note) {
                    Ok(true) => {}
                    Ok(false) => left.push((partition, end, log)),
                    Err(error) => return Err(failed(error)),
                }
            }
            open = left;
            match reader.poll(READ_POLL) {
                Some(Err(error)) if ends_reading(&error) => return Err(failed(error)),
                Some(Err(error)) => said = format!("; last error: {error}"),
                _ => {}
            }
        }
        Ok(last.into_values().collect())
    }

    fn note(
        &self,
        last: &mut BTreeMap<(i32, Vec<u8>), Stored>,
        partition: i32,
        record: &LogRecord<'_>,
    ) {
        let Some(key) = record.key() else { return };
        let place =
            format!("topic {}, partition {partition}, offset {}", self.name, record.offset());
        let stored = Stored {
            key: key.to_vec(),
            value: record.value().map(<[u8]>::to_vec),
            place,
            partition: Some(partition),
        };
        last.insert((partition, stored.key.clone()), stored);
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

    /// Where each partition ends. What a connector has stored in a transaction counts
    /// once that is committed.
    fn no_open_transaction(
        &self,
        committed: &BaseConsumer<Quiet>,
        partitions: &BTreeSet<i32>,
    ) -> Result<Vec<(i32, i64)>, String> {
        let all = self.reader("read_uncommitted")?;
        let mut ends = Vec::new();
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
            ends.push((*partition, until));
        }
        Ok(ends)
    }
}

/// Whether the end that was asked for is reached. One that a leader tells before it
/// is none: it may have just become one, and know of less.
fn look(
    log: &PartitionLog<Quiet>,
    end: i64,
    note: &mut impl FnMut(&LogRecord<'_>),
) -> Result<bool, KafkaError> {
    while let Some(read) = log.poll() {
        let next = match read {
            Read::Record(record) => {
                note(&record);
                record.offset() + 1
            }
            Read::End(offset) => offset,
            Read::Failed(error) if ends_reading(&error) => return Err(error),
            Read::Failed(_) => continue,
        };
        if next >= end {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What librdkafka would log is in the errors already.
struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}
    fn error(&self, _: KafkaError, _: &str) {}
}

impl ConsumerContext for Quiet {}
