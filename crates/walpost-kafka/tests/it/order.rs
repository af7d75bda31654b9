use walpost_relay::DeliveryErrorKind;
use walpost_testkit::{create_topic, fresh_topic, kafka, local::Kafka, read_all, unique_name};

use crate::rig::{Driver, connector, lower_limit, message, numbers};

#[tokio::test]
async fn order_per_key_survives_a_full_queue() {
    let topic = fresh_topic("ordered", 4).await;
    let connector = connector(kafka().bootstrap(), &[]).queue_max_bytes(20_000);
    let mut driver = Driver::connect(&connector).await;
    for n in 0..5_000_u32 {
        driver.send(message(&topic, &format!("k{}", n % 7), n.to_string())).await.unwrap();
    }
    driver.settle().await;
    assert_eq!(driver.failures(), 0);
    let records = read_all(kafka().bootstrap(), &topic).await;
    for key in 0..7 {
        let expected: Vec<u32> = (0..5_000).filter(|n| n % 7 == key).collect();
        assert_eq!(numbers(&records, &format!("k{key}")), expected);
    }
}

#[tokio::test]
async fn nothing_lands_behind_a_batch_that_the_broker_refused() {
    // The client believes the default limit; the broker has a smaller one.
    let topic = unique_name("refused");
    create_topic(kafka().bootstrap(), &topic, 1, &[]).await;
    let connector =
        connector(kafka().bootstrap(), &[("linger.ms", "0"), ("compression.type", "none")]);
    let mut driver = Driver::connect(&connector).await;
    driver.send(message(&topic, "a", "0")).await.unwrap();
    driver.settle().await;
    let bootstrap = kafka().bootstrap();
    lower_limit(&topic, 2_000).await;
    for n in 1..200_u32 {
        let size = if n == 20 { 10_000 } else { 0 };
        let padded = format!("{n}{}", " ".repeat(size));
        if driver.send(message(&topic, "a", padded)).await.is_err() {
            break;
        }
    }
    driver.settle().await;
    let landed = numbers(&read_all(bootstrap, &topic).await, "a");
    let expected: Vec<u32> = (0..landed.len() as u32).collect();
    assert_eq!(landed, expected, "a prefix without a gap");
    assert!(landed.len() <= 20);
    assert!(driver.failures() > 0);
    let kinds = driver.deliveries.iter().filter_map(|delivery| delivery.result.as_ref().err());
    assert!(
        kinds.clone().all(|error| error.kind != DeliveryErrorKind::Rejected),
        "{:?}",
        kinds.collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_broker_that_dies_and_comes_back_gets_everything_once_and_in_order() {
    let broker = Kafka::builder().start().unwrap();
    let bootstrap = broker.bootstrap();
    create_topic(&bootstrap, "survivor", 3, &[]).await;
    let mut driver = Driver::connect(&connector(&bootstrap, &[])).await;
    for n in 0..3_000_u32 {
        if n == 1_000 {
            broker.kill().unwrap();
            broker.start().unwrap();
        }
        driver.send(message("survivor", &format!("k{}", n % 5), n.to_string())).await.unwrap();
    }
    driver.settle().await;
    assert_eq!(driver.failures(), 0);
    let records = read_all(&bootstrap, "survivor").await;
    assert_eq!(records.len(), 3_000);
    for key in 0..5 {
        let expected: Vec<u32> = (0..3_000).filter(|n| n % 5 == key).collect();
        assert_eq!(numbers(&records, &format!("k{key}")), expected);
    }
}
