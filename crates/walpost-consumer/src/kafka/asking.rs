//! Questions to the cluster, open until librdkafka has an answer. Kafka's
//! thread waits for none of them.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use rdkafka::{
    consumer::{BaseConsumer, Consumer},
    error::{KafkaResult, RDKafkaErrorCode},
};
use walpost_librdkafka::{Answer, AnswerError, End, Questions, Topic};

use super::{
    command::{FoundTopic, KafkaFailure, Question, Reply, TopicIdentity},
    context::Context,
    group_offsets::GroupOffsets,
    signal::Signal,
};
use crate::TopicPartition;

/// Longest wait for the answer to one question, in milliseconds. One for the
/// end of a log may take twice as long.
const ANSWER_LIMIT_MS: u64 = 5_000;
/// Questions that may be open; each partition asks one at a time, and those of
/// partitions that left are answered within the limit.
const MAX_OPEN: usize = 100_000;

/// The open questions of one client.
pub(super) struct Asking {
    questions: Questions<Context>,
    offsets: GroupOffsets,
    consumer: Arc<BaseConsumer<Context>>,
    /// Records of open transactions are read too.
    read_uncommitted: bool,
    open: HashMap<usize, Open>,
    last_number: usize,
    probing: bool,
}

/// What an answer is for.
enum Open {
    /// Whether anybody answers.
    Probe,
    Topic(Arc<str>, Reply<FoundTopic>),
    /// Then that of the newest, `uncommitted` or not.
    Oldest(TopicPartition, bool, Reply<(i64, i64)>),
    /// With the oldest.
    Newest(i64, bool, Reply<(i64, i64)>),
}

const ENDS: &str = "asking for the ends of the partition";
const TOPIC: &str = "asking for the cluster and the topic";

impl Asking {
    pub(super) fn new(
        consumer: Arc<BaseConsumer<Context>>,
        read_uncommitted: bool,
        signal: Signal,
    ) -> io::Result<Self> {
        let limit = Duration::from_millis(ANSWER_LIMIT_MS);
        let questions = Questions::new(Arc::clone(&consumer), limit, move || signal.notify());
        let offsets = GroupOffsets::start(Arc::clone(&consumer))?;
        let (open, last_number, probing) = (HashMap::new(), 0, false);
        Ok(Self { questions, offsets, consumer, read_uncommitted, open, last_number, probing })
    }

    /// Asks; the answer comes by [`take_answers`](Self::take_answers).
    pub(super) fn ask(&mut self, question: Question) {
        match question {
            Question::Topic { topic, reply } => self.send(Open::Topic(topic, reply), None),
            Question::Committed { partition, reply } => self.offsets.ask(partition, reply),
            Question::Watermarks { partition, uncommitted, reply } => {
                let uncommitted = uncommitted || self.read_uncommitted;
                self.send(Open::Oldest(partition.clone(), uncommitted, reply), Some(&partition));
            }
        }
    }

    /// Asks for `topic`, whatever the answer is, unless that is open already.
    pub(super) fn probe(&mut self, topic: &str) {
        if self.probing || self.open.len() >= MAX_OPEN {
            return;
        }
        self.last_number = self.last_number.wrapping_add(1);
        if self.questions.topic(topic, self.last_number).is_ok() {
            self.probing = true;
            self.open.insert(self.last_number, Open::Probe);
        }
    }

    /// Hands on what has been answered. Whether any answer is a broker's.
    pub(super) fn take_answers(&mut self) -> bool {
        let mut answered = false;
        while let Some((number, answer)) = self.questions.answer() {
            answered |= is_of_broker(&answer);
            match (self.open.remove(&number), answer) {
                (Some(Open::Probe), _) => self.probing = false,
                (Some(Open::Topic(topic, reply)), Answer::Topic(found)) => {
                    let _ = reply.send(self.found(&topic, found));
                }
                (Some(Open::Oldest(of, uncommitted, reply)), Answer::Offset(Ok(oldest))) => {
                    self.send(Open::Newest(oldest.offset, uncommitted, reply), Some(&of));
                }
                (Some(Open::Newest(oldest, _, reply)), Answer::Offset(Ok(newest))) => {
                    let _ = reply.send(Ok((oldest, newest.offset)));
                }
                (
                    Some(Open::Oldest(_, _, reply) | Open::Newest(_, _, reply)),
                    Answer::Offset(Err(error)),
                ) => {
                    let _ = reply.send(Err(failed(ENDS, error)));
                }
                (None, _) => tracing::debug!(number, "an answer to no question"),
                (Some(open), _) => open.fail("an answer to another question".to_owned()),
            }
        }
        answered
    }

    fn send(&mut self, open: Open, of: Option<&TopicPartition>) {
        if self.open.len() >= MAX_OPEN {
            return open.fail(format!("more than {MAX_OPEN} questions are open"));
        }
        self.last_number = self.last_number.wrapping_add(1);
        match self.put(&open, of, self.last_number) {
            Ok(()) => drop(self.open.insert(self.last_number, open)),
            Err(error) => open.fail(error.to_string()),
        }
    }

    fn put(&self, open: &Open, of: Option<&TopicPartition>, number: usize) -> KafkaResult<()> {
        let (topic, partition) = of.map_or(("", 0), |of| (&*of.topic, of.partition));
        match open {
            Open::Probe => Ok(()),
            Open::Topic(topic, _) => self.questions.topic(topic, number),
            Open::Oldest(..) => self.questions.end(topic, partition, End::Oldest, number),
            Open::Newest(_, uncommitted, _) => {
                let newest = End::Newest { uncommitted: *uncommitted };
                self.questions.end(topic, partition, newest, number)
            }
        }
    }

    fn found(
        &self,
        topic: &Arc<str>,
        found: Result<Topic, AnswerError>,
    ) -> Result<FoundTopic, KafkaFailure> {
        let Topic { id, partitions } = match found {
            Ok(found) => found,
            Err(AnswerError::Kafka {
                code: RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic,
                ..
            }) => return Err(KafkaFailure::UnknownTopic(Arc::clone(topic))),
            Err(error) => return Err(failed(TOPIC, error)),
        };
        // It came with the first metadata, and is not waited for.
        let cluster_id =
            self.consumer.client().fetch_cluster_id(Duration::ZERO).ok_or_else(|| {
                let problem = "no broker has told the cluster's id".to_owned();
                KafkaFailure::Other { attempted: TOPIC, problem }
            })?;
        let identity = TopicIdentity { cluster_id, topic_id: id.to_string() };
        Ok(FoundTopic { identity, partitions })
    }
}

impl Open {
    fn fail(self, problem: String) {
        let other = |attempted| KafkaFailure::Other { attempted, problem };
        match self {
            Self::Probe => {}
            Self::Topic(_, reply) => drop(reply.send(Err(other(TOPIC)))),
            Self::Oldest(_, _, reply) | Self::Newest(_, _, reply) => {
                drop(reply.send(Err(other(ENDS))));
            }
        }
    }
}

/// librdkafka's own errors, such as no answer in time, have negative codes.
fn is_of_broker(answer: &Answer) -> bool {
    let error = match answer {
        Answer::Topic(Ok(_)) | Answer::Offset(Ok(_)) => return true,
        Answer::Topic(Err(error)) | Answer::Offset(Err(error)) => error,
    };
    match error {
        AnswerError::Kafka { code, .. } => *code as i32 >= 0,
        _ => true,
    }
}

fn failed(attempted: &'static str, error: AnswerError) -> KafkaFailure {
    KafkaFailure::Other { attempted, problem: error.to_string() }
}
