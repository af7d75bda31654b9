//! A cluster in memory, in the place of librdkafka's thread: for tests of
//! handlers. It answers the same commands.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::sync::mpsc;
use uuid::Uuid;
use walpost_librdkafka::Committed;

use super::{
    client::{Started, start_as},
    command::{
        AssignmentId, Command, Commit, FoundTopic, GroupEvent, KafkaFailure, Question,
        TopicIdentity,
    },
    signal::Signal,
};
use crate::{
    Error, Event, TopicPartition,
    inbox::{Fetched, Inbox},
    settings::Settings,
};

/// Longest sleep without a signal.
const IDLE: Duration = Duration::from_millis(50);

/// Topics and offsets of groups.
///
/// Who joins takes all partitions, and whoever had them is not told: as a member
/// that was paused past its session.
#[derive(Clone)]
pub struct Cluster {
    id: Arc<str>,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    topics: BTreeMap<Arc<str>, Topic>,
    /// Offset and metadata, by group.
    committed: HashMap<(String, TopicPartition), (i64, Vec<u8>)>,
    /// The last that joined, which alone is a member.
    member: u64,
}

struct Topic {
    id: String,
    /// Those that have records, by their numbers.
    partitions: BTreeMap<i32, Vec<Event>>,
}

impl Default for Cluster {
    fn default() -> Self {
        let id = Uuid::new_v4().simple().to_string().into();
        Self { id, inner: Arc::default() }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cluster")
    }
}

impl Cluster {
    /// Appends a record to `partition` of its topic, and says at which offset.
    pub fn append(&self, event: &Event, partition: i32) -> i64 {
        let mut inner = self.lock();
        let topic = inner.topics.entry(event.topic().into()).or_insert_with(|| {
            let id = Uuid::new_v4().simple().to_string();
            Topic { id, partitions: BTreeMap::new() }
        });
        let log = topic.partitions.entry(partition).or_default();
        let offset = log.len() as i64;
        log.push(event.placed(partition, offset));
        offset
    }

    /// Names of the topics.
    pub fn topics(&self) -> Vec<String> {
        self.lock().topics.keys().map(|topic| topic.as_ref().to_owned()).collect()
    }

    /// The offset behind the last record of each partition.
    pub fn ends(&self) -> BTreeMap<TopicPartition, i64> {
        let inner = self.lock();
        let of = |(name, topic): (&Arc<str>, &Topic)| {
            let name = Arc::clone(name);
            let ends = topic.partitions.iter().map(move |(partition, log)| {
                let (topic, partition) = (Arc::clone(&name), *partition);
                (TopicPartition { topic, partition }, log.len() as i64)
            });
            ends.collect::<Vec<_>>()
        };
        inner.topics.iter().flat_map(of).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code panics while it holds the lock")
    }

    fn topic(&self, topic: &Arc<str>) -> Result<FoundTopic, KafkaFailure> {
        let inner = self.lock();
        let Some(Topic { id, partitions }) = inner.topics.get(topic) else {
            return Err(KafkaFailure::UnknownTopic(Arc::clone(topic)));
        };
        let identity = TopicIdentity { cluster_id: self.id.to_string(), topic_id: id.clone() };
        Ok(FoundTopic { identity, partitions: partitions.keys().copied().collect() })
    }

    /// The record at `offset` of a partition.
    fn record(&self, of: &TopicPartition, offset: i64) -> Option<Event> {
        let inner = self.lock();
        let log = inner.topics.get(&of.topic)?.partitions.get(&of.partition)?;
        log.get(usize::try_from(offset).ok()?).cloned()
    }
}

