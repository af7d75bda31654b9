use walpost_event::Header;
use walpost_relay::{DeliveryErrorKind, Sink};
use walpost_testkit::{
    create_topic, fresh_topic, kafka, local::Kafka, read_all, unique_name, until,
};

use crate::{
    creation::topic_config,
    rig::{Driver, LIMIT, connector, lower_limit, message, numbers, padded},
};

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
        most = most.max(driver.sink.outstanding());
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

#[tokio::test]
async fn headers_count_towards_the_bound_of_the_queue() {
    let topic = fresh_topic("headers", 1).await;
    let connector = connector(kafka().bootstrap(), &[]).queue_max_bytes(64 * 1024);
    let mut driver = Driver::connect(&connector).await;
    let mut most = 0;
    for _ in 0..200 {
        let mut message = message(&topic, "a", "v");
        message.headers.push(Header { name: "h".into(), value: Some(vec![b'x'; 8_000].into()) });
        driver.send(message).await.unwrap();
        most = most.max(driver.sink.outstanding());
    }
    driver.settle().await;
    assert!((2..=8).contains(&most), "{most} messages were queued");
    assert_eq!(driver.failures(), 0);
    assert_eq!(read_all(kafka().bootstrap(), &topic).await.len(), 200);
}

#[tokio::test]
async fn a_limit_below_a_batch_makes_batches_smaller_and_rejects_no_record() {
    let topic = unique_name("narrow");
    let bootstrap = kafka().bootstrap();
    create_topic(bootstrap, &topic, 1, &[("max.message.bytes", "10000")]).await;
    let settings = [("compression.type", "none"), ("linger.ms", "50")];
    let connector = connector(bootstrap, &settings);
    for session in 0..3 {
        let mut driver = Driver::connect(&connector).await;
        driver.send(message(&topic, "a", "0")).await.unwrap();
        driver.settle().await;
        for n in 1..100_u32 {
            if driver.send(message(&topic, "a", padded(n, 500))).await.is_err() {
                break;
            }
        }
        driver.settle().await;
        let errors = driver.deliveries.iter().filter_map(|delivery| delivery.result.as_ref().err());
        let kinds: Vec<DeliveryErrorKind> = errors.map(|error| error.kind).collect();
        assert!(!kinds.contains(&DeliveryErrorKind::Rejected), "{kinds:?}");
        assert_eq!(kinds.is_empty(), session > 0, "the second session knows: {kinds:?}");
        driver.sink.close().await;
    }
}

