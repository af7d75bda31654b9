//! Offsets that Kafka's own tool sets, on the stopped group.

use std::collections::BTreeMap;

use walpost_consumer::{Error, OnReset};

use crate::support::{
    Effects, Running, World, commit_transaction, each, ids, now_ms, run, stop_committed,
};

const EVENTS: usize = 2000;

/// A world whose events have all taken effect, and a stopped consumer.
async fn applied() -> (World, Vec<String>) {
    let world = World::new(2).await;
    let events = ids("a", EVENTS);
    world.publish(0, &events[..EVENTS / 2]).await;
    world.publish(1, &events[EVENTS / 2..]).await;
    let mut running = start(&world, OnReset::Rerun);
    running.until_applied(EVENTS as u64).await;
    stop_committed(running).await;
    assert_eq!(world.effects().await, each(&events, 1));
    (world, events)
}

/// How often each of `events` took effect: those from `offset` on in their
/// partition `more` times, the others `times`.
fn from_offset(events: &[String], offset: usize, times: i64, more: i64) -> BTreeMap<String, i64> {
    let count = |index: usize| if index % (EVENTS / 2) < offset { times } else { more };
    events.iter().enumerate().map(|(index, id)| (id.clone(), count(index))).collect()
}

fn start(world: &World, on_reset: OnReset) -> Running {
    run(world.consumer().max_batch_events(100).on_reset(on_reset).handler(Effects).unwrap())
}

