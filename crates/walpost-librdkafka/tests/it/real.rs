//! Against Kafka.

use std::time::{Duration, Instant};

use rdkafka::{consumer::Consumer, types::RDKafkaErrorCode};
use walpost_librdkafka::{End, Existence, TopicIdError, census, committed, existence, topic_ids};
use walpost_testkit::{create_topic, fresh_topic, kafka, local::Kafka, unique_name};

use crate::support::{
    LIMIT, asked, committed_of_group, committed_offsets_come_back, consumer, headers_come_back,
    questions_are_answered,
};

#[tokio::test]
async fn topic_ids_are_those_that_kafkas_tool_shows() {
    let (one, other) = (fresh_topic("one", 1).await, fresh_topic("other", 1).await);
    let consumer = consumer(kafka().bootstrap(), &unique_name("group"));
    let missing = unique_name("missing");
    let asked = [one.as_str(), &missing, &other];
    let ids = topic_ids(consumer.client(), &asked, LIMIT).unwrap();
    assert_eq!(ids[1], Err(TopicIdError::Kafka(RDKafkaErrorCode::UnknownTopicOrPartition)));
    assert_ne!(ids[0], ids[2]);
    let args = ["--bootstrap-server", kafka().bootstrap(), "--describe", "--topic", &one];
    let described = kafka().run_tool("org.apache.kafka.tools.TopicCommand", args);
    let id = ids[0].clone().unwrap().to_string();
    assert!(described.contains(&format!("TopicId: {id}")), "{id} is not in {described}");
}

#[tokio::test]
async fn a_broker_that_is_alone_is_believed() {
    let (topic, missing) = (fresh_topic("there", 2).await, unique_name("missing"));
    let consumer = consumer(kafka().bootstrap(), &unique_name("group"));
    let found = census(consumer.client(), LIMIT).unwrap();
    assert_eq!((found.believed().len(), found.doubt()), (1, None));
    assert_eq!(found.addresses(), kafka().bootstrap());
    assert!(found.cut_off().is_empty() && found.silent().is_empty());
    let judged = existence(consumer.client(), &[&topic, &missing], LIMIT).unwrap();
    let Existence::There(Some(there)) = &judged[0] else { panic!("{judged:?}") };
    assert_eq!(there.partitions, [0, 1]);
    assert_eq!(judged[1], Existence::Gone);
    assert!(existence(consumer.client(), &["a\0b"], LIMIT).is_err());
}

#[tokio::test]
async fn committed_metadata_is_read_as_bytes() {
    let topic = fresh_topic("orders", 1).await;
    committed_offsets_come_back(kafka().bootstrap(), &topic, &unique_name("group"));
}

#[tokio::test]
async fn headers_and_leader_epoch_are_read() {
    let topic = fresh_topic("orders", 1).await;
    assert_eq!(headers_come_back(kafka().bootstrap(), &topic), Some(0));
}

#[tokio::test]
async fn questions_are_answered_without_a_wait() {
    let topic = fresh_topic("orders", 2).await;
    questions_are_answered(kafka().bootstrap(), &topic);
}

const SHORT: Duration = Duration::from_secs(3);

/// However often the coordinator hangs over a question, a later one is answered.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: a broker of its own"]
async fn a_group_is_asked_again_when_its_coordinator_hung() {
    let broker = Kafka::builder().start().unwrap();
    create_topic(&broker.bootstrap(), "orders", 1, &[]).await;
    let consumer = consumer(&broker.bootstrap(), "group");
    committed_of_group(&consumer, "orders");
    for _ in 0..3 {
        broker.pause().unwrap();
        // It may have answered before it stopped.
        let _ = committed(&consumer, &[("orders", 0)], SHORT);
        broker.resume().unwrap();
        committed_of_group(&consumer, "orders");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: a broker of its own"]
async fn a_client_is_closed_while_a_question_is_open() {
    let broker = Kafka::builder().start().unwrap();
    create_topic(&broker.bootstrap(), "orders", 1, &[]).await;
    let asked = asked(&broker.bootstrap(), SHORT);
    broker.pause().unwrap();
    asked.questions.end("orders", 0, End::Oldest, 1).unwrap();
    let since = Instant::now();
    drop(asked);
    assert!(since.elapsed() < LIMIT, "it took {:?}", since.elapsed());
}