#[tokio::test]
#[ignore = "deep: a broker of its own"]
async fn where_the_limit_is_not_told_only_what_the_broker_refuses_is_rejected() {
    let broker = Kafka::builder()
        .property(
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        .property("allow.everyone.if.no.acl.found", "true")
        .start()
        .unwrap();
    let bootstrap = broker.bootstrap();
    create_topic(&bootstrap, "denied", 1, &[("max.message.bytes", "3000000")]).await;
    // Write, and Describe with it, but not DescribeConfigs.
    let rights = ["--operation", "Write", "--operation", "Read", "--topic", "denied"];
    let everybody = ["--add", "--allow-principal", "User:*"];
    let args = ["--bootstrap-server", &bootstrap].into_iter().chain(everybody).chain(rights);
    broker.run_tool("org.apache.kafka.tools.AclCommand", args).unwrap();
    // Who is denied hears of no setting.
    let is_denied = async || topic_config(&bootstrap, "denied").await.is_empty();
    until(LIMIT, "the denial", is_denied).await;

    let connector = connector(&bootstrap, &[("compression.type", "none")]);
    let mut driver = Driver::connect(&connector).await;
    for (n, bytes) in [(0, 1), (1, 2_000_000), (2, 1)] {
        driver.send(message("denied", "a", padded(n, bytes))).await.unwrap();
    }
    driver.settle().await;
    assert_eq!(driver.failures(), 0, "beyond Kafka's default, and the topic takes it");

    let refused = driver.send(message("denied", "a", padded(3, 4_000_000))).await.unwrap();
    driver.send(message("denied", "a", "4")).await.unwrap();
    driver.settle().await;
    let rejected: Vec<u64> = driver
        .deliveries
        .iter()
        .filter(|delivery| {
            let error = delivery.result.as_ref().err();
            error.is_some_and(|error| error.kind == DeliveryErrorKind::Rejected)
        })
        .map(|delivery| delivery.ticket)
        .collect();
    assert_eq!(rejected, [refused], "{:?}", driver.deliveries);
    assert_eq!(driver.failures(), 2, "nothing lands behind it");
    assert_eq!(numbers(&read_all(&bootstrap, "denied").await, "a"), [0, 1, 2]);
}

#[tokio::test]
async fn what_the_settings_of_a_topic_exclude_is_refused_beforehand_and_the_rest_goes_on() {
    let topic = unique_name("ruled");
    let settings =
        [("cleanup.policy", "compact,delete"), ("message.timestamp.before.max.ms", "3600000")];
    create_topic(kafka().bootstrap(), &topic, 1, &settings).await;
    let mut driver = Driver::connect(&connector(kafka().bootstrap(), &[])).await;
    let mut keyless = message(&topic, "a", "1");
    keyless.key = None;
    let refusal = driver.send(keyless).await.unwrap_err();
    assert!(refusal.contains("no record without a key"), "{refusal}");
    let mut old = message(&topic, "a", "2");
    old.timestamp_ms = Some(1_000_000_000_000);
    let refusal = driver.send(old).await.unwrap_err();
    assert!(refusal.contains("message.timestamp.before.max.ms"), "{refusal}");
    driver.send(message(&topic, "a", "3")).await.unwrap();
    driver.settle().await;
    assert_eq!(driver.failures(), 0);
    assert_eq!(numbers(&read_all(kafka().bootstrap(), &topic).await, "a"), [3]);
}

/// The sink knows the topic by the settings of before.
#[tokio::test]
async fn a_record_that_goes_apart_and_is_refused_ends_nothing() {
    let (topic, other) = (unique_name("apart"), fresh_topic("other", 1).await);
    let bootstrap = kafka().bootstrap();
    create_topic(bootstrap, &topic, 1, &[]).await;
    let mut driver = Driver::connect(&connector(bootstrap, &[("compression.type", "none")])).await;
    driver.send(message(&topic, "a", "0")).await.unwrap();
    driver.settle().await;
    lower_limit(&topic, 2_000).await;
    let topic: std::sync::Arc<str> = topic.into();
    assert!(driver.sink.set_apart(&topic, true));
    let (mut refused, mut taken) = (Vec::new(), vec![0]);
    for n in 1..=20_u32 {
        let bytes = if n % 2 == 0 { 3_000 } else { 1 };
        let ticket = driver.send(message(&topic, "a", padded(n, bytes))).await.unwrap();
        driver.send(message(&other, "b", padded(n, 1))).await.unwrap();
        if n % 2 == 0 { refused.push(ticket) } else { taken.push(n) }
    }
    driver.settle().await;
    let errors = driver.deliveries.iter().filter_map(|delivery| {
        let error = delivery.result.as_ref().err()?;
        assert_eq!(error.kind, DeliveryErrorKind::RefusedAlone, "{error}");
        Some(delivery.ticket)
    });
    assert_eq!(errors.collect::<Vec<_>>(), refused);
    assert!(!driver.sink.set_apart(&topic, false), "none is on its way");
    for n in 21..=60_u32 {
        driver.send(message(&topic, "a", padded(n, 1))).await.unwrap();
        taken.push(n);
    }
    driver.settle().await;
    assert_eq!(driver.failures(), 10);
    let landed = read_all(bootstrap, &topic).await;
    assert_eq!(numbers(&landed, "a"), taken);
    assert_eq!(read_all(bootstrap, &other).await.len(), 20);
    driver.sink.close().await;
}
