//! Events, copies of events, and restarts.

use walpost_consumer::FirstStart;

use crate::support::{Effects, World, each, ids, run};

#[tokio::test]
pub(crate) async fn each_event_takes_effect_once_over_restarts() {
    let world = World::new(2).await;
    let (first, second) = (ids("a", 1200), ids("b", 1300));
    world.publish(0, &first[..600]).await;
    world.publish(1, &first[600..]).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(1200).await;
    assert_eq!(world.effects().await, each(&first, 1));
    running.stop().await.unwrap();

    world.publish(1, &second).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(1300).await;
    running.stop().await.unwrap();
    let all: Vec<String> = first.into_iter().chain(second).collect();
    assert_eq!(world.effects().await, each(&all, 1));
    assert_eq!(world.stored().await, 2500);
}

#[tokio::test]
pub(crate) async fn a_copy_of_an_event_takes_no_effect() {
    let world = World::new(2).await;
    let events = ids("a", 300);
    world.publish(0, &events).await;
    world.publish(0, &events[100..200]).await;
    world.publish(0, &events).await;
    world.publish(1, &events).await;
    let mut running = run(world.consumer().max_batch_events(37).handler(Effects).unwrap());
    let status = running
        .until("all records", |status| status.counts.applied + status.counts.duplicates == 1000)
        .await;
    assert_eq!((status.counts.applied, status.counts.duplicates), (300, 700));
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test]
async fn consumers_of_other_names_have_effects_of_their_own() {
    let world = World::new(1).await;
    let events = ids("a", 10);
    world.publish(0, &events).await;
    for name in ["billing", "mailing"] {
        let name = format!("{}_{name}", world.name);
        let mut running = run(world.consumer_named(&name).handler(Effects).unwrap());
        running.until_applied(10).await;
        running.stop().await.unwrap();
    }
    assert_eq!(world.effects().await, each(&events, 2));
}

#[tokio::test]
pub(crate) async fn an_orderly_stop_leaves_the_last_offset_in_kafka_with_a_marker() {
    let mut world = stopped().await;
    // A stop waits for Kafka's answer, but not for ever.
    for _ in 0..2 {
        if world.number(KNOWN).await == 0 {
            world = stopped().await;
        }
    }
    let (offset, metadata) = world.committed(0).await;
    assert_eq!(offset, Some(50));
    let marker = String::from_utf8(metadata).unwrap();
    assert!(
        marker.starts_with(r#"{"walpost":1,"#) && marker.contains(r#""offset":50,"#),
        "{marker}"
    );
    assert_eq!(world.number(KNOWN).await, 1);
}

/// Of the numbers that Kafka may hold, the last one is left.
const KNOWN: &str = "select count(*) from walpost.position where known = '{50}'";

/// Stopped after 50 events. Without the stop Kafka would learn of the last one in a
/// minute.
async fn stopped() -> World {
    let world = World::new(1).await;
    world.publish(0, ids("a", 50)).await;
    let consumer = world.consumer().max_batch_events(10).commit_interval_ms(60_000);
    let mut running = run(consumer.handler(Effects).unwrap());
    running.until_applied(50).await;
    running.stop().await.unwrap();
    world
}

#[tokio::test]
pub(crate) async fn an_idle_consumer_forgets_the_offsets_that_kafka_no_longer_holds() {
    let world = World::new(1).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    for round in 0..5 {
        world.publish(0, ids(&format!("r{round}-"), 10)).await;
        running.until_applied(10 * (round + 1)).await;
    }
    world.until_number("select count(*) from walpost.position where known = '{50}'", 1).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn latest_skips_what_is_there_at_the_first_start_alone() {
    let world = World::new(2).await;
    world.publish(0, ids("old", 20)).await;
    let latest = || world.consumer().first_start(FirstStart::Latest);
    let mut running = run(latest().handler(Effects).unwrap());
    running.until_running(2).await;
    let (first, second) = (ids("a", 5), ids("b", 5));
    world.publish(0, &first).await;
    running.until_applied(5).await;
    running.stop().await.unwrap();
    world.publish(1, &second).await;
    let mut running = run(latest().handler(Effects).unwrap());
    running.until_applied(5).await;
    running.stop().await.unwrap();
    let all: Vec<String> = first.into_iter().chain(second).collect();
    assert_eq!(world.effects().await, each(&all, 1));
}

#[tokio::test]
async fn a_batch_waits_for_as_long_as_it_is_told_and_no_longer_than_it_is_full() {
    let world = World::new(1).await;
    let consumer = world.consumer().max_batch_events(5).max_batch_wait_ms(60_000);
    let mut running = run(consumer.handler(Effects).unwrap());
    running.until_running(1).await;
    for id in ids("a", 12) {
        world.publish(0, [id]).await;
    }
    running.until_applied(10).await;
    assert_eq!(world.number("select count(*) from effect").await, 10);
    let one_transaction = "select count(distinct xmin::text)::bigint from effect";
    assert_eq!(world.number(one_transaction).await, 2);
    running.stop().await.unwrap();
}
