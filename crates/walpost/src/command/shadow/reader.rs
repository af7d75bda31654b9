//! The topics that Debezium writes, read by a thread of their own.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
};
use walpost_kafka::{KafkaConnector, Tail, TailRecord};
use walpost_relay::RelayError;
use walpost_shadow::TopicPattern;

/// Bound on one wait for a record.
const POLL: Duration = Duration::from_millis(50);
/// Between two looks for topics that are wanted and not there.
const LOOK_FOR_MISSING: Duration = Duration::from_secs(1);
/// Between two looks for topics and partitions that are new.
const LOOK_FOR_NEW: Duration = Duration::from_secs(10);
/// Bounds on what is on its way from the thread.
const ON_THEIR_WAY: usize = 1_024;
const ON_THEIR_WAY_BYTES: usize = 16 * 1024 * 1024;

/// What the thread has to tell.
#[derive(Debug)]
pub(super) enum Read {
    /// A topic that is read has so many partitions.
    Topic(Arc<str>, i32),
    /// A record.
    Record(Box<TailRecord>),
    /// An answer to [`Reader::ask_ends`]: topic, partition, offset.
    End(Arc<str>, i32, i64),
    /// It has ended.
    Failed(RelayError),
}

/// Which topics are read: those that are named, and those with such names.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) named: BTreeSet<Arc<str>>,
    pub(super) pattern: Option<TopicPattern>,
}

/// A thread that reads. It ends with this value.
pub(super) struct Reader {
    told: mpsc::Receiver<OnItsWay>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Topic and partition.
type Place = (Arc<str>, i32);

/// A topic, and how many partitions it has.
type Counted = (Arc<str>, i32);

/// With room for its bytes, which is free again once it is read.
type OnItsWay = (Read, Option<OwnedSemaphorePermit>);

#[derive(Debug)]
struct Shared {
    wanted: Mutex<Wanted>,
    /// In bytes.
    room: Arc<Semaphore>,
    has_more: AtomicBool,
    wants_ends: AtomicBool,
    is_done: AtomicBool,
}

impl Reader {
    /// Takes note of where all topics end, and begins to read there.
    pub(super) async fn start(
        connector: KafkaConnector,
        wanted: Wanted,
    ) -> Result<Self, RelayError> {
        let (tell, told) = mpsc::channel(ON_THEIR_WAY);
        let shared = Arc::new(Shared::new(wanted));
        let (reading, (open, opened)) = (shared.clone(), oneshot::channel());
        let runtime = Handle::current();
        let thread = thread::spawn(move || {
            let tail = match Tail::open(&connector) {
                Ok(tail) => tail,
                Err(error) => return drop(open.send(Err(error))),
            };
            if open.send(Ok(())).is_err() {
                return;
            }
            if let Err(error) = reading.read(tail, &tell, &runtime) {
                drop(tell.blocking_send((Read::Failed(error), None)));
            }
        });
        let detail = || "reading what is published was interrupted".to_owned();
        let ended = |_| Err(RelayError::Sink { detail: detail(), transient: true });
        opened.await.unwrap_or_else(ended)?;
        Ok(Self { told, shared, thread: Some(thread) })
    }

    /// Reads this topic too, from where it was at the start.
    pub(super) fn want(&self, topic: &Arc<str>) {
        if self.shared.wanted().named.insert(topic.clone()) {
            self.shared.has_more.store(true, Ordering::Relaxed);
        }
    }

    /// Has it tell where the partitions end that there are now, and of those that come
    /// later that they begin at 0: each once it is read.
    pub(super) fn ask_ends(&self) {
        self.shared.wants_ends.store(true, Ordering::Relaxed);
    }

