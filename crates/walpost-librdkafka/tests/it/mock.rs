//! Against librdkafka's own broker in this process.

use std::{sync::Arc, time::Duration};

use rdkafka::{consumer::Consumer, mocking::MockCluster};
use walpost_librdkafka::{Answer, End, Questions, TopicIdError, topic_ids};

use crate::support::{
    LIMIT, asked, committed_offsets_come_back, consumer, headers_come_back, questions_are_answered,
};

#[test]
fn committed_metadata_is_read_as_bytes() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    committed_offsets_come_back(&cluster.bootstrap_servers(), "orders", "group");
}

#[test]
fn headers_are_read_as_bytes() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    headers_come_back(&cluster.bootstrap_servers(), "orders");
}

#[test]
fn a_broker_that_is_away_is_an_error_in_bounded_time() {
    let consumer = consumer("127.0.0.1:1", "group");
    let limit = Duration::from_millis(300);
    let error = topic_ids(consumer.client(), &["orders"], limit).unwrap_err();
    assert!(matches!(error, TopicIdError::TimedOut { .. } | TopicIdError::Kafka(_)), "{error}");
}

#[test]
fn no_topic_is_no_request_and_a_nul_is_no_topic() {
    let consumer = consumer("127.0.0.1:1", "group");
    assert_eq!(topic_ids(consumer.client(), &[], LIMIT), Ok(vec![]));
    assert_eq!(topic_ids(consumer.client(), &["a\0b"], LIMIT), Err(TopicIdError::Name));
}

#[test]
fn the_embedded_broker_gives_topics_an_id() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let consumer = consumer(&cluster.bootstrap_servers(), "group");
    let cluster_id = consumer.client().fetch_cluster_id(LIMIT);
    assert!(cluster_id.is_some());
    let ids = topic_ids(consumer.client(), &["orders"], LIMIT).unwrap();
    assert!(ids[0].is_ok(), "{ids:?}");
}

#[test]
fn questions_are_answered_without_a_wait() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 2, 1).unwrap();
    questions_are_answered(&cluster.bootstrap_servers(), "orders");
}

#[test]
#[ignore = "deep: takes long"]
fn a_question_to_a_broker_that_is_slow_ends_and_holds_up_no_other() {
    let cluster = MockCluster::new(2).unwrap();
    cluster.create_topic("orders", 2, 1).unwrap();
    cluster.partition_leader("orders", 0, Some(1)).unwrap();
    cluster.partition_leader("orders", 1, Some(2)).unwrap();
    cluster.broker_round_trip_time(2, LIMIT).unwrap();
    let asked = asked(&cluster.bootstrap_servers(), Duration::from_secs(10));
    asked.questions.end("orders", 1, End::Oldest, 1).unwrap();
    asked.questions.end("orders", 0, End::Oldest, 2).unwrap();
    let answers = asked.answers(1);
    let [(2, Answer::Offset(Ok(end)))] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(end.offset, 0);
    let answers = asked.answers(1);
    assert!(matches!(answers[..], [(1, Answer::Offset(Err(_)))]), "{answers:?}");
}

#[test]
fn questions_may_be_open_when_their_client_goes() {
    let questions = Questions::new(Arc::new(consumer("127.0.0.1:1", "asker")), LIMIT, || {});
    questions.topic("orders", 1).unwrap();
    questions.end("orders", 0, End::Oldest, 2).unwrap();
    assert_eq!(questions.answer(), None);
}
