//! Retries of parked events that have to wait, and those that need not.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use walpost_consumer::{
    Builder, Event, Handler, HandlerError, Park, RetrySchedule, tokio_postgres::Transaction,
};
use walpost_testkit as testkit;

use crate::{
    parked::{ask, until_seen},
    support::{LIMIT, World, effect, run},
};

/// How an attempt ends.
#[derive(Clone, Copy)]
enum Fails {
    Parks,
    Retries,
    Transiently,
}

/// Fails for the ids that it was told, and writes effects for the others.
#[derive(Clone, Default)]
struct Moody {
    fails: Arc<Mutex<BTreeMap<String, Fails>>>,
    /// Ids of all attempts.
    tried: Arc<Mutex<Vec<String>>>,
}

impl Moody {
    fn about(&self, ids: impl IntoIterator<Item = impl Into<String>>, fails: Fails) {
        *self.fails.lock().unwrap() = ids.into_iter().map(|id| (id.into(), fails)).collect();
        self.tried.lock().unwrap().clear();
    }

    fn tried(&self) -> Vec<String> {
        self.tried.lock().unwrap().clone()
    }
}

impl Handler for Moody {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        effect(tx, event).await?;
        self.tried.lock().unwrap().push(event.id().to_owned());
        match self.fails.lock().unwrap().get(event.id()) {
            Some(Fails::Parks) => Err(HandlerError::park("no such customer")),
            Some(Fails::Retries) => Err(HandlerError::retry("not yet")),
            Some(Fails::Transiently) => Err(HandlerError::transient("away")),
            None => Ok(()),
        }
    }
}

/// Asks for a retry of all that are parked, in the order of the log.
async fn ask_for_all(world: &World) -> i64 {
    let sql = "select count(*) from walpost.request_parked((select array_agg(id order by off) \
               from walpost.consumer_parked where state = 'parked'), 'retry', 'tester') \
               where answer = 'requested'";
    world.number(sql).await
}

