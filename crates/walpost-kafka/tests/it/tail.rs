//! What others publish, read from a moment on.

use std::time::{Duration, Instant};

use tokio::task::block_in_place;
use walpost_event::{Header, Message};
use walpost_kafka::{Tail, TailRecord};
use walpost_relay::Sink;
use walpost_testkit::{create_topic, end_offsets, fresh_topic, kafka, unique_name, until};

use crate::rig::{Driver, LIMIT, connector, message};

fn read(tail: &Tail, count: usize) -> Vec<TailRecord> {
    let (began, mut records) = (Instant::now(), Vec::new());
    while records.len() < count {
        assert!(began.elapsed() < LIMIT, "{} of {count} records", records.len());
        records.extend(tail.next(Duration::from_millis(100)).unwrap());
    }
    records
}

fn follow(tail: &mut Tail, topic: &str) {
    let topics = tail.topics().unwrap();
    let (name, partitions) = topics.iter().find(|(name, _)| **name == *topic).unwrap();
    tail.follow(name, *partitions).unwrap();
}

fn values(records: &[TailRecord]) -> Vec<String> {
    let value = |record: &TailRecord| record.message.value.clone().unwrap_or_default();
    records.iter().map(|record| String::from_utf8(value(record).to_vec()).unwrap()).collect()
}

async fn write(driver: &mut Driver, messages: impl IntoIterator<Item = Message>) {
    for message in messages {
        driver.send(message).await.unwrap();
    }
    driver.settle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_begins_where_topics_ended_and_has_records_as_they_are() {
    let (topic, brokers) = (fresh_topic("tail", 3).await, kafka().bootstrap());
    let connector = connector(brokers, &[]);
    let mut driver = Driver::connect(&connector).await;
    write(&mut driver, ["a", "b", "c", "d"].map(|key| message(&topic, key, "before"))).await;
    let mut tail = block_in_place(|| Tail::open(&connector)).unwrap();
    let mut whole = message(&topic, "a", "1");
    let headers = [("id", Some("7")), ("empty", Some("")), ("null", None), ("id", Some("8"))];
    whole.headers = headers
        .map(|(name, value)| Header { name: name.into(), value: value.map(Into::into) })
        .into_iter()
        .collect();
    whole.timestamp_ms = Some(1_234);
    let new_topic = unique_name("tail_new");
    create_topic(brokers, &new_topic, 1, &[]).await;
    write(&mut driver, [whole.clone(), message(&new_topic, "a", "new")]).await;
    let read = block_in_place(|| {
        follow(&mut tail, &topic);
        follow(&mut tail, &new_topic);
        let mut records = read(&tail, 2);
        records.sort_by(|one, other| one.message.topic.cmp(&other.message.topic));
        let places: Vec<_> = (0..3).map(|partition| (topic.as_str().into(), partition)).collect();
        let ends = tail.ends(&places).unwrap();
        (records, places.iter().map(|place| ends[place]).collect::<Vec<_>>())
    });
    let (records, ends) = read;
    let of_topic = records.iter().find(|record| *record.message.topic == *topic).unwrap();
    assert_eq!(of_topic.message, whole);
    assert_eq!(of_topic.partition, walpost_kafka::partition_for_key(b"a", 3));
    assert_eq!(values(&records).iter().filter(|value| *value == "new").count(), 1);
    assert_eq!(ends, end_offsets(brokers, &topic).await);
    driver.sink.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_has_committed_records_alone() {
    let (topic, brokers) = (fresh_topic("tail", 1).await, kafka().bootstrap());
    let id = unique_name("tx");
    let plain = connector(brokers, &[]);
    let of = |interval| plain.clone().transactional(&id, interval).unwrap();
    let mut tail = block_in_place(|| Tail::open(&plain)).unwrap();
    block_in_place(|| follow(&mut tail, &topic));
    let mut dead = Driver::connect(&of(Duration::from_secs(30))).await;
    dead.send(message(&topic, "a", "aborted")).await.unwrap();
    until(LIMIT, "the record", async || end_offsets(brokers, &topic).await == [1]).await;
    // Without a word to the brokers.
    let _never_dropped = std::mem::ManuallyDrop::new(dead);
    let mut next = Driver::connect(&of(Duration::from_millis(50))).await;
    write(&mut next, [message(&topic, "a", "1"), message(&topic, "a", "2")]).await;
    let records = block_in_place(|| read(&tail, 2));
    assert_eq!(values(&records), ["1", "2"]);
    next.sink.close().await;
}
