use std::{mem::ManuallyDrop, time::Duration};

use walpost_kafka::KafkaConnector;
use walpost_relay::{DeliveryErrorKind, Sink};
use walpost_testkit::{
    create_topic, end_offsets, fresh_topic, kafka, local::Kafka, read_decided, unique_name, until,
};

use crate::rig::{Driver, LIMIT, connector, lower_limit, message, numbers};

const SHORT: Duration = Duration::from_millis(50);
/// Never over within a test.
const LONG: Duration = Duration::from_secs(30);

fn transactional(id: &str, interval: Duration) -> KafkaConnector {
    connector(kafka().bootstrap(), &[]).transactional(id, interval).unwrap()
}

async fn committed(topic: &str) -> Vec<u32> {
    numbers(&read_decided(kafka().bootstrap(), topic).await, "a")
}

/// Sends records of one partition; their acknowledgements are in the log before
/// this returns, their transaction is not over.
async fn write(driver: &mut Driver, topic: &str, from: u32, to: u32) {
    let before: i64 = end_offsets(kafka().bootstrap(), topic).await.iter().sum();
    for number in from..to {
        driver.send(message(topic, "a", number.to_string())).await.unwrap();
    }
    until(LIMIT, "the records in the log", async || {
        let end: i64 = end_offsets(kafka().bootstrap(), topic).await.iter().sum();
        end >= before + i64::from(to - from)
    })
    .await;
}

/// As a process that dies: without a word to the brokers about its transaction.
fn kill(driver: Driver) {
    let _never_dropped = ManuallyDrop::new(driver);
}

#[tokio::test]
async fn a_delivery_comes_with_the_commit_and_many_transactions_keep_order() {
    let topic = fresh_topic("committed", 3).await;
    let mut driver = Driver::connect(&transactional(&unique_name("tx"), SHORT)).await;
    assert!(driver.sink.fence_id().is_some());
    for round in 0..5 {
        for number in 0..200_u32 {
            let key = format!("k{}", number % 7);
            let value = (round * 200 + number).to_string();
            driver.send(message(&topic, &key, value)).await.unwrap();
        }
        driver.settle().await;
        let records = read_decided(kafka().bootstrap(), &topic).await;
        assert_eq!(records.len(), (round as usize + 1) * 200, "delivered is visible");
    }
    assert_eq!((driver.failures(), driver.delivered().len()), (0, 1_000));
    let records = read_decided(kafka().bootstrap(), &topic).await;
    for key in 0..7 {
        let mut expected: Vec<u32> = Vec::new();
        for round in 0..5 {
            expected.extend((0..200).filter(|n| n % 7 == key).map(|n| round * 200 + n));
        }
        assert_eq!(numbers(&records, &format!("k{key}")), expected);
    }
    driver.sink.close().await;
}

#[tokio::test]
async fn what_a_killed_producer_did_not_commit_never_appears() {
    let (topic, id) = (fresh_topic("killed", 1).await, unique_name("tx"));
    let mut dead = Driver::connect(&transactional(&id, LONG)).await;
    write(&mut dead, &topic, 0, 3).await;
    assert_eq!((dead.sink.outstanding(), dead.deliveries.len()), (3, 0), "no commit, no delivery");
    kill(dead);
    let mut next = Driver::connect(&transactional(&id, SHORT)).await;
    write(&mut next, &topic, 0, 5).await;
    next.settle().await;
    assert_eq!(committed(&topic).await, [0, 1, 2, 3, 4]);
    next.sink.close().await;
}

#[tokio::test]
async fn a_zombie_that_wakes_beside_its_successor_writes_nothing() {
    let (topic, id) = (fresh_topic("zombie", 1).await, unique_name("tx"));
    let mut zombie = Driver::connect(&transactional(&id, LONG)).await;
    write(&mut zombie, &topic, 0, 3).await;
    let mut successor = Driver::connect(&transactional(&id, SHORT)).await;
    write(&mut successor, &topic, 0, 3).await;
    successor.settle().await;
    // It goes on as if nothing had happened, and commits.
    for number in 3..6 {
        let _ = zombie.send(message(&topic, "a", number.to_string())).await;
    }
    zombie.sink.hurry();
    zombie.settle().await;
    assert_eq!(zombie.delivered().len(), 0, "nothing of it is durable");
    assert!(zombie.failures() >= 3);
    for failure in zombie.deliveries.iter().filter_map(|delivery| delivery.result.as_ref().err()) {
        let text = failure.to_string();
        assert!(text.contains("took over the transactional.id") && text.contains(&id), "{text}");
    }
    assert_eq!(committed(&topic).await, [0, 1, 2]);
    write(&mut successor, &topic, 3, 4).await;
    successor.settle().await;
    assert_eq!(committed(&topic).await, [0, 1, 2, 3], "the successor is not disturbed");
    zombie.sink.close().await;
    successor.sink.close().await;
}

