//! From just before an application's INSERT into the outbox is sent, through
//! commit, relay and topic, to the moment when the consumer knows that the
//! effect is committed.

use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{oneshot, watch},
    task::JoinHandle,
};
use walpost_consumer::{
    Consumer, Database, Event, Handler, HandlerError, SliceError, Status,
    tokio_postgres::{Transaction, types::Type},
};
use walpost_migrate::{Migrator, Set};

use crate::{
    encoding::Encoding,
    latency::{Percentiles, find_marks, now_micros, write_at_rate},
    progress,
    services::{Services, await_slot, create_slot},
    subject::{Job, Subject, Walpost},
    topic, workload,
};

/// Events per second.
pub(crate) const RATE: u32 = 2_000;
/// A broker that has just started compiles its own code for so long, on the
/// processors that all share.
const WARM_UP: Duration = Duration::from_secs(30);
const ARRIVAL_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
const SLOT: &str = "bench_end_to_end";
const TOPIC: &str = "bench.end_to_end";
const EFFECT: &str = "create table bench.effect (event_id text primary key)";
const MANY: &str = "insert into bench.effect (event_id) select * from unnest($1)";

/// Measures on servers of its own.
pub(super) fn measure(walpost: Option<&Path>, duration: Duration) -> Result<Percentiles> {
    let services = Services::start(Set::Relay)?;
    let mut database = services.connect()?;
    database.with(async |client| Migrator::new().set(Set::Consumer).migrate(client).await)?;
    workload::create_functions(&database)?;
    database.run(EFFECT)?;
    topic::create(&services.kafka.bootstrap(), TOPIC)?;
    create_slot(&database, SLOT)?;
    let relay = Walpost::new(walpost, &[])?;
    let folder = services.new_folder("relay")?;
    let job = Job {
        services: &services,
        folder: &folder,
        slot: SLOT,
        topic: TOPIC,
        encoding: Encoding::Text,
        file: Path::new("/dev/null"),
        end: None,
    };
    let child = relay.start(&job)?;
    await_slot(&database, SLOT, true).with_context(|| child.log_tail())?;
    let reader = Reader::start(&services)?;
    progress!("end to end: warming up");
    reader.at_rate(&services, WARM_UP.min(duration))?;
    progress!("end to end: latency at {RATE} events/s");
    let micros = reader.at_rate(&services, duration)?;
    reader.stop()?;
    Percentiles::of(micros).context("no event was written")
}

/// What the handler was given and what of it is committed.
#[derive(Debug, Default)]
struct Notes {
    /// By partition: offset and time of sending of events whose commit is not
    /// known yet.
    open: Mutex<HashMap<i32, VecDeque<(i64, u64)>>>,
    micros: Mutex<Vec<u64>>,
    seen: AtomicU64,
}

impl Notes {
    fn given(&self, events: &[Event]) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            let note = |sent| {
                open.entry(event.partition()).or_default().push_back((event.offset(), sent));
            };
            // A number at the very end could go on.
            let mut value = event.value().unwrap_or_default().to_vec();
            value.push(b'\n');
            find_marks(&value, note);
        }
    }

    fn committed(&self, status: &Status) {
        let now = now_micros();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut micros = self.micros.lock().unwrap_or_else(PoisonError::into_inner);
        for (of, partition) in &status.partitions {
            let next = partition.next_offset.unwrap_or_default();
            let Some(open) = open.get_mut(&of.partition) else { continue };
            let done = open.partition_point(|(offset, _)| *offset < next);
            micros.extend(open.drain(..done).map(|(_, sent)| now.saturating_sub(sent)));
            self.seen.fetch_add(done as u64, Ordering::Relaxed);
        }
    }

    fn take(&self) -> Vec<u64> {
        self.seen.store(0, Ordering::Relaxed);
        std::mem::take(&mut self.micros.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Noting(Arc<Notes>);

impl Handler for Noting {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        self.handle_slice(tx, std::slice::from_ref(event)).await.map_err(SliceError::into_inner)
    }

    async fn handle_slice(&self, tx: &Transaction<'_>, events: &[Event]) -> Result<(), SliceError> {
        let ids: Vec<&str> = events.iter().map(Event::id).collect();
        tx.query_typed(MANY, &[(&ids, Type::TEXT_ARRAY)]).await?;
        self.0.given(events);
        Ok(())
    }
}

/// The consumer, with its defaults, on a runtime of its own.
struct Reader {
    runtime: Runtime,
    notes: Arc<Notes>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), walpost_consumer::Error>>,
}

impl Reader {
    fn start(services: &Services) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let notes = Arc::new(Notes::default());
        let consumer = Consumer::builder("bench-end-to-end")
            .kafka("bootstrap.servers", services.kafka.bootstrap())
            .topics([TOPIC])
            .database(Database::config(services.conninfo().parse()?))
            .handler(Noting(notes.clone()))?;
        runtime.spawn(watch(consumer.status(), notes.clone()));
        let (stop, stopped) = oneshot::channel();
        let running = runtime.spawn(consumer.run(async {
            let _ = stopped.await;
        }));
        Ok(Self { runtime, notes, stop, running })
    }

    /// Latency of each event in microseconds.
    fn at_rate(&self, services: &Services, duration: Duration) -> Result<Vec<u64>> {
        let written = write_at_rate(&services.conninfo(), RATE, duration)?;
        let start = Instant::now();
        while self.notes.seen.load(Ordering::Relaxed) < written {
            let seen = self.notes.seen.load(Ordering::Relaxed);
            if self.running.is_finished() {
                bail!("the consumer ended after {seen} of {written} events");
            }
            if start.elapsed() > ARRIVAL_LIMIT {
                bail!("{seen} of {written} effects within {ARRIVAL_LIMIT:?}");
            }
            thread::sleep(POLL);
        }
        Ok(self.notes.take())
    }

    fn stop(self) -> Result<()> {
        let _ = self.stop.send(());
        self.runtime.block_on(self.running)??;
        Ok(())
    }
}

async fn watch(mut status: watch::Receiver<Status>, notes: Arc<Notes>) {
    while status.changed().await.is_ok() {
        notes.committed(&status.borrow_and_update());
    }
}

#[cfg(test)]
mod tests {
    use walpost_consumer::TopicPartition;

    use super::*;
    use crate::latency::mark;

    #[test]
    fn only_what_is_committed_counts_and_each_event_once() {
        let notes = Notes::default();
        let event = |offset| {
            let event = Event::builder("t").position(3, offset);
            event
                .value(Some(format!("{{\"sent\": \"{}\"}}", mark(offset as u64)).as_bytes()))
                .build()
        };
        notes.given(&[event(5), event(6), event(7)]);
        let open = notes.open.lock().unwrap().clone();
        assert_eq!(open[&3], [(5, 5), (6, 6), (7, 7)]);
        notes.committed(&Status::default());
        assert_eq!(notes.seen.load(Ordering::Relaxed), 0);
        let mut status = Status::default();
        let of = TopicPartition { topic: "t".into(), partition: 3 };
        status.partitions.entry(of).or_default().next_offset = Some(7);
        for _ in 0..2 {
            notes.committed(&status);
            assert_eq!(notes.seen.load(Ordering::Relaxed), 2);
        }
        assert_eq!(notes.take().len(), 2);
    }
}
