use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig,
    config::FromClientConfigAndContext,
    consumer::{BaseConsumer, Consumer},
    types::RDKafkaErrorCode,
};
use walpost_librdkafka::{
    Answer, AnswerError, End, Existence, LogEnd, Questions, Topic, census, existence,
};
use walpost_relay::{NoteMarks, TopicFloors};

use crate::{
    appended,
    config::KafkaConnector,
    deliveries::{Origin, lock},
    log::Quiet,
    spans::{self, Span},
};

/// Bound on one question to the brokers.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// For a transaction that is open in the middle of what is to be read.
const TRANSACTION_MAX: Duration = Duration::from_secs(60);
/// Between two questions whether it is.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Of the consumer that waits behind what is appended.
const BEHIND: [(&str, &str); 2] =
    [("isolation.level", "read_uncommitted"), ("auto.offset.reset", "latest")];
/// Bound on one wait for answers; not all of them are announced.
const ANSWER_POLL: Duration = Duration::from_millis(5);
/// Elections while the replicas are waited for.
const LEADERS_MAX: u32 = 20;
/// Bound on one question that is put to every broker.
const EACH_TIMEOUT: Duration = Duration::from_secs(3);
/// For brokers to agree on who they are, on whether a topic exists, and that a log
/// is as long as it was.
const AGREE_MAX: Duration = Duration::from_secs(30);
/// Between two questions whether they do.
const ASK_ALL_AGAIN: Duration = Duration::from_millis(500);
/// Questions that are open at a time.
const QUESTIONS_MAX: usize = 500;

/// What is to be read back.
pub(crate) struct Plan {
    pub(crate) topics: Vec<TopicFloors>,
    /// After a stop that was not orderly: how long a request of the producer
    /// before may still be on its way. What comes within it is read too.
    pub(crate) settle: Option<Duration>,
}

/// A topic that was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicRead {
    pub(crate) name: Arc<str>,
    /// Where the reading began and ended.
    pub(crate) origin: Origin,
}

/// Reads the topics of a checkpoint from their floors to their ends. Topics that
/// are gone by the word of every broker are left out. Blocks.
///
/// # Errors
/// When the brokers do not answer or do not agree, or once `stopped`.
pub(crate) fn read_back(
    connector: &KafkaConnector,
    plan: &Plan,
    stopped: &AtomicBool,
    note: &mut NoteMarks,
) -> Result<Vec<TopicRead>, String> {
    let Some(first) = plan.topics.first() else { return Ok(Vec::new()) };
    let brokers = connector.bootstrap_servers().to_owned();
    let (consumer, believed) =
        open_believed(brokers, stopped, |brokers| open(connector, &first.name, brokers, &[]))?;
    let asker = Asker::new(&consumer);
    let found = asker.topics(&consumer, &plan.topics, stopped)?;
    let mut spans = start_spans(&plan.topics, &found);
    let starts: Vec<i64> = spans.iter().map(|span| span.start).collect();
    let mut read = |spans: &mut Vec<Span>| {
        asker.ends(spans, stopped)?;
        asker.no_open_transactions(spans, stopped)?;
        spans::read(&consumer, spans, stopped, note)?;
        for span in spans {
            span.start = span.end.max(span.start);
        }
        Ok::<(), String>(())
    };
    read(&mut spans)?;
    if let Some(settle) = plan.settle {
        let began = now();
        let behind = Arc::new(open(connector, &first.name, &believed, &BEHIND)?);
        std::thread::sleep(settle.saturating_sub(began.elapsed()));
        asker.appended_is_readable(&behind, &spans, stopped)?;
        // Once: others may write for ever.
        read(&mut spans)?;
    }
    Ok(gather(&found, &spans, &starts))
}

