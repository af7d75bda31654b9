//! Lanes, guards and copies.

use std::sync::atomic::{AtomicUsize, Ordering};

use walpost_consumer::{Event, Guard, Handler, HandlerError, OnReset, tokio_postgres::Transaction};
use walpost_consumer_test::{HandlerTest, TableChange, Way, Ways};

use crate::support::{Shipping, database, event, events, test};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn lanes_are_interrupted_as_well() {
    let test = test(|_| Shipping).await.consumer(|builder| builder.lanes(4));
    let all: Vec<Event> = (0..12).map(|number| event(&number.to_string(), 0)).collect();
    let ways = test.every_way(&all).await.unwrap();
    ways.assert_same();
    assert!(ways.runs.iter().all(|run| run.report.applied <= 12), "{ways}");
}

/// Known by its own key.
struct Paying;

impl Handler for Paying {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        tx.execute("insert into customer values ($1, 1)", &[&event.id()]).await?;
        Ok(())
    }
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_business_key_is_a_guard_here_too() {
    let guarded = |builder: walpost_consumer::Builder| {
        builder.guard(Guard::business_key(["customer_pkey"])).on_reset(OnReset::Fill)
    };
    let test = test(|_| Paying).await.consumer(guarded);
    test.every_way(&events(&["1", "2", "3"])).await.unwrap().assert_same();
    test.deliver(&[event("1", 0)]).await.unwrap().assert_applied(1);
    test.deliver(&[event("1", 0)]).await.unwrap().assert_duplicates(1);
    // Without it the second run is refused by the key.
    let repetition = test.without_guard().twice(&[event("1", 0)]).await.unwrap();
    assert!(repetition.changes.is_empty() && !repetition.is_idempotent(), "{repetition}");
}

/// Keeps the place of the record, which a copy has another of.
struct Placing;

impl Handler for Placing {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        let insert = "insert into customer values ($1, $2)";
        tx.execute(insert, &[&event.id(), &event.offset()]).await?;
        Ok(())
    }
}

#[tokio::test]
async fn an_effect_that_keeps_the_offset_is_found_and_can_be_left_out() {
    let test = test(|_| Placing).await;
    let all: Vec<Event> = ["1", "2", "3"].iter().map(|id| event(id, 0)).collect();
    let differing = |ways: &Ways| -> Vec<Way> {
        ways.runs.iter().filter(|run| !run.is_same()).map(|run| run.way).collect()
    };
    let ways = test.ways(&Way::REORDERED, &all).await.unwrap();
    let moved = [Way::TwiceInARow, Way::Interleaved, Way::AfterRestart];
    assert_eq!(differing(&ways), moved, "{ways}");
    let test = test.leave_out("customer", "orders");
    let ways = test.ways(&Way::REORDERED, &all).await.unwrap();
    ways.assert_same();
    assert_eq!(ways.left_out, ["customer.orders", "line.shipment_id", "shipment.id"]);
}

#[tokio::test]
#[should_panic(expected = "a lost connection before COMMIT: DIFFERS")]
async fn assert_same_shows_what_differs() {
    let test = test(|_| crate::support::Remembering::default()).await;
    test.crash_at_every_step(&[event("1", 0)]).await.unwrap().assert_same();
}

/// Writes by a clock that moves once in two runs.
struct Dating {
    at: usize,
}

impl Handler for Dating {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        let insert = "insert into customer values ($1, 1, $2)";
        tx.execute(insert, &[&event.id(), &self.at.to_string()]).await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_clock_that_stood_still_at_first_is_no_difference() {
    let starts = AtomicUsize::new(0);
    let test = test(move |_| Dating { at: starts.fetch_add(1, Ordering::Relaxed) / 2 }).await;
    let ways = test.crash_at_every_step(&[event("1", 0)]).await.unwrap();
    ways.assert_same();
    assert_eq!(ways.left_out[0], "customer.last");
}

/// Passes events on, in the same transaction.
struct Emitting;

impl Handler for Emitting {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        let insert = "insert into walpost.outbox (event_id) values ($1)";
        tx.execute(insert, &[&event.id()]).await?;
        Ok(())
    }
}

#[tokio::test]
async fn an_outbox_beside_the_consumers_tables_is_looked_at() {
    let database = database().await;
    let outbox = "create schema walpost; create table walpost.outbox (event_id text not null)";
    database.sql(outbox).await.unwrap();
    let test = HandlerTest::new(database, |_| Emitting).await.unwrap();
    let repetition = test.without_guard().twice(&[event("1", 40_000)]).await.unwrap();
    let [TableChange { table, .. }] = &repetition.changes[..] else { panic!("{repetition}") };
    assert_eq!((table.as_str(), repetition.changes[0].counts()), ("walpost.outbox", (1, 0, 0)));
}
