//! Keys in a real Redis as the guard.

use std::{collections::BTreeMap, time::Duration};

use walpost_consumer::{
    Builder, Error, Event, Guard, HandlerError, OnReset, Park, PartitionState, RedisGuard,
};
use walpost_testkit::{self as testkit, local::Redis};

use crate::{
    member::{self, Harm, KILL_BEFORE_COMMIT},
    support::{Ask, Effects, LIMIT, World, each, ids, now_ms, run},
};

const MONTH: Duration = Duration::from_secs(30 * 86_400);

/// With the keys of the Redis at `url`.
pub(crate) fn guarded(builder: Builder, url: &str) -> Builder {
    // Brief, so that a claim that nobody comes back to ends within a test.
    let builder = builder.on_reset(OnReset::Fill).handler_timeout_ms(6_000);
    builder.guard(Guard::best_effort_redis(RedisGuard::new(url, MONTH))).park(Park::Event)
}

async fn world(partitions: i32) -> (World, Redis) {
    (World::new(partitions).await, Redis::start_new().unwrap())
}

/// The keys of a consumer with their values.
async fn keys(world: &World, redis: &Redis) -> BTreeMap<String, String> {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let pattern = format!("walpost\0{}\0*", world.name);
    let names: Vec<String> =
        redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await.unwrap();
    let mut keys = BTreeMap::new();
    for name in names {
        let value = redis::cmd("GET").arg(&name).query_async(&mut connection).await.unwrap();
        keys.insert(name.rsplit('\0').next().unwrap().to_owned(), value);
    }
    keys
}

