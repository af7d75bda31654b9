use std::{
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, ClientContext, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::{KafkaResult, RDKafkaErrorCode},
    message::{BorrowedMessage, Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer},
};
use walpost_librdkafka::{
    Answer, AnswerError, Committed, End, Questions, commit_async, committed, message_headers,
    message_leader_epoch,
};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// What brokers say of a coordinator that is about to be one.
const NO_COORDINATOR: [RDKafkaErrorCode; 3] = [
    RDKafkaErrorCode::NotCoordinator,
    RDKafkaErrorCode::CoordinatorNotAvailable,
    RDKafkaErrorCode::CoordinatorLoadInProgress,
];

/// Remembers how commits ended.
#[derive(Default)]
pub(crate) struct Outcomes {
    pub(crate) seen: Mutex<Vec<Result<Vec<i64>, String>>>,
}

impl ClientContext for Outcomes {}

impl ConsumerContext for Outcomes {
    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        let offsets = || offsets.elements().iter().filter_map(|e| e.offset().to_raw()).collect();
        let outcome = result.map(|()| offsets()).map_err(|error| error.to_string());
        self.seen.lock().unwrap().push(outcome);
    }
}

pub(crate) fn consumer(bootstrap: &str, group: &str) -> BaseConsumer<Outcomes> {
    ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .create_with_context(Outcomes::default())
        .unwrap()
}

fn one(topic: &str, offset: Offset) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, offset).unwrap();
    list
}

/// Commits by [`commit_async`] and waits for the callback.
pub(crate) fn commit(consumer: &BaseConsumer<Outcomes>, topic: &str, offset: i64, metadata: &str) {
    let list = one(topic, Offset::Offset(offset));
    list.elements()[0].set_metadata(metadata);
    commit_async(consumer, &list).unwrap();
    let since = Instant::now();
    while consumer.context().seen.lock().unwrap().is_empty() {
        assert!(since.elapsed() < LIMIT, "the callback was not called");
        consumer.poll(Duration::from_millis(10));
    }
    let outcomes = std::mem::take(&mut *consumer.context().seen.lock().unwrap());
    assert_eq!(outcomes, [Ok(vec![offset])]);
}

/// What the group has committed. A coordinator that has just begun, or was away, says at
/// first that it is none.
pub(crate) fn committed_of_group(consumer: &BaseConsumer<Outcomes>, topic: &str) -> Committed {
    let since = Instant::now();
    loop {
        match committed(consumer, &[(topic, 0)], LIMIT).and_then(|mut all| all.remove(0)) {
            Ok(committed) => return committed,
            Err(error) => {
                let code = error.rdkafka_error_code();
                let is_none = code.is_some_and(|code| NO_COORDINATOR.contains(&code));
                assert!(is_none && since.elapsed() < LIMIT, "{error}");
            }
        }
        consumer.poll(Duration::from_millis(100));
    }
}

/// A group's offset with its metadata is read back as it was written.
pub(crate) fn committed_offsets_come_back(bootstrap: &str, topic: &str, group: &str) {
    let consumer = consumer(bootstrap, group);
    let ask = || committed_of_group(&consumer, topic);
    let nothing = ask();
    assert_eq!((nothing.offset, nothing.metadata), (None, vec![]));
    commit(&consumer, topic, 7, "{\"a\": \"ü\"}");
    let something = ask();
    assert_eq!((&*something.topic, something.partition), (topic, 0));
    assert_eq!(something.offset, Some(7));
    assert_eq!(something.metadata, "{\"a\": \"ü\"}".as_bytes());
}

/// The next record. What the client complains of meanwhile passes.
fn next(consumer: &BaseConsumer<Outcomes>) -> BorrowedMessage<'_> {
    let since = Instant::now();
    loop {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => return message,
            polled => assert!(since.elapsed() < LIMIT, "no record: {polled:?}"),
        }
    }
}