/// A consumer whose brokers are to be believed, and where they are. One that is
/// cut off from its controller would deny topics, and name leaders that are none
/// any more: what is in their logs would not be found.
///
/// # Errors
/// When most brokers do not answer or do not agree, or once `stopped`.
pub(crate) fn open_believed(
    mut brokers: String,
    stopped: &AtomicBool,
    open: impl Fn(&str) -> Result<BaseConsumer<Quiet>, String>,
) -> Result<(Arc<BaseConsumer<Quiet>>, String), String> {
    let began = now();
    loop {
        let consumer = open(&brokers)?;
        let found = census(consumer.client(), EACH_TIMEOUT)
            .map_err(|code| format!("asking which brokers there are: {code}"))?;
        let cut_off = found.cut_off();
        let doubt = found.doubt();
        if doubt.is_none() && cut_off.is_empty() {
            return Ok((Arc::new(consumer), brokers));
        }
        if stopped.load(Ordering::Relaxed) || began.elapsed() > AGREE_MAX {
            let doubt = doubt.unwrap_or_else(|| format!("brokers {cut_off:?} are cut off"));
            return Err(format!("what is published is not read: {doubt}"));
        }
        if doubt.is_none() {
            tracing::warn!(
                ?cut_off,
                "the other brokers do not know these any more, so their word does not count; see \
                 whether they reach the controller"
            );
            // A client of the others hears of them alone.
            brokers = found.addresses();
            continue;
        }
        std::thread::sleep(ASK_ALL_AGAIN);
    }
}

fn open(
    connector: &KafkaConnector,
    topic: &str,
    brokers: &str,
    more: &[(&str, &str)],
) -> Result<BaseConsumer<Quiet>, String> {
    let mut config = config(connector, more);
    config.set("bootstrap.servers", brokers);
    let consumer: BaseConsumer<Quiet> = BaseConsumer::from_config_and_context(&config, Quiet)
        .map_err(|error| format!("cannot make a consumer of the settings: {error}"))?;
    // Questions are put to brokers that are known. By itself a client would take
    // up to a second to look for them; no consumer creates a topic by asking.
    let known = consumer.fetch_metadata(Some(topic), REQUEST_TIMEOUT).is_ok();
    if !known || consumer.client().fetch_cluster_id(REQUEST_TIMEOUT).is_none() {
        let limit = REQUEST_TIMEOUT.as_secs();
        return Err(format!("no answer from the brokers at {brokers} within {limit} s"));
    }
    Ok(consumer)
}

fn config(connector: &KafkaConnector, more: &[(&str, &str)]) -> ClientConfig {
    let mut config = connector.admin_config();
    // The leaders tell the ends. With a rack of its own a consumer would read from
    // followers, and what these do not have yet would count as not there.
    config.remove("client.rack");
    config
        // Names the client in the brokers' logs; nothing is committed.
        .set("group.id", "walpost-read-back")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", "read_committed")
        // What retention has deleted is of no use.
        .set("auto.offset.reset", "earliest")
        .set("fetch.wait.max.ms", "50")
        // Few bytes at a time, whatever the number of partitions.
        .set("queued.max.messages.kbytes", "1024")
        .set("fetch.message.max.bytes", "524288")
        .set("fetch.max.bytes", "8388608");
    for (key, value) in more {
        config.set(*key, *value);
    }
    config
}

/// From the floor of each partition; from the beginning where the topic is
/// another one by now, or the partition is new.
fn start_spans(topics: &[TopicFloors], found: &[TopicRead]) -> Vec<Span> {
    let mut spans = Vec::new();
    for read in found {
        let known = topics.iter().find(|topic| topic.name == read.name);
        let same = |topic: &&TopicFloors| match (&topic.id, &read.origin.id) {
            (Some(before), Some(now)) => before == now,
            _ => true,
        };
        let floors = known.filter(same).map_or(&[][..], |topic| &topic.floors);
        for partition in 0..read.origin.spans.len() {
            let start = floors.get(partition).copied().unwrap_or(0);
            let topic = read.name.clone();
            spans.push(Span { topic, partition: partition as i32, start, end: start });
        }
    }
    spans
}

