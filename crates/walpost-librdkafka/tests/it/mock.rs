//! Against librdkafka's own broker in this process.

use rdkafka::{consumer::Consumer, mocking::MockCluster};
use walpost_librdkafka::{TopicIdError, topic_ids};

use crate::support::{LIMIT, committed_offsets_come_back, consumer, headers_come_back};

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
    let limit = std::time::Duration::from_millis(300);
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