/// Joins the group, in the place of [`start`](super::start).
pub(crate) fn start_in_memory(settings: &Settings, cluster: &Cluster) -> Result<Started, Error> {
    let (cluster, group) = (cluster.clone(), settings.group_id().to_owned());
    let topics = settings.topics.clone();
    start_as(move |signal, commands, events| {
        let mut inner = cluster.lock();
        inner.member += 1;
        let id = inner.member;
        drop(inner);
        let assigned =
            cluster.ends().into_keys().filter(|of| topics.iter().any(|t| **t == *of.topic));
        let assigned = assigned.map(|of| (of, AssignmentId(id))).collect();
        let _ = events.blocking_send(GroupEvent::Assigned(assigned));
        let member = Member { cluster, id, group, fetching: HashMap::new(), signal, commands };
        // The receiver has to see that the thread is there.
        member.serve();
        drop(events);
    })
}

struct Member {
    cluster: Cluster,
    id: u64,
    group: String,
    /// What is fetched, and from where on.
    fetching: HashMap<TopicPartition, (Arc<Inbox>, i64)>,
    signal: Signal,
    commands: mpsc::Receiver<Command>,
}

impl Member {
    /// Until it is told to close, or nobody is left to tell.
    fn serve(mut self) {
        loop {
            loop {
                match self.commands.try_recv() {
                    Ok(Command::Close { reply }) => {
                        let _ = reply.send(Ok(()));
                        return;
                    }
                    Ok(command) => self.carry_out(command),
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => return,
                }
            }
            self.fill();
            self.signal.wait(IDLE);
        }
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Ask(question) => self.answer(question),
            Command::Start(start) => {
                let is_member = self.check(start.assignment);
                if is_member.is_ok() {
                    self.fetching.insert(start.partition, (start.inbox, start.place.offset));
                }
                let _ = start.reply.send(is_member);
            }
            Command::Stop { partition, assignment, reply } => {
                self.fetching.remove(&partition);
                let _ = reply.send(self.check(assignment));
            }
            Command::Commit(commit) => {
                let Commit { partition, assignment, offset, marker, reply, .. } = commit;
                let is_member = self.check(assignment);
                if is_member.is_ok() {
                    let of = (self.group.clone(), partition);
                    self.cluster.lock().committed.insert(of, (offset, marker.into_bytes()));
                }
                let _ = reply.send(is_member);
            }
            // None waits here.
            Command::Hurry(_) => {}
            Command::Release { reply, .. } => drop(reply.send(Ok(()))),
            Command::Close { .. } => unreachable!("taken by the loop"),
        }
    }

    /// As a broker does, which knows the members.
    fn check(&self, assignment: AssignmentId) -> Result<(), KafkaFailure> {
        let is_member = self.cluster.lock().member == self.id && assignment.0 == self.id;
        if is_member { Ok(()) } else { Err(KafkaFailure::NotAssigned) }
    }

    fn answer(&self, question: Question) {
        match question {
            Question::Topic { topic, reply } => drop(reply.send(self.cluster.topic(&topic))),
            Question::Committed { partition, reply } => {
                let (topic, number) = (partition.topic.to_string(), partition.partition);
                let found =
                    self.cluster.lock().committed.get(&(self.group.clone(), partition)).cloned();
                let (offset, metadata) = match found {
                    Some((offset, metadata)) => (Some(offset), metadata),
                    None => (None, Vec::new()),
                };
                let (partition, leader_epoch) = (number, None);
                let _ =
                    reply.send(Ok(Committed { topic, partition, offset, metadata, leader_epoch }));
            }
            Question::Watermarks { partition, reply, .. } => {
                let end = self.cluster.ends().get(&partition).copied();
                let unknown = || KafkaFailure::UnknownTopic(Arc::clone(&partition.topic));
                let _ = reply.send(end.map(|end| (0, end)).ok_or_else(unknown));
            }
        }
    }

    fn fill(&mut self) {
        let mut polled = Vec::new();
        for (of, (inbox, next)) in &mut self.fetching {
            inbox.fill(&mut polled, || match self.cluster.record(of, *next) {
                Some(event) => {
                    *next += 1;
                    Fetched::Event(event)
                }
                None => Fetched::Nothing,
            });
        }
    }
}
