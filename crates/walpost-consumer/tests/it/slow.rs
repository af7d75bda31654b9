//! A broker that does not answer.

use std::time::{Duration, Instant};

use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    mocking::{MockCluster, MockCoordinator},
    producer::{BaseProducer, BaseRecord, Producer},
};

use crate::support::{Effects, LIMIT, World, run};

/// Longer than the longest wait for an answer, and the pause between two.
const WATCHED_FOR: Duration = Duration::from_secs(7);
/// Shorter than that wait.
const APPLIED_WITHIN: Duration = Duration::from_millis(4_500);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn a_broker_that_does_not_answer_holds_up_no_partition_of_another() {
    let world = World::new(1).await;
    let cluster = MockCluster::new(2).unwrap();
    cluster.create_topic(&world.topic, 2, 1).unwrap();
    cluster.partition_leader(&world.topic, 0, Some(1)).unwrap();
    cluster.partition_leader(&world.topic, 1, Some(2)).unwrap();
    cluster.coordinator(MockCoordinator::Group(world.name.clone()), 1).unwrap();
    cluster.broker_round_trip_time(2, 2 * WATCHED_FOR).unwrap();
    let brokers = cluster.bootstrap_servers();
    let broker = brokers.split(',').next().unwrap();
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", broker).create().unwrap();
    let running =
        run(world.consumer().kafka("bootstrap.servers", broker).handler(Effects).unwrap());
    let mut count = 0;
    // The first one waits for the group.
    apply_another(&world, &producer, &mut count).await;
    // What else is slow here may hold up an event of some, but not one of each.
    let mut slowest = Vec::new();
    while slowest.len() < 3 && !slowest.iter().any(|took| *took < APPLIED_WITHIN) {
        slowest.push(watch(&world, &producer, &mut count).await);
    }
    running.stop().await.unwrap();
    assert!(slowest.iter().any(|took| *took < APPLIED_WITHIN), "events took {slowest:?}");
}

/// The longest time that an event took of those of one watch.
async fn watch(world: &World, producer: &BaseProducer, count: &mut i64) -> Duration {
    let since = Instant::now();
    let mut slowest = Duration::ZERO;
    while since.elapsed() < WATCHED_FOR {
        slowest = slowest.max(apply_another(world, producer, count).await);
    }
    slowest
}

/// Sends one event more than there are, and returns how long its effect took.
async fn apply_another(world: &World, producer: &BaseProducer, count: &mut i64) -> Duration {
    let id = format!("a{count}");
    let headers = OwnedHeaders::new().insert(Header { key: "id", value: Some(&id) });
    let record = BaseRecord::<str, str>::to(&world.topic).partition(0).headers(headers);
    producer.send(record).map_err(|(error, _)| error).unwrap();
    producer.flush(LIMIT).unwrap();
    let sent = Instant::now();
    *count += 1;
    world.until_number("select count(*) from effect", *count).await;
    sent.elapsed()
}
