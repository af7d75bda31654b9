use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    Message as _, Offset, Timestamp, TopicPartitionList,
    config::FromClientConfigAndContext,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::BorrowedMessage,
    types::RDKafkaErrorCode,
};
use walpost_event::{Bytes, Header, Message};
use walpost_librdkafka::{Answer, End, ends_reading, message_headers};
use walpost_relay::RelayError;

use crate::{
    config::KafkaConnector,
    log::Quiet,
    read_back::{Asker, REQUEST_TIMEOUT, open_believed},
};

/// How the names of topics begin that are Kafka's own, or Kafka Connect's.
const INTERNAL: &str = "__";

/// Between two questions for ends that nobody has told.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Topic and partition.
type Place = (Arc<str>, i32);

/// A record that somebody has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailRecord {
    /// Its partition.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// All else. No timestamp where the broker has set it (`LogAppendTime`); names of
    /// headers that are no UTF-8 with replacement characters.
    pub message: Message,
}

/// Reads what others write to topics from a moment on, once it is committed.
///
/// Writes nothing: no group, no offsets, and no topic is created by asking for it.
/// Needs the rights Read and Describe on the topics. Everything blocks; errors that
/// pass, as of brokers that are away, are waited for.
pub struct Tail {
    consumer: Arc<BaseConsumer<Quiet>>,
    asker: Asker,
    starts: Starts,
    /// Topics that are read, with their partitions.
    followed: HashMap<Arc<str>, i32>,
}

/// Where the partitions ended at the beginning.
#[derive(Debug, Default)]
struct Starts {
    ends: HashMap<Place, i64>,
    /// Those that were there, and whose ends nobody has told.
    unknown: HashSet<Place>,
}

impl Starts {
    /// Where to read a partition from: one that is new from its start.
    fn of(&self, place: &Place) -> Result<i64, RelayError> {
        if self.unknown.contains(place) {
            let (topic, partition) = place;
            return Err(failed(format!(
                "{topic} partition {partition} had no leader that told where it ends when reading \
                 was to begin there; start again once it has one"
            )));
        }
        Ok(self.ends.get(place).copied().unwrap_or_default())
    }
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tail({} topics of {} partitions)", self.followed.len(), self.starts.ends.len())
    }
}

impl Tail {
    /// Takes note of where all topics end. Partitions whose leader is away are asked
    /// again for a while, and then are in nobody's way but [`follow`](Self::follow)'s.
    ///
    /// # Errors
    /// A transient [`RelayError::Sink`] if the brokers do not answer, and
    /// [`RelayError::SinkAccess`] if they let nobody in.
    pub fn open(connector: &KafkaConnector) -> Result<Self, RelayError> {
        let mut config = connector.admin_config();
        config
            // Names the client in the brokers' logs; nothing is committed.
            .set("group.id", "walpost-tail")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("isolation.level", "read_committed")
            .set("allow.auto.create.topics", "false")
            // What retention has deleted is of no use.
            .set("auto.offset.reset", "earliest")
            .set("fetch.wait.max.ms", "50")
            // Few bytes at a time, whatever the number of partitions.
            .set("queued.max.messages.kbytes", "1024")
            .set("fetch.message.max.bytes", "524288")
            .set("fetch.max.bytes", "8388608");
        let open = |brokers: &str| {
            let mut config = config.clone();
            config.set("bootstrap.servers", brokers);
            BaseConsumer::from_config_and_context(&config, Quiet)
                .map_err(|error| format!("cannot make a consumer of the settings: {error}"))
        };
        let brokers = connector.bootstrap_servers().to_owned();
        let believed = open_believed(brokers, &AtomicBool::new(false), open);
        let (consumer, _) = believed.map_err(failed)?;
        let asker = Asker::new(&consumer);
        let (starts, followed) = (Starts::default(), HashMap::new());
        let mut tail = Self { consumer, asker, starts, followed };
        tail.starts = tail.starts()?;
        Ok(tail)
    }

    fn starts(&self) -> Result<Starts, RelayError> {
        let topics = self.topics()?.into_iter();
        let places =
            topics.flat_map(|(topic, count)| (0..count).map(move |place| (topic.clone(), place)));
        let mut unknown: Vec<Place> = places.collect();
        let (began, mut ends) = (now(), HashMap::new());
        loop {
            ends.extend(self.ends(&unknown)?);
            unknown.retain(|place| !ends.contains_key(place));
            if unknown.is_empty() || began.elapsed() >= REQUEST_TIMEOUT {
                return Ok(Starts { ends, unknown: unknown.into_iter().collect() });
            }
            thread::sleep(ASK_AGAIN);
        }
    }

