//! Questions to the cluster, open until librdkafka has an answer. Kafka's
//! thread waits for none of them.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::{
    consumer::{BaseConsumer, Consumer},
    error::{KafkaResult, RDKafkaErrorCode},
};
use walpost_librdkafka::{Answer, AnswerError, Committed, End, Questions, Topic};

use super::{
    command::{FoundTopic, KafkaFailure, Question, Reply, TopicIdentity},
    context::Context,
    signal::Signal,
};
use crate::TopicPartition;

/// Longest wait for the answer to one question, in milliseconds. One for the
/// end of a log may take twice as long.
const ANSWER_LIMIT_MS: u64 = 5_000;
/// Questions that may be open; each partition asks one at a time, and those of
/// partitions that left are answered within the limit.
const MAX_OPEN: usize = 100_000;

/// Whose offsets are asked for, and how.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) group_id: String,
    /// Records of open transactions are read too.
    pub(super) read_uncommitted: bool,
}

/// The open questions of one client.
pub(super) struct Asking {
    questions: Questions<Context>,
    consumer: Arc<BaseConsumer<Context>>,
    asker: Asker,
    open: HashMap<usize, Open>,
    /// When nobody waits any more for an answer of the group, oldest first.
    deadlines: VecDeque<(Instant, usize)>,
    /// Whose question to the group is still open then. There is no second one.
    given_up: HashSet<TopicPartition>,
    last_number: usize,
    probing: bool,
}

/// What an answer is for.
enum Open {
    /// Whether anybody answers.
    Probe,
    Topic(Arc<str>, Reply<FoundTopic>),
    Committed(TopicPartition, Option<Reply<Committed>>),
    Oldest(TopicPartition, Reply<(i64, i64)>),
    Newest(i64, Reply<(i64, i64)>),
}

const ENDS: &str = "asking for the ends of the partition";
const GROUP: &str = "asking the group for its offset";
const TOPIC: &str = "asking for the cluster and the topic";

impl Asking {
    pub(super) fn new(consumer: Arc<BaseConsumer<Context>>, asker: Asker, signal: Signal) -> Self {
        let limit = Duration::from_millis(ANSWER_LIMIT_MS);
        let questions = Questions::new(Arc::clone(&consumer), limit, move || signal.notify());
        let (open, deadlines, given_up) = (HashMap::new(), VecDeque::new(), HashSet::new());
        let (last_number, probing) = (0, false);
        Self { questions, consumer, asker, open, deadlines, given_up, last_number, probing }
    }

