//! Groups, as their coordinators describe them.

use std::time::{Duration, Instant};

use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer},
    error::RDKafkaErrorCode,
    mocking::MockCluster,
};
use walpost_librdkafka::{Group, GroupState, group, member_metadata};
use walpost_testkit::{create_topic, fresh_topic, kafka, local::Kafka, unique_name, until};

use crate::support::{LIMIT, Outcomes, consumer};

const SHORT: Duration = Duration::from_secs(3);
const INSTANCE: &str = "pod-0";
/// The topic of Kafka's own whose leaders are the coordinators.
const GROUPS: &str = "__consumer_offsets";

/// A static member that has been given its partition.
fn member(bootstrap: &str, name: &str, topic: &str) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("group.id", name);
    let member: BaseConsumer = config.set("group.instance.id", INSTANCE).create().unwrap();
    member.subscribe(&[topic]).unwrap();
    let since = Instant::now();
    while member.assignment().unwrap().count() == 0 {
        assert!(since.elapsed() < LIMIT, "nothing was assigned");
        member.poll(Duration::from_millis(10));
    }
    member
}

/// Of a new cluster nobody is a coordinator for a moment.
async fn answered(asker: &BaseConsumer<Outcomes>, name: &str) -> Option<Group> {
    let mut answer = Err(RDKafkaErrorCode::Fail);
    until(LIMIT, "the coordinator's answer", async || {
        answer = group(asker.client(), name, SHORT);
        answer.is_ok()
    })
    .await;
    answer.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_member_is_told_with_what_it_subscribes_to() {
    let topic = fresh_topic("orders", 1).await;
    let (bootstrap, name) = (kafka().bootstrap(), unique_name("group"));
    let asker = consumer(bootstrap, &name);
    assert_eq!(answered(&asker, &name).await, None, "nobody is there");
    let member = member(bootstrap, &name, &topic);
    let found = answered(&asker, &name).await.unwrap();
    assert_eq!(found.state, GroupState::Stable);
    let [one] = &found.members[..] else { panic!("one member, not {found:?}") };
    assert_eq!(one.instance.as_deref(), Some(INSTANCE));
    let said = |id: &str| member_metadata(asker.client(), &name, id, LIMIT).unwrap();
    let metadata = said(&one.id).unwrap();
    assert!(metadata.windows(topic.len()).any(|part| part == topic.as_bytes()), "{metadata:?}");
    assert_eq!(said(INSTANCE), None, "that is no member's id");
    drop(member);
}

/// Another broker, which is not it, answers meanwhile.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: two brokers of its own"]
async fn a_group_whose_coordinator_hangs_or_is_away_is_not_told_as_absent() {
    let first = Kafka::builder().start().unwrap();
    let second = Kafka::builder().joining(&first, 2).start().unwrap();
    let bootstrap = first.bootstrap();
    create_topic(&bootstrap, "orders", 1, &[]).await;
    let asker = consumer(&bootstrap, "asker");
    let name = group_of(&asker, 2).await;
    let member = member(&bootstrap, &name, "orders");
    let is_there = async || {
        let found = answered(&asker, &name).await.unwrap();
        assert_eq!(found.members[0].instance.as_deref(), Some(INSTANCE));
    };
    is_there().await;
    second.pause().unwrap();
    let hangs = group(asker.client(), &name, SHORT);
    second.resume().unwrap();
    // It may have answered before it stopped, and then of its member.
    assert!(!matches!(hangs, Ok(None)), "{hangs:?}");
    is_there().await;
    second.kill().unwrap();
    // At first librdkafka may not know it yet.
    let away: Vec<_> = (0..3).map(|_| group(asker.client(), &name, SHORT)).collect();
    second.start().unwrap();
    assert!(away.iter().all(Result::is_err), "{away:?}");
    is_there().await;
    drop(member);
}

/// A name whose coordinator is this broker.
async fn group_of(asker: &BaseConsumer<Outcomes>, broker: i32) -> String {
    let mut leaders = Vec::new();
    until(LIMIT, "coordinators", async || {
        let Ok(found) = asker.fetch_metadata(Some(GROUPS), LIMIT) else { return false };
        leaders = found.topics()[0].partitions().iter().map(|one| one.leader()).collect();
        leaders.contains(&broker)
    })
    .await;
    let partition = |name: &str| {
        // As Java hashes a text.
        let hash = name
            .bytes()
            .fold(0_i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)));
        hash.unsigned_abs() as usize % leaders.len()
    };
    let mut names = (0..).map(|number| format!("group-{number}"));
    names.find(|name| leaders[partition(name)] == broker).unwrap()
}

#[test]
fn a_broker_that_does_not_know_the_question_says_so() {
    let cluster = MockCluster::new(2).unwrap();
    let asker = consumer(&cluster.bootstrap_servers(), "group");
    let answer = group(asker.client(), "group", LIMIT);
    assert_eq!(answer, Err(RDKafkaErrorCode::UnsupportedFeature));
}

#[test]
fn brokers_that_are_away_are_an_error_in_bounded_time() {
    let asker = consumer("127.0.0.1:1", "group");
    let answer = group(asker.client(), "group", Duration::from_millis(300));
    assert!(answer.is_err(), "{answer:?}");
}
