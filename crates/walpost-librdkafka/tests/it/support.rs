use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, ClientContext, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::KafkaResult,
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer},
};
use walpost_librdkafka::{commit_async, committed, message_headers, message_leader_epoch};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);

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

/// A group's offset with its metadata is read back as it was written.
pub(crate) fn committed_offsets_come_back(bootstrap: &str, topic: &str, group: &str) {
    let consumer = consumer(bootstrap, group);
    let ask = || committed(&consumer, &[(topic, 0)], LIMIT).unwrap().remove(0);
    let nothing = ask();
    assert_eq!((nothing.offset, nothing.metadata), (None, vec![]));
    commit(&consumer, topic, 7, "{\"a\": \"ü\"}");
    let something = ask();
    assert_eq!((&*something.topic, something.partition), (topic, 0));
    assert_eq!(something.offset, Some(7));
    assert_eq!(something.metadata, "{\"a\": \"ü\"}".as_bytes());
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
    let first = consumer.poll(LIMIT).unwrap().unwrap();
    let found: Vec<_> = message_headers(&first).collect();
    let expected: [(&[u8], Option<&[u8]>); 4] =
        [(b"a", Some(b"1")), (b"b", None), (b"a", Some(b"\xff\0")), (b"c", Some(b""))];
    assert_eq!(found, expected);
    let second = consumer.poll(LIMIT).unwrap().unwrap();
    assert_eq!(second.offset(), 1);
    assert_eq!(message_headers(&second).count(), 0);
    message_leader_epoch(&first)
}