/// Headers and the leader epoch of a record.
pub(crate) fn headers_come_back(bootstrap: &str, topic: &str) -> Option<i32> {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", bootstrap).create().unwrap();
    let headers = OwnedHeaders::new()
        .insert(Header { key: "a", value: Some(&b"1"[..]) })
        .insert(Header::<&[u8]> { key: "b", value: None })
        .insert(Header { key: "a", value: Some(&b"\xff\0"[..]) })
        .insert(Header { key: "c", value: Some(&b""[..]) });
    let with = BaseRecord::<[u8], [u8]>::to(topic).partition(0).headers(headers);
    producer.send(with).map_err(|(error, _)| error).unwrap();
    producer.send(BaseRecord::<[u8], [u8]>::to(topic).partition(0)).map_err(|(e, _)| e).unwrap();
    producer.flush(LIMIT).unwrap();
    let consumer = consumer(bootstrap, "reader");
    consumer.assign(&one(topic, Offset::Beginning)).unwrap();
    let first = next(&consumer);
    let found: Vec<_> = message_headers(&first).collect();
    let expected: [(&[u8], Option<&[u8]>); 4] =
        [(b"a", Some(b"1")), (b"b", None), (b"a", Some(b"\xff\0")), (b"c", Some(b""))];
    assert_eq!(found, expected);
    let second = next(&consumer);
    assert_eq!(second.offset(), 1);
    assert_eq!(message_headers(&second).count(), 0);
    message_leader_epoch(&first)
}

/// Questions of a client, and the signal that an answer is there.
pub(crate) struct Asked {
    pub(crate) questions: Questions<Outcomes>,
    answered: mpsc::Receiver<()>,
}

/// Asks by a client of its own, with this limit for each answer.
pub(crate) fn asked(bootstrap: &str, limit: Duration) -> Asked {
    let (signal, answered) = mpsc::channel();
    let consumer = Arc::new(consumer(bootstrap, "asker"));
    // As a member of a group knows it before it is given a partition.
    let _ = consumer.client().fetch_cluster_id(limit);
    let questions = Questions::new(consumer, limit, move || {
        let _ = signal.send(());
    });
    Asked { questions, answered }
}

impl Asked {
    /// So many answers, by the numbers of their questions. Waits for the
    /// signal alone.
    pub(crate) fn answers(&self, count: usize) -> Vec<(usize, Answer)> {
        let mut answers = Vec::new();
        while answers.len() < count {
            match self.questions.answer() {
                Some(answer) => answers.push(answer),
                None => self.answered.recv_timeout(LIMIT).expect("an answer is signalled"),
            }
        }
        answers.sort_by_key(|(number, _)| *number);
        answers
    }
}

/// A topic of two partitions, three records in partition 1.
pub(crate) fn questions_are_answered(bootstrap: &str, topic: &str) {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", bootstrap).create().unwrap();
    for _ in 0..3 {
        let record = BaseRecord::<[u8], [u8]>::to(topic).partition(1).payload(b"a");
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(LIMIT).unwrap();
    let asked = asked(bootstrap, LIMIT);
    let questions = &asked.questions;
    questions.topic(topic, 1).unwrap();
    questions.end(topic, 1, End::Oldest, 2).unwrap();
    questions.end(topic, 1, End::Newest { uncommitted: false }, 3).unwrap();
    questions.end(topic, 1, End::Newest { uncommitted: true }, 4).unwrap();
    questions.topic("no-such-topic", 5).unwrap();
    assert!(questions.topic("a\0b", 6).is_err());
    assert!(questions.end("a\0b", 0, End::Oldest, 6).is_err());
    let mut answers = asked.answers(5).into_iter();
    let mut next = || answers.next().unwrap();
    let (1, Answer::Topic(Ok(found))) = next() else { panic!("no topic") };
    assert_eq!(found.partitions, [0, 1]);
    for (number, offset) in [(2, 0), (3, 3), (4, 3)] {
        let (answered, Answer::Offset(Ok(end))) = next() else { panic!("no end") };
        assert_eq!((answered, end.offset), (number, offset));
    }
    let (5, Answer::Topic(Err(AnswerError::Kafka { code, .. }))) = next() else {
        panic!("a topic that does not exist");
    };
    assert_eq!(code, RDKafkaErrorCode::UnknownTopicOrPartition);
}
