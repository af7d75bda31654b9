//! Resets by Kafka's own tool, on groups of either protocol, and what looks like
//! one: exact counts.

use walpost_consumer::{Error, OnReset, Status};
use walpost_testkit::{self as testkit, local};

use crate::{
    member::{self, Harm},
    support::{BRIEF_SESSION_MS, Effects, Running, World, each, ids, run, stop_committed},
};

type Settings = &'static [(&'static str, &'static str)];

const CLASSIC: Settings = &[];
const NEW: Settings = &[("group.protocol", "consumer")];
const EVENTS: usize = 1000;

fn start(world: &World, kafka: Settings, on_reset: OnReset) -> Running {
    let consumer = world.consumer_as(kafka).max_batch_events(100).on_reset(on_reset);
    run(consumer.handler(Effects).unwrap())
}

fn is_at_the_end(status: &Status) -> bool {
    let at = |next| status.partitions.values().any(|partition| partition.next_offset == next);
    status.counts.claims > 0 && at(Some(EVENTS as i64))
}

/// Runs to the end of the one partition; effects and resets.
async fn to_the_end(world: &World, kafka: Settings, on_reset: OnReset) -> (u64, u64) {
    let mut running = start(world, kafka, on_reset);
    let status = running.until("the end", is_at_the_end).await;
    stop_committed(running).await;
    (status.counts.applied, status.counts.resets)
}

/// A world whose events have all taken effect.
async fn applied(kafka: Settings) -> (World, Vec<String>) {
    let world = World::new(1).await;
    let events = ids("a", EVENTS);
    world.publish(0, &events).await;
    assert_eq!(to_the_end(&world, kafka, OnReset::Rerun).await, (EVENTS as u64, 0));
    (world, events)
}

/// Every second effect is lost, with the row that knows of it.
async fn lose_half(world: &World, events: &[String]) -> u64 {
    let lost: Vec<&String> = events.iter().step_by(2).collect();
    for table in ["effect", "walpost.done"] {
        let delete = format!("delete from {table} where event_id = any($1)");
        world.client.execute(&delete, &[&lost]).await.unwrap();
    }
    lost.len() as u64
}

