//! Several lanes for one partition.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::Barrier;
use walpost_consumer::{
    Event, Handler, HandlerError, OnReset, Park, RetrySchedule, Status, tokio_postgres::Transaction,
};
use walpost_testkit as testkit;

use crate::{
    member::{self, Harm},
    support::{Ask, Effects, LIMIT, World, each, effect, ids, run, stop_committed},
};

const LANES: usize = 8;
const KEYS: usize = 40;

/// Events `key-number`, one number of all keys after the other.
fn of_keys(numbers: std::ops::Range<usize>) -> Vec<(String, String)> {
    let event = |number: usize, key: usize| (format!("k{key}"), format!("k{key}-{number}"));
    numbers.flat_map(|number| (0..KEYS).map(move |key| event(number, key))).collect()
}

async fn publish(world: &World, events: &[(String, String)]) {
    let events: Vec<(&str, &str)> = events.iter().map(|(key, id)| (&**key, &**id)).collect();
    world.publish_keyed(0, &events).await;
}

/// The numbers of each key's effects, in the order in which they were made.
async fn by_key(world: &World) -> BTreeMap<String, Vec<usize>> {
    let rows = world.client.query("select event_id from effect order by n", &[]).await.unwrap();
    let mut by_key = BTreeMap::<String, Vec<usize>>::new();
    for row in rows {
        let (key, number) = row.get::<_, &str>(0).split_once('-').unwrap();
        by_key.entry(key.to_owned()).or_default().push(number.parse().unwrap());
    }
    by_key
}

fn each_key(numbers: &[usize]) -> BTreeMap<String, Vec<usize>> {
    (0..KEYS).map(|key| (format!("k{key}"), numbers.to_vec())).collect()
}

