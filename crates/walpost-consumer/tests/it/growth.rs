//! A topic that gains partitions while a consumer reads it.

use std::time::Duration;

use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewPartitions},
    client::DefaultClientContext,
};
use walpost_consumer::{Builder, FirstStart};
use walpost_testkit as testkit;

use crate::support::{Effects, LIMIT, World, each, ids, run};

/// Long enough that events are in the new partitions before the member knows of
/// these.
const REFRESH_MS: &str = "60000";

/// Adds partitions, and waits until the broker knows them.
async fn grow(world: &World, partitions: usize) {
    let client: AdminClient<DefaultClientContext> = ClientConfig::new()
        .set("bootstrap.servers", testkit::kafka().bootstrap())
        .create()
        .unwrap();
    let wanted = NewPartitions::new(&world.topic, partitions);
    let grown = client.create_partitions([&wanted], &AdminOptions::new()).await.unwrap();
    assert!(grown[0].is_ok(), "{grown:?}");
    let known = || {
        let found = client.inner().fetch_metadata(Some(&world.topic), Duration::from_secs(5));
        found.is_ok_and(|found| found.topics()[0].partitions().len() == partitions)
    };
    testkit::until(LIMIT, "the partitions", async || tokio::task::block_in_place(known)).await;
}

async fn gains_partitions(first_start: FirstStart, old: i64) {
    let world = World::new(1).await;
    let consumer = |world: &World| -> Builder {
        let refresh = ("topic.metadata.refresh.interval.ms", REFRESH_MS);
        world.consumer_as(&[refresh]).first_start(first_start)
    };
    world.publish(0, ["old"]).await;
    let mut running = run(consumer(&world).handler(Effects).unwrap());
    running.until_running(1).await;
    let first = ids("a", 5);
    world.publish(0, &first).await;
    world.until_number("select count(*) from effect", 5 + old).await;

    grow(&world, 3).await;
    // Its producer has not met the topic as it was.
    let world = world.at(testkit::kafka().bootstrap());
    let (second, third) = (ids("b", 7), ids("c", 9));
    world.publish(1, &second).await;
    world.publish(2, &third).await;
    let partitions = running.status.borrow().partitions.len();
    assert_eq!(partitions, 1, "the member has noticed before, which tests nothing");
    running.until_running(3).await;
    world.until_number("select count(*) from effect", 21 + old).await;
    world.publish(2, ["d0"]).await;
    world.until_number("select count(*) from effect", 22 + old).await;
    running.stop().await.unwrap();

    world.publish(1, ["d1"]).await;
    let mut running = run(consumer(&world).handler(Effects).unwrap());
    running.until_applied(1).await;
    running.stop().await.unwrap();
    let mut expected = each(&[first, second, third, ids("d", 2)].concat(), 1);
    if old > 0 {
        expected.insert("old".into(), old);
    }
    assert_eq!(world.effects().await, expected);
    assert_eq!(world.stored().await, 1 + 5 + 7 + 9 + 2);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: waits a minute for the metadata of a topic"]
async fn partitions_that_a_topic_gains_are_read_from_their_start() {
    gains_partitions(FirstStart::Earliest, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: waits a minute for the metadata of a topic"]
async fn partitions_that_a_topic_gains_are_read_from_their_start_under_latest_too() {
    gains_partitions(FirstStart::Latest, 0).await;
}
