//! Parked events: what waits behind them, and how they leave.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use walpost_consumer::{Builder, Event, Handler, HandlerError, Park, tokio_postgres::Transaction};
use walpost_testkit::{self as testkit, Process};

use crate::{
    member::{self, Harm},
    support::{LIMIT, Running, World, effect, run, stop_committed},
};

/// Fails for the ids that it was told, and writes effects for the others.
#[derive(Clone, Default)]
pub(crate) struct Picky {
    bad: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Picky {
    pub(crate) fn about(bad: impl IntoIterator<Item = &'static str>) -> Self {
        Self { bad: Arc::new(Mutex::new(bad.into_iter().collect())) }
    }

    pub(crate) fn only(&self, bad: impl IntoIterator<Item = &'static str>) {
        *self.bad.lock().unwrap() = bad.into_iter().collect();
    }
}

impl Handler for Picky {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        effect(tx, event).await?;
        let is_bad = self.bad.lock().unwrap().contains(event.id());
        if is_bad { Err(HandlerError::park("no such customer")) } else { Ok(()) }
    }
}

fn keyed(world: &World) -> Builder {
    world.consumer().park(Park::Key)
}

/// Ids of effects in the order in which they were made.
async fn made(world: &World) -> Vec<String> {
    let rows = world.client.query("select event_id from effect order by n", &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Ids and states of what is set aside.
async fn aside(world: &World) -> Vec<(String, String)> {
    let sql =
        "select coalesce(event_id, ''), state from walpost.consumer_parked order by part, off";
    let rows = world.client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

fn rows(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(id, state)| ((*id).to_owned(), (*state).to_owned())).collect()
}

/// Asks for the event with this id, and returns the answer.
pub(crate) async fn ask(world: &World, what: &str, id: &str) -> String {
    let sql = "select answer from walpost.request_parked((select array_agg(id) from \
               walpost.consumer_parked where coalesce(event_id, '') = $2), $1, 'tester')";
    world.client.query_one(sql, &[&what, &id]).await.unwrap().get(0)
}

pub(crate) async fn until_seen(running: &mut Running, events: u64) {
    let what = format!("{events} events");
    running
        .until(&what, |status| {
            let counts = status.counts;
            let seen = counts.applied - counts.unparked + counts.parked + counts.waiting;
            seen + counts.duplicates >= events
        })
        .await;
}

const LEFT: &str = "select count(*) from walpost.consumer_parked";

#[tokio::test]
pub(crate) async fn a_parked_event_holds_back_its_key_and_no_other_until_it_is_retried() {
    let world = World::new(1).await;
    let events = [("k", "k0"), ("k", "bad"), ("l", "l0"), ("k", "k1"), ("l", "l1"), ("k", "k2")];
    world.publish_keyed(0, &events).await;
    let picky = Picky::about(["bad"]);
    let mut running = run(keyed(&world).handler(picky.clone()).unwrap());
    until_seen(&mut running, 6).await;
    assert_eq!(made(&world).await, ["k0", "l0", "l1"]);
    let expected = [("bad", "parked"), ("k1", "waiting"), ("k2", "waiting")];
    assert_eq!(aside(&world).await, rows(&expected));

    picky.only([]);
    assert_eq!(ask(&world, "retry", "bad").await, "requested");
    let status = running.until("the parked ones", |status| status.counts.unparked == 3).await;
    assert_eq!((status.counts.applied, status.counts.parked, status.counts.waiting), (6, 1, 2));
    assert_eq!(made(&world).await, ["k0", "l0", "l1", "bad", "k1", "k2"]);
    assert_eq!(aside(&world).await, []);
    world.publish_keyed(0, &[("k", "k3")]).await;
    running.until_applied(7).await;
    running.stop().await.unwrap();
    assert_eq!(world.number(LEFT).await, 0, "the key is free");
}

#[tokio::test]
async fn the_key_waits_unless_told_otherwise_and_alone_means_alone() {
    for (park, expected) in [
        (None, [("", "parked"), ("bad", "parked"), ("k1", "waiting")].as_slice()),
        (Some(Park::Event), &[("", "parked"), ("bad", "parked")]),
    ] {
        let world = World::new(1).await;
        world.publish_without_id(0, "nobody").await;
        world.publish_keyed(0, &[("k", "bad"), ("k", "k1")]).await;
        let park = park.unwrap_or_default();
        let handler = Picky::about(["bad"]);
        let mut running = run(world.consumer().park(park).handler(handler).unwrap());
        until_seen(&mut running, 3).await;
        running.stop().await.unwrap();
        assert_eq!(aside(&world).await, rows(expected));
    }
}

#[tokio::test]
async fn a_retry_that_fails_again_changes_nothing_but_reason_and_attempts() {
    let world = World::new(1).await;
    world.publish_keyed(0, &[("k", "bad"), ("k", "k1"), ("k", "bad2"), ("k", "k2")]).await;
    let picky = Picky::about(["bad", "bad2"]);
    let mut running = run(keyed(&world).handler(picky.clone()).unwrap());
    until_seen(&mut running, 4).await;
    assert_eq!(ask(&world, "retry", "k1").await, "requested", "for the whole key");
    let twice = "select count(*) from walpost.consumer_parked where event_id = 'bad' \
                 and attempts = 2 and request is null";
    world.until_number(twice, 1).await;
    assert_eq!(world.number("select count(request) from walpost.consumer_parked").await, 0);
    assert_eq!(made(&world).await, [] as [&str; 0]);

    assert_eq!(ask(&world, "discard", "bad").await, "requested");
    let expected = [("bad", "discarded"), ("bad2", "parked"), ("k2", "waiting")];
    testkit::until(LIMIT, "the next that fails", async || aside(&world).await == rows(&expected))
        .await;
    assert_eq!(made(&world).await, ["k1"]);
    assert_eq!(ask(&world, "retry", "bad").await, "settled");
    // Another owner knows what waits, and what is asked for meanwhile.
    running.stop().await.unwrap();
    world.publish_keyed(0, &[("k", "k3"), ("l", "l0")]).await;
    picky.only([]);
    assert_eq!(ask(&world, "retry", "bad2").await, "requested");
    let mut running = run(keyed(&world).handler(picky).unwrap());
    running.until_applied(4).await;
    running.stop().await.unwrap();
    let of_k: Vec<String> = made(&world).await.into_iter().filter(|id| id != "l0").collect();
    assert_eq!(of_k, ["k1", "bad2", "k2", "k3"]);
    assert_eq!(aside(&world).await, rows(&[("bad", "discarded")]));
}

#[tokio::test]
async fn copies_of_what_waits_take_no_effect() {
    let world = World::new(1).await;
    let events = [("k", "bad"), ("k", "k1"), ("k", "bad"), ("k", "k1"), ("l", "k1"), ("l", "bad")];
    world.publish_keyed(0, &events).await;
    let picky = Picky::about(["bad"]);
    let mut running = run(keyed(&world).max_batch_events(2).handler(picky.clone()).unwrap());
    until_seen(&mut running, 6).await;
    assert_eq!(aside(&world).await, rows(&[("bad", "parked"), ("k1", "waiting")]));
    picky.only([]);
    assert_eq!(ask(&world, "retry", "bad").await, "requested");
    running.until_applied(2).await;
    world.publish_keyed(0, &[("k", "k1"), ("k", "bad"), ("k", "end")]).await;
    running.until_applied(3).await;
    running.stop().await.unwrap();
    assert_eq!(made(&world).await, ["bad", "k1", "end"]);
}

#[tokio::test]
async fn a_rerun_over_a_held_key_waits_in_the_order_of_offsets() {
    let world = World::new(1).await;
    world.publish_keyed(0, &[("k", "k0"), ("l", "l0"), ("k", "bad"), ("k", "k1")]).await;
    let picky = Picky::about(["bad"]);
    let mut running = run(keyed(&world).handler(picky.clone()).unwrap());
    until_seen(&mut running, 4).await;
    stop_committed(running).await;
    world.reset(&["--to-earliest"]).await;
    let mut running = run(keyed(&world).handler(picky.clone()).unwrap());
    running
        .until("the end", |status| status.partitions.values().any(|one| one.next_offset == Some(4)))
        .await;
    let expected = [("k0", "waiting"), ("bad", "parked"), ("k1", "waiting")];
    assert_eq!(aside(&world).await, rows(&expected));
    picky.only([]);
    assert_eq!(ask(&world, "retry", "bad").await, "requested");
    running.until("all", |status| status.counts.unparked == 3).await;
    stop_committed(running).await;
    assert_eq!(made(&world).await, ["k0", "l0", "l0", "k0", "bad", "k1"]);
    // Each was made in this run; a fill finds nothing to do.
    world.reset(&["--to-earliest"]).await;
    let fill = keyed(&world).on_reset(walpost_consumer::OnReset::Fill);
    let mut running = run(fill.handler(Picky::default()).unwrap());
    running.until("the end", |status| status.counts.duplicates == 4).await;
    running.stop().await.unwrap();
    assert_eq!(made(&world).await.len(), 6);
}

#[tokio::test]
async fn a_retry_waits_for_a_replay_that_is_still_below_its_event() {
    let world = World::new(1).await;
    world.publish_keyed(0, &[("k", "k0"), ("k", "k1"), ("k", "bad"), ("l", "l0")]).await;
    let picky = Picky::about(["bad"]);
    let mut running = run(keyed(&world).handler(picky.clone()).unwrap());
    until_seen(&mut running, 4).await;
    stop_committed(running).await;
    picky.only([]);
    world.reset(&["--to-earliest"]).await;
    assert_eq!(ask(&world, "retry", "bad").await, "requested");
    let mut running = run(keyed(&world).handler(picky).unwrap());
    running.until("all", |status| status.counts.applied == 4).await;
    running.stop().await.unwrap();
    // Whether another key's last event comes before or behind it, is a matter of moments.
    let (of_l, of_k): (Vec<_>, Vec<_>) =
        made(&world).await.into_iter().partition(|id| id.starts_with('l'));
    assert_eq!((of_k, of_l.len()), (["k0", "k1", "k0", "k1", "bad"].map(String::from).into(), 2));
    assert_eq!(world.number(LEFT).await, 0);
}

#[tokio::test]
async fn an_event_that_is_parked_and_chosen_for_a_replay_takes_effect_once() {
    let world = World::new(1).await;
    world.publish_keyed(0, &[("k", "k0"), ("k", "k1"), ("k", "bad"), ("l", "l0")]).await;
    let picky = Picky::about(["bad"]);
    let mut running = run(world.consumer().handler(picky.clone()).unwrap());
    until_seen(&mut running, 4).await;
    running.stop().await.unwrap();
    picky.only([]);
    let chosen = "select walpost.operator_reset($1, $2, 0, 0, 'chosen', array[0, 2]::bigint[], \
                  null, null, null, 'me', 'why')";
    world.client.query_one(chosen, &[&world.name, &world.topic]).await.unwrap();
    assert_eq!(ask(&world, "retry", "bad").await, "requested");
    let mut running = run(world.consumer().handler(picky).unwrap());
    running
        .until("the end", |status| status.partitions.values().any(|one| one.next_offset == Some(4)))
        .await;
    world.until_number(LEFT, 0).await;
    running.stop().await.unwrap();
    assert_eq!(made(&world).await, ["k0", "k1", "l0", "k0", "bad"]);
}

#[tokio::test]
async fn a_rerun_tries_an_event_that_was_parked_alone_and_its_row_goes() {
    let world = World::new(1).await;
    world.publish_keyed(0, &[("k", "k0"), ("k", "bad"), ("k", "worse"), ("k", "k1")]).await;
    let picky = Picky::about(["bad", "worse"]);
    let mut running = run(world.consumer().handler(picky.clone()).unwrap());
    until_seen(&mut running, 4).await;
    stop_committed(running).await;
    picky.only(["worse"]);
    world.reset(&["--to-earliest"]).await;
    let mut running = run(world.consumer().handler(picky.clone()).unwrap());
    until_seen(&mut running, 4).await;
    assert_eq!(aside(&world).await, rows(&[("worse", "parked")]));
    picky.only([]);
    assert_eq!(ask(&world, "retry", "worse").await, "requested");
    running.until("it", |status| status.counts.unparked == 1).await;
    running.stop().await.unwrap();
    assert_eq!(made(&world).await, ["k0", "k1", "k0", "bad", "k1", "worse"]);
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_retry_that_hangs_or_panics_stays_parked_and_the_partition_goes_on() {
    struct Odd;
    impl Handler for Odd {
        async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
            effect(tx, event).await?;
            match event.id() {
                "panics" => panic!("a handler's bug"),
                "hangs" => std::future::pending().await,
                _ => Ok(()),
            }
        }
    }
    let world = World::new(1).await;
    world.publish_keyed(0, &[("k", "panics"), ("l", "hangs"), ("l", "l1")]).await;
    let consumer = keyed(&world).max_attempts(1).handler_timeout_ms(6_000).claim_timeout_ms(500);
    let mut running = run(consumer.handler(Odd).unwrap());
    until_seen(&mut running, 3).await;
    for id in ["panics", "hangs"] {
        assert_eq!(ask(&world, "retry", id).await, "requested");
        let again = format!(
            "select count(*) from walpost.consumer_parked where event_id = '{id}' \
             and attempts = 2 and request is null"
        );
        world.until_number(&again, 1).await;
    }
    world.publish_keyed(0, &[("m", "m0")]).await;
    running.until_applied(1).await;
    running.stop().await.unwrap();
    assert_eq!(made(&world).await, ["m0"]);
}

#[tokio::test]
async fn requests_that_nobody_can_fulfil_are_answered_at_once() {
    let world = World::new(1).await;
    world.publish_without_id(0, "nobody").await;
    world.publish_keyed(0, &[("k", "bad")]).await;
    let mut running = run(keyed(&world).handler(Picky::about(["bad"])).unwrap());
    until_seen(&mut running, 2).await;
    assert_eq!(ask(&world, "retry", "").await, "no id");
    assert_eq!(ask(&world, "discard", "").await, "requested");
    let expected = rows(&[("", "discarded"), ("bad", "parked")]);
    testkit::until(LIMIT, "it", async || aside(&world).await == expected).await;
    running.stop().await.unwrap();
    let sql = "select answer from walpost.request_parked(array[999999], 'retry', 'tester')";
    let answer: String = world.client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(answer, "unknown");
    world.client.batch_execute("delete from walpost.position").await.unwrap();
    assert_eq!(ask(&world, "retry", "bad").await, "no reader");
    assert_eq!(ask(&world, "discard", "bad").await, "no reader");
    assert_eq!(aside(&world).await, rows(&[("", "discarded"), ("bad", "discarded")]));
}

/// A world whose first event is parked and asked for, with two behind it.
async fn asked() -> World {
    let world = World::new(1).await;
    world.publish_keyed(0, &[("k", "bad"), ("k", "k1"), ("k", "k2")]).await;
    let mut running = run(keyed(&world).handler(Picky::about(["bad"])).unwrap());
    until_seen(&mut running, 3).await;
    running.stop().await.unwrap();
    assert_eq!(ask(&world, "retry", "bad").await, "requested");
    world
}

async fn each_once(world: &World) {
    world.until_number(LEFT, 0).await;
    let effects = ["bad", "k1", "k2"].map(|id| (id.to_owned(), 1));
    assert_eq!(world.effects().await, BTreeMap::from(effects));
    assert_eq!(made(world).await, ["bad", "k1", "k2"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn a_kill_before_the_commit_of_an_unparked_event_costs_nothing() {
    for at in 1..=3 {
        let world = asked().await;
        let point = format!("before_unpark_commit@{at}:kill");
        let killed = member::start(&world, Harm::Failpoint(point.leak()));
        member::until_dead(&killed).await;
        let member = member::start(&world, Harm::Nothing);
        each_once(&world).await;
        assert!(member.terminate(LIMIT).success(), "{}", member.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_paused_before_the_commit_of_an_unparked_event_wakes_to_nothing() {
    let world = asked().await;
    let zombie: Process = member::start(&world, Harm::Failpoint("before_unpark_commit@2:stop"));
    member::until_paused(&zombie).await;
    let successor = member::start(&world, Harm::Nothing);
    each_once(&world).await;
    zombie.resume();
    assert!(zombie.terminate(LIMIT).success(), "{}", zombie.log());
    assert!(successor.terminate(LIMIT).success(), "{}", successor.log());
    each_once(&world).await;
}
