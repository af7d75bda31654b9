//! One reader of everything that is on a broker, while it comes.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, ConfigSource, ResourceSpecifier},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::BorrowedMessage,
};
use walpost_testkit::ReadRecord;

use super::compare::Output;

const LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// How soon a new topic is found.
const LOOK: Duration = Duration::from_millis(100);

/// A reader that ends with this value.
pub(super) struct Tap {
    shared: Arc<Shared>,
    admin: AdminClient<DefaultClientContext>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    consumer: BaseConsumer,
    read: Mutex<Read>,
    /// Another record is there.
    more: Condvar,
    done: AtomicBool,
}

#[derive(Default)]
struct Read {
    /// Next offset of each partition that is read.
    next: HashMap<(String, i32), i64>,
    records: Output,
}

impl Tap {
    pub(super) fn open(bootstrap: &str) -> Self {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", bootstrap);
        let admin = config.create().expect("an admin client");
        let consumer = config
            .set("group.id", "walpost-differential")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest")
            .set("fetch.wait.max.ms", "20")
            .create()
            .expect("a consumer");
        let (read, more, done) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared { consumer, read, more, done });
        let reader = shared.clone();
        let thread = thread::spawn(move || reader.run());
        Self { shared, admin, thread: Some(thread) }
    }

    /// How many records there are so far on topics with `token` in their names; of
    /// `heartbeats` one at most.
    pub(super) fn count(&self, token: &str, heartbeats: &str) -> usize {
        let read = self.shared.lock();
        let own = read.records.iter().filter(|((topic, _), _)| topic.contains(token));
        let count = |topic: &str, records: &[ReadRecord]| match topic == heartbeats {
            true => records.len().min(1),
            false => records.len(),
        };
        own.map(|((topic, _), records)| count(topic, records)).sum()
    }

    /// All records of those topics, up to the ends that they have now. Blocks.
    ///
    /// # Panics
    /// When the ends are not reached within 30 s.
    pub(super) fn output(&self, token: &str) -> Output {
        let own = self.topics(token);
        let ends: Vec<((String, i32), i64)> = own
            .iter()
            .flat_map(|(topic, partitions)| (0..*partitions).map(move |number| (topic, number)))
            .map(|(topic, number)| {
                let ends = self.shared.consumer.fetch_watermarks(topic, number, LIMIT);
                let (_, end) = ends.unwrap_or_else(|error| panic!("the end of {topic}: {error}"));
                ((topic.clone(), number), end)
            })
            .collect();
        let lags = |read: &mut Read| {
            let is_read = |place: &(String, i32), end: i64| {
                end == 0 || read.next.get(place).is_some_and(|next| *next >= end)
            };
            !ends.iter().all(|(place, end)| is_read(place, *end))
        };
        let waited = self.shared.more.wait_timeout_while(self.shared.lock(), LIMIT, lags);
        let (read, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "the topics of {token} are not read to their ends");
        let own = read.records.iter().filter(|((topic, _), _)| topic.contains(token));
        own.map(|(place, records)| (place.clone(), records.clone())).collect()
    }

    /// Of each topic with `token` in its name how many partitions it has. Blocks.
    pub(super) fn topics(&self, token: &str) -> BTreeMap<String, i32> {
        let all = self.shared.topics().unwrap_or_else(|error| panic!("the topics: {error}"));
        all.into_iter().filter(|(topic, _)| topic.contains(token)).collect()
    }

    /// The same with the settings that they were created with, as text.
    pub(super) async fn settings(
        &self,
        topics: &BTreeMap<String, i32>,
    ) -> BTreeMap<String, String> {
        if topics.is_empty() {
            return BTreeMap::new();
        }
        let names: Vec<ResourceSpecifier<'_>> =
            topics.keys().map(|topic| ResourceSpecifier::Topic(topic)).collect();
        let options = AdminOptions::new().request_timeout(Some(LIMIT));
        let described = self.admin.describe_configs(&names, &options).await.unwrap();
        topics
            .iter()
            .zip(described)
            .map(|((topic, partitions), described)| {
                let described = described.unwrap_or_else(|error| panic!("{topic}: {error}"));
                let entries = described.entries.into_iter();
                let mut own: Vec<String> = entries
                    .filter(|entry| entry.source == ConfigSource::DynamicTopic)
                    .map(|entry| format!("{}={}", entry.name, entry.value.unwrap_or_default()))
                    .collect();
                own.sort();
                (topic.clone(), format!("{partitions} partitions {}", own.join(" ")))
            })
            .collect()
    }

    /// Forgets those topics, and has them deleted.
    pub(super) async fn forget(&self, topics: &BTreeMap<String, i32>) {
        if topics.is_empty() {
            return;
        }
        self.shared.unassign(topics);
        let names: Vec<&str> = topics.keys().map(String::as_str).collect();
        let options = AdminOptions::new().request_timeout(Some(LIMIT));
        if let Err(error) = self.admin.delete_topics(&names, &options).await {
            eprintln!("debezium: topics are not deleted: {error}");
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.shared.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut looked = None::<Instant>;
        while !self.done.load(Ordering::Relaxed) {
            if looked.is_none_or(|at| at.elapsed() >= LOOK) {
                self.assign_new();
                looked = Some(Instant::now());
            }
            match self.consumer.poll(POLL) {
                // Errors are those of topics that are being created or deleted:
                // who waits for their records in vain says so.
                None | Some(Err(_)) => {}
                Some(Ok(message)) => self.keep(&message),
            }
        }
    }

    fn topics(&self) -> Result<Vec<(String, i32)>, rdkafka::error::KafkaError> {
        let metadata = self.consumer.fetch_metadata(None, LIMIT)?;
        let all = metadata.topics().iter().map(|topic| {
            let partitions = i32::try_from(topic.partitions().len()).expect("a few partitions");
            (topic.name().to_owned(), partitions)
        });
        Ok(all.filter(|(_, partitions)| *partitions > 0).collect())
    }

    fn assign_new(&self) {
        let Ok(topics) = self.topics() else { return };
        let mut read = self.lock();
        let mut new = TopicPartitionList::new();
        for (topic, partitions) in topics {
            for number in 0..partitions {
                let place = (topic.clone(), number);
                if let Entry::Vacant(unknown) = read.next.entry(place) {
                    new.add_partition_offset(&topic, number, Offset::Beginning).unwrap();
                    unknown.insert(0);
                }
            }
        }
        if new.count() > 0 {
            self.consumer.incremental_assign(&new).unwrap();
        }
    }

    fn unassign(&self, topics: &BTreeMap<String, i32>) {
        let mut read = self.lock();
        let mut gone = TopicPartitionList::new();
        for (topic, partitions) in topics {
            for number in 0..*partitions {
                let place = (topic.clone(), number);
                // It stays known as read, so that it is not found again while it is
                // being deleted.
                if read.next.contains_key(&place) {
                    gone.add_partition(topic, number);
                }
                read.records.remove(&place);
            }
        }
        if let Err(error) = self.consumer.incremental_unassign(&gone) {
            eprintln!("debezium: topics are still read: {error}");
        }
    }

    fn keep(&self, message: &BorrowedMessage<'_>) {
        let place = (message.topic().to_owned(), message.partition());
        let record = ReadRecord::from(message);
        let mut read = self.lock();
        read.next.insert(place.clone(), message.offset() + 1);
        read.records.entry(place).or_default().push(record);
        self.more.notify_all();
    }
}
