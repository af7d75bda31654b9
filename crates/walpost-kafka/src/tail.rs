use std::{collections::HashMap, sync::Arc, time::Duration};

use rdkafka::{
    Message as _, Offset, Timestamp, TopicPartitionList,
    config::FromClientConfigAndContext,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::BorrowedMessage,
    types::RDKafkaErrorCode,
};
use walpost_event::{Bytes, Header, Message};
use walpost_librdkafka::{Answer, End, message_headers};
use walpost_relay::RelayError;

use crate::{
    config::KafkaConnector,
    log::Quiet,
    read_back::{Asker, REQUEST_TIMEOUT},
};

/// How the names of topics begin that are Kafka's own, or Kafka Connect's.
const INTERNAL: &str = "__";

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
    /// Where the partitions ended at the beginning.
    ends: HashMap<(Arc<str>, i32), i64>,
    /// Topics that are read, with their partitions.
    followed: HashMap<Arc<str>, i32>,
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tail({} topics of {} partitions)", self.followed.len(), self.ends.len())
    }
}

impl Tail {
    /// Takes note of where all topics end.
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
        let consumer: BaseConsumer<Quiet> = BaseConsumer::from_config_and_context(&config, Quiet)
            .map_err(|error| {
            failed(format!("cannot make a consumer of the settings: {error}"))
        })?;
        let consumer = Arc::new(consumer);
        let asker = Asker::new(&consumer);
        let mut tail = Self { consumer, asker, ends: HashMap::new(), followed: HashMap::new() };
        let topics = tail.topics()?;
        let places = topics
            .into_iter()
            .flat_map(|(topic, count)| (0..count).map(move |partition| (topic.clone(), partition)));
        tail.ends = tail.ends_of(places.collect())?;
        Ok(tail)
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
    /// If librdkafka refuses, as it does names with a NUL.
    pub fn follow(&mut self, topic: &Arc<str>, partitions: i32) -> Result<(), RelayError> {
        let before = self.followed.get(topic).copied().unwrap_or_default();
        if partitions <= before || topic.contains('\0') {
            return Ok(());
        }
        let mut list = TopicPartitionList::new();
        for partition in before..partitions {
            let start = self.ends.get(&(topic.clone(), partition)).copied().unwrap_or_default();
            list.add_partition_offset(topic, partition, Offset::Offset(start)).map_err(judged)?;
        }
        self.consumer.incremental_assign(&list).map_err(judged)?;
        self.followed.insert(topic.clone(), partitions);
        Ok(())
    }

    /// Where the partitions that are read end now: topic, partition, offset of the
    /// next record. Those whose leader is away are left out.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn ends(&self) -> Result<Vec<(Arc<str>, i32, i64)>, RelayError> {
        let followed = self.followed.iter();
        let places = followed.flat_map(|(topic, count)| {
            (0..*count).map(move |partition| (topic.clone(), partition))
        });
        let ends = self.ends_of(places.collect())?;
        Ok(ends.into_iter().map(|((topic, partition), end)| (topic, partition, end)).collect())
    }

    /// The next record, in the order of its partition, or `None` after `limit`.
    ///
    /// # Errors
    /// [`RelayError::SinkAccess`] without the right to read a topic.
    pub fn next(&self, limit: Duration) -> Result<Option<TailRecord>, RelayError> {
        match self.consumer.poll(limit) {
            None => Ok(None),
            Some(Ok(message)) => Ok(Some(record(&message))),
            Some(Err(error)) => match judged(error) {
                RelayError::Sink { detail, .. } => {
                    tracing::debug!(detail, "reading what others publish");
                    Ok(None)
                }
                other => Err(other),
            },
        }
    }

    fn ends_of(
        &self,
        places: Vec<(Arc<str>, i32)>,
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