/// Runs until the stored offsets are at the end again.
async fn replay(world: &World, on_reset: OnReset) -> (u64, u64) {
    let mut running = start(world, on_reset);
    let end = EVENTS as i64 / 2;
    let status = running
        .until("the end of both partitions", |status| {
            status.counts.claims >= 2
                && status.partitions.len() == 2
                && status.partitions.values().all(|partition| partition.next_offset == Some(end))
        })
        .await;
    stop_committed(running).await;
    (status.counts.applied, status.counts.resets)
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn rerun_makes_the_effects_of_the_rewound_range_once_more() {
    let (world, events) = applied().await;
    world.reset(&["--to-earliest"]).await;
    assert_eq!(replay(&world, OnReset::Rerun).await, (EVENTS as u64, 2));
    assert_eq!(world.effects().await, each(&events, 2));
    assert_eq!(replay(&world, OnReset::Rerun).await, (0, 0), "a restart is no second reset");

    world.reset(&["--shift-by", "-100"]).await;
    assert_eq!(replay(&world, OnReset::Rerun).await, (200, 2));
    assert_eq!(world.effects().await, from_offset(&events, 900, 2, 3));
    assert_eq!(world.number("select max(run)::bigint from walpost.position").await, 2);
    assert_eq!(world.number("select count(*) from walpost.consumer_reset").await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_to_a_time_reruns_what_came_after_it() {
    let world = World::new(1).await;
    let boundary = now_ms();
    world.publish_at(0, boundary - 1, ids("before", 300)).await;
    world.publish_at(0, boundary, ids("after", 200)).await;
    let to_text = "select to_char(to_timestamp($1::bigint / 1000.0) at time zone 'utc', \
                   'YYYY-MM-DD\"T\"HH24:MI:SS.MS')";
    let boundary: String = world.client.query_one(to_text, &[&boundary]).await.unwrap().get(0);
    let mut running = start(&world, OnReset::Rerun);
    running.until_applied(500).await;
    stop_committed(running).await;
    world.reset(&["--to-datetime", &boundary]).await;
    let mut running = start(&world, OnReset::Rerun);
    running.until_applied(200).await;
    running.stop().await.unwrap();
    assert_eq!(world.number("select count(*) from effect").await, 700);
    let twice = "select count(*) from (select from effect where event_id like 'after%' \
                 group by event_id having count(*) = 2) twice";
    assert_eq!(world.number(twice).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn fill_makes_the_missing_effects_alone() {
    let (world, events) = applied().await;
    world.reset(&["--to-earliest"]).await;
    assert_eq!(replay(&world, OnReset::Fill).await, (0, 2), "nothing is missing");

    let lost: Vec<String> = events.iter().step_by(2).cloned().collect();
    for table in ["effect", "walpost.done"] {
        let delete = format!("delete from {table} where event_id = any($1)");
        assert_eq!(world.client.execute(&delete, &[&lost]).await.unwrap(), 1000);
    }
    world.reset(&["--to-earliest"]).await;
    assert_eq!(replay(&world, OnReset::Fill).await, (1000, 2));
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fill_below_an_earlier_rerun_makes_nothing_again() {
    let (world, events) = applied().await;
    world.reset(&["--shift-by", "-100"]).await;
    assert_eq!(replay(&world, OnReset::Rerun).await, (200, 2));
    world.reset(&["--to-earliest"]).await;
    assert_eq!(replay(&world, OnReset::Fill).await, (0, 2));
    assert_eq!(world.effects().await, from_offset(&events, 900, 1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn refuse_ends_with_what_to_do_and_changes_nothing() {
    let (world, events) = applied().await;
    world.reset(&["--to-earliest"]).await;
    let error = start(&world, OnReset::Refuse).end().await.unwrap_err();
    let Error::Halted { count: 2, ref reason, .. } = error else {
        panic!("{error}");
    };
    for part in
        ["was reset to 0", "effects end before 1000", "--to-offset 1000", "on_reset = rerun"]
    {
        assert!(reason.contains(part), "{part:?} is not in {reason}");
    }
    assert_eq!(world.effects().await, each(&events, 1));
    assert_eq!(world.stored().await, EVENTS as i64);
    assert_eq!(world.committed(0).await.0, Some(0), "the wish stays where it was");
    assert_eq!(replay(&world, OnReset::Rerun).await, (EVENTS as u64, 2), "and can be granted");
}

#[tokio::test(flavor = "multi_thread")]
async fn forward_is_an_audited_skip_under_rerun_and_refused_under_fill() {
    let (world, events) = applied().await;
    world.publish(0, ids("b", 50)).await;
    world.publish(1, ids("c", 50)).await;
    world.reset(&["--to-latest"]).await;
    let error = start(&world, OnReset::Fill).end().await.unwrap_err();
    assert!(error.to_string().contains("refuses to skip"), "{error}");
    let mut running = start(&world, OnReset::Rerun);
    running.until_running(2).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
    assert_eq!(world.stored().await, EVENTS as i64 + 100);
    let skips = "select count(*) from walpost.consumer_reset \
                 where mode = 'skip' and to_offset - from_offset = 50 and run = 0";
    assert_eq!(world.number(skips).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_that_may_be_ours_halts_with_both_ways_out() {
    let (world, events) = applied().await;
    // As after a crash between a commit to the database and the one to Kafka.
    world.tamper("known = '{1000, 400}'").await;
    world.reset(&["--to-offset", "400"]).await;
    let error = start(&world, OnReset::Rerun).end().await.unwrap_err().to_string();
    assert!(error.contains("--to-offset 1000 --execute"), "{error}");
    let statement = format!(
        "select \"walpost\".reset_partition('{}', '{}', 0, 400, 'rerun')",
        world.name, world.topic
    );
    assert!(error.contains(&statement), "{error}");
    assert_eq!(world.effects().await, each(&events, 1));

    // The one way for partition 1, the other for partition 0.
    world.client.query_one(&statement, &[]).await.unwrap();
    let other = format!("{}:1", world.topic);
    world.reset_topic(&other, &["--to-offset", "1000"]).await;
    assert_eq!(replay(&world, OnReset::Rerun).await.0, 600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_kafka_held_before_a_reset_by_sql_is_no_wish() {
    let (world, events) = applied().await;
    let (name, topic) = (&world.name, &world.topic);
    let reset = format!("select walpost.reset_partition('{name}', '{topic}', 0, 400, 'rerun')");
    world.client.query_one(&reset, &[]).await.unwrap();
    // Kafka still holds 1000 as ours, and now without the marker.
    world.reset(&["--to-current"]).await;
    let mut running = start(&world, OnReset::Rerun);
    let reason = running.until_halted().await;
    assert!(reason.contains("may be a commit of before a crash"), "{reason}");
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
    world.reset_topic(&format!("{topic}:0"), &["--to-offset", "400"]).await;
    assert_eq!(replay(&world, OnReset::Rerun).await, (600, 0));
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn an_operator_resets_a_partition_of_a_live_consumer() {
    let (world, events) = applied().await;
    let mut running = start(&world, OnReset::Refuse);
    running.until_running(2).await;
    let reset = |offset: i64, mode: &str| {
        let (name, topic) = (&world.name, &world.topic);
        format!("select walpost.reset_partition('{name}', '{topic}', 0, {offset}, '{mode}')")
    };
    world.client.query_one(&reset(2000, "rerun"), &[]).await.unwrap_err();
    world.client.query_one(&reset(900, "skip"), &[]).await.unwrap_err();
    world.client.query_one(&reset(900, "rerun"), &[]).await.unwrap();
    // The owner finds out at its next batch.
    world.publish(0, ["late"]).await;
    running.until_applied(101).await;
    running.stop().await.unwrap();
    // Of the one partition alone.
    let mut expected = each(&events, 1);
    expected.extend(each(&events[900..1000], 2));
    expected.insert("late".into(), 1);
    assert_eq!(world.effects().await, expected);
}

/// For Kafka's tool the end is behind what may be read.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_to_behind_an_open_transaction_waits_for_its_end() {
    let world = World::new(1).await;
    let (before, after) = (ids("a", 10), ids("d", 5));
    world.publish(0, &before).await;
    let mut running = start(&world, OnReset::Rerun);
    running.until_applied(10).await;
    stop_committed(running).await;
    let open = world.open_transaction(0, "b").await;
    world.publish(0, ids("c", 5)).await;
    world.reset(&["--to-latest"]).await;
    assert_eq!(world.committed(0).await.0, Some(16));
    let mut running = start(&world, OnReset::Rerun);
    running.until("further trials", |status| status.counts.claims >= 3).await;
    commit_transaction(open).await;
    world.publish(0, &after).await;
    running.until_applied(5).await;
    running.stop().await.unwrap();
    let all: Vec<String> = before.into_iter().chain(after).collect();
    assert_eq!(world.effects().await, each(&all, 1));
}
