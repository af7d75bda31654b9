//! The producer of dead letters, on a thread of its own: what it does may block.

use std::{
    sync::{
        Mutex, MutexGuard,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, ClientContext,
    config::{FromClientConfigAndContext, RDKafkaLogLevel},
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::{DeliveryResult, Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext, PurgeConfig},
};
use tokio::sync::oneshot;
use walpost_librdkafka::without_value;

use super::letter::Paper;
use crate::{Error, kafka::producer_config, settings::Settings};

/// Longest wait for an answer about the topic, in milliseconds.
const ANSWER_LIMIT_MS: u64 = 5_000;
/// Longest wait for all of a piece, in milliseconds: librdkafka gives each
/// record up before.
const PIECE_LIMIT_MS: u64 = 30_000;
/// Bound on one wait for deliveries, and so on how late it is seen that nobody
/// waits for them.
const POLL_MS: u64 = 20;
/// Between two looks at what librdkafka says while there is nothing to do.
const IDLE_MS: u64 = 500;
/// Nobody asks a second time before the answer, but who was given up may.
const JOBS_MAX: usize = 4;

/// Why the topic cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Away {
    #[error("the topic does not exist; create it")]
    Missing,
    #[error("Kafka denies it; grant Describe and Write on the topic")]
    Denied,
    #[error("{0}")]
    Now(String),
}

/// What became of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Written,
    /// The topic does not take this one, and why.
    Refused(String),
    /// It was not sent, or may have been.
    Unknown,
}

/// What became of a piece: as many fates as records.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub(super) fates: Vec<Fate>,
    /// Why some are unknown.
    pub(super) away: Option<Away>,
}

enum Job {
    Find { reply: oneshot::Sender<Result<(), Away>> },
    Send { papers: Vec<Paper>, reply: oneshot::Sender<Posted> },
}

/// The way to the thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Post {
    jobs: SyncSender<Job>,
}

impl Post {
    /// Starts the thread. Nothing is connected yet.
    pub(super) fn start(settings: &Settings, topic: &str) -> Result<(Self, JoinHandle<()>), Error> {
        let failed = |attempted: &str, reason: String| Error::Kafka {
            attempted: attempted.to_owned(),
            source: reason.into(),
        };
        let config = producer_config(settings);
        config.create_native_config().map_err(|error| {
            failed("configuring the producer of dead letters", without_value(&error))
        })?;
        let (jobs, receiver) = sync_channel(JOBS_MAX);
        let topic = topic.to_owned();
        let thread = std::thread::Builder::new().name("walpost-letters".to_owned());
        let thread = thread.spawn(move || run(&config, topic, &receiver)).map_err(|error| {
            failed("starting the thread of the producer of dead letters", error.to_string())
        })?;
        Ok((Self { jobs }, thread))
    }

    /// Looks whether the topic is there.
    pub(super) async fn find(&self) -> Result<(), Away> {
        self.ask(|reply| Job::Find { reply }).await?
    }

