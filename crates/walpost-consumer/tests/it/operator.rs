//! Resets by an operator: of chosen events, at a limited speed, of an owner that
//! has nothing to do; and what comes in the middle of one.

use std::collections::BTreeMap;

use walpost_consumer::{Event, HandlerError};
use walpost_testkit as testkit;

use crate::{
    member::{self, Harm},
    support::{Ask, BRIEF_SESSION_MS, Effects, LIMIT, World, each, ids, run, stop_committed},
};

const EVENTS: usize = 300;

/// One partition whose events have all taken effect, and a stopped consumer.
async fn applied() -> (World, Vec<String>) {
    let world = World::new(1).await;
    let events = ids("a", EVENTS);
    world.publish(0, &events).await;
    drain(&world, EVENTS as i64).await;
    (world, events)
}

/// Runs until the stored offset is `end`; returns how many effects it made.
async fn drain(world: &World, end: i64) -> u64 {
    let mut running = run(world.consumer().max_batch_events(50).handler(Effects).unwrap());
    let status = running
        .until("the end", |status| {
            status.partitions.values().any(|partition| partition.next_offset == Some(end))
        })
        .await;
    stop_committed(running).await;
    status.counts.applied
}

/// A reset as the command line carries it out.
async fn reset(world: &World, to: i64, mode: &str, chosen: Option<&[i64]>) {
    limited_reset(world, to, mode, chosen, None).await;
}

async fn limited_reset(
    world: &World,
    to: i64,
    mode: &str,
    chosen: Option<&[i64]>,
    events_per_s: Option<i32>,
) {
    let statement =
        "select walpost.operator_reset($1, $2, 0, $3, $4, $5, null, $6, null, 'me', 'why')";
    let (name, topic) = (&world.name, &world.topic);
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
        [name, topic, &to, &mode, &chosen, &events_per_s];
    world.client.query_one(statement, &parameters).await.unwrap();
}

async fn left_to_make(world: &World) -> i64 {
    world.number("select count(*) from walpost.consumer_again").await
}