/// The stored offsets, by the ids of their positions.
async fn passed(world: &World) -> BTreeMap<i64, i64> {
    let sql = "select id::bigint, next_offset from walpost.position";
    let rows = world.client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Whether a key is of a place that the stored offset is behind.
fn is_passed(value: &str, passed: &BTreeMap<i64, i64>) -> bool {
    let place = value.strip_prefix("p:").and_then(|place| {
        let mut numbers = place.split(':').map(|number| number.parse::<i64>());
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    place.is_some_and(|(position, offset)| passed.get(&position).is_some_and(|end| *end > offset))
}

/// Sets the key of an event, as a consumer would have left it.
async fn leave(world: &World, redis: &Redis, id: &str, value: &str) {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let key = format!("walpost\0{}\0{}\0{id}", world.name, world.topic);
    let set = redis::cmd("SET").arg(key).arg(value).query_async::<()>(&mut connection).await;
    set.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs Redis"]
async fn with_redis_copies_take_no_effect_over_restarts_and_in_another_partition() {
    let (world, redis) = world(2).await;
    let events = ids("a", 200);
    let consumer = || guarded(world.consumer().max_batch_events(30), &redis.url());
    world.publish(0, &events).await;
    world.publish(0, events.iter().step_by(10)).await;
    let mut running = run(consumer().handler(Effects).unwrap());
    let status = running
        .until("the first", |status| status.counts.applied + status.counts.duplicates == 220)
        .await;
    assert_eq!((status.counts.applied, status.counts.duplicates), (200, 20));
    running.stop().await.unwrap();
    world.publish(1, events.iter().step_by(10)).await;
    let mut running = run(consumer().handler(Effects).unwrap());
    running.until("the copies", |status| status.counts.duplicates == 20).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
    assert_eq!(world.number("select count(*) from walpost.done").await, 0);
    let keys = keys(&world, &redis).await;
    assert_eq!(keys.len(), 200);
    // A key that Redis was too slow to settle says where its event was.
    let settled = keys.values().filter(|value| *value == "d").count();
    assert!(settled >= 100, "{keys:?}");
    let passed = passed(&world).await;
    assert!(keys.values().all(|value| value == "d" || is_passed(value, &passed)), "{keys:?}");
}

/// A world of 120 events whose member has died at a point, and left keys.
async fn dead_at(point: &'static str) -> (World, Redis, Vec<String>) {
    let (world, redis) = world(2).await;
    let events = ids("a", 120);
    world.publish(0, &events).await;
    let first = member::start_with(&world, Harm::Failpoint(point), Some(&redis.url()));
    member::until_dead(&first).await;
    let left = keys(&world, &redis).await;
    assert!(left.values().any(|value| value.starts_with("p:")), "{left:?}");
    (world, redis, events)
}

/// The member dies at a point; its keys, as it left them, cost nothing.
async fn killed_at(point: &'static str) {
    let (world, redis, events) = dead_at(point).await;
    // Copies of all of them elsewhere, then behind the place where it died.
    world.publish(1, &events).await;
    let builder = guarded(world.consumer().max_batch_events(50), &redis.url());
    let running = run(builder.handler(Effects).unwrap());
    testkit::until(LIMIT, "all offsets", async || world.stored().await == 240).await;
    world.publish(0, &events).await;
    testkit::until(LIMIT, "the last copies", async || world.stored().await == 360).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

/// The member dies at a point, the partition is reset to `to`, and then copies
/// of all events come elsewhere: each takes effect once.
async fn killed_and_reset(point: &'static str, to: i64, mode: &str) {
    let (world, redis, events) = dead_at(point).await;
    let stored = world.stored().await;
    assert!((1..120).contains(&stored), "{stored}");
    world.operate(mode, to).await.unwrap();
    let builder = guarded(world.consumer().max_batch_events(50), &redis.url());
    let running = run(builder.handler(Effects).unwrap());
    testkit::until(LIMIT, "all offsets", async || world.stored().await == 120).await;
    world.publish(1, &events).await;
    testkit::until(LIMIT, "the copies", async || world.stored().await == 240).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs Redis"]
async fn a_kill_between_the_keys_and_commit_costs_nothing() {
    killed_at(KILL_BEFORE_COMMIT).await;
    killed_and_reset(KILL_BEFORE_COMMIT, 120, "skip").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs Redis"]
async fn a_kill_between_commit_and_the_keys_repeats_nothing() {
    let point = "before_settle@2:kill";
    killed_at(point).await;
    killed_and_reset(point, 0, "fill").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs Redis"]
async fn a_copy_waits_for_its_original_and_takes_over_when_its_time_is_over() {
    let (world, redis) = world(2).await;
    world.publish(0, ["first"]).await;
    world.publish(1, ["b", "a"]).await;
    let mut running = run(guarded(world.consumer(), &redis.url()).handler(Effects).unwrap());
    running.until_applied(3).await;
    // Somebody who never comes back had claimed it at a place of partition 0.
    let place = "select id::bigint from walpost.position where part = 0";
    let place = world.number(place).await;
    let in_an_hour = now_ms() + 3_600_000;
    leave(&world, &redis, "c", &format!("p:{place}:77:1:{in_an_hour}")).await;
    world.publish(1, ["c"]).await;
    running
        .until("a wait", |status| {
            let waits = |state: &PartitionState| matches!(state, PartitionState::Retrying);
            status.partitions.values().any(|partition| waits(&partition.state))
        })
        .await;
    assert!(!world.effects().await.contains_key("c"));
    let a_second_ago = now_ms() - 1_000;
    leave(&world, &redis, "c", &format!("p:{place}:77:1:{a_second_ago}")).await;
    running.until_applied(4).await;
    // At a place that the offset has passed it is done, whatever its time says.
    leave(&world, &redis, "d", &format!("p:{place}:0:1:{}", i64::MAX)).await;
    world.publish(1, ["d", "e"]).await;
    let status = running.until_applied(5).await;
    assert_eq!((status.counts.duplicates, status.counts.parked), (1, 0));
    running.stop().await.unwrap();
    let applied = ["first", "a", "b", "c", "e"].map(str::to_owned);
    assert_eq!(world.effects().await, each(&applied, 1));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs Redis"]
async fn without_redis_nothing_is_applied_and_nothing_is_lost() {
    let (world, redis) = world(1).await;
    world.publish(0, ids("a", 20)).await;
    let builder = guarded(world.consumer(), &redis.url()).max_attempts(1);
    let mut running = run(builder.handler(Effects).unwrap());
    running.until_applied(20).await;
    redis.stop().unwrap();
    world.publish(0, ids("b", 20)).await;
    let retrying = |status: &walpost_consumer::Status| {
        let retries = |state: &PartitionState| matches!(state, PartitionState::Retrying);
        status.partitions.values().any(|partition| retries(&partition.state))
    };
    running.until("a wait for a stopped Redis", retrying).await;
    assert_eq!(world.stored().await, 20);
    redis.start().unwrap();
    running.until_applied(40).await;
    redis.pause().unwrap();
    world.publish(0, ids("c", 20)).await;
    running.until("a wait for a frozen Redis", retrying).await;
    assert_eq!(world.stored().await, 40);
    redis.resume().unwrap();
    let status = running.until_applied(60).await;
    assert_eq!((status.counts.parked, status.counts.duplicates), (0, 0));
    running.stop().await.unwrap();
    let all: Vec<String> = ["a", "b", "c"].iter().flat_map(|prefix| ids(prefix, 20)).collect();
    assert_eq!(world.effects().await, each(&all, 1));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs Redis"]
async fn with_redis_a_poison_event_is_parked_and_its_copies_are_known() {
    let (world, redis) = world(1).await;
    world.publish(0, ["a", "bad", "b", "bad", "c"]).await;
    let handler = Ask(|event: &Event| match event.id() {
        "bad" => Err(HandlerError::retry("no such customer")),
        _ => Ok(()),
    });
    let builder = guarded(world.consumer().max_attempts(2), &redis.url());
    let mut running = run(builder.handler(handler).unwrap());
    let status = running
        .until("the end", |status| status.counts.applied == 3 && status.counts.duplicates == 1)
        .await;
    assert_eq!(status.counts.parked, 1);
    running.stop().await.unwrap();
    let keys = keys(&world, &redis).await;
    assert_eq!(keys.keys().collect::<Vec<_>>(), ["a", "b", "bad", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs Redis"]
async fn a_time_to_live_below_the_topics_retention_is_refused_unless_told_so() {
    let (world, redis) = world(1).await;
    let day = Duration::from_secs(86_400);
    let start = |guard: RedisGuard| {
        let builder = world.consumer().on_reset(OnReset::Fill);
        run(builder.guard(Guard::best_effort_redis(guard)).handler(Effects).unwrap())
    };
    // Kafka's default is a week, and another one until a segment is closed.
    let error = start(RedisGuard::new(redis.url(), 13 * day)).end().await.unwrap_err();
    assert!(matches!(error, Error::Setting { .. }), "{error}");
    assert!(error.to_string().contains("keeps records for 1209600 s"), "{error}");
    let windowed = RedisGuard::new(redis.url(), 15 * day).replay_window(2 * day);
    let error = start(windowed).end().await.unwrap_err();
    assert!(error.to_string().contains("published again for 172800 s"), "{error}");
    world.publish(0, ids("a", 5)).await;
    let mut running = start(RedisGuard::new(redis.url(), 6 * day).accept_short_ttl());
    running.until_applied(5).await;
    running.stop().await.unwrap();
    let mut running = start(RedisGuard::new(redis.url(), 16 * day).replay_window(2 * day));
    running.until_running(1).await;
    running.stop().await.unwrap();
}
