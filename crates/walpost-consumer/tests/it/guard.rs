//! Unique keys of the handler's own tables as the guard.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use walpost_consumer::{
    Builder, Error, Event, Guard, Handler, HandlerError, OnReset, Park, SliceError,
    tokio_postgres::Transaction,
};

use crate::support::{Effects, World, each, ids, run, stop_committed};

const PAYMENTS: &str = "create table payment (id bigint generated always as identity, \
                        ref text not null, constraint payment_ref_key unique (ref))";

pub(crate) async fn world() -> World {
    let world = World::new(1).await;
    world.client.batch_execute(PAYMENTS).await.unwrap();
    world
}

pub(crate) fn guarded(world: &World) -> Builder {
    let guard = Guard::business_key(["payment_ref_key"]);
    world.consumer().guard(guard).on_reset(OnReset::Fill)
}

/// One payment for each event's id: the key first, then another row.
pub(crate) struct Pays {
    insert: &'static str,
}

/// As the documentation has it.
pub(crate) const LEAVES_OUT: Pays =
    Pays { insert: "insert into payment (ref) values ($1) on conflict (ref) do nothing" };
/// As those write who do not know of the guard.
const PLAIN: Pays = Pays { insert: "insert into payment (ref) values ($1)" };

impl Handler for Pays {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        // Before the key, so that a copy leaves something to undo.
        if self.insert == PLAIN.insert {
            crate::support::effect(tx, event).await?;
        }
        if tx.execute(self.insert, &[&event.id()]).await? == 1 && self.insert != PLAIN.insert {
            crate::support::effect(tx, event).await?;
        }
        Ok(())
    }
}

/// The same with one statement for a slice, which names no event.
struct PaysTogether;

impl Handler for PaysTogether {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        self.handle_slice(tx, std::slice::from_ref(event)).await.map_err(SliceError::into_inner)
    }

    async fn handle_slice(&self, tx: &Transaction<'_>, events: &[Event]) -> Result<(), SliceError> {
        Effects.handle_slice(tx, events).await?;
        let refs: Vec<&str> = events.iter().map(Event::id).collect();
        tx.execute("insert into payment (ref) select unnest($1::text[])", &[&refs]).await?;
        Ok(())
    }
}

/// Events with every tenth one a second time, later and in other batches.
async fn publish_with_copies(world: &World) -> Vec<String> {
    let events = ids("a", 200);
    world.publish(0, &events[..100]).await;
    world.publish(0, events[..100].iter().step_by(10)).await;
    world.publish(0, &events[100..]).await;
    world.publish(0, events[100..].iter().step_by(10)).await;
    events
}

async fn copies_take_no_effect(handler: impl Handler, told: bool) {
    let world = world().await;
    let events = publish_with_copies(&world).await;
    let mut running = run(guarded(&world).max_batch_events(37).handler(handler).unwrap());
    let status = running
        .until("the end", |status| status.counts.applied + status.counts.duplicates == 220)
        .await;
    assert_eq!(status.counts.parked, 0);
    if told {
        assert_eq!((status.counts.applied, status.counts.duplicates), (200, 20));
    }
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
    assert_eq!(world.number("select count(*) from payment").await, 200);
    assert_eq!(world.number("select count(*) from walpost.done").await, 0);
    assert_eq!(world.stored().await, 220);
}

#[tokio::test]
async fn with_a_business_key_a_handler_that_leaves_out_copies_applies_each_event_once() {
    copies_take_no_effect(LEAVES_OUT, false).await;
}

#[tokio::test]
async fn with_a_business_key_a_unique_violation_means_done_and_undoes_the_rest() {
    copies_take_no_effect(PLAIN, true).await;
}

#[tokio::test]
async fn with_a_business_key_a_slice_that_fails_as_a_whole_is_searched_for_copies() {
    copies_take_no_effect(PaysTogether, true).await;
}

#[tokio::test]
async fn with_a_business_key_of_copies_in_one_batch_the_first_is_handled() {
    let world = world().await;
    world.publish(0, ["a", "b", "a", "b", "c"]).await;
    let consumer = guarded(&world).max_batch_events(5).max_batch_wait_ms(60_000);
    let mut running = run(consumer.handler(PaysTogether).unwrap());
    let status = running.until_applied(3).await;
    assert_eq!(status.counts.duplicates, 2);
    running.stop().await.unwrap();
    assert_eq!(world.number("select count(distinct xmin::text) from effect").await, 1);
}