    /// Writes `papers`. A future that is dropped gives them up, and some may
    /// have been written.
    pub(super) async fn send(&self, papers: Vec<Paper>) -> Posted {
        let count = papers.len();
        let asked = self.ask(|reply| Job::Send { papers, reply }).await;
        asked.unwrap_or_else(|away| Posted::unknown(count, away))
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Result<T, Away> {
        let (reply, answer) = oneshot::channel();
        let busy = || Away::Now("the producer of dead letters is busy or has ended".to_owned());
        self.jobs.try_send(job(reply)).map_err(|_| busy())?;
        answer.await.map_err(|_| busy())
    }
}

impl Posted {
    fn unknown(count: usize, away: Away) -> Self {
        Self { fates: vec![Fate::Unknown; count], away: Some(away) }
    }
}

fn run(config: &ClientConfig, topic: String, jobs: &Receiver<Job>) {
    let producer = BaseProducer::from_config_and_context(config, Context::default());
    let mut outbox = producer.map(|producer| Outbox { producer, topic, sent: 0 });
    loop {
        match (jobs.recv_timeout(Duration::from_millis(IDLE_MS)), &mut outbox) {
            (Ok(Job::Find { reply }), Ok(outbox)) => drop(reply.send(outbox.find())),
            (Ok(Job::Send { papers, reply }), Ok(outbox)) => {
                let posted = outbox.post(papers, || reply.is_closed());
                drop(reply.send(posted));
            }
            (Ok(Job::Find { reply }), Err(error)) => {
                drop(reply.send(Err(Away::Now(without_value(error)))));
            }
            (Ok(Job::Send { papers, reply }), Err(error)) => {
                let away = Away::Now(without_value(error));
                drop(reply.send(Posted::unknown(papers.len(), away)));
            }
            (Err(RecvTimeoutError::Timeout), outbox) => {
                if let Ok(outbox) = outbox {
                    outbox.producer.poll(Duration::ZERO);
                }
            }
            (Err(RecvTimeoutError::Disconnected), _) => return,
        }
    }
}

struct Outbox {
    producer: BaseProducer<Context>,
    topic: String,
    /// Records so far: a delivery that comes late is of none of the next piece.
    sent: usize,
}

impl Outbox {
    /// Creates nothing.
    fn find(&self) -> Result<(), Away> {
        let limit = Duration::from_millis(ANSWER_LIMIT_MS);
        let metadata = self.producer.client().fetch_metadata(Some(&self.topic), limit);
        self.producer.poll(Duration::ZERO);
        let metadata = metadata.map_err(|error| away(&error))?;
        let topic = metadata.topics().iter().find(|topic| topic.name() == self.topic);
        let topic = topic.ok_or(Away::Missing)?;
        match topic.error().map(Code::from) {
            Some(code) => Err(away_by(code)),
            None if topic.partitions().is_empty() => Err(Away::Missing),
            None => Ok(()),
        }
    }

    fn post(&mut self, papers: Vec<Paper>, is_given_up: impl Fn() -> bool) -> Posted {
        let count = papers.len();
        let first = self.sent;
        self.sent += count;
        if let Err(away) = self.find() {
            return Posted::unknown(count, away);
        }
        let mut posted = Posted { fates: vec![Fate::Unknown; count], away: None };
        let mut on_way = 0_usize;
        for (index, paper) in papers.into_iter().enumerate() {
            match self.queue(first + index, &paper) {
                Ok(()) => on_way += 1,
                Err(error) => match judge(&error) {
                    Fate::Unknown => {
                        posted.away = Some(away(&error));
                        break;
                    }
                    fate => posted.fates[index] = fate,
                },
            }
        }
        let limit = Instant::now() + Duration::from_millis(PIECE_LIMIT_MS);
        while on_way > 0 && Instant::now() < limit && !is_given_up() {
            self.producer.poll(Duration::from_millis(POLL_MS));
            on_way = on_way.saturating_sub(self.settle(first, &mut posted));
        }
        if on_way > 0 {
            self.producer.purge(PurgeConfig::default().queue().inflight());
            self.producer.poll(Duration::from_millis(POLL_MS));
            self.settle(first, &mut posted);
            let silent = || Away::Now("the brokers acknowledge nothing".to_owned());
            posted.away.get_or_insert_with(silent);
        }
        posted
    }

    fn queue(&self, number: usize, paper: &Paper) -> Result<(), KafkaError> {
        let headers = OwnedHeaders::new_with_capacity(paper.headers.len());
        let headers = paper.headers.iter().fold(headers, |headers, (key, value)| {
            headers.insert(Header { key, value: value.as_deref() })
        });
        let record = BaseRecord::<[u8], [u8], usize> {
            topic: &self.topic,
            partition: None,
            payload: paper.value.as_deref(),
            key: paper.key.as_deref(),
            timestamp: None,
            headers: Some(headers),
            delivery_opaque: number,
        };
        self.producer.send(record).map_err(|(error, _)| error)
    }

