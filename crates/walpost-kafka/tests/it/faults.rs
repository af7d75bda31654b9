//! The way to the broker fails, and the broker itself.

use std::time::Duration;

use rdkafka::mocking::MockCluster;
use walpost_relay::Sink;
use walpost_testkit::{Direction, create_topic, end_offsets, read_all, until};

use crate::rig::{Driver, LIMIT, Proxied, connector, message, numbers, padded};

/// So soon does the client notice that nobody answers.
const IMPATIENT: [(&str, &str); 3] = [
    ("socket.timeout.ms", "2000"),
    ("socket.connection.setup.timeout.ms", "2000"),
    ("compression.type", "none"),
];

/// So long does librdkafka by itself wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends the numbers of `range`, each with a key that tells its order.
async fn send(driver: &mut Driver, topic: &str, range: std::ops::Range<u32>, bytes: usize) {
    for n in range {
        driver.send(message(topic, &format!("k{}", n % 5), padded(n, bytes))).await.unwrap();
    }
}

/// Everything up to `count` is in the log, once and in order.
async fn landed_once_in_order(bootstrap: &str, topic: &str, count: u32) {
    let records = read_all(bootstrap, topic).await;
    assert_eq!(records.len(), count as usize);
    for key in 0..5 {
        let expected: Vec<u32> = (0..count).filter(|n| n % 5 == key).collect();
        assert_eq!(numbers(&records, &format!("k{key}")), expected);
    }
}

async fn appended(bootstrap: &str, topic: &str) -> i64 {
    end_offsets(bootstrap, topic).await.iter().sum()
}

#[tokio::test]
#[ignore = "deep: brokers of its own"]
async fn a_connection_cut_in_the_middle_of_a_batch_loses_and_repeats_nothing() {
    let kafka = Proxied::start().await;
    let direct = kafka.broker.bootstrap();
    create_topic(&direct, "cut", 2, &[]).await;
    let mut driver = Driver::connect(&connector(&kafka.bootstrap(), &IMPATIENT)).await;
    send(&mut driver, "cut", 0..10, 1).await;
    driver.settle().await;
    for round in 0..4 {
        let (first, before) = (10 + 40 * round, kafka.proxy.bytes_to_target());
        kafka.proxy.delay(Direction::ToTarget, Duration::from_millis(20));
        send(&mut driver, "cut", first..first + 40, 20_000).await;
        until(LIMIT, "a part of a batch on its way", async || {
            kafka.proxy.bytes_to_target() > before + 150_000
        })
        .await;
        kafka.proxy.hold(Direction::ToTarget);
        assert!(appended(&direct, "cut").await < i64::from(first + 40), "not all can be there");
        kafka.proxy.cut_connections();
        kafka.proxy.restore();
    }
    driver.settle().await;
    assert_eq!(driver.failures(), 0);
    landed_once_in_order(&direct, "cut", 170).await;
}

#[tokio::test]
#[ignore = "deep: brokers of its own"]
async fn a_connection_cut_before_the_answer_repeats_nothing() {
    let kafka = Proxied::start().await;
    let direct = kafka.broker.bootstrap();
    create_topic(&direct, "unanswered", 2, &[]).await;
    // One request for each partition: with more than five, none follows before
    // an answer. linger.ms stays below socket.timeout.ms, after which a question
    // without an answer ends the connection.
    let settings = [&IMPATIENT[..], &[("linger.ms", "1000")]].concat();
    let mut driver = Driver::connect(&connector(&kafka.bootstrap(), &settings)).await;
    for round in 0..3 {
        let first = 60 * round;
        // A client that has just connected needs an answer before it sends.
        send(&mut driver, "unanswered", first..first + 10, 1).await;
        driver.settle().await;
        kafka.proxy.hold(Direction::ToClient);
        send(&mut driver, "unanswered", first + 10..first + 60, 100).await;
        until(LIMIT, "the records in the log", async || {
            appended(&direct, "unanswered").await == i64::from(first + 60)
        })
        .await;
        assert_eq!(driver.sink.outstanding(), 50, "in the log, and nobody knows");
        kafka.proxy.cut_connections();
        kafka.proxy.restore();
        driver.settle().await;
    }
    assert_eq!(driver.failures(), 0);
    landed_once_in_order(&direct, "unanswered", 180).await;
}

