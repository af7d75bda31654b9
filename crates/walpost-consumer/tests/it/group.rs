//! Partitions that move between members of the group.

use walpost_testkit::local;

use crate::support::{BRIEF_SESSION_MS, Effects, LIMIT, World, each, ids, run};

const STRATEGY: &str = "partition.assignment.strategy";

/// Joins a second member under load, lets the first leave, and the second go
/// on alone.
async fn hand_over(setting: (&str, &str)) {
    let world = World::new(4).await;
    let consumer = || {
        let consumer = world.consumer().max_batch_events(20);
        consumer.kafka(setting.0, setting.1).handler(Effects).unwrap()
    };
    let events = ids("a", 8000);
    let publish = |range: std::ops::Range<usize>| {
        let (world, events) = (&world, &events);
        async move {
            for partition in 0..4 {
                let chunk = range.clone().filter(|n| n % 4 == partition).map(|n| &events[n]);
                world.publish(partition as i32, chunk).await;
            }
        }
    };
    publish(0..2000).await;
    let mut first = run(consumer());
    first.until_applied(100).await;
    publish(2000..4000).await;
    let mut second = run(consumer());
    second.until_running(2).await;
    first.until_running(2).await;
    publish(4000..6000).await;
    first.stop().await.unwrap();
    second.until_running(4).await;
    publish(6000..8000).await;
    world.until_number("select count(*) from effect", 8000).await;
    second.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
    assert_eq!(world.stored().await, 8000);
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_move_one_by_one_under_the_cooperative_protocol() {
    hand_over((STRATEGY, "cooperative-sticky")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_move_under_the_eager_protocol() {
    hand_over((STRATEGY, "range")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_dropped_half_way_is_replaced() {
    let world = World::new(2).await;
    let events = ids("a", 2000);
    world.publish(0, &events[..1000]).await;
    world.publish(1, &events[1000..]).await;
    let consumer = || {
        let consumer = world.consumer().session_timeout_ms(BRIEF_SESSION_MS);
        consumer.max_batch_events(10).handler(Effects).unwrap()
    };
    let mut first = run(consumer());
    first.until_applied(100).await;
    first.abort().await;
    let second = run(consumer());
    world.until_number("select count(*) from effect", 2000).await;
    second.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_drops_its_connections_costs_no_effect() {
    let world = World::new(2).await;
    let events = ids("a", 3000);
    world.publish(0, &events[..1500]).await;
    world.publish(1, &events[1500..]).await;
    let running = run(world.consumer().max_batch_events(50).handler(Effects).unwrap());
    for at_least in [100, 1000, 2000] {
        walpost_testkit::until(LIMIT, "effects", async || {
            world.number("select count(*) from effect").await >= at_least
        })
        .await;
        world
            .client
            .execute(
                "select pg_terminate_backend(pid) from pg_stat_activity \
                 where datname = current_database() and pid <> pg_backend_pid()",
                &[],
            )
            .await
            .unwrap();
    }
    world.until_number("select count(*) from effect", 3000).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_move_in_a_group_of_the_new_protocol() {
    hand_over(("group.protocol", "consumer")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_killed_and_comes_back_costs_no_effect() {
    let kafka = local::Kafka::builder().start().unwrap();
    let world = World::on(&kafka.bootstrap(), 2).await;
    let events = ids("a", 2000);
    world.publish(0, &events[..500]).await;
    world.publish(1, &events[500..1000]).await;
    let mut running = run(world.consumer().max_batch_events(20).handler(Effects).unwrap());
    running.until_applied(200).await;
    kafka.kill().unwrap();
    kafka.start().unwrap();
    world.publish(0, &events[1000..1500]).await;
    world.publish(1, &events[1500..]).await;
    world.until_number("select count(distinct event_id) from effect", 2000).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}
