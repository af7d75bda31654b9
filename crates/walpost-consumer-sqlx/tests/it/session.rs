//! What a handler sets in its session, and what is left of it for the next event.

use std::sync::{Arc, Mutex};

use walpost_consumer::{Event, HandlerError};
use walpost_consumer_sqlx::{
    Failed, SqlxHandler,
    sqlx::{self, Executor, PgTransaction},
};
use walpost_testkit::SESSION;

use crate::support::{World, effect, run};

/// By itself, each of these reaches beyond a transaction or an event.
const SETS: [&str; 9] = [
    "set app.tenant = '7'",
    "set local app.tenant = '7'",
    "set search_path = pg_catalog",
    "set role pg_monitor",
    "set local role pg_monitor",
    "create temp table left_over (n int); prepare left_over as select 1",
    "select pg_advisory_lock(7); listen left_over",
    "set constraints all immediate",
    "reset all; set app.tenant = '7'",
];

/// Runs the statements that the event's id numbers, fails after them, or notes what
/// it finds in the session.
#[derive(Clone, Default)]
struct Sets {
    found: Arc<Mutex<Vec<String>>>,
}

impl SqlxHandler for Sets {
    async fn handle(&self, tx: &mut PgTransaction<'_>, event: &Event) -> Result<(), Failed> {
        effect(tx, event).await?;
        let Some((what, number)) = event.id().split_once('-') else {
            let found = sqlx::query_scalar::<_, String>(SESSION).fetch_one(&mut **tx).await?;
            self.found.lock().unwrap().push(found);
            return Ok(());
        };
        (&mut **tx).execute(SETS[number.parse::<usize>().unwrap()]).await?;
        if what == "fail" { Err(HandlerError::park("no such customer"))? } else { Ok(()) }
    }
}

#[tokio::test]
async fn a_session_does_not_reach_the_next_event() {
    for max_batch_events in [1, 500] {
        let (world, sets) = (World::new(1).await, Sets::default());
        world.publish(0, ["look"]).await;
        for number in 0..SETS.len() {
            world.publish(0, [format!("set-{number}"), format!("look{number}")]).await;
            world.publish(0, [format!("fail-{number}"), format!("look{number}b")]).await;
        }
        let consumer = world.builder().max_batch_events(max_batch_events);
        let mut running = run(consumer.handler(world.sqlx(sets.clone())).unwrap());
        let count = SETS.len() as u64;
        running.until_applied(3 * count + 1).await;
        running.until("what failed", |status| status.counts.parked == count).await;
        running.stop().await.unwrap();
        let found = sets.found.lock().unwrap().clone();
        assert!(found.iter().all(|session| *session == found[0]), "{found:#?}");
        assert!(found[0].ends_with(" - 0 0 0 0"), "{found:?}");
    }
}

/// At one event, continues in a transaction of its own after it has set something in its session.
#[derive(Clone, Default)]
struct GoesOn {
    found: Arc<Mutex<Vec<String>>>,
}

impl SqlxHandler for GoesOn {
    async fn handle(&self, tx: &mut PgTransaction<'_>, event: &Event) -> Result<(), Failed> {
        if event.id() == "ends" {
            for statement in ["rollback", "set app.tenant = '7'", "begin"] {
                (&mut **tx).execute(statement).await?;
            }
            return Ok(());
        }
        let found = sqlx::query_scalar::<_, String>(SESSION).fetch_one(&mut **tx).await?;
        self.found.lock().unwrap().push(found);
        effect(tx, event).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_ends_its_transaction_leaves_its_session_to_no_other_partition() {
    let (world, goes_on) = (World::new(2).await, GoesOn::default());
    world.publish(1, ["a"]).await;
    // The handlers of both partitions have one connection in turn.
    let consumer = world.builder().max_connections(2);
    let mut running = run(consumer.handler(world.sqlx(goes_on.clone())).unwrap());
    running.until_applied(1).await;
    world.publish(0, ["ends"]).await;
    let reason = running.until_halted().await;
    assert!(reason.contains("ended the transaction"), "{reason}");
    world.publish(1, ["b"]).await;
    running.until_applied(2).await;
    let _ = running.stop().await;
    let found = goes_on.found.lock().unwrap().clone();
    assert_eq!(found[1], found[0]);
}
