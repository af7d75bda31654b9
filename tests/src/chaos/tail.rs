//! A reader that follows the topic while it grows. It says how far the relay is,
//! and when each event came; the verdict has a reading of its own.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    message::{BorrowedMessage, Headers},
};
use walpost_testkit::{Isolation, end_offsets};

const POLL: Duration = Duration::from_millis(20);

/// Microseconds since 1970, by the clock that the database has too.
pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    u64::try_from(since.as_micros()).expect("the year is below 586,000")
}

/// When an event was written, and when its first record was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) written_us: u64,
    pub(super) read_us: u64,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    distinct: AtomicU64,
    copies: AtomicU64,
    /// Of first records, in the order in which they came.
    times: Mutex<Vec<Times>>,
}

/// Reads until it is dropped.
#[derive(Debug)]
pub(super) struct Tail {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Tail {
    /// Follows a topic that exists, from its beginning.
    pub(super) async fn follow(bootstrap: &str, topic: &str, isolation: Isolation) -> Self {
        let partitions = end_offsets(bootstrap, topic).await.len();
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            let partition = i32::try_from(partition).expect("few partitions");
            list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
        let level = match isolation {
            Isolation::ReadCommitted => "read_committed",
            Isolation::ReadUncommitted => "read_uncommitted",
        };
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("group.id", "chaos-tail")
            .set("enable.auto.commit", "false")
            .set("isolation.level", level)
            .set("fetch.wait.max.ms", "20")
            .set("reconnect.backoff.max.ms", "500")
            // What it says of a broker that is killed is no news.
            .set("log_level", "0")
            .create()
            .unwrap();
        consumer.assign(&list).unwrap();
        let shared = Arc::new(Shared::default());
        let seen = shared.clone();
        let thread = thread::spawn(move || read(&consumer, &seen));
        Self { shared, thread: Some(thread) }
    }

    /// Events of which a record was read.
    pub(super) fn distinct(&self) -> u64 {
        self.shared.distinct.load(Ordering::Relaxed)
    }

    /// Records beyond the first of an event.
    pub(super) fn copies(&self) -> u64 {
        self.shared.copies.load(Ordering::Relaxed)
    }

    /// From a moment to the first record of an event that was written after it;
    /// `None` while there is none.
    pub(super) fn gap_us(&self, from_us: u64) -> Option<u64> {
        let times = self.shared.times.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = times.partition_point(|one| one.read_us < from_us);
        let first = times[begin..].iter().find(|one| one.written_us > from_us)?;
        Some(first.read_us - from_us)
    }

    /// The longest wait of an event that was read in this time, from its writing
    /// to its reading.
    pub(super) fn longest_wait_us(&self, from_us: u64, to_us: u64) -> u64 {
        let times = self.shared.times.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = times.partition_point(|one| one.read_us < from_us);
        let end = times.partition_point(|one| one.read_us <= to_us);
        let waits = times[begin..end].iter().map(|one| one.read_us.saturating_sub(one.written_us));
        waits.max().unwrap_or(0)
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn read(consumer: &BaseConsumer, shared: &Shared) {
    let mut known = HashSet::new();
    while !shared.stop.load(Ordering::Relaxed) {
        // An error is that of a broker which is away: it is asked again.
        let Some(Ok(message)) = consumer.poll(POLL) else { continue };
        let Some((id, written_us)) = event(&message) else { continue };
        if !known.insert(id) {
            shared.copies.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let times = Times { written_us, read_us: now_us() };
        shared.times.lock().unwrap_or_else(PoisonError::into_inner).push(times);
        shared.distinct.fetch_add(1, Ordering::Relaxed);
    }
}

/// Its id, and when it was written.
fn event(message: &BorrowedMessage<'_>) -> Option<(String, u64)> {
    let id = message.headers()?.iter().find(|header| header.key == "id")?.value?;
    let id = String::from_utf8(id.to_vec()).ok()?;
    let value: serde_json::Value = serde_json::from_slice(message.payload()?).ok()?;
    Some((id, value["at_us"].as_u64()?))
}