#[tokio::test]
async fn a_violation_of_another_constraint_is_a_failure_of_the_event() {
    let world = world().await;
    world
        .client
        .batch_execute("create unique index effect_key on effect (event_id)")
        .await
        .unwrap();
    world
        .client
        .batch_execute("insert into effect (event_id, part, off) values ('a1', 0, 0)")
        .await
        .unwrap();
    world.publish(0, ["a0", "a1", "a2"]).await;
    let mut running = run(guarded(&world).max_attempts(2).handler(PLAIN).unwrap());
    let status = running.until_applied(2).await;
    assert_eq!((status.counts.parked, status.counts.duplicates), (1, 0));
    running.stop().await.unwrap();
    let parked = "select count(*) from walpost.consumer_parked where event_id = 'a1' \
                  and attempts = 2 and reason like '%constraint effect_key%'";
    assert_eq!(world.number(parked).await, 1);
    assert_eq!(world.number("select count(*) from payment where ref = 'a1'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_business_key_a_reset_fills_what_is_missing() {
    let world = world().await;
    let events = ids("a", 50);
    world.publish(0, &events).await;
    let mut running = run(guarded(&world).handler(PLAIN).unwrap());
    running.until_applied(50).await;
    stop_committed(running).await;
    world
        .client
        .batch_execute(
            "delete from payment where ref = 'a7'; delete from effect where event_id = 'a7'",
        )
        .await
        .unwrap();
    world.reset(&["--to-earliest"]).await;
    let mut running = run(guarded(&world).handler(PLAIN).unwrap());
    let status = running.until("the end", |status| status.counts.duplicates == 49).await;
    assert_eq!((status.counts.applied, status.counts.resets), (1, 1));
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test]
async fn with_a_business_key_a_parked_event_is_parked_once() {
    let world = world().await;
    world.client.batch_execute("alter table effect add check (event_id <> 'bad')").await.unwrap();
    world.publish(0, ["a", "bad", "b", "bad", "c"]).await;
    let mut running = run(guarded(&world).max_attempts(1).handler(PLAIN).unwrap());
    let status = running
        .until("the end", |status| status.counts.applied == 3 && status.counts.duplicates == 1)
        .await;
    assert_eq!(status.counts.parked, 1);
    running.stop().await.unwrap();
    assert_eq!(world.number("select count(*) from walpost.consumer_parked").await, 1);
}

#[tokio::test]
async fn a_business_key_that_cannot_guard_is_refused() {
    let world = world().await;
    let rerun = guarded(&world).on_reset(OnReset::Rerun).handler(PLAIN).unwrap_err();
    assert!(rerun.to_string().contains("on_reset(OnReset::Fill)"), "{rerun}");
    let deferred = "alter table payment drop constraint payment_ref_key; \
                    alter table payment add constraint payment_ref_key unique (ref) deferrable";
    world.client.batch_execute(deferred).await.unwrap();
    let error = run(guarded(&world).handler(PLAIN).unwrap()).end().await.unwrap_err();
    assert!(matches!(error, Error::Setting { .. }), "{error}");
    assert!(error.to_string().contains("no unique index payment_ref_key"), "{error}");
}

#[tokio::test]
async fn with_a_business_key_a_parked_event_is_applied_by_request_unless_a_copy_was() {
    struct Mended(Arc<AtomicBool>);
    impl Handler for Mended {
        async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
            if event.id().starts_with("bad") && !self.0.load(Ordering::SeqCst) {
                return Err(HandlerError::park("not yet"));
            }
            PLAIN.handle(tx, event).await
        }
    }
    let world = world().await;
    world.publish_keyed(0, &[("k", "bad0"), ("k", "k1"), ("l", "bad1"), ("l", "l1")]).await;
    let mended = Arc::new(AtomicBool::new(false));
    let handler = Mended(Arc::clone(&mended));
    let mut running = run(guarded(&world).park(Park::Key).handler(handler).unwrap());
    running.until("all", |status| (status.counts.parked, status.counts.waiting) == (2, 2)).await;
    mended.store(true, Ordering::SeqCst);
    // A copy under another key, which nothing holds back.
    world.publish_keyed(0, &[("m", "bad1"), ("k", "k1")]).await;
    running.until("the copy", |status| status.counts.applied == 1).await;
    let ask = "select count(*) from walpost.request_parked((select array_agg(id) from \
               walpost.consumer_parked where state = 'parked'), 'retry', 'tester')";
    assert_eq!(world.number(ask).await, 2);
    running.until("the parked ones", |status| status.counts.unparked == 3).await;
    world.until_number("select count(*) from walpost.consumer_parked", 0).await;
    running.stop().await.unwrap();
    let made = ["bad0", "bad1", "k1", "l1"].map(str::to_owned);
    assert_eq!(world.effects().await, each(&made, 1));
}