    /// What comes next. Safe to cancel.
    pub(super) async fn next(&mut self) -> Read {
        match self.told.recv().await {
            Some((read, _room)) => read,
            // It tells why it ends, unless it has panicked.
            None => Read::Failed(RelayError::Fatal(
                "the thread that reads has ended by a panic; report it with what it has printed, \
                 and start again"
                    .to_owned(),
            )),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.is_done.store(true, Ordering::Relaxed);
        self.shared.room.close();
        self.told.close();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Shared {
    fn new(wanted: Wanted) -> Self {
        Self {
            wanted: Mutex::new(wanted),
            room: Arc::new(Semaphore::new(ON_THEIR_WAY_BYTES)),
            has_more: AtomicBool::new(false),
            wants_ends: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
        }
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until nobody listens.
    fn read(
        &self,
        mut tail: Tail,
        tell: &mpsc::Sender<OnItsWay>,
        runtime: &Handle,
    ) -> Result<(), RelayError> {
        let (mut known, mut begins) = (HashMap::new(), Begins::default());
        let (mut look_at, mut wants_ends) = (now(), false);
        while !self.is_done.load(Ordering::Relaxed) {
            let asked = self.wants_ends.swap(false, Ordering::Relaxed);
            wants_ends |= asked;
            if asked || self.has_more.swap(false, Ordering::Relaxed) || now() >= look_at {
                let is_complete = match topics(&tail)? {
                    Some(topics) => {
                        if std::mem::take(&mut wants_ends) {
                            begins.existed = Some(topics.iter().cloned().collect());
                        }
                        let is_complete = self.look(topics, &mut tail, &mut known, tell)?;
                        begins.tell(&tail, &known, tell)? && is_complete
                    }
                    None => false,
                };
                look_at = now() + if is_complete { LOOK_FOR_NEW } else { LOOK_FOR_MISSING };
            }
            if let Some(record) = tail.next(POLL)? {
                let room = runtime.block_on(self.room_for(&record));
                drop(tell.blocking_send((Read::Record(Box::new(record)), room)));
            }
        }
        Ok(())
    }

    /// Waits for it; a record that is larger than all of it has all of it. None once
    /// nobody listens.
    async fn room_for(&self, record: &TailRecord) -> Option<OwnedSemaphorePermit> {
        let bytes = record.message.size_bytes().min(ON_THEIR_WAY_BYTES);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.room.clone().acquire_many_owned(bytes).await.ok()
    }

    /// Reads what is wanted of these; whether all that is named is there.
    fn look(
        &self,
        topics: Vec<Counted>,
        tail: &mut Tail,
        known: &mut HashMap<Arc<str>, i32>,
        tell: &mpsc::Sender<OnItsWay>,
    ) -> Result<bool, RelayError> {
        let (named, pattern) = {
            let wanted = self.wanted();
            (wanted.named.clone(), wanted.pattern.clone())
        };
        let is_meant = |topic: &str| pattern.as_ref().is_some_and(|names| names.matches(topic));
        for (topic, partitions) in topics {
            let is_wanted = named.contains(&topic) || is_meant(&topic);
            if is_wanted && known.get(&topic) != Some(&partitions) {
                tail.follow(&topic, partitions)?;
                drop(tell.blocking_send((Read::Topic(topic.clone(), partitions), None)));
                known.insert(topic, partitions);
            }
        }
        Ok(named.iter().all(|topic| known.contains_key(topic)))
    }
}

/// None where brokers do not answer: they come back.
fn topics(tail: &Tail) -> Result<Option<Vec<Counted>>, RelayError> {
    match tail.topics() {
        Ok(topics) => Ok(Some(topics)),
        Err(RelayError::Sink { detail, .. }) => {
            tracing::warn!(detail, "looking for topics");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// From where on the records of each partition are of events behind the start, told
/// once for each.
#[derive(Default)]
struct Begins {
    /// The topics, and how many partitions they had, once nothing older is written.
    existed: Option<HashMap<Arc<str>, i32>>,
    told: HashSet<Place>,
}

impl Begins {
    /// Of what is read; whether it is told of all. A partition that is newer has
    /// nothing older, and one whose leader is away is asked for again.
    fn tell(
        &mut self,
        tail: &Tail,
        known: &HashMap<Arc<str>, i32>,
        tell: &mpsc::Sender<OnItsWay>,
    ) -> Result<bool, RelayError> {
        let Some([new, old]) = self.untold(known) else { return Ok(true) };
        let mut begins: Vec<_> = new.into_iter().map(|place| (place, 0)).collect();
        if !old.is_empty() {
            begins.extend(tail.ends(&old)?);
        }
        for ((topic, partition), offset) in begins {
            self.told.insert((topic.clone(), partition));
            drop(tell.blocking_send((Read::End(topic, partition, offset), None)));
        }
        Ok(self.untold(known).is_none())
    }

    /// Of which it is still to be told: those that are newer than what existed, and
    /// the others. None where there is nothing to tell.
    fn untold(&self, known: &HashMap<Arc<str>, i32>) -> Option<[Vec<Place>; 2]> {
        let existed = self.existed.as_ref()?;
        let is_new =
            |(topic, partition): &Place| existed.get(topic).is_none_or(|count| partition >= count);
        let places = known.iter().flat_map(|(topic, count)| {
            (0..*count).map(move |partition| (topic.clone(), partition))
        });
        let untold = places.filter(|place| !self.told.contains(place));
        let (new, old): (Vec<_>, Vec<_>) = untold.partition(is_new);
        (!new.is_empty() || !old.is_empty()).then_some([new, old])
    }
}

fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use walpost_event::{Headers, Message};

    use super::*;

    fn reader() -> (mpsc::Sender<OnItsWay>, Reader) {
        let (tell, told) = mpsc::channel(ON_THEIR_WAY);
        let shared = Arc::new(Shared::new(Wanted::default()));
        (tell, Reader { told, shared, thread: None })
    }

    fn record(bytes: usize) -> TailRecord {
        let message = Message {
            topic: "t".into(),
            partition: None,
            key: None,
            value: Some(vec![0; bytes].into()),
            headers: Headers::new(),
            timestamp_ms: None,
        };
        TailRecord { partition: 0, offset: 0, message }
    }

    #[test]
    fn what_did_not_exist_when_the_ends_were_asked_for_begins_at_its_start() {
        let count = |counts: &[(&str, i32)]| -> HashMap<Arc<str>, i32> {
            counts.iter().map(|(topic, count)| ((*topic).into(), *count)).collect()
        };
        let known = count(&[("old", 2), ("new", 1)]);
        let mut begins = Begins::default();
        assert_eq!(begins.untold(&known), None, "nobody has asked");
        begins.existed = Some(count(&[("old", 1), ("other", 1)]));
        let [mut new, old] = begins.untold(&known).unwrap();
        new.sort();
        assert_eq!(
            (new, old),
            (vec![("new".into(), 0), ("old".into(), 1)], vec![("old".into(), 0)])
        );
        begins.told = [("old".into(), 0), ("old".into(), 1)].into();
        assert_eq!(begins.untold(&known), Some([vec![("new".into(), 0)], vec![]]));
        begins.told.insert(("new".into(), 0));
        assert_eq!(begins.untold(&known), None);
    }

    #[tokio::test]
    async fn a_thread_that_ends_without_a_word_is_a_failure() {
        let (tell, mut reader) = reader();
        drop(tell);
        assert!(matches!(reader.next().await, Read::Failed(RelayError::Fatal(_))));
    }

    #[tokio::test]
    async fn what_is_on_its_way_has_a_bound_in_bytes() {
        let (tell, mut reader) = reader();
        let free = |reader: &Reader| reader.shared.room.available_permits();
        for bytes in [ON_THEIR_WAY_BYTES + 1, ON_THEIR_WAY_BYTES] {
            let large = record(bytes);
            let room = reader.shared.room_for(&large).await;
            assert_eq!(free(&reader), 0);
            assert!(tell.send((Read::Record(Box::new(large)), room)).await.is_ok());
            assert!(matches!(reader.next().await, Read::Record(_)));
            assert_eq!(free(&reader), ON_THEIR_WAY_BYTES);
        }
    }
}