    /// Takes the deliveries that have come, and says how many are of this piece.
    fn settle(&self, first: usize, posted: &mut Posted) -> usize {
        let mut count = 0;
        for (number, result) in self.producer.context().take() {
            let index = number.checked_sub(first);
            let Some(fate) = index.and_then(|index| posted.fates.get_mut(index)) else { continue };
            count += 1;
            *fate = match result {
                Ok(()) => Fate::Written,
                Err(error) => {
                    let judged = judge(&error);
                    if judged == Fate::Unknown {
                        posted.away.get_or_insert_with(|| away(&error));
                    }
                    judged
                }
            };
        }
        count
    }
}

/// What an error says of the record. Each is a batch of its own, so it is the
/// record that is too large.
fn judge(error: &KafkaError) -> Fate {
    match error.rdkafka_error_code() {
        Some(
            code @ (Code::MessageSizeTooLarge
            | Code::InvalidMessageSize
            | Code::MessageBatchTooLarge
            | Code::InvalidMessage
            | Code::InvalidRecord
            | Code::InvalidTimestamp),
        ) => Fate::Refused(code.to_string()),
        _ => Fate::Unknown,
    }
}

fn away(error: &KafkaError) -> Away {
    error.rdkafka_error_code().map_or_else(|| Away::Now(without_value(error)), away_by)
}

fn away_by(code: Code) -> Away {
    match code {
        Code::UnknownTopicOrPartition
        | Code::UnknownTopic
        | Code::UnknownPartition
        | Code::InvalidTopic => Away::Missing,
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => Away::Denied,
        other => Away::Now(other.to_string()),
    }
}

/// Receives librdkafka's callbacks, all of which come on the thread while it
/// polls.
#[derive(Debug, Default)]
struct Context {
    settled: Mutex<Vec<(usize, Result<(), KafkaError>)>>,
}

impl Context {
    fn take(&self) -> Vec<(usize, Result<(), KafkaError>)> {
        std::mem::take(&mut *self.settled())
    }

    fn settled(&self) -> MutexGuard<'_, Vec<(usize, Result<(), KafkaError>)>> {
        self.settled.lock().expect("no code panics while it holds the lock")
    }
}

impl ClientContext for Context {
    /// What matters of it comes with the deliveries.
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, "librdkafka, dead letters: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, "librdkafka, dead letters: {reason}");
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let result = result.as_ref().map(|_| ()).map_err(|(error, _)| error.clone());
        self.settled().push((number, result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_the_record_is_told_from_what_will_pass() {
        let judged = |code| judge(&KafkaError::MessageProduction(code));
        assert!(matches!(judged(Code::MessageSizeTooLarge), Fate::Refused(_)));
        assert!(matches!(judged(Code::InvalidRecord), Fate::Refused(_)));
        for code in [Code::MessageTimedOut, Code::UnknownTopicOrPartition, Code::PurgeInflight] {
            assert_eq!(judged(code), Fate::Unknown, "{code:?}");
        }
        assert_eq!(away_by(Code::UnknownTopic), Away::Missing);
        assert_eq!(away_by(Code::TopicAuthorizationFailed), Away::Denied);
        assert!(matches!(away_by(Code::AllBrokersDown), Away::Now(_)));
    }

    #[test]
    fn a_setting_that_is_wrong_is_named_without_its_value() {
        let mut settings = Settings::new("shipping".into());
        settings.kafka.insert("security.protocol".into(), "s3cr3t".into());
        let error = Post::start(&settings, "dead").map(drop).unwrap_err();
        let text = walpost_event::error_chain(&error);
        assert!(text.contains("security.protocol") && !text.contains("s3cr3t"), "{text}");
    }
}
