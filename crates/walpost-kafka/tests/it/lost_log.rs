//! A broker that lost what it had acknowledged, as after a power failure.

use std::{fs, path::Path};

use walpost_relay::{DeliveryErrorKind, Sink};
use walpost_testkit::{create_topic, local::Kafka, read_all};

use crate::rig::{Driver, connector, message, numbers};

/// Cuts a partition's log in half, and removes what else knew how long it was.
fn lose_half(data: &Path, partition: &str) {
    let folder = data.join(partition);
    let log = folder.join("00000000000000000000.log");
    let log = fs::OpenOptions::new().write(true).open(log).unwrap();
    log.set_len(log.metadata().unwrap().len() / 2).unwrap();
    for file in fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.extension().unwrap_or_default();
        if ["index", "timeindex", "snapshot"].iter().any(|extension| name == *extension) {
            fs::remove_file(path).unwrap();
        }
    }
    for file in ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"] {
        let _ = fs::remove_file(data.join(file));
    }
}

#[tokio::test]
#[ignore = "deep: a broker of its own"]
async fn a_producer_out_of_sequence_ends_without_a_false_delivery_and_the_next_one_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let broker = Kafka::builder().home(home.path().join("kafka")).start().unwrap();
    let bootstrap = broker.bootstrap();
    create_topic(&bootstrap, "lost", 1, &[]).await;
    let connector = connector(&bootstrap, &[("compression.type", "none")]);
    let mut driver = Driver::connect(&connector).await;
    for n in 0..100_u32 {
        driver.send(message("lost", "a", n.to_string())).await.unwrap();
        driver.settle().await;
    }
    broker.kill().unwrap();
    lose_half(&home.path().join("kafka/data"), "lost-0");
    for n in 100..200_u32 {
        driver.send(message("lost", "a", n.to_string())).await.unwrap();
    }
    broker.start().unwrap();
    driver.settle().await;

    assert_eq!(driver.delivered(), (0..100).collect(), "only what the log once had");
    assert_eq!(driver.failures(), 100, "each of the others has a fate");
    let kinds: Vec<DeliveryErrorKind> = driver
        .deliveries
        .iter()
        .filter_map(|delivery| Some(delivery.result.as_ref().err()?.kind))
        .collect();
    assert!(kinds.contains(&DeliveryErrorKind::Unknown), "{kinds:?}");
    assert!(!kinds.contains(&DeliveryErrorKind::Rejected), "{kinds:?}");
    let refused = driver.sink.try_send(200, message("lost", "a", "200"));
    assert!(refused.is_err(), "nothing more is taken");
    driver.sink.close().await;

    let mut successor = Driver::connect(&connector).await;
    for n in 100..200_u32 {
        successor.send(message("lost", "a", n.to_string())).await.unwrap();
    }
    successor.settle().await;
    assert_eq!(successor.failures(), 0);
    let landed = numbers(&read_all(&bootstrap, "lost").await, "a");
    let kept = landed.len() as u32 - 100;
    assert!((1..100).contains(&kept), "a part was lost: {kept}");
    let expected: Vec<u32> = (0..kept).chain(100..200).collect();
    assert_eq!(landed, expected, "no copy, no gap but the broker's own");
}
