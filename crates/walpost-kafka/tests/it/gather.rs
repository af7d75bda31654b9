use std::{
    path::Path,
    time::{Duration, Instant},
};

use walpost_relay::{Delivery, DeliveryErrorKind, Sink};
use walpost_testkit::{fresh_topic, kafka, local::Kafka, read_all, unique_name, until};

use crate::rig::{Driver, LIMIT, connector, lower_limit, message, numbers};

/// How long a record waits for others, as in `src/gather.rs`.
const GATHER: Duration = Duration::from_millis(100);

/// Batches in a topic of one partition, as its log has them.
fn batches(broker: &Kafka, home: &Path, topic: &str) -> usize {
    let file = home.join(format!("kafka/data/{topic}-0/00000000000000000000.log"));
    let args = ["--files", file.to_str().unwrap()];
    let dump = broker.run_tool("org.apache.kafka.tools.DumpLogSegments", args).unwrap();
    dump.lines().filter(|line| line.starts_with("baseOffset")).count()
}

/// Sends records, each once the one before is on its way or waits.
async fn send(driver: &mut Driver, topic: &str, range: std::ops::Range<u32>) {
    for number in range {
        driver.send(message(topic, "a", number.to_string())).await.unwrap();
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
#[ignore = "deep: a broker of its own"]
async fn while_the_stream_is_behind_records_go_in_few_batches_and_in_order() {
    let home = tempfile::tempdir().unwrap();
    let broker = Kafka::builder().home(home.path().join("kafka")).start().unwrap();
    let bootstrap = broker.bootstrap();
    walpost_testkit::create_topic(&bootstrap, "gathered", 1, &[]).await;
    let linger = [("linger.ms", "0")];
    let mut driver = Driver::connect(&connector(&bootstrap, &linger)).await;
    send(&mut driver, "gathered", 0..1).await;
    driver.settle().await;
    driver.sink.gather(true);
    send(&mut driver, "gathered", 1..1_000).await;
    driver.settle().await;
    let few = batches(&broker, home.path(), "gathered");
    assert!(few <= 100, "{few} batches of 1,000 records");
    driver.sink.gather(false);
    for number in 1_000..1_050 {
        send(&mut driver, "gathered", number..number + 1).await;
        driver.settle().await;
    }
    assert!(batches(&broker, home.path(), "gathered") >= few + 50, "at once, each by itself");
    assert_eq!(driver.failures(), 0);
    let records = read_all(&bootstrap, "gathered").await;
    assert_eq!(numbers(&records, "a"), (0..1_050).collect::<Vec<u32>>());
}

#[tokio::test]
async fn going_back_and_forth_and_a_full_queue_keep_the_order() {
    let topic = fresh_topic("back", 3).await;
    let connector = connector(kafka().bootstrap(), &[]).queue_max_bytes(40_000);
    let mut driver = Driver::connect(&connector).await;
    for number in 0..3_000_u32 {
        driver.sink.gather(number / 70 % 2 == 1);
        let key = format!("k{}", number % 7);
        driver.send(message(&topic, &key, number.to_string())).await.unwrap();
    }
    driver.settle().await;
    assert_eq!(driver.failures(), 0);
    let records = read_all(kafka().bootstrap(), &topic).await;
    for key in 0..7 {
        let expected: Vec<u32> = (0..3_000).filter(|number| number % 7 == key).collect();
        assert_eq!(numbers(&records, &format!("k{key}")), expected);
    }
}

/// Has a record refused while 199 others wait. What became of all, and whether
/// the refusal was known before the others were due, so that none of them was sent.
async fn refused_while_others_wait() -> (Vec<Delivery>, bool) {
    let topic = unique_name("given-up");
    let bootstrap = kafka().bootstrap();
    walpost_testkit::create_topic(bootstrap, &topic, 1, &[]).await;
    let settings = [("compression.type", "none"), ("linger.ms", "0")];
    let mut driver = Driver::connect(&connector(bootstrap, &settings)).await;
    send(&mut driver, &topic, 0..1).await;
    driver.settle().await;
    lower_limit(&topic, 2_000).await;
    let before = driver.deliveries.len();
    driver.send(message(&topic, "a", " ".repeat(10_000))).await.unwrap();
    let start = Instant::now();
    driver.sink.gather(true);
    send(&mut driver, &topic, 1..200).await;
    until(LIMIT, "the refusal", async || {
        driver.wait().await;
        driver.failures() > 0
    })
    .await;
    let was_in_time = start.elapsed() < GATHER;
    driver.settle().await;
    assert_eq!(numbers(&read_all(bootstrap, &topic).await, "a"), [0]);
    (driver.deliveries.split_off(before), was_in_time)
}

#[tokio::test]
async fn after_a_failure_what_waits_is_reported_as_not_sent() {
    let is_not_sent = |one: &&Delivery| {
        one.result.as_ref().is_err_and(|error| error.kind == DeliveryErrorKind::NotSent)
    };
    for _ in 0..20 {
        let (fates, was_in_time) = refused_while_others_wait().await;
        assert_eq!(fates.len(), 200, "one for each");
        assert!(fates.iter().all(|one| one.result.is_err()), "{fates:?}");
        if was_in_time {
            let others: Vec<_> = fates.iter().filter(|one| !is_not_sent(one)).collect();
            assert!(others.is_empty(), "{others:?}");
            return;
        }
    }
    panic!("no refusal came within {GATHER:?}");
}

#[tokio::test]
async fn behind_a_record_that_librdkafka_refuses_nothing_that_waits_is_sent() {
    let topic = fresh_topic("not-overtaken", 1).await;
    let own_limit = [("message.max.bytes", "10000"), ("compression.type", "none")];
    let mut driver = Driver::connect(&connector(kafka().bootstrap(), &own_limit)).await;
    send(&mut driver, &topic, 0..1).await;
    driver.settle().await;
    driver.sink.gather(true);
    send(&mut driver, &topic, 1..2).await;
    let refused = driver.send(message(&topic, "a", " ".repeat(20_000))).await.unwrap();
    send(&mut driver, &topic, 2..10).await;
    driver.settle().await;
    let fates = driver.deliveries.iter().filter(|one| one.ticket >= refused);
    let kinds: Vec<Option<DeliveryErrorKind>> =
        fates.map(|one| one.result.as_ref().err().map(|error| error.kind)).collect();
    let (first, behind) = kinds.split_first().unwrap();
    assert_eq!(*first, Some(DeliveryErrorKind::Rejected));
    assert_eq!(behind, [Some(DeliveryErrorKind::NotSent); 8]);
    let landed = numbers(&read_all(kafka().bootstrap(), &topic).await, "a");
    assert!(landed == [0] || landed == [0, 1], "{landed:?}");
}