/// Ids of effects of events that begin with `prefix`, in the order in which they
/// were made.
async fn made(world: &World, prefix: &str) -> Vec<String> {
    let sql = "select event_id from effect where starts_with(event_id, $1) order by n";
    let rows = world.client.query(sql, &[&prefix]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

async fn a_retry_that_waits(consumer: impl Fn(Builder) -> Builder, in_wait: i64) {
    let world = World::new(1).await;
    let bad = ["k-bad", "l-bad", "m-bad"];
    let events = [("k", "k-bad"), ("k", "k1"), ("l", "l-bad"), ("l", "l1"), ("m", "m-bad")];
    world.publish_keyed(0, &events).await;
    let moody = Moody::default();
    moody.about(bad, Fails::Parks);
    let mut running = run(consumer(world.consumer()).handler(moody.clone()).unwrap());
    until_seen(&mut running, 5).await;
    moody.about(["k-bad"], Fails::Transiently);
    assert_eq!(ask_for_all(&world).await, 3);
    let others = "select count(*) from effect where event_id in ('l-bad', 'l1', 'm-bad')";
    world.until_number(others, 3).await;
    let waits = "select count(*) from walpost.consumer_parked where request = 'retry' \
                 and event_id = 'k-bad'";
    assert_eq!(world.number(waits).await, 1);
    let left = "select count(*) from walpost.consumer_parked";
    assert_eq!(world.number(left).await, in_wait, "those of its key wait with it");
    // One that was given up does not wait for its next attempt.
    moody.about(["k-bad"], Fails::Transiently);
    testkit::until(LIMIT, "another attempt", async || moody.tried().len() > 1).await;
    moody.about([""; 0], Fails::Parks);
    world.until_number(left, 0).await;
    running.stop().await.unwrap();
    assert_eq!(made(&world, "").await.len(), 5);
    if in_wait > 1 {
        assert_eq!(made(&world, "k").await, ["k-bad", "k1"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_waits_holds_up_no_other_key() {
    a_retry_that_waits(|builder| builder.park(Park::Key), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_waits_holds_up_no_other_event_that_was_parked_alone() {
    a_retry_that_waits(|builder| builder.park(Park::Event), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_waits_in_a_lane_holds_up_no_other_key() {
    a_retry_that_waits(|builder| builder.park(Park::Key).lanes(4), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_one_key_that_were_parked_alone_are_retried_in_their_order() {
    let world = World::new(1).await;
    world.publish_keyed(0, &[("k", "k0"), ("l", "l0"), ("k", "k1"), ("l", "l1")]).await;
    let moody = Moody::default();
    moody.about(["k0", "l0", "k1", "l1"], Fails::Parks);
    let mut running = run(world.consumer().handler(moody.clone()).unwrap());
    until_seen(&mut running, 4).await;
    moody.about(["k0"], Fails::Transiently);
    assert_eq!(ask_for_all(&world).await, 4);
    testkit::until(LIMIT, "the other key", async || made(&world, "l").await.len() == 2).await;
    testkit::until(LIMIT, "further attempts", async || moody.tried().len() > 4).await;
    assert!(!moody.tried().contains(&"k1".to_owned()), "{:?}", moody.tried());
    moody.about([""; 0], Fails::Parks);
    world.until_number("select count(*) from effect", 4).await;
    running.stop().await.unwrap();
    assert_eq!(made(&world, "k").await, ["k0", "k1"]);
    assert_eq!(made(&world, "l").await, ["l0", "l1"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn attempts_of_an_event_that_waits_are_counted_while_others_are_applied() {
    let world = World::new(1).await;
    let others: Vec<String> = (0..20).map(|number| format!("l{number}")).collect();
    let mut events = vec![("k", "bad"), ("k", "k1")];
    events.extend(others.iter().map(|id| (id.as_str(), id.as_str())));
    world.publish_keyed(0, &events).await;
    let moody = Moody::default();
    moody.about(["bad"].into_iter().chain(others.iter().map(String::as_str)), Fails::Parks);
    let schedule = RetrySchedule::new([20_000, 10].map(Duration::from_millis)).repeating_last();
    let consumer = world.consumer().park(Park::Key).max_attempts(3).retry_schedule(schedule);
    let mut running = run(consumer.handler(moody.clone()).unwrap());
    until_seen(&mut running, 22).await;
    moody.about(["k1"], Fails::Retries);
    assert_eq!(ask_for_all(&world).await, 21);
    let parked = "select count(*) from walpost.consumer_parked where event_id = 'k1' \
                  and state = 'parked' and attempts = 3 and request is null";
    world.until_number(parked, 1).await;
    running.stop().await.unwrap();
    let tried = moody.tried();
    let of_k1 = tried.iter().filter(|id| *id == "k1").count();
    assert_eq!((of_k1, tried.len()), (3, 24), "{tried:?}");
    let second = tried.iter().enumerate().filter(|(_, id)| *id == "k1").nth(1).unwrap().0;
    assert!(second > 20, "the others waited for the second attempt: {tried:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_its_next_attempt_can_be_discarded_at_once() {
    let world = World::new(1).await;
    world.publish_keyed(0, &[("k", "bad"), ("k", "k1"), ("k", "k2")]).await;
    let moody = Moody::default();
    moody.about(["bad"], Fails::Parks);
    let hour = RetrySchedule::new([Duration::from_secs(3_600)]).repeating_last();
    let consumer = world.consumer().park(Park::Key).retry_schedule(hour);
    let mut running = run(consumer.handler(moody.clone()).unwrap());
    until_seen(&mut running, 3).await;
    moody.about(["k1"], Fails::Retries);
    assert_eq!(ask(&world, "retry", "bad").await, "requested");
    testkit::until(LIMIT, "an attempt", async || moody.tried().contains(&"k1".to_owned())).await;
    assert_eq!(ask(&world, "discard", "k1").await, "requested");
    testkit::until(LIMIT, "the next", async || made(&world, "k2").await.len() == 1).await;
    running.stop().await.unwrap();
    let states = "select count(*) from walpost.consumer_parked where (event_id, state) = \
                  ('k1', 'discarded')";
    assert_eq!(world.number(states).await, 1);
}

/// The event of another key, and those behind it in its lane, wait for it; a
/// request for the lane waits with them.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_is_held_up_holds_up_no_request_of_another() {
    let world = World::new(1).await;
    let ids: Vec<String> = (0..24).map(|number| format!("p{number}")).collect();
    let events: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), id.as_str())).collect();
    world.publish_keyed(0, &events).await;
    let moody = Moody::default();
    moody.about(&ids, Fails::Parks);
    let consumer = world.consumer().park(Park::Key).lanes(4);
    let mut running = run(consumer.handler(moody.clone()).unwrap());
    until_seen(&mut running, 24).await;
    moody.about(["stuck"], Fails::Transiently);
    world.publish_keyed(0, &[("s", "stuck")]).await;
    testkit::until(LIMIT, "the event", async || !moody.tried().is_empty()).await;
    assert_eq!(ask_for_all(&world).await, 24);
    let applied = "select (count(*) >= 12)::int::bigint from effect";
    world.until_number(applied, 1).await;
    assert!(made(&world, "stuck").await.is_empty());
    assert!(world.number("select count(*) from walpost.consumer_parked").await > 0);
    moody.about([""; 0], Fails::Parks);
    world.until_number("select count(*) from effect", 25).await;
    running.stop().await.unwrap();
    assert_eq!(world.number("select count(*) from walpost.consumer_parked").await, 0);
}

/// More retries than may be under way wait for an hour; the last one is given up.
#[tokio::test(flavor = "multi_thread")]
async fn retries_that_wait_hold_up_no_discard_however_many_they_are() {
    const PARKED: i64 = 600;
    let world = World::new(1).await;
    world.publish_keyed(0, &[("k", "bad")]).await;
    let moody = Moody::default();
    moody.about(["bad"], Fails::Parks);
    let hour = RetrySchedule::new([Duration::from_secs(3_600)]).repeating_last();
    let consumer = || world.consumer().retry_schedule(hour.clone()).max_attempts(9);
    let mut running = run(consumer().handler(moody.clone()).unwrap());
    until_seen(&mut running, 1).await;
    running.stop().await.unwrap();
    let more = "insert into walpost.consumer_parked (consumer, pos_id, topic, part, off, run, \
                source, event_id, key, value, header_names, header_values, reason, attempts, \
                state) select consumer, pos_id, topic, part, -n, run, source, 'more-' || n, \
                convert_to('more-' || n, 'UTF8'), value, header_names, array_replace(header_values, \
                convert_to('bad', 'UTF8'), convert_to('more-' || n, 'UTF8')), reason, \
                0, 'waiting' from walpost.consumer_parked, generate_series(1, $1::bigint) n";
    world.client.execute(more, &[&PARKED]).await.unwrap();
    let ask_all = "select count(*) from walpost.request_parked((select array_agg(id) from \
                   walpost.consumer_parked where state = 'waiting'), 'retry', 'tester') \
                   where answer = 'requested'";
    assert_eq!(world.number(ask_all).await, PARKED);
    let ids = (1..=PARKED).map(|n| format!("more-{n}"));
    moody.about(ids, Fails::Retries);
    let running = run(consumer().handler(moody.clone()).unwrap());
    testkit::until(LIMIT, "retries", async || moody.tried().len() >= 500).await;
    let tried = moody.tried();
    let last = (1..=PARKED).map(|n| format!("more-{n}")).find(|id| !tried.contains(id));
    let last = last.expect("one of those behind");
    assert_eq!(ask(&world, "discard", &last).await, "requested");
    let discarded = "select count(*) from walpost.consumer_parked where state = 'discarded'";
    world.until_number(discarded, 1).await;
    running.stop().await.unwrap();
    let tried = moody.tried();
    assert_eq!(tried.len(), 500, "each once, and no more at a time");
}

/// The lane of the event is busy when its retry is asked for, and then it is
/// given up: what was asked for last holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_in_a_busy_lane_can_be_taken_back() {
    let world = World::new(1).await;
    world.publish_keyed(0, &[("k", "bad")]).await;
    let moody = Moody::default();
    moody.about(["bad"], Fails::Parks);
    let mut running = run(world.consumer().lanes(4).handler(moody.clone()).unwrap());
    until_seen(&mut running, 1).await;
    moody.about(["stuck"], Fails::Transiently);
    world.publish_keyed(0, &[("k", "stuck")]).await;
    testkit::until(LIMIT, "the event", async || !moody.tried().is_empty()).await;
    assert_eq!(ask(&world, "retry", "bad").await, "requested");
    // A second and more: the owner has looked, and its lane has the request.
    testkit::until(LIMIT, "further attempts", async || moody.tried().len() > 5).await;
    assert_eq!(ask(&world, "discard", "bad").await, "requested");
    moody.about([""; 0], Fails::Parks);
    let discarded = "select count(*) from walpost.consumer_parked where state = 'discarded'";
    world.until_number(discarded, 1).await;
    world.until_number("select count(*) from effect", 1).await;
    running.stop().await.unwrap();
    assert_eq!(made(&world, "").await, ["stuck"]);
}