fn gather(found: &[TopicRead], spans: &[Span], starts: &[i64]) -> Vec<TopicRead> {
    let mut ranges =
        starts.iter().zip(spans).map(|(start, span)| ((*start).min(span.end), span.end));
    let gathered = found.iter().map(|topic| {
        let spans = ranges.by_ref().take(topic.origin.spans.len()).collect();
        let origin = Origin { id: topic.origin.id.clone(), spans };
        TopicRead { name: topic.name.clone(), origin }
    });
    gathered.collect()
}

/// Asks many questions at a time and waits for all answers.
pub(crate) struct Asker {
    questions: Questions<Quiet>,
    answered: Arc<(Mutex<bool>, Condvar)>,
}

impl Asker {
    pub(crate) fn new(consumer: &Arc<BaseConsumer<Quiet>>) -> Self {
        let answered = Arc::new((Mutex::new(false), Condvar::new()));
        let told = answered.clone();
        let questions = Questions::new(consumer.clone(), REQUEST_TIMEOUT, move || {
            *lock(&told.0) = true;
            told.1.notify_one();
        });
        Self { questions, answered }
    }

    pub(crate) fn questions(&self) -> &Questions<Quiet> {
        &self.questions
    }

    /// The topics that exist.
    fn topics(
        &self,
        consumer: &BaseConsumer<Quiet>,
        topics: &[TopicFloors],
        stopped: &AtomicBool,
    ) -> Result<Vec<TopicRead>, String> {
        let (mut found, mut denied) = (Vec::new(), Vec::new());
        let ask = |index: usize| self.questions.topic(&topics[index].name, index);
        self.all(topics.len(), ask, |index, answer| {
            let of = &topics[index];
            match answer {
                Answer::Topic(Ok(topic)) => found.push(read_of(of, Some(topic))?),
                Answer::Topic(Err(AnswerError::NoTopicId)) => found.push(read_of(of, None)?),
                Answer::Topic(Err(AnswerError::Kafka { code, .. })) if is_gone(code) => {
                    denied.push(of);
                }
                Answer::Topic(Err(error)) => {
                    return Err(format!("asking for topic {}: {error}", of.name));
                }
                _ => {}
            }
            Ok(())
        })?;
        found.extend(unless_gone(consumer, denied, stopped)?);
        Ok(found)
    }

    /// Moves the end of each span to that of its partition, with what is in
    /// open transactions. A log is no shorter than it was, unless its brokers have
    /// lost a part of it: that counts only when they say so for a while.
    fn ends(&self, spans: &mut [Span], stopped: &AtomicBool) -> Result<(), String> {
        let began = now();
        let mut open: Vec<usize> = (0..spans.len()).collect();
        loop {
            let ends = self.offsets(spans, &open, End::Newest { uncommitted: true })?;
            open.iter().zip(ends).for_each(|(index, end)| spans[*index].end = end.offset);
            open.retain(|index| spans[*index].end < spans[*index].start);
            let Some(first) = open.first() else { return Ok(()) };
            let Span { topic, partition, start, end } = &spans[*first];
            if stopped.load(Ordering::Relaxed) {
                return Err("stopped while asking for the ends of what is published".to_owned());
            }
            if began.elapsed() > AGREE_MAX {
                tracing::warn!(
                    topic = %topic,
                    partition,
                    end,
                    was = start,
                    more = open.len() - 1,
                    "a log is shorter than it was: its brokers have lost records; see their logs"
                );
                return Ok(());
            }
            std::thread::sleep(ASK_ALL_AGAIN);
        }
    }

