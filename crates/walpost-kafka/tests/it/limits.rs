use walpost_testkit::{create_topic, fresh_topic, kafka, read_all, unique_name};

use crate::rig::{Driver, connector, message};

#[tokio::test]
async fn a_record_beyond_the_topics_limit_is_refused_beforehand_and_the_rest_goes_on() {
    let topic = unique_name("small");
    create_topic(kafka().bootstrap(), &topic, 1, &[("max.message.bytes", "5000")]).await;
    let mut driver = Driver::connect(&connector(kafka().bootstrap(), &[])).await;
    driver.send(message(&topic, "a", "1")).await.unwrap();
    let refusal = driver.send(message(&topic, "a", vec![b'x'; 6_000])).await.unwrap_err();
    assert!(refusal.contains("max.message.bytes of the topic is 5000"), "{refusal}");
    driver.send(message(&topic, "a", "2")).await.unwrap();
    driver.settle().await;
    assert_eq!(driver.failures(), 0);
    assert_eq!(read_all(kafka().bootstrap(), &topic).await.len(), 2);
}

#[tokio::test]
async fn a_partition_that_does_not_exist_is_refused_beforehand() {
    let topic = fresh_topic("three", 3).await;
    let mut driver = Driver::connect(&connector(kafka().bootstrap(), &[])).await;
    let mut misplaced = message(&topic, "a", "1");
    misplaced.partition = Some(3);
    let refusal = driver.send(misplaced).await.unwrap_err();
    assert!(refusal.contains("no partition 3, there are 3"), "{refusal}");
}

#[tokio::test]
async fn the_queue_never_holds_more_than_its_bound() {
    let topic = fresh_topic("bounded", 1).await;
    let connector = connector(kafka().bootstrap(), &[]).queue_max_bytes(64 * 1024);
    let mut driver = Driver::connect(&connector).await;
    let mut most = 0;
    for _ in 0..2_000 {
        driver.send(message(&topic, "a", vec![b'x'; 1_000])).await.unwrap();
        most = most.max(walpost_relay::Sink::outstanding(&driver.sink));
    }
    driver.settle().await;
    assert!(most <= 64 * 1024 / 1_000, "{most} messages were queued");
    assert_eq!(read_all(kafka().bootstrap(), &topic).await.len(), 2_000);
}

#[tokio::test]
async fn a_name_that_no_topic_can_have_is_refused_beforehand() {
    let mut driver = Driver::connect(&connector(kafka().bootstrap(), &[])).await;
    let refusal = driver.send(message("bad topic!", "a", "1")).await.unwrap_err();
    assert!(refusal.contains("no topic name"), "{refusal}");
}