    /// All topics that are not internal, as they are now, with their partitions.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn topics(&self) -> Result<Vec<(Arc<str>, i32)>, RelayError> {
        let metadata = self.consumer.fetch_metadata(None, REQUEST_TIMEOUT).map_err(judged)?;
        let topics = metadata.topics().iter().filter_map(|topic| {
            let count = i32::try_from(topic.partitions().len()).ok().filter(|count| *count > 0)?;
            (!topic.name().starts_with(INTERNAL)).then(|| (topic.name().into(), count))
        });
        Ok(topics.collect())
    }

    /// Reads a topic too, from where it was at the beginning; what did not exist then
    /// from its start.
    ///
    /// # Errors
    /// A transient [`RelayError::Sink`] where nobody knows where a partition ended at
    /// the beginning, and if librdkafka refuses.
    pub fn follow(&mut self, topic: &Arc<str>, partitions: i32) -> Result<(), RelayError> {
        let before = self.followed.get(topic).copied().unwrap_or_default();
        if partitions <= before || topic.contains('\0') {
            return Ok(());
        }
        let mut list = TopicPartitionList::new();
        for partition in before..partitions {
            let start = self.starts.of(&(topic.clone(), partition))?;
            list.add_partition_offset(topic, partition, Offset::Offset(start)).map_err(judged)?;
        }
        self.consumer.incremental_assign(&list).map_err(judged)?;
        self.followed.insert(topic.clone(), partitions);
        Ok(())
    }

    /// The next record, in the order of its partition, or `None` after `limit`.
    ///
    /// # Errors
    /// [`RelayError::SinkAccess`] without the right to read a topic, and
    /// [`RelayError::Sink`] for a record that cannot be read.
    pub fn next(&self, limit: Duration) -> Result<Option<TailRecord>, RelayError> {
        match self.consumer.poll(limit) {
            None => Ok(None),
            Some(Ok(message)) => Ok(Some(record(&message))),
            Some(Err(error)) if ends_reading(&error) => Err(judged(error)),
            Some(Err(error)) => {
                tracing::debug!(%error, "reading what others publish");
                Ok(None)
            }
        }
    }

    /// Where partitions of topics end now: the offset of the next record. Those whose
    /// leader is away are left out.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn ends(
        &self,
        places: &[(Arc<str>, i32)],
    ) -> Result<HashMap<(Arc<str>, i32), i64>, RelayError> {
        let mut ends = HashMap::with_capacity(places.len());
        let end = End::Newest { uncommitted: false };
        let ask = |index: usize| {
            let (topic, partition) = &places[index];
            self.asker.questions().end(topic, *partition, end, index)
        };
        let take = |index: usize, answer| {
            // A partition without a leader says nothing now.
            if let Answer::Offset(Ok(end)) = answer {
                ends.insert(places[index].clone(), end.offset);
            }
            Ok(())
        };
        self.asker.all(places.len(), ask, take).map_err(failed)?;
        Ok(ends)
    }
}

fn record(message: &BorrowedMessage<'_>) -> TailRecord {
    let headers = message_headers(message).map(|(name, value)| Header {
        name: String::from_utf8_lossy(name).into(),
        value: value.map(Bytes::copy_from_slice),
    });
    TailRecord {
        partition: message.partition(),
        offset: message.offset(),
        message: Message {
            topic: message.topic().into(),
            partition: None,
            key: message.key().map(Bytes::copy_from_slice),
            value: message.payload().map(Bytes::copy_from_slice),
            headers: headers.collect(),
            timestamp_ms: match message.timestamp() {
                Timestamp::CreateTime(at) => Some(at),
                Timestamp::LogAppendTime(_) | Timestamp::NotAvailable => None,
            },
        },
    }
}

fn judged(error: KafkaError) -> RelayError {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::TopicAuthorizationFailed) => RelayError::SinkAccess {
            problem: format!("reading what is published is denied: {error}"),
            remedy: "grant Read and Describe on the topics".to_owned(),
        },
        _ => failed(format!("reading what is published: {error}")),
    }
}

fn failed(detail: String) -> RelayError {
    RelayError::Sink { detail, transient: true }
}

fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_read_from_its_start_only_if_it_is_new() {
        let place = |partition| (Arc::from("t"), partition);
        let starts =
            Starts { ends: [(place(0), 7)].into(), unknown: [place(1)].into_iter().collect() };
        assert_eq!((starts.of(&place(0)).unwrap(), starts.of(&place(2)).unwrap()), (7, 0));
        let error = starts.of(&place(1)).unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("t partition 1"), "{error}");
    }
}
