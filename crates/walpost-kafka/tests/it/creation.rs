//! Topics that do not exist, and are made.

use std::collections::BTreeMap;

use rdkafka::{
    admin::{AdminClient, AdminOptions, ResourceSpecifier},
    client::DefaultClientContext,
    config::ClientConfig,
};
use walpost_kafka::{KafkaConnector, TopicSettings};
use walpost_relay::Sink;
use walpost_testkit::{
    create_topic, end_offsets, kafka, local::Kafka, read_all, unique_name, until,
};

use crate::rig::{Driver, LIMIT, connector, message};

fn settings(partitions: u32, replication: Option<u16>) -> TopicSettings {
    let config = [("cleanup.policy", "compact,delete"), ("retention.ms", "86400000")];
    TopicSettings {
        partitions: Some(partitions),
        replication,
        config: config.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
    }
}

/// For topics of this name alone.
fn creating(name: &str, settings: TopicSettings) -> KafkaConnector {
    creating_at(kafka().bootstrap(), name, settings)
}

fn creating_at(bootstrap: &str, name: &str, settings: TopicSettings) -> KafkaConnector {
    let name = name.to_owned();
    connector(bootstrap, &[]).create_topics(move |topic| (topic == name).then(|| settings.clone()))
}

/// The settings of a topic.
pub(crate) async fn topic_config(bootstrap: &str, topic: &str) -> BTreeMap<String, Option<String>> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    let admin: AdminClient<DefaultClientContext> = config.create().unwrap();
    let asked = [ResourceSpecifier::Topic(topic)];
    let mut found = admin.describe_configs(&asked, &AdminOptions::new()).await.unwrap();
    let entries = found.remove(0).unwrap().entries;
    entries.into_iter().map(|entry| (entry.name, entry.value)).collect()
}

#[tokio::test]
async fn a_topic_that_is_missing_is_made_as_its_settings_say() {
    let topic = unique_name("made");
    let mut driver = Driver::connect(&creating(&topic, settings(3, None))).await;
    driver.send(message(&topic, "a", "1")).await.unwrap();
    driver.settle().await;
    assert_eq!(read_all(kafka().bootstrap(), &topic).await.len(), 1);
    assert_eq!(end_offsets(kafka().bootstrap(), &topic).await.len(), 3);
    let config = topic_config(kafka().bootstrap(), &topic).await;
    assert_eq!(config["cleanup.policy"].as_deref(), Some("compact,delete"));
    assert_eq!(config["retention.ms"].as_deref(), Some("86400000"));
    driver.sink.close().await;
}

#[tokio::test]
#[ignore = "deep: a broker of its own"]
async fn brokers_that_make_topics_by_themselves_do_not_come_first() {
    let broker = Kafka::builder()
        .property("auto.create.topics.enable", "true")
        .property("num.partitions", "2")
        .start()
        .unwrap();
    let bootstrap = broker.bootstrap();
    let mut driver = Driver::connect(&creating_at(&bootstrap, "said", settings(5, None))).await;
    for topic in ["said", "unsaid"] {
        driver.send(message(topic, "a", "1")).await.unwrap();
    }
    driver.settle().await;
    assert_eq!(end_offsets(&bootstrap, "said").await.len(), 5);
    assert_eq!(end_offsets(&bootstrap, "unsaid").await.len(), 2);
    driver.sink.close().await;
}

#[tokio::test]
async fn a_topic_that_is_there_or_is_made_by_somebody_else_is_taken_as_it_is() {
    let (there, raced) = (unique_name("there"), unique_name("raced"));
    create_topic(kafka().bootstrap(), &there, 2, &[]).await;
    let mut driver = Driver::connect(&creating(&there, settings(5, None))).await;
    driver.send(message(&there, "a", "1")).await.unwrap();
    driver.settle().await;
    assert_eq!(end_offsets(kafka().bootstrap(), &there).await.len(), 2);
    driver.sink.close().await;

    let both = async || {
        let mut driver = Driver::connect(&creating(&raced, settings(4, None))).await;
        driver.send(message(&raced, "a", "1")).await.unwrap();
        driver.settle().await;
        driver.sink.close().await;
    };
    tokio::join!(both(), both(), both());
    assert_eq!(read_all(kafka().bootstrap(), &raced).await.len(), 3);
    assert_eq!(end_offsets(kafka().bootstrap(), &raced).await.len(), 4);
}

#[tokio::test]
async fn a_topic_that_the_brokers_refuse_is_told_and_waited_for() {
    let topic = unique_name("refused");
    let mut driver = Driver::connect(&creating(&topic, settings(1, Some(3)))).await;
    assert!(driver.sink.try_send(0, message(&topic, "a", "1")).is_err());
    let parts = [&*topic, "was not created", "replication.factor: 3"];
    until(LIMIT, "the trouble with the topic", async || {
        driver.wait().await;
        let trouble = driver.sink.trouble();
        trouble.is_some_and(|trouble| parts.iter().all(|part| trouble.contains(part)))
    })
    .await;
    create_topic(kafka().bootstrap(), &topic, 1, &[]).await;
    driver.send(message(&topic, "a", "1")).await.unwrap();
    driver.settle().await;
    assert_eq!(driver.sink.trouble(), None);
    driver.sink.close().await;
}

#[tokio::test]
async fn a_topic_beside_one_of_nearly_its_name_gets_no_advice_to_create_it() {
    let other = unique_name("shop_order");
    create_topic(kafka().bootstrap(), &other, 1, &[]).await;
    let topic = other.replace("shop_order", "shop.order");
    let mut driver = Driver::connect(&connector(kafka().bootstrap(), &[])).await;
    assert!(driver.sink.try_send(0, message(&topic, "a", "1")).is_err());
    until(LIMIT, "the trouble with the topic", async || {
        driver.wait().await;
        let trouble = driver.sink.trouble().unwrap_or_default();
        trouble.contains(&format!("beside topic {other:?}")) && !trouble.contains("--create")
    })
    .await;
    driver.sink.close().await;
}