#[tokio::test]
#[ignore = "deep: brokers of its own"]
async fn behind_a_half_open_connection_nothing_is_delivered_and_afterwards_everything() {
    let kafka = Proxied::start().await;
    let direct = kafka.broker.bootstrap();
    create_topic(&direct, "half", 2, &[]).await;
    create_topic(&direct, "asked", 1, &[("max.message.bytes", "5000")]).await;
    let mut driver = Driver::connect(&connector(&kafka.bootstrap(), &IMPATIENT)).await;
    send(&mut driver, "half", 0..10, 1).await;
    driver.settle().await;

    kafka.proxy.swallow(Direction::Both);
    let before = kafka.proxy.accepted();
    send(&mut driver, "half", 10..60, 100).await;
    until(LIMIT, "another connection", async || kafka.proxy.accepted() > before).await;
    assert!(driver.sink.try_send(1_000, message("asked", "a", "1")).is_err());
    until(LIMIT, "the trouble with the topic", async || {
        driver.wait().await;
        driver.sink.trouble().is_some_and(|trouble| trouble.contains("\"asked\""))
    })
    .await;
    let trouble = driver.sink.trouble().unwrap();
    assert!(trouble.contains("see whether the brokers run"), "{trouble}");
    assert_eq!(driver.deliveries.len(), 10, "what the broker did not get is not delivered");

    kafka.proxy.restore();
    let refusal = driver.send(message("asked", "a", "x".repeat(6_000))).await.unwrap_err();
    assert!(refusal.contains("max.message.bytes of the topic is 5000"), "{refusal}");
    driver.settle().await;
    assert_eq!(driver.failures(), 0);
    assert_eq!(driver.sink.trouble(), None);
    landed_once_in_order(&direct, "half", 60).await;
}

#[tokio::test]
#[ignore = "deep: brokers of its own"]
async fn a_broker_killed_with_records_in_flight_has_them_once_and_in_order() {
    let kafka = Proxied::start().await;
    let direct = kafka.broker.bootstrap();
    create_topic(&direct, "killed", 2, &[]).await;
    let mut driver = Driver::connect(&connector(&kafka.bootstrap(), &IMPATIENT)).await;
    send(&mut driver, "killed", 0..10, 1).await;
    driver.settle().await;

    kafka.proxy.hold(Direction::ToClient);
    send(&mut driver, "killed", 10..110, 100).await;
    until(LIMIT, "some in the log", async || appended(&direct, "killed").await > 10).await;
    send(&mut driver, "killed", 110..210, 100).await;
    kafka.broker.kill().unwrap();
    kafka.proxy.cut_connections();
    kafka.broker.start().unwrap();
    kafka.proxy.restore();
    send(&mut driver, "killed", 210..310, 100).await;
    driver.settle().await;
    assert_eq!(driver.failures(), 0);
    landed_once_in_order(&direct, "killed", 310).await;
}

#[tokio::test]
#[ignore = "deep: brokers of its own"]
async fn a_sink_closed_behind_a_half_open_connection_lets_go_and_sends_nothing_more() {
    let kafka = Proxied::start().await;
    let direct = kafka.broker.bootstrap();
    create_topic(&direct, "closed", 1, &[]).await;
    // As patient as librdkafka is by itself: closing must not need that long.
    let mut driver = Driver::connect(&connector(&kafka.bootstrap(), &[])).await;
    send(&mut driver, "closed", 0..10, 1).await;
    driver.settle().await;

    kafka.proxy.swallow(Direction::Both);
    send(&mut driver, "closed", 10..60, 100).await;
    // A question without an answer does not stand in the way.
    assert!(driver.sink.try_send(1_000, message("unknown", "a", "1")).is_err());
    tokio::time::timeout(PATIENCE, driver.sink.close()).await.expect("closing is bounded");
    kafka.proxy.cut_connections();
    kafka.proxy.restore();

    let mut successor = Driver::connect(&connector(&kafka.bootstrap(), &[])).await;
    send(&mut successor, "closed", 10..20, 1).await;
    successor.settle().await;
    successor.sink.close().await;
    until(LIMIT, "the end of all connections", async || kafka.proxy.open() == 0).await;
    landed_once_in_order(&direct, "closed", 20).await;
}

#[tokio::test]
async fn an_idle_sink_notices_that_brokers_answer_again() {
    let broker = MockCluster::new(1).unwrap();
    broker.create_topic("idle", 1, 1).unwrap();
    let mut driver = Driver::connect(&connector(&broker.bootstrap_servers(), &[])).await;
    driver.send(message("idle", "a", "1")).await.unwrap();
    driver.settle().await;
    let seconds = Duration::from_secs;
    for _ in 0..2 {
        broker.broker_down(1).unwrap();
        until(seconds(30), "the trouble", async || driver.sink.trouble().is_some()).await;
        broker.broker_up(1).unwrap();
        // Nothing is sent that would tell.
        let told = async || driver.sink.trouble().is_none();
        until(seconds(10), "the end of the trouble", told).await;
    }
    driver.sink.close().await;
}