    /// Asks; the answer comes by [`take_answers`](Self::take_answers).
    pub(super) fn ask(&mut self, question: Question) {
        match question {
            Question::Topic { topic, reply } => self.send(Open::Topic(topic, reply), None),
            Question::Committed { partition, reply } => {
                let again = self.given_up.contains(&partition);
                let open = Open::Committed(partition.clone(), Some(reply));
                match again {
                    true => open.fail("the last question has no answer yet".to_owned()),
                    false => self.send(open, Some(&partition)),
                }
            }
            Question::Watermarks { partition, reply } => {
                self.send(Open::Oldest(partition.clone(), reply), Some(&partition));
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
        self.give_up(Instant::now());
        let mut answered = false;
        while let Some((number, answer)) = self.questions.answer() {
            answered |= is_of_broker(&answer);
            match (self.open.remove(&number), answer) {
                (Some(Open::Probe), _) => self.probing = false,
                (Some(Open::Topic(topic, reply)), Answer::Topic(found)) => {
                    let _ = reply.send(self.found(&topic, found));
                }
                (Some(Open::Committed(of, reply)), Answer::Committed(held)) => {
                    self.given_up.remove(&of);
                    let held = held.map_err(|error| failed(GROUP, error));
                    let _ = reply.map(|reply| reply.send(held));
                }
                (Some(Open::Oldest(of, reply)), Answer::Offset(Ok(oldest))) => {
                    self.send(Open::Newest(oldest.offset, reply), Some(&of));
                }
                (Some(Open::Newest(oldest, reply)), Answer::Offset(Ok(newest))) => {
                    let _ = reply.send(Ok((oldest, newest.offset)));
                }
                (
                    Some(Open::Oldest(_, reply) | Open::Newest(_, reply)),
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

    /// Tells those who wait for the group that it took too long. librdkafka goes
    /// on with their questions.
    fn give_up(&mut self, now: Instant) {
        while let Some(&(_, number)) = self.deadlines.front().filter(|(at, _)| *at <= now) {
            self.deadlines.pop_front();
            if let Some(Open::Committed(of, reply)) = self.open.get_mut(&number)
                && let Some(reply) = reply.take()
            {
                let problem = format!("no answer within {ANSWER_LIMIT_MS} ms");
                let _ = reply.send(Err(KafkaFailure::Other { attempted: GROUP, problem }));
                self.given_up.insert(of.clone());
            }
        }
    }

    fn send(&mut self, open: Open, of: Option<&TopicPartition>) {
        if self.open.len() >= MAX_OPEN {
            return open.fail(format!("more than {MAX_OPEN} questions are open"));
        }
        self.last_number = self.last_number.wrapping_add(1);
        match self.put(&open, of, self.last_number) {
            Ok(()) => {
                if let Open::Committed(..) = open {
                    let limit = Duration::from_millis(ANSWER_LIMIT_MS);
                    self.deadlines.push_back((Instant::now() + limit, self.last_number));
                }
                self.open.insert(self.last_number, open);
            }
            Err(error) => open.fail(error.to_string()),
        }
    }

    fn put(&self, open: &Open, of: Option<&TopicPartition>, number: usize) -> KafkaResult<()> {
        let Asker { group_id, read_uncommitted } = &self.asker;
        let (topic, partition) = of.map_or(("", 0), |of| (&*of.topic, of.partition));
        let newest = End::Newest { uncommitted: *read_uncommitted };
        match open {
            Open::Probe => Ok(()),
            Open::Topic(topic, _) => self.questions.topic(topic, number),
            Open::Committed(..) => self.questions.committed(group_id, topic, partition, number),
            Open::Oldest(..) => self.questions.end(topic, partition, End::Oldest, number),
            Open::Newest(..) => self.questions.end(topic, partition, newest, number),
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
            Self::Committed(_, reply) => drop(reply.map(|reply| reply.send(Err(other(GROUP))))),
            Self::Oldest(_, reply) | Self::Newest(_, reply) => {
                drop(reply.send(Err(other(ENDS))));
            }
        }
    }
}

/// librdkafka's own errors, such as no answer in time, have negative codes.
fn is_of_broker(answer: &Answer) -> bool {
    let error = match answer {
        Answer::Topic(Ok(_)) | Answer::Committed(Ok(_)) | Answer::Offset(Ok(_)) => return true,
        Answer::Topic(Err(error)) | Answer::Committed(Err(error)) | Answer::Offset(Err(error)) => {
            error
        }
    };
    match error {
        AnswerError::Kafka { code, .. } => *code as i32 >= 0,
        _ => true,
    }
}

fn failed(attempted: &'static str, error: AnswerError) -> KafkaFailure {
    KafkaFailure::Other { attempted, problem: error.to_string() }
}

#[cfg(test)]
mod tests {
    use rdkafka::{ClientConfig, config::FromClientConfigAndContext};
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn a_question_to_the_group_is_given_up_and_not_asked_a_second_time() {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", "127.0.0.1:1").set("group.id", "g");
        let consumer = BaseConsumer::from_config_and_context(&config, Context::default()).unwrap();
        let asker = Asker { group_id: "g".into(), read_uncommitted: false };
        let mut asking = Asking::new(Arc::new(consumer), asker, Signal::default());
        let ask = |asking: &mut Asking, partition| {
            let (reply, answer) = oneshot::channel();
            let partition = TopicPartition { topic: "t".into(), partition };
            asking.ask(Question::Committed { partition, reply });
            answer
        };
        let mut first = ask(&mut asking, 0);
        asking.give_up(Instant::now());
        assert!(first.try_recv().is_err(), "there is time");
        asking.give_up(Instant::now() + Duration::from_millis(ANSWER_LIMIT_MS));
        let problem = first.try_recv().unwrap().unwrap_err().to_string();
        assert!(problem.contains("no answer within 5000 ms"), "{problem}");
        let problem = ask(&mut asking, 0).try_recv().unwrap().unwrap_err().to_string();
        assert!(problem.contains("has no answer yet"), "{problem}");
        assert!(ask(&mut asking, 1).try_recv().is_err(), "another partition is asked for");
    }
}