fn whole(events: &[(String, String)]) -> BTreeMap<String, i64> {
    let ids: Vec<String> = events.iter().map(|(_, id)| id.clone()).collect();
    each(&ids, 1)
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn keys_go_side_by_side_and_each_in_its_order() {
    /// Every first event of a key waits until four such are in hand at once.
    struct Together {
        four: Arc<Barrier>,
        first: AtomicUsize,
    }
    impl Handler for Together {
        async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
            if event.id().ends_with("-0") && self.first.fetch_add(1, Ordering::SeqCst) < 4 {
                self.four.wait().await;
            }
            effect(tx, event).await
        }
    }
    let world = World::new(1).await;
    let events = of_keys(0..20);
    publish(&world, &events).await;
    let handler = Together { four: Arc::new(Barrier::new(4)), first: AtomicUsize::new(0) };
    let consumer = world.consumer().lanes(LANES).max_batch_events(50);
    let mut running = run(consumer.handler(handler).unwrap());
    running.until_applied(events.len() as u64).await;
    let numbers: Vec<usize> = (0..20).collect();
    assert_eq!(by_key(&world).await, each_key(&numbers));
    let end = events.len() as i64;
    running
        .until("the offset", |status| {
            status.partitions.values().any(|partition| partition.next_offset == Some(end))
        })
        .await;
    stop_committed(running).await;
    assert_eq!((world.stored().await, world.committed(0).await.0), (end, Some(end)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_hangs_holds_the_offset_and_no_other_key() {
    struct Hangs(Arc<tokio::sync::Semaphore>);
    impl Handler for Hangs {
        async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
            if event.id() == "k3-1" {
                let _permit = self.0.acquire().await.map_err(HandlerError::retry)?;
            }
            effect(tx, event).await
        }
    }
    let world = World::new(1).await;
    let events = of_keys(0..10);
    publish(&world, &events).await;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    // Alone in its transaction, so that no other key of its lane waits long.
    let consumer = world.consumer().lanes(64).max_batch_events(1);
    let mut running = run(consumer.handler(Hangs(Arc::clone(&gate))).unwrap());
    let others = "select count(distinct split_part(event_id, '-', 1)) from effect \
                  where event_id like '%-9'";
    testkit::until(LIMIT, "half of the keys", async || world.number(others).await >= 20).await;
    assert!(world.stored().await <= 43, "the event at offset 43 is not done");
    gate.add_permits(1);
    running.until_applied(events.len() as u64).await;
    running.stop().await.unwrap();
    assert_eq!(world.stored().await, events.len() as i64);
    assert_eq!(by_key(&world).await, each_key(&(0..10).collect::<Vec<_>>()));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn kills_between_lanes_and_offset_cost_no_effect_and_repeat_none() {
    for point in
        ["before_lane_commit@4:kill", "after_lane_commit@5:kill", "before_lane_offset:kill"]
    {
        let world = World::new(1).await;
        let events = of_keys(0..15);
        publish(&world, &events).await;
        let killed = member::start_with_lanes(&world, LANES, Harm::Failpoint(point));
        member::until_dead(&killed).await;
        let second = member::start_with_lanes(&world, LANES, Harm::Nothing);
        second.wait_for_log("the partition runs", LIMIT);
        // Effects may all have been there before it came.
        let at_end = "select next_offset from walpost.position";
        world.until_number(at_end, events.len() as i64).await;
        assert!(second.terminate(LIMIT).success(), "{}", second.log());
        assert_eq!(world.effects().await, whole(&events), "{point}");
        assert_eq!(by_key(&world).await, each_key(&(0..15).collect::<Vec<_>>()), "{point}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
pub(crate) async fn a_member_paused_in_its_lanes_wakes_to_nothing() {
    for harm in [Harm::PausesInHandlerOf("k7-5"), Harm::Failpoint("before_lane_commit@6:stop")] {
        let world = World::new(1).await;
        let events = of_keys(0..10);
        publish(&world, &events).await;
        let zombie = member::start_with_lanes(&world, LANES, harm);
        member::until_paused(&zombie).await;
        // The successor has other lanes, or none.
        let successor = member::start_with_lanes(&world, 3, Harm::Nothing);
        world.until_number("select count(*) from effect", events.len() as i64).await;
        zombie.resume();
        assert!(zombie.terminate(LIMIT).success(), "{}", zombie.log());
        assert!(successor.terminate(LIMIT).success(), "{}", successor.log());
        assert_eq!(world.effects().await, whole(&events), "{harm:?}");
        assert_eq!(by_key(&world).await, each_key(&(0..10).collect::<Vec<_>>()), "{harm:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resets_and_copies_count_in_lanes_as_they_do_without() {
    let world = World::new(1).await;
    let events = of_keys(0..5);
    publish(&world, &events).await;
    // Copies under their own key and under another one, in another lane.
    publish(&world, &events[..60]).await;
    let moved: Vec<(String, String)> =
        events[60..90].iter().map(|(key, id)| (format!("{key}'"), id.clone())).collect();
    publish(&world, &moved).await;
    let lanes = || world.consumer().lanes(LANES).max_batch_events(20);
    let mut running = run(lanes().handler(Effects).unwrap());
    running.until("copies", |status| status.counts.duplicates == 90).await;
    running.until_applied(200).await;
    let is_at_the_end =
        |status: &Status| status.partitions.values().any(|one| one.next_offset == Some(290));
    running.until("the end", is_at_the_end).await;
    stop_committed(running).await;
    assert_eq!(world.effects().await, whole(&events));
    for (on_reset, times) in [(OnReset::Rerun, 2), (OnReset::Fill, 2), (OnReset::Rerun, 3)] {
        world.reset(&["--to-earliest"]).await;
        let mut running = run(lanes().on_reset(on_reset).handler(Effects).unwrap());
        running.until("the end", |status| status.counts.resets == 1 && is_at_the_end(status)).await;
        stop_committed(running).await;
        let ids: Vec<String> = events.iter().map(|(_, id)| id.clone()).collect();
        assert_eq!(world.effects().await, each(&ids, times), "{on_reset:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_lanes_a_parked_event_holds_back_its_key_alone() {
    let world = World::new(1).await;
    let events = of_keys(0..6);
    publish(&world, &events).await;
    let mended = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&mended);
    let handler = Ask(move |event: &Event| match event.id() {
        "k5-2" | "k9-0" if !seen.load(Ordering::SeqCst) => Err(HandlerError::retry("not yet")),
        _ => Ok(()),
    });
    let consumer = world.consumer().park(Park::Key).lanes(LANES).max_attempts(2);
    let mut running = run(consumer.handler(handler).unwrap());
    running
        .until("all", |status| {
            let counts = status.counts;
            (counts.applied, counts.parked, counts.waiting) == (240 - 4 - 6, 2, 8)
        })
        .await;
    mended.store(true, Ordering::SeqCst);
    let ask = "select count(*) from walpost.request_parked((select array_agg(id) from \
               walpost.consumer_parked where state = 'parked'), 'retry', 'tester')";
    assert_eq!(world.number(ask).await, 2);
    running.until("the parked ones", |status| status.counts.unparked == 10).await;
    publish(&world, &of_keys(6..7)).await;
    running.until_applied(280).await;
    running.stop().await.unwrap();
    assert_eq!(by_key(&world).await, each_key(&(0..7).collect::<Vec<_>>()));
    assert_eq!(world.stored().await, 280);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn a_handler_that_hangs_in_a_lane_is_parked_and_the_others_go_on() {
    struct Odd;
    impl Handler for Odd {
        async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
            effect(tx, event).await?;
            match event.id() {
                "a7" => panic!("a handler's bug"),
                "a8" => {
                    tx.execute("select pg_sleep(600)", &[]).await?;
                    Ok(())
                }
                _ => Ok(()),
            }
        }
    }
    let world = World::new(1).await;
    let events = ids("a", 30);
    let keyed: Vec<(String, String)> = events.iter().map(|id| (id.clone(), id.clone())).collect();
    publish(&world, &keyed).await;
    let consumer = world.consumer().lanes(4).max_attempts(2).handler_timeout_ms(3_000);
    let running = run(consumer.claim_timeout_ms(500).handler(Odd).unwrap());
    let rows =
        "select (select count(*) from effect) + (select count(*) from walpost.consumer_parked)";
    world.until_number(rows, 30).await;
    running.stop().await.unwrap();
    let left: Vec<String> =
        events.into_iter().filter(|id| !["a7", "a8"].contains(&&**id)).collect();
    assert_eq!(world.effects().await, each(&left, 1));
}

/// A panic ends the claim, and drops what the other lanes are at.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn two_events_that_panic_in_two_lanes_are_both_parked() {
    struct Panics;
    impl Handler for Panics {
        async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
            assert!(!matches!(event.id(), "a0" | "a1" | "a2"), "a handler's bug");
            effect(tx, event).await
        }
    }
    let world = World::new(1).await;
    let events = ids("a", 10);
    let keyed: Vec<(String, String)> = events.iter().map(|id| (id.clone(), id.clone())).collect();
    publish(&world, &keyed).await;
    let longer = RetrySchedule::new([40, 200, 1_000, 5_000].map(Duration::from_millis));
    let consumer = world.consumer().lanes(8).max_attempts(5).retry_schedule(longer);
    let running = run(consumer.claim_timeout_ms(500).handler(Panics).unwrap());
    world.until_number("select count(*) from walpost.consumer_parked", 3).await;
    world.until_number("select next_offset from walpost.position", 10).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events[3..], 1));
}

/// Ends its transaction at one event, and fails at a later one.
struct Ends {
    by: &'static str,
    mended: Arc<AtomicBool>,
}

impl Handler for Ends {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        effect(tx, event).await?;
        if self.mended.load(Ordering::SeqCst) {
            return Ok(());
        }
        match event.id() {
            // Some do not look at the answer.
            "a3" => drop(tx.batch_execute(self.by).await),
            "a6" => return Err(HandlerError::retry("not yet")),
            _ => {}
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_ends_its_transaction_halts_though_it_fails_afterwards() {
    for lanes in [1, 4] {
        for by in ["commit", "rollback"] {
            let world = World::new(1).await;
            let events = ids("a", 10);
            world.publish(0, &events).await;
            let mended = Arc::new(AtomicBool::new(false));
            let handler = || Ends { by, mended: Arc::clone(&mended) };
            let builder = || world.consumer().lanes(lanes).max_batch_wait_ms(500);
            let consumer = || builder().handler(handler()).unwrap();
            let mut running = run(consumer());
            let reason = running.until_halted().await;
            assert!(reason.contains("ended the transaction"), "{lanes} {by}: {reason}");
            let _ = running.stop().await;
            // What it wrote behind the end stays, as nobody can take it back.
            let behind = ["a4", "a5", "a6"].map(str::to_owned);
            assert_eq!(world.effects().await, each(&behind, 1), "{lanes} {by}");
            assert_eq!(world.number("select count(*) from walpost.done").await, 0);
            world.client.execute("delete from effect", &[]).await.unwrap();
            mended.store(true, Ordering::SeqCst);
            let mut running = run(consumer());
            running.until_applied(10).await;
            running.stop().await.unwrap();
            assert_eq!(world.effects().await, each(&events, 1), "{lanes} {by}");
        }
    }
}

/// Tries to commit, at one event.
struct Commits {
    mended: Arc<AtomicBool>,
}

impl Handler for Commits {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        effect(tx, event).await?;
        if event.id() == "a3" && !self.mended.load(Ordering::SeqCst) {
            tx.batch_execute("commit").await?;
        }
        Ok(())
    }
}

/// The commit itself is refused: nothing of the event stays, and nothing of its
/// key comes behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_ends_its_transaction_in_a_lane_halts() {
    let world = World::new(1).await;
    let events = ids("a", 5);
    world.publish(0, &events).await;
    let mended = Arc::new(AtomicBool::new(false));
    let consumer = || {
        let handler = Commits { mended: Arc::clone(&mended) };
        world.consumer().lanes(4).max_batch_events(1).handler(handler).unwrap()
    };
    let mut running = run(consumer());
    let reason = running.until_halted().await;
    assert!(reason.contains("ended the transaction"), "{reason}");
    let error = running.end().await.unwrap_err();
    assert!(error.to_string().contains("ended the transaction"), "{error}");
    assert_eq!(world.effects().await, each(&events[..3], 1));
    assert_eq!(world.number("select count(*) from walpost.done").await, 3);
    assert_eq!(world.number("select count(*) from walpost.consumer_parked").await, 0);
    assert_eq!(world.stored().await, 3);
    mended.store(true, Ordering::SeqCst);
    let mut running = run(consumer());
    running.until_applied(2).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
    assert_eq!(world.stored().await, 5);
}