    /// Waits until everything can be read that the leaders have appended so far;
    /// of a leader that was replaced meanwhile its successor is asked.
    fn appended_is_readable(
        &self,
        behind: &Arc<BaseConsumer<Quiet>>,
        spans: &[Span],
        stopped: &AtomicBool,
    ) -> Result<(), String> {
        let mut epochs = self.epochs(spans)?;
        for _ in 0..LEADERS_MAX {
            let known = spans.iter().zip(&epochs);
            let known: Vec<(&Span, i32)> =
                known.filter_map(|(span, epoch)| Some((span, (*epoch)?))).collect();
            if !known.is_empty() {
                appended::wait_until_readable(behind, &known, stopped)?;
            }
            let now = self.epochs(spans)?;
            if now == epochs {
                return Ok(());
            }
            epochs = now;
        }
        Err("the leaders of what is to be read back change all the time".to_owned())
    }

    fn epochs(&self, spans: &[Span]) -> Result<Vec<Option<i32>>, String> {
        let all: Vec<usize> = (0..spans.len()).collect();
        let ends = self.offsets(spans, &all, End::Newest { uncommitted: true })?;
        Ok(ends.iter().map(|end| end.leader_epoch).collect())
    }

    /// Waits until no transaction is open before the end of any span: what it
    /// decides may be there in the middle.
    fn no_open_transactions(&self, spans: &[Span], stopped: &AtomicBool) -> Result<(), String> {
        let began = now();
        let mut open: Vec<usize> = (0..spans.len()).collect();
        open.retain(|index| spans[*index].start < spans[*index].end);
        loop {
            let stable = self.offsets(spans, &open, End::Newest { uncommitted: false })?;
            let mut stable = stable.into_iter();
            open.retain(|index| stable.next().is_none_or(|end| end.offset < spans[*index].end));
            let Some(first) = open.first() else { return Ok(()) };
            if stopped.load(Ordering::Relaxed) || began.elapsed() > TRANSACTION_MAX {
                let Span { topic, partition, .. } = &spans[*first];
                return Err(format!(
                    "another producer's transaction is open in {topic} partition {partition}, and \
                     nothing behind it can be read back; see it with kafka-transactions.sh"
                ));
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    /// One end of the partitions of these spans, in their order.
    fn offsets(&self, spans: &[Span], which: &[usize], end: End) -> Result<Vec<LogEnd>, String> {
        let mut offsets = vec![LogEnd { offset: 0, leader_epoch: None }; which.len()];
        let of = |index: usize| &spans[which[index]];
        let ask = |index| self.questions.end(&of(index).topic, of(index).partition, end, index);
        self.all(which.len(), ask, |index, answer| match answer {
            Answer::Offset(Ok(offset)) => {
                offsets[index] = offset;
                Ok(())
            }
            Answer::Offset(Err(error)) => {
                let Span { topic, partition, .. } = of(index);
                Err(format!("asking for the end of {topic} partition {partition}: {error}"))
            }
            _ => Ok(()),
        })?;
        Ok(offsets)
    }

    /// Asks question by question, by their numbers.
    pub(crate) fn all(
        &self,
        count: usize,
        ask: impl Fn(usize) -> rdkafka::error::KafkaResult<()>,
        mut take: impl FnMut(usize, Answer) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut unasked = 0..count;
        let mut open = 0_usize;
        loop {
            while open < QUESTIONS_MAX
                && let Some(index) = unasked.next()
            {
                ask(index).map_err(|error| format!("asking the brokers: {error}"))?;
                open += 1;
            }
            if open == 0 {
                return Ok(());
            }
            while let Some((index, answer)) = self.questions.answer() {
                open -= 1;
                take(index, answer)?;
            }
            self.wait();
        }
    }

    /// Until there is an answer; librdkafka gives one for each question, an
    /// error after the time limit.
    fn wait(&self) {
        let (answered, changed) = &*self.answered;
        let mut answered = lock(answered);
        if !*answered {
            let waited = changed.wait_timeout(answered, ANSWER_POLL);
            answered = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        *answered = false;
    }
}

/// A topic as the brokers tell it; `None` where they know no ids.
///
/// # Errors
/// It is the same topic, with fewer partitions than it had: a broker tells how it
/// was long ago.
fn read_of(of: &TopicFloors, topic: Option<Topic>) -> Result<TopicRead, String> {
    let before = of.floors.len();
    let (id, partitions) = match topic {
        None => (None, before),
        Some(Topic { id, partitions }) => (Some(Arc::from(id.to_string())), partitions.len()),
    };
    if partitions < before && id.is_some() && id == of.id {
        let name = &of.name;
        return Err(format!(
            "a broker tells {partitions} partitions of topic {name}, which has {before}; see \
             whether every broker reaches the controller"
        ));
    }
    Ok(TopicRead { name: of.name.clone(), origin: Origin { id, spans: vec![(0, 0); partitions] } })
}

/// Of topics that one broker has denied those that another knows. One that is gone
/// is so by the word of all.
fn unless_gone(
    consumer: &BaseConsumer<Quiet>,
    mut denied: Vec<&TopicFloors>,
    stopped: &AtomicBool,
) -> Result<Vec<TopicRead>, String> {
    let (began, mut found) = (now(), Vec::new());
    loop {
        let names: Vec<&str> = denied.iter().map(|of| &*of.name).collect();
        let judged = existence(consumer.client(), &names, EACH_TIMEOUT)
            .map_err(|code| format!("asking all brokers for topics {names:?}: {code}"))?;
        let mut unknown = Vec::new();
        let mut why = None;
        for (of, existence) in denied.into_iter().zip(judged) {
            match existence {
                Existence::There(topic) => found.push(read_of(of, topic)?),
                Existence::Gone => tracing::warn!(
                    topic = %of.name,
                    "the topic is gone, as every broker says, and with it what was published there"
                ),
                Existence::Unknown(reason) => {
                    why.get_or_insert_with(|| (of.name.clone(), reason));
                    unknown.push(of);
                }
            }
        }
        let Some((name, reason)) = why else { return Ok(found) };
        if stopped.load(Ordering::Relaxed) || began.elapsed() > AGREE_MAX {
            return Err(format!(
                "a broker says that topic {name} does not exist, and nobody knows whether it is \
                 gone: {reason}"
            ));
        }
        denied = unknown;
        std::thread::sleep(ASK_ALL_AGAIN);
    }
}

fn is_gone(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic)
}

fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_read_back_is_read_from_the_leaders() {
        let given = [("bootstrap.servers", "h:1"), ("client.id", "x"), ("client.rack", "a")];
        let given = given.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let connector = KafkaConnector::new(BTreeMap::from(given)).unwrap();
        let config = config(&connector, &BEHIND);
        assert_eq!(config.get("client.id"), Some("x"));
        assert_eq!(config.get("client.rack"), None, "with it followers are read too");
        assert_eq!(config.get("isolation.level"), Some("read_uncommitted"));
    }

    fn floors(id: Option<&str>, floors: &[i64]) -> TopicFloors {
        TopicFloors { name: "t".into(), id: id.map(Arc::from), floors: floors.to_vec() }
    }

    #[test]
    fn a_topic_has_no_fewer_partitions_than_it_had_unless_it_is_another_one() {
        let told = |id: u128, partitions: i32| {
            Some(Topic { id: id.into(), partitions: (0..partitions).collect() })
        };
        let id = walpost_librdkafka::TopicId::from(1).to_string();
        let of = floors(Some(&id), &[3, 4]);
        let count = |topic| read_of(&of, topic).map(|read| read.origin.spans.len());
        assert_eq!(count(told(1, 3)), Ok(3), "one was added");
        assert!(count(told(1, 1)).unwrap_err().contains("reaches the controller"));
        assert_eq!(count(told(2, 1)), Ok(1), "made anew");
        assert_eq!(count(None), Ok(2), "nobody tells more");
    }
}