async fn policies(kafka: Settings) {
    let (world, events) = applied(kafka).await;
    world.reset(&["--to-earliest"]).await;
    assert_eq!(to_the_end(&world, kafka, OnReset::Rerun).await, (EVENTS as u64, 1));
    assert_eq!(to_the_end(&world, kafka, OnReset::Rerun).await, (0, 0), "a restart is no reset");
    assert_eq!(world.effects().await, each(&events, 2));

    world.client.execute("delete from effect", &[]).await.unwrap();
    world.client.execute("delete from walpost.done", &[]).await.unwrap();
    world.reset(&["--to-earliest"]).await;
    assert_eq!(to_the_end(&world, kafka, OnReset::Fill).await, (EVENTS as u64, 1));
    let missing = lose_half(&world, &events).await;
    world.reset(&["--to-earliest"]).await;
    assert_eq!(to_the_end(&world, kafka, OnReset::Fill).await, (missing, 1));
    assert_eq!(world.effects().await, each(&events, 1));

    world.reset(&["--to-offset", "400"]).await;
    let error = start(&world, kafka, OnReset::Refuse).end().await.unwrap_err();
    assert!(matches!(error, Error::Halted { count: 1, .. }), "{error}");
    assert!(error.to_string().contains("was reset to 400"), "{error}");
    assert_eq!(world.effects().await, each(&events, 1));
    assert_eq!(to_the_end(&world, kafka, OnReset::Rerun).await, (600, 1), "and can be granted");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn rerun_fill_and_refuse_on_a_classic_group() {
    policies(CLASSIC).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn rerun_fill_and_refuse_on_a_group_of_the_new_protocol() {
    policies(NEW).await;
}

async fn deleted(kafka: Settings) {
    let (world, events) = applied(kafka).await;
    world.group_tool(&["--delete-offsets", "--topic", &world.topic]).await;
    assert_eq!(world.committed(0).await.0, None);
    assert_eq!(to_the_end(&world, kafka, OnReset::Rerun).await, (0, 0));
    assert_eq!(world.committed(0).await.0, Some(EVENTS as i64), "it is put back");
    world.group_tool(&["--delete"]).await;
    assert_eq!(world.committed(0).await.0, None);
    assert_eq!(to_the_end(&world, kafka, OnReset::Rerun).await, (0, 0));
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_classic_group_is_no_reset() {
    deleted(CLASSIC).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_group_of_the_new_protocol_is_no_reset() {
    deleted(NEW).await;
}

/// A run that ends without a word to Kafka, whose offset then is behind.
async fn crash_behind(world: &World, kafka: Settings) -> i64 {
    let consumer = world.consumer_as(kafka).session_timeout_ms(BRIEF_SESSION_MS);
    let consumer = consumer.max_batch_events(10).commit_interval_ms(60_000);
    let mut running = run(consumer.handler(Effects).unwrap());
    running.until("the end", is_at_the_end).await;
    running.abort().await;
    let (stale, metadata) = world.committed(0).await;
    assert!(!metadata.is_empty(), "with our marker");
    stale.unwrap()
}

async fn stale(kafka: Settings) {
    let world = World::new(1).await;
    let events = ids("a", EVENTS);
    world.publish(0, &events).await;
    let stale = crash_behind(&world, kafka).await;
    assert!(stale < EVENTS as i64, "Kafka is behind");
    assert_eq!(world.effects().await, each(&events, 1));

    // The tool writes the number again, without the marker: of before the crash,
    // or a wish?
    until_empty(&world).await;
    world.reset(&["--to-current"]).await;
    let error = start(&world, kafka, OnReset::Rerun).end().await.unwrap_err().to_string();
    assert!(error.contains("may be a commit of before a crash"), "{error}");
    assert!(error.contains("--to-offset 1000 --execute"), "{error}");
    assert_eq!(world.effects().await, each(&events, 1));
    until_empty(&world).await;
    world.reset(&["--to-offset", "1000"]).await;
    assert_eq!(to_the_end(&world, kafka, OnReset::Rerun).await, (0, 0));
}

/// Kafka's tool needs a group without members.
async fn until_empty(world: &World) {
    testkit::until(crate::support::LIMIT, "a group without members", async || {
        world.group_tool(&["--describe", "--state"]).await.contains("Empty")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn a_stale_offset_of_a_classic_group_that_is_written_again_halts() {
    stale(CLASSIC).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn a_stale_offset_of_a_group_of_the_new_protocol_that_is_written_again_halts() {
    stale(NEW).await;
}

/// A member is killed in the middle of a replay, in a handler; the next one does
/// the rest.
async fn crash_in_a_replay(kafka: Settings, on_reset: OnReset) {
    let (world, events) = applied(kafka).await;
    let fills = on_reset == OnReset::Fill;
    let expected = if fills { lose_half(&world, &events).await } else { EVENTS as u64 };
    world.reset(&["--to-earliest"]).await;
    let at = Harm::PausesInHandlerOf("a500");
    let member = member::start_as(&world, at, kafka, on_reset);
    member::until_paused(&member).await;
    let made = "select count(*) from effect";
    let before = EVENTS as i64 - if fills { expected as i64 } else { 0 };
    let by_member = world.number(made).await - before;
    assert!((1..expected as i64).contains(&by_member), "{by_member} before the kill");
    member.kill();
    let (rest, resets) = to_the_end(&world, kafka, on_reset).await;
    assert_eq!((by_member as u64 + rest, resets), (expected, 0));
    assert_eq!(world.effects().await, each(&events, if fills { 1 } else { 2 }));
    assert_eq!(world.number("select count(*) from walpost.consumer_reset").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_a_replay_of_a_classic_group_costs_and_repeats_nothing() {
    crash_in_a_replay(CLASSIC, OnReset::Rerun).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_a_replay_of_a_group_of_the_new_protocol_costs_and_repeats_nothing() {
    crash_in_a_replay(NEW, OnReset::Rerun).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_a_classic_group_is_filled_costs_and_repeats_nothing() {
    crash_in_a_replay(CLASSIC, OnReset::Fill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_a_group_of_the_new_protocol_is_filled_costs_and_repeats_nothing() {
    crash_in_a_replay(NEW, OnReset::Fill).await;
}

/// A mistake that is planted in the database: the counts above say so.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_whose_run_is_ignored_is_noticed() {
    let (world, events) = applied(CLASSIC).await;
    // A row of `done` that only changes its run is left as it is.
    let ignored = "create function planted() returns trigger language plpgsql as $$ begin \
                   return null; end $$; create trigger planted before update on walpost.done \
                   for each row execute function planted()";
    world.client.batch_execute(ignored).await.unwrap();
    world.reset(&["--to-earliest"]).await;
    assert_eq!(to_the_end(&world, CLASSIC, OnReset::Rerun).await, (0, 1), "no effect again");
    assert_eq!(world.effects().await, each(&events, 1), "and not twice, as they should be");
}

/// Kafka keeps offsets of an empty group for a minute at least.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: a broker of its own"]
async fn offsets_that_expired_are_no_reset() {
    let broker = local::Kafka::builder()
        .property("offsets.retention.minutes", "1")
        .property("offsets.retention.check.interval.ms", "1000")
        .start()
        .unwrap();
    let mut worlds = Vec::new();
    for kafka in [CLASSIC, NEW] {
        let world = World::on(&broker.bootstrap(), 1).await;
        world.publish(0, ids("a", EVENTS)).await;
        assert_eq!(to_the_end(&world, kafka, OnReset::Rerun).await, (EVENTS as u64, 0));
        assert_eq!(world.committed(0).await.0, Some(EVENTS as i64));
        worlds.push((world, kafka));
    }
    for (world, kafka) in &worlds {
        let limit = 3 * crate::support::LIMIT;
        testkit::until(limit, "expiry", async || world.committed(0).await.0.is_none()).await;
        assert_eq!(to_the_end(world, kafka, OnReset::Rerun).await, (0, 0));
        assert_eq!(world.effects().await, each(&ids("a", EVENTS), 1));
    }
}
