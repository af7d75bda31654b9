//! Members that are paused past their session, and killed.

use std::time::{Duration, Instant};

use walpost_consumer::OnReset;
use walpost_testkit as testkit;

use crate::{
    member::{self, Harm, KILL_BEFORE_COMMIT},
    support::{Effects, LIMIT, World, each, ids, run, stop_committed},
};

/// The member is paused; its successor works on soon and without it;
/// woken, it does no harm and works again.
async fn paused(harm: Harm) {
    paused_as(harm, &[]).await;
}

/// The same with settings of librdkafka.
pub(crate) async fn paused_as(harm: Harm, kafka: &[(&str, &str)]) {
    let world = World::new(1).await;
    let events = ids("a", 1000);
    world.publish(0, &events[..500]).await;
    let zombie = member::start_as(&world, harm, kafka, OnReset::Rerun);
    member::until_paused(&zombie).await;
    let since = Instant::now();
    let successor = world.consumer_as(kafka).max_batch_events(50).handler(Effects).unwrap();
    let successor = run(successor);
    world.until_number("select count(*) from effect", 500).await;
    let took = since.elapsed();
    assert!(took < Duration::from_secs(100), "the successor took {took:?}");
    zombie.resume();
    world.publish(0, &events[500..]).await;
    world.until_number("select count(*) from effect", 1000).await;
    successor.stop().await.unwrap();
    assert!(zombie.terminate(LIMIT).success(), "{}", zombie.log());
    assert_eq!(world.effects().await, each(&events, 1));
    assert_eq!(world.stored().await, 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_paused_in_its_handler_is_overtaken() {
    paused(Harm::PausesInHandlerOf("a120")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_paused_between_compare_and_set_and_handler_is_overtaken() {
    paused(Harm::Failpoint("after_begin@3:stop")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_paused_between_compare_and_set_and_commit_is_overtaken() {
    paused(Harm::Failpoint("before_commit@3:stop")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_paused_after_commit_is_overtaken() {
    paused(Harm::Failpoint("after_commit@3:stop")).await;
}

/// The member is killed at a point; the next one goes on.
async fn killed_at(point: &'static str) {
    let world = World::new(1).await;
    let events = ids("a", 500);
    world.publish(0, &events).await;
    let first = member::start(&world, Harm::Failpoint(point));
    member::until_dead(&first).await;
    let mut second = run(world.consumer().handler(Effects).unwrap());
    second
        .until("the end", |status| {
            status.partitions.values().any(|partition| partition.next_offset == Some(500))
        })
        .await;
    second.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_after_the_compare_and_set_costs_nothing() {
    killed_at("after_begin@3:kill").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_before_commit_costs_nothing() {
    killed_at(KILL_BEFORE_COMMIT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_after_commit_costs_nothing() {
    killed_at("after_commit@3:kill").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_before_the_commit_to_kafka_costs_nothing() {
    killed_at("before_kafka_commit@2:kill").await;
}

/// A reset whose first member is killed at a point runs once.
async fn reset_killed_at(point: &'static str) {
    let world = World::new(1).await;
    let events = ids("a", 300);
    world.publish(0, &events).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(300).await;
    stop_committed(running).await;
    world.reset(&["--to-earliest"]).await;
    let first = member::start(&world, Harm::Failpoint(point));
    member::until_dead(&first).await;
    let running = run(world.consumer().handler(Effects).unwrap());
    world.until_number("select count(*) from effect", 600).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 2));
    assert_eq!(world.number("select count(*) from walpost.consumer_reset").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_that_kafka_holds_alone_is_finished_by_the_successor() {
    reset_killed_at("reset_after_kafka_commit:kill").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_without_its_first_effect_runs_once() {
    reset_killed_at("reset_after_rewind:kill").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: kills for half a minute"]
async fn kills_at_any_moment_cost_no_effect_and_repeat_none() {
    killed_as(6, &[]).await;
}

/// So many members are killed, each under load.
pub(crate) async fn killed_as(rounds: u64, kafka: &[(&str, &str)]) {
    let world = World::new(2).await;
    let events = ids("a", rounds as usize * 1000);
    for round in 0..rounds {
        let chunk = &events[round as usize * 1000..][..1000];
        world.publish(0, chunk.iter().step_by(2)).await;
        world.publish(1, chunk.iter().skip(1).step_by(2)).await;
        let victim = member::start_as(&world, Harm::Killed, kafka, OnReset::Rerun);
        let goal = round as i64 * 1000 + 100;
        testkit::until(LIMIT, "effects of this round", async || {
            assert!(victim.is_running(), "{}", victim.log());
            world.number("select count(*) from effect").await >= goal
        })
        .await;
        member::pause(7 * round).await;
        victim.kill();
    }
    let last = run(world.consumer_as(kafka).handler(Effects).unwrap());
    world.until_number("select count(*) from effect", events.len() as i64).await;
    last.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

/// As in the seconds of a switch-over: sessions are ended, and new ones cannot write.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_rejects_writes_for_a_while_costs_no_effect() {
    let world = World::new(2).await;
    let events = ids("a", 200);
    for (partition, part) in events[..100].chunks(50).enumerate() {
        world.publish(partition as i32, part).await;
    }
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(100).await;
    world.rejects_writes(true).await;
    let rejected = "select xact_rollback from pg_stat_database where datname = current_database()";
    let before = world.number(rejected).await;
    for (partition, part) in events[100..].chunks(50).enumerate() {
        world.publish(partition as i32, part).await;
    }
    // Of both partitions, and more than once.
    testkit::until(LIMIT, "rejected writes", async || world.number(rejected).await > before + 3)
        .await;
    world.rejects_writes(false).await;
    world.until_number("select count(*) from effect", 200).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}