#[tokio::test]
async fn after_a_change_of_the_mode_or_the_id_the_one_before_is_fenced_off() {
    let next_id = unique_name("tx");
    let plain = connector(kafka().bootstrap(), &[]);
    for successor in [plain, transactional(&next_id, SHORT)] {
        let (topic, id) = (fresh_topic("mode", 1).await, unique_name("tx"));
        let mut zombie = Driver::connect(&transactional(&id, LONG)).await;
        write(&mut zombie, &topic, 0, 2).await;
        let mut successor = Driver::connect(&successor).await;
        successor.sink.fence(&id).await.unwrap();
        write(&mut successor, &topic, 0, 2).await;
        successor.settle().await;
        zombie.sink.hurry();
        zombie.settle().await;
        assert_eq!((zombie.delivered().len(), zombie.failures()), (0, 2));
        assert_eq!(committed(&topic).await, [0, 1]);
        zombie.sink.close().await;
        successor.sink.close().await;
    }
}

#[tokio::test]
async fn a_record_that_is_refused_takes_its_transaction_with_it() {
    let topic = unique_name("aborted");
    let bootstrap = kafka().bootstrap();
    create_topic(bootstrap, &topic, 1, &[]).await;
    let connector = connector(bootstrap, &[("compression.type", "none")]);
    let mut driver =
        Driver::connect(&connector.transactional(&unique_name("tx"), SHORT).unwrap()).await;
    driver.send(message(&topic, "a", "0")).await.unwrap();
    driver.settle().await;
    // The client believes in the limit of before.
    lower_limit(&topic, 2_000).await;
    let before = driver.deliveries.len();
    for number in 1..4_u32 {
        let padding = " ".repeat(if number == 3 { 10_000 } else { 0 });
        if driver.send(message(&topic, "a", format!("{number}{padding}"))).await.is_err() {
            break;
        }
    }
    driver.settle().await;
    let failed = &driver.deliveries[before..];
    assert!(failed.len() >= 3 && failed.iter().all(|delivery| delivery.result.is_err()));
    let kind = |delivery: &walpost_relay::Delivery| delivery.result.as_ref().unwrap_err().kind;
    let unknown = failed.iter().any(|delivery| kind(delivery) == DeliveryErrorKind::Unknown);
    assert!(!unknown, "an abort leaves no doubt: {failed:?}");
    assert_eq!(committed(&topic).await, [0]);
    driver.sink.close().await;
}

#[tokio::test]
#[ignore = "deep: a broker of its own"]
async fn a_broker_that_dies_in_a_transaction_gets_everything_once_and_in_order() {
    let broker = Kafka::builder().start().unwrap();
    let bootstrap = broker.bootstrap();
    create_topic(&bootstrap, "survivor", 3, &[]).await;
    // The transaction at hand is not given up while the broker is away.
    let patient = connector(&bootstrap, &[("transaction.timeout.ms", "180000")]);
    let connector = patient.transactional(&unique_name("tx"), SHORT).unwrap();
    let mut driver = Driver::connect(&connector).await;
    for number in 0..2_000_u32 {
        if number == 1_000 {
            broker.kill().unwrap();
            broker.start().unwrap();
        }
        let key = format!("k{}", number % 5);
        driver.send(message("survivor", &key, number.to_string())).await.unwrap();
    }
    driver.settle().await;
    assert_eq!(driver.failures(), 0);
    let records = read_decided(&bootstrap, "survivor").await;
    assert_eq!(records.len(), 2_000);
    for key in 0..5 {
        let expected: Vec<u32> = (0..2_000).filter(|number| number % 5 == key).collect();
        assert_eq!(numbers(&records, &format!("k{key}")), expected);
    }
    driver.sink.close().await;
}
