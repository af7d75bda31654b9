//! A producer at a steady rate, and the copies that it plants: the same id, key
//! and value once more, behind the original, in another partition, or held back
//! until a consumer was started again.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use rdkafka::{
    ClientConfig, ClientContext,
    config::RDKafkaLogLevel,
    error::KafkaError,
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer},
};
use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};
use walpost_testkit::Seeded;

/// Partitions of the topic.
pub(super) const PARTITIONS: usize = 6;
const AGGREGATES: usize = 48;
const TICK: Duration = Duration::from_millis(10);
/// 600 events a second.
const EVENTS_PER_TICK: u64 = 6;
const COPIES_PERCENT: usize = 10;
/// Events between an original and its copy, at most.
const COPY_AFTER_MOST: usize = 2_000;
const FLUSH_LIMIT: Duration = Duration::from_secs(120);

/// What was produced and acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Produced {
    pub(super) events: u64,
    pub(super) copies: u64,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// A consumer was started again: what was held back may go.
    released: AtomicBool,
    acknowledged: AtomicU64,
    failed: AtomicU64,
}

/// Counts what becomes of records.
#[derive(Clone, Debug)]
struct Deliveries(Arc<Shared>);

impl ClientContext for Deliveries {
    /// Brokers that are killed are no news.
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}
    fn error(&self, _: KafkaError, _: &str) {}
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let count = if result.is_ok() { &self.0.acknowledged } else { &self.0.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Produces until it is stopped.
#[derive(Debug)]
pub(super) struct Production {
    shared: Arc<Shared>,
    task: JoinHandle<Produced>,
}

impl Production {
    pub(super) fn start(bootstrap: &str, topic: &str, seeded: &mut Seeded) -> Self {
        let shared = Arc::new(Shared::default());
        let producer: ThreadedProducer<Deliveries> = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", "0")
            .set("linger.ms", "2")
            .set("reconnect.backoff.max.ms", "500")
            .create_with_context(Deliveries(shared.clone()))
            .unwrap();
        let source = Source {
            producer,
            topic: topic.to_owned(),
            seeded: Seeded::new(seeded.number()),
            seqs: [0; AGGREGATES],
            produced: Produced::default(),
            due: BTreeMap::new(),
            held: Vec::new(),
        };
        Self { task: tokio::spawn(source.produce(shared.clone())), shared }
    }

    /// A consumer was started again.
    pub(super) fn release(&self) {
        self.shared.released.store(true, Ordering::Relaxed);
    }

    /// Sends what is held back, and waits until all is acknowledged.
    ///
    /// # Panics
    /// When a record was not.
    pub(super) async fn stop(self) -> Produced {
        self.shared.stop.store(true, Ordering::Relaxed);
        let produced = self.task.await.unwrap();
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let told = (count(&self.shared.acknowledged), count(&self.shared.failed));
        assert_eq!(told, (produced.events + produced.copies, 0), "acknowledged and failed");
        produced
    }
}

/// An event as it is sent, once or twice.
#[derive(Clone, Debug)]
struct Planned {
    id: String,
    aggregate: usize,
    seq: u64,
    partition: usize,
}

struct Source {
    producer: ThreadedProducer<Deliveries>,
    topic: String,
    seeded: Seeded,
    seqs: [u64; AGGREGATES],
    produced: Produced,
    /// Copies, by the event behind which they are sent.
    due: BTreeMap<u64, Vec<Planned>>,
    /// Copies that wait for a restart.
    held: Vec<Planned>,
}

/// Where the originals of an aggregate are.
fn home(aggregate: usize) -> usize {
    aggregate % PARTITIONS
}

/// Half of the aggregates of each partition have copies elsewhere, so that the
/// order of the others can be judged.
fn roams(aggregate: usize) -> bool {
    (aggregate / PARTITIONS).is_multiple_of(2)
}

impl Source {
    async fn produce(mut self, shared: Arc<Shared>) -> Produced {
        let mut pace = interval(TICK);
        pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !shared.stop.load(Ordering::Relaxed) {
            pace.tick().await;
            for _ in 0..EVENTS_PER_TICK {
                self.event();
            }
            if shared.released.swap(false, Ordering::Relaxed) {
                let held = std::mem::take(&mut self.held);
                self.copies(held);
            }
        }
        let rest = std::mem::take(&mut self.due).into_values().flatten();
        let rest = rest.chain(std::mem::take(&mut self.held)).collect();
        self.copies(rest);
        let Self { producer, produced, .. } = self;
        let flushed = tokio::task::spawn_blocking(move || producer.flush(FLUSH_LIMIT));
        flushed.await.unwrap().unwrap();
        produced
    }

    /// One event more, perhaps with the plan of a copy, and the copies that are
    /// due behind it.
    fn event(&mut self) {
        let aggregate = self.seeded.below(AGGREGATES);
        self.seqs[aggregate] += 1;
        let id = format!("e{}-{:08x}", self.produced.events, self.seeded.number() >> 32);
        let partition = home(aggregate);
        let event = Planned { id, aggregate, seq: self.seqs[aggregate], partition };
        self.send(&event);
        self.produced.events += 1;
        if self.seeded.chance(COPIES_PERCENT) {
            self.plan(event);
        }
        let later = self.due.split_off(&(self.produced.events + 1));
        let due = std::mem::replace(&mut self.due, later).into_values().flatten().collect();
        self.copies(due);
    }

    fn plan(&mut self, mut copy: Planned) {
        if roams(copy.aggregate) {
            copy.partition = (copy.partition + 1 + self.seeded.below(PARTITIONS - 1)) % PARTITIONS;
        }
        if self.seeded.chance(30) {
            self.held.push(copy);
            return;
        }
        let after = 1 + self.seeded.below(COPY_AFTER_MOST) as u64;
        // Some come right behind, so in one batch with the original.
        let after = if self.seeded.chance(20) { 1 } else { after };
        self.due.entry(self.produced.events + after).or_default().push(copy);
    }

    fn copies(&mut self, copies: Vec<Planned>) {
        for copy in copies {
            self.send(&copy);
            self.produced.copies += 1;
        }
    }

    /// What is not taken at once is a broker that is away for longer than the
    /// queue of librdkafka holds: minutes.
    fn send(&self, event: &Planned) {
        let Planned { id, aggregate, seq, partition } = event;
        let (key, value) = (format!("a-{aggregate}"), format!("{{\"seq\": {seq}}}"));
        let headers = OwnedHeaders::new().insert(Header { key: "id", value: Some(id) });
        let record = BaseRecord::to(&self.topic)
            .partition(i32::try_from(*partition).expect("few partitions"))
            .key(&key)
            .payload(&value)
            .headers(headers);
        let sent = self.producer.send(record).map_err(|(error, _)| error);
        sent.unwrap_or_else(|error| panic!("cannot produce an event: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_has_keys_that_stay_and_keys_that_roam() {
        for partition in 0..PARTITIONS {
            let at_home = (0..AGGREGATES).filter(|aggregate| home(*aggregate) == partition);
            let (roam, stay): (Vec<_>, Vec<_>) = at_home.partition(|aggregate| roams(*aggregate));
            assert_eq!((roam.len(), stay.len()), (4, 4));
        }
    }
}
