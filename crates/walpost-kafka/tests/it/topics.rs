use std::time::{SystemTime, UNIX_EPOCH};

use walpost_relay::Sink;
use walpost_testkit::{create_topic, fresh_topic, kafka, read_all, unique_name, until};

use crate::rig::{Driver, LIMIT, connector, message};

#[tokio::test]
async fn a_message_waits_for_its_topic_and_the_trouble_names_it() {
    let topic = unique_name("late");
    let mut driver = Driver::connect(&connector(kafka().bootstrap(), &[])).await;
    let refused = driver.sink.try_send(0, message(&topic, "a", "1"));
    assert!(refused.is_err(), "nothing is known of the topic yet");
    until(LIMIT, "the trouble with the topic", async || {
        driver.wait().await;
        let trouble = driver.sink.trouble().unwrap_or_default();
        trouble.contains(&topic) && trouble.contains("kafka-topics")
    })
    .await;

    create_topic(kafka().bootstrap(), &topic, 2, &[]).await;
    driver.send(message(&topic, "a", "1")).await.unwrap();
    driver.settle().await;
    assert_eq!(driver.sink.trouble(), None);
    assert_eq!(read_all(kafka().bootstrap(), &topic).await.len(), 1);
    driver.sink.close().await;
}

#[tokio::test]
async fn null_keys_and_values_stay_null_and_partitions_are_kept() {
    let topic = fresh_topic("nulls", 3).await;
    let mut driver = Driver::connect(&connector(kafka().bootstrap(), &[])).await;
    let mut tombstone = message(&topic, "a", "");
    tombstone.value = None;
    let mut keyless = message(&topic, "", "keyless");
    keyless.key = None;
    let mut placed = message(&topic, "a", "placed");
    placed.partition = Some(2);
    // The broker deletes what is older than it keeps.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let timestamp_ms = i64::try_from(now.as_millis()).unwrap() - 60_000;
    placed.timestamp_ms = Some(timestamp_ms);
    for message in [tombstone, keyless, placed] {
        driver.send(message).await.unwrap();
    }
    driver.settle().await;
    let records = read_all(kafka().bootstrap(), &topic).await;
    assert!(records.iter().any(|r| r.key.is_some() && r.value.is_none()));
    assert!(records.iter().any(|r| r.key.is_none() && r.value.is_some()));
    let placed = records.iter().find(|r| r.value.as_deref() == Some(b"placed".as_slice()));
    let placed = placed.unwrap();
    assert_eq!((placed.partition, placed.timestamp_ms), (2, Some(timestamp_ms)));
    driver.sink.close().await;
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_an_error_that_names_it() {
    let port = walpost_testkit::local::free_port().unwrap();
    let error = connector(&format!("127.0.0.1:{port}"), &[]).connect().await.unwrap_err();
    assert!(error.is_transient());
    assert!(error.to_string().contains(&port.to_string()), "{error}");
}