/// Each of `events` once, and those at `offsets` so many times more.
fn once_and_more(events: &[String], offsets: &[i64], more: i64) -> BTreeMap<String, i64> {
    let mut expected = each(events, 1);
    for offset in offsets {
        *expected.get_mut(&events[*offset as usize]).unwrap() += more;
    }
    expected
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn chosen_events_run_once_more_and_their_copies_and_all_others_do_not() {
    let (world, events) = applied().await;
    let chosen = [7, 120, 121, 299];
    reset(&world, 0, "chosen", Some(&chosen)).await;
    assert_eq!(world.stored().await, 7);
    // Copies of a chosen event, one of which it has not come to yet.
    world.publish(0, ["a120", "a5", "new"]).await;
    assert_eq!(drain(&world, 303).await, 5);
    let mut expected = once_and_more(&events, &chosen, 1);
    expected.insert("new".into(), 1);
    assert_eq!(world.effects().await, expected);
    assert_eq!(left_to_make(&world).await, 0);
    let row = "select count(*) from walpost.consumer_reset where mode = 'chosen' \
               and (from_offset, to_offset, chosen_until, chosen_events) = (300, 7, 300, 4) \
               and (asked_by, reason) = ('me', 'why')";
    assert_eq!(world.number(row).await, 1);
    // Again, at once, is another wish.
    reset(&world, 0, "chosen", Some(&chosen[..1])).await;
    assert_eq!(drain(&world, 303).await, 1);
    reset(&world, 0, "fill", None).await;
    assert_eq!(drain(&world, 303).await, 0, "they are done");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_was_passed_over_runs_if_it_is_chosen_and_not_otherwise() {
    let (world, events) = applied().await;
    let late = ids("late", 20);
    world.publish(0, &late).await;
    reset(&world, 320, "skip", None).await;
    reset(&world, 0, "chosen", Some(&[5, 310])).await;
    assert_eq!(drain(&world, 320).await, 2);
    let mut expected = once_and_more(&events, &[5], 1);
    expected.insert("late10".into(), 1);
    assert_eq!(world.effects().await, expected);
    reset(&world, 300, "fill", None).await;
    assert_eq!(drain(&world, 320).await, 19);
}

/// Members are killed in the middle of a replay: one between the fence and the
/// end of its handler, and others at any moment.
async fn killed_in_a_replay(mode: &str, chosen: Option<&[i64]>) {
    let (world, events) = applied().await;
    // Slow enough that there is something left at each kill; the limit counts effects.
    let (events_per_s, each_round) = if chosen.is_some() { (8, 15) } else { (25, 30) };
    limited_reset(&world, 0, mode, chosen, Some(events_per_s)).await;
    let victim = member::start(&world, Harm::PausesInHandlerOf("a30"));
    member::until_paused(&victim).await;
    victim.kill();
    for round in 0..2u64 {
        let victim = member::start(&world, Harm::Killed);
        let goal = EVENTS as i64 + (round as i64 + 1) * each_round;
        testkit::until(LIMIT, "effects of this round", async || {
            assert!(victim.is_running(), "{}", victim.log());
            world.number("select count(*) from effect").await >= goal
        })
        .await;
        member::pause(13 * round).await;
        victim.kill();
        let left = world.number("select 300 - next_offset from walpost.position").await;
        assert!(left > 0, "the replay was over before the kill");
    }
    drain(&world, EVENTS as i64).await;
    let expected = match chosen {
        Some(chosen) => once_and_more(&events, chosen, 1),
        None => each(&events, 2),
    };
    assert_eq!(world.effects().await, expected);
    assert_eq!(left_to_make(&world).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn a_kill_in_the_middle_of_a_replay_of_chosen_events_costs_none_and_repeats_none() {
    let chosen: Vec<i64> = (0..EVENTS as i64).filter(|offset| offset % 3 == 0).collect();
    killed_in_a_replay("chosen", Some(&chosen)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn a_kill_in_the_middle_of_an_operators_rerun_costs_none_and_repeats_none() {
    killed_in_a_replay("rerun", None).await;
}

/// Runs until the event at offset 100, which stops it.
async fn halt_at_100(world: &World) {
    let halting = Ask(|event: &Event| match event.id() {
        "a100" => Err(HandlerError::halt("so far")),
        _ => Ok(()),
    });
    let consumer = world.consumer().max_batch_events(1).handler(halting).unwrap();
    run(consumer).end().await.unwrap_err();
    assert_eq!(world.stored().await, 100);
}

/// A replay of chosen events that has got to offset 100.
async fn half_way(chosen: &[i64]) -> (World, Vec<String>) {
    let (world, events) = applied().await;
    reset(&world, 0, "chosen", Some(chosen)).await;
    halt_at_100(&world).await;
    (world, events)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn another_reset_in_the_middle_of_a_replay_of_chosen_events_is_honoured_with_it() {
    let chosen = [0, 50, 99, 100, 150, 250];
    // All of them once more: what was made in between is made a third time.
    let (world, events) = half_way(&chosen).await;
    reset(&world, 60, "rerun", None).await;
    assert_eq!(left_to_make(&world).await, 0);
    drain(&world, 300).await;
    let mut expected = once_and_more(&events, &(60..300).collect::<Vec<i64>>(), 1);
    for offset in [0, 50, 99] {
        *expected.get_mut(&events[offset]).unwrap() += 1;
    }
    assert_eq!(world.effects().await, expected);

    // What is missing, which is nothing, and the rest of the replay.
    let (world, events) = half_way(&chosen).await;
    reset(&world, 20, "fill", None).await;
    assert_eq!(drain(&world, 300).await, 3);
    assert_eq!(world.effects().await, once_and_more(&events, &chosen, 1));

    // Others, and the rest of the replay.
    let (world, events) = half_way(&chosen).await;
    reset(&world, 0, "chosen", Some(&[50, 70])).await;
    assert_eq!(drain(&world, 300).await, 5);
    let mut expected = once_and_more(&events, &chosen, 1);
    for offset in [50, 70] {
        *expected.get_mut(&events[offset]).unwrap() += 1;
    }
    assert_eq!(world.effects().await, expected);

    // A skip gives up what it passes over.
    let (world, events) = half_way(&chosen).await;
    reset(&world, 200, "skip", None).await;
    assert_eq!(left_to_make(&world).await, 1);
    drain(&world, 300).await;
    assert_eq!(world.effects().await, once_and_more(&events, &[0, 50, 99, 250], 1));
    reset(&world, 0, "fill", None).await;
    assert_eq!(drain(&world, 300).await, 0);

    // With Kafka's own tool.
    let (world, events) = half_way(&chosen).await;
    // As it is when Kafka has acknowledged the last commit.
    world.tamper("known = '{100}'").await;
    world.reset(&["--to-earliest"]).await;
    drain(&world, 300).await;
    let mut expected = each(&events, 2);
    for offset in [0, 50, 99] {
        *expected.get_mut(&events[offset]).unwrap() += 1;
    }
    assert_eq!(world.effects().await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn chosen_events_within_a_rerun_that_is_not_at_its_end_run_once_more_and_it_goes_on() {
    let (world, events) = applied().await;
    reset(&world, 0, "rerun", None).await;
    halt_at_100(&world).await;
    reset(&world, 0, "chosen", Some(&[10, 99])).await;
    assert_eq!(drain(&world, 300).await, 202);
    let mut expected = each(&events, 2);
    for offset in [10, 99] {
        *expected.get_mut(&events[offset]).unwrap() += 1;
    }
    assert_eq!(world.effects().await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_are_not_behind_the_position_cannot_be_chosen() {
    let (world, _) = applied().await;
    let (name, topic) = (&world.name, &world.topic);
    let chosen = |offsets: &str| {
        let call = format!("'{name}', '{topic}', 0, null, 'chosen', {offsets}");
        format!("select walpost.operator_reset({call}, null, null, null, null, null)")
    };
    for (wrong, state) in [("'{5,300}'", "WP005"), ("'{}'", "WP005"), ("null", "22004")] {
        let error = world.client.query_one(&chosen(wrong), &[]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), state, "{wrong}");
    }
    assert_eq!(world.stored().await, 300);
    assert_eq!(left_to_make(&world).await, 0);
}

/// When an effect was made.
const MS_OF_AT: &str = "(extract(epoch from at) * 1000)::bigint";

/// In lanes or without: 300 events again at 50 a second, and 300 new ones behind.
async fn limited(lanes: usize) {
    let (world, events) = applied().await;
    let late = ids("late", EVENTS);
    world.publish(0, &late).await;
    let clock = "alter table effect add at timestamptz not null default clock_timestamp()";
    world.client.batch_execute(clock).await.unwrap();
    let before = world.number("select max(n) from effect").await;
    limited_reset(&world, 0, "rerun", None, Some(50)).await;
    let consumer = world.consumer().lanes(lanes).max_batch_events(50);
    let clock = "select (extract(epoch from clock_timestamp()) * 1000)::bigint";
    let started_ms = world.number(clock).await;
    let mut running = run(consumer.handler(Effects).unwrap());
    running.until_applied(2 * EVENTS as u64).await;
    running.stop().await.unwrap();
    let expected = each(&events, 2).into_iter().chain(each(&late, 1)).collect();
    assert_eq!(world.effects().await, expected);
    // A quarter of a second's worth may come at once, and none comes before its turn:
    // whatever is slow makes effects late.
    let early = format!(
        "select count(*) from (select {MS_OF_AT} - {started_ms} as after, \
         row_number() over (order by at) as number from effect \
         where n > {before} and off < {EVENTS}) made where after < (number - 12) * 20 - 1"
    );
    assert_eq!(world.number(&early).await, 0, "made before their turn");
    // That counts from before the start. From the first to the last they take 5,760 ms,
    // of which the first ones may be late by some.
    let took = |which: &str| {
        format!(
            "select max({MS_OF_AT}) - min({MS_OF_AT}) from effect where n > {before} and {which}"
        )
    };
    let again_ms = world.number(&took(&format!("off < {EVENTS}"))).await;
    assert!(again_ms >= 1_500, "without a limit: {again_ms} ms");
    let behind_ms = world.number(&took(&format!("off >= {EVENTS}"))).await;
    // The limit would have held it up for 5,760 ms.
    assert!(behind_ms < 5_400, "what is behind was limited, too: {behind_ms} ms");
    let row = "select count(*) from walpost.consumer_reset where events_per_s = 50";
    assert_eq!(world.number(row).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_keeps_below_its_limit_and_what_comes_behind_it_does_not() {
    limited(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_in_lanes_keeps_below_its_limit_and_what_comes_behind_it_does_not() {
    limited(4).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn an_owner_without_events_finds_out_that_it_was_reset() {
    let (world, events) = applied().await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_running(1).await;
    reset(&world, 200, "rerun", None).await;
    running.until_applied(100).await;
    running.stop().await.unwrap();
    let again: Vec<i64> = (200..300).collect();
    assert_eq!(world.effects().await, once_and_more(&events, &again, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kafka_held_unmarked_at_a_reset_is_not_taken_for_another_one() {
    let (world, events) = applied().await;
    world.reset(&["--to-offset", "30"]).await;
    // As if the command had died before its commit to Kafka.
    let statement = "select walpost.operator_reset($1, $2, 0, 250, 'rerun', null, null, null, 30, \
                     'me', null)";
    world.client.query_one(statement, &[&world.name, &world.topic]).await.unwrap();
    let error = run(world.consumer().handler(Effects).unwrap()).end().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("carries no marker"), "{text}");
    assert!(text.contains("walpost consumer sync-offsets"), "{text}");
    assert_eq!(world.effects().await, each(&events, 1));
    assert_eq!(world.stored().await, 250);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn a_rebalance_in_the_middle_of_a_replay_of_chosen_events_costs_none_and_repeats_none() {
    let world = World::new(2).await;
    let events = ids("a", 2 * EVENTS);
    world.publish(0, &events[..EVENTS]).await;
    world.publish(1, &events[EVENTS..]).await;
    // With the heartbeats of a brief session one soon hears of the other.
    let consumer = || world.consumer().session_timeout_ms(BRIEF_SESSION_MS).max_batch_events(50);
    let start = || run(consumer().handler(Effects).unwrap());
    let mut first = start();
    first.until_applied(2 * EVENTS as u64).await;
    let chosen: Vec<i64> = (0..EVENTS as i64).filter(|offset| offset % 3 == 0).collect();
    for partition in 0..2 {
        let call = "select walpost.operator_reset($1, $2, $3, null, 'chosen', $4, null, 4, null, \
                    'me', null)";
        let (name, topic) = (&world.name, &world.topic);
        world.client.query_one(call, &[name, topic, &partition, &chosen]).await.unwrap();
    }
    // One partition goes to the second member, and back.
    world.until_number("select (count(*) < 190)::int::bigint from walpost.consumer_again", 1).await;
    let mut second = start();
    second.until_running(1).await;
    assert!(left_to_make(&world).await > 0, "the replay was over before the rebalance");
    second.stop().await.unwrap();
    world.until_number("select count(*) from walpost.consumer_again", 0).await;
    first.stop().await.unwrap();
    let offsets = chosen.iter().flat_map(|offset| [*offset, offset + EVENTS as i64]);
    assert_eq!(world.effects().await, once_and_more(&events, &offsets.collect::<Vec<i64>>(), 1));
}

#[tokio::test]
pub(crate) async fn effects_are_forgotten_by_age_and_by_what_the_log_still_has() {
    let world = World::new(1).await;
    let rows = "insert into walpost.position (consumer, topic, part, group_id, cluster_id, \
                topic_id, next_offset) select 'c', 't', n, 'g', 'k', 'i', 100 \
                from generate_series(0, 1) n; \
                insert into walpost.done (consumer, source, event_id, pos_id, off, run, at) \
                select c, 's', p || ':' || n, p, n, 0, now() - n * interval '1 day' \
                from unnest('{c,d}'::text[]) c, generate_series(1, 3) p, generate_series(0, 99) n";
    world.client.batch_execute(rows).await.unwrap();
    // Positions 1 and 2 are there, of 3 the row was deleted. Older than 50 days
    // are the offsets from 51 on.
    let prune = "select walpost.prune_done('c', '{1,2}', '{60,10}', now() - interval '50.5 days', \
                 0, 1000)";
    assert_eq!(world.number(prune).await, 9 + 49);
    assert_eq!(world.number(prune).await, 0);
    let left = "select count(*) from walpost.done where consumer = 'c' and (pos_id = 1 \
                and off not between 51 and 59 or pos_id = 2 or pos_id = 3 and off < 51)";
    assert_eq!(world.number(left).await, 91 + 100 + 51);
    let others = "select count(*) from walpost.done where consumer = 'd'";
    assert_eq!(world.number(others).await, 300);
}
