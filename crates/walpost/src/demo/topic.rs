use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    message::{BorrowedMessage, Headers},
};
use serde::Deserialize;

use super::{
    broker::{self, PARTITIONS},
    oracle::Record,
};
use crate::failure::{Exit, Failure};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Without a single record.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const WATCH_INTERVAL: Duration = Duration::from_millis(50);

/// The demo's topic, seen by a client that is neither relay nor consumer.
#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) settings: BTreeMap<String, String>,
    pub(super) name: String,
}

/// Counts the records of the topic, on a thread.
#[derive(Debug)]
pub(super) struct TopicWatch {
    records: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Deserialize)]
struct Payload {
    order: String,
    sequence: i64,
}

impl Topic {
    /// Starts to count.
    pub(super) fn watch(&self) -> Result<TopicWatch, Failure> {
        let client = self.client("walpost-demo-watch").map_err(broker::failed)?;
        let (records, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (name, counted, stopped) = (self.name.clone(), records.clone(), stop.clone());
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Ok(count) = records_of(&client, &name) {
                    counted.store(count, Ordering::Relaxed);
                }
                thread::sleep(WATCH_INTERVAL);
            }
        });
        Ok(TopicWatch { records, stop, thread: Some(thread) })
    }

    /// Reads every record, partition by partition in order. Blocks.
    pub(super) fn read(&self) -> Result<Vec<Record>, Failure> {
        let failed = |error| broker::failed(error).context("reading the topic back failed");
        let client = self.client("walpost-demo-reader").map_err(failed)?;
        let mut ends = BTreeMap::new();
        let mut assignment = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            let (low, high) =
                client.fetch_watermarks(&self.name, partition, REQUEST_TIMEOUT).map_err(failed)?;
            if low > 0 {
                let text = format!(
                    "the broker has dropped the first {low} records of partition {partition}; \
                     nothing can be judged"
                );
                return Err(Failure::found(Exit::Kafka, &text));
            }
            if high > 0 {
                ends.insert(partition, high);
                assignment
                    .add_partition_offset(&self.name, partition, Offset::Beginning)
                    .map_err(failed)?;
            }
        }
        client.assign(&assignment).map_err(failed)?;
        let mut records = Vec::new();
        let mut last = Instant::now();
        while !ends.is_empty() {
            match client.poll(Duration::from_millis(500)) {
                Some(message) => {
                    let message = message.map_err(failed)?;
                    records.push(record(&message));
                    if ends
                        .get(&message.partition())
                        .is_some_and(|end| message.offset() + 1 >= *end)
                    {
                        ends.remove(&message.partition());
                    }
                    last = Instant::now();
                }
                None if last.elapsed() > READ_TIMEOUT => {
                    let text = format!(
                        "no record for {} s while reading the topic back",
                        READ_TIMEOUT.as_secs()
                    );
                    return Err(Failure::found(Exit::Kafka, &text));
                }
                None => {}
            }
        }
        records.sort_unstable_by_key(|record| (record.partition, record.offset));
        Ok(records)
    }

    /// Sets the offsets of a stopped group to the beginning, as Kafka's own
    /// tool does: a commit without a marker. Blocks.
    pub(super) fn reset_group(&self, group: &str) -> Result<(), Failure> {
        let failed = |error| broker::failed(error).context("resetting the offsets failed");
        let client = self.client(group).map_err(failed)?;
        let mut offsets = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            offsets
                .add_partition_offset(&self.name, partition, Offset::Offset(0))
                .map_err(failed)?;
        }
        match client.commit(&offsets, CommitMode::Sync) {
            // The mock never takes a group as stopped: only members may commit.
            Err(error) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::UnknownMemberId) => {
                self.join(&client).map_err(failed)?;
                client.commit(&offsets, CommitMode::Sync).map_err(failed)
            }
            done => done.map_err(failed),
        }
    }

    /// Joins the group and waits until all partitions are assigned.
    fn join(&self, client: &BaseConsumer) -> KafkaResult<()> {
        client.subscribe(&[&self.name])?;
        let start = Instant::now();
        while client.assignment()?.count() < PARTITIONS as usize {
            if start.elapsed() > READ_TIMEOUT {
                return Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::OperationTimedOut));
            }
            if let Some(Err(error)) = client.poll(WATCH_INTERVAL) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The mock forgets a member that has left only after its session, and
    /// takes 3 s to let one join.
    fn client(&self, group: &str) -> KafkaResult<BaseConsumer> {
        broker::client_config(&self.settings)
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest")
            .set("fetch.wait.max.ms", "100")
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", "6000")
            .set("heartbeat.interval.ms", "1000")
            .create()
    }
}

impl TopicWatch {
    /// Records at the last look, copies included.
    pub(super) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }
}

impl Drop for TopicWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only counts: a panic of it is nobody's problem.
            let _ = thread.join();
        }
    }
}

/// The ends of all partitions in one request. The topic is new, so each is a
/// number of records.
fn records_of(client: &BaseConsumer, topic: &str) -> KafkaResult<u64> {
    let mut ends = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        ends.add_partition_offset(topic, partition, Offset::End)?;
    }
    let ends = client.offsets_for_times(ends, REQUEST_TIMEOUT)?;
    let end = |offset| match offset {
        Offset::Offset(end) => u64::try_from(end).unwrap_or(0),
        _ => 0,
    };
    ends.elements()
        .iter()
        .map(|partition| partition.error().map(|()| end(partition.offset())))
        .sum()
}

fn record(message: &BorrowedMessage<'_>) -> Record {
    let id = message.headers().and_then(|headers| {
        let header = headers.iter().find(|header| header.key == "id")?;
        String::from_utf8(header.value?.to_vec()).ok()
    });
    let payload: Option<Payload> =
        message.payload().and_then(|payload| serde_json::from_slice(payload).ok());
    let (order, sequence) = payload.map_or_else(Default::default, |p| (p.order, p.sequence));
    Record {
        id: id.unwrap_or_default(),
        order,
        sequence,
        partition: message.partition(),
        offset: message.offset(),
    }
}
