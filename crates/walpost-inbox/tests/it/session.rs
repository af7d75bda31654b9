//! What a handler sets in its session, and what is left of it for the next event.

use std::sync::{Arc, Mutex};

use walpost_inbox::{
    Event, Handler, HandlerError, Head, Order, State, tokio_postgres::Transaction,
};
use walpost_testkit::SESSION;

use crate::support::{World, run};

/// By itself, each of these reaches beyond a transaction.
const SETS: [&str; 11] = [
    "set app.tenant = '7'",
    "set search_path = pg_catalog; set timezone = 'Asia/Tokyo'",
    "set statement_timeout = '77s'",
    "set role pg_monitor",
    "set local role pg_monitor",
    "set session authorization pg_monitor",
    "create temp table left_over (n int); prepare left_over as select 1",
    "select pg_advisory_lock(7); listen left_over",
    "declare left_over cursor with hold for select 1",
    "reset all",
    "reset all; set app.tenant = '7'; set role pg_monitor",
];

/// Runs the statements of an event of the type `set`, and those of `fail` as well,
/// before it gives the event up. At `ends` it continues in a transaction of its own.
#[derive(Clone, Default)]
struct Sets {
    found: Arc<Mutex<Vec<String>>>,
}

impl Handler for Sets {
    type Work = String;

    fn select(&self, event: &Head) -> Option<String> {
        Some(event.event_type().to_owned())
    }

    async fn process(
        &self,
        tx: &Transaction<'_>,
        work: &String,
        event: &Event,
    ) -> Result<(), HandlerError> {
        let number = event.head().event_id().trim_start_matches(char::is_alphabetic);
        if work == "look" {
            let row = tx.query_one(SESSION, &[]).await?;
            self.found.lock().unwrap().push(row.get(0));
            return Ok(());
        }
        if work == "ends" {
            for statement in ["rollback", "set app.tenant = '7'", "begin"] {
                tx.batch_execute(statement).await?;
            }
            return Ok(());
        }
        tx.batch_execute(SETS[number.parse::<usize>().unwrap()]).await?;
        if work == "fail" { Err(HandlerError::give_up("as the test wants it")) } else { Ok(()) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_does_not_reach_the_next_event() {
    for kind in ["set", "fail"] {
        let (world, sets) = (World::new().await, Sets::default());
        world.receive("look", ["look".to_owned()]).await;
        for number in 0..SETS.len() {
            world.receive(kind, [format!("set{number}")]).await;
            world.receive("look", [format!("look{number}")]).await;
        }
        let running = run(world.processor().order(Order::Serial), sets.clone());
        let count = SETS.len() as i64;
        let done = if kind == "set" { 2 * count + 1 } else { count + 1 };
        world.until(State::Succeeded, done).await;
        running.stop().await;
        let found = sets.found.lock().unwrap().clone();
        assert_eq!(found.len(), SETS.len() + 1);
        for (at, session) in found.iter().enumerate() {
            assert_eq!(
                *session,
                found[0],
                "{kind}: after {:?}",
                at.checked_sub(1).map(|at| SETS[at])
            );
        }
        assert!(found[0].ends_with(" - 0 0 0 0"), "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_ends_its_transaction_leaves_its_session_to_no_other_event() {
    let (world, sets) = (World::new().await, Sets::default());
    for (work, id) in [("look", "a"), ("ends", "b"), ("look", "c")] {
        world.receive(work, [id.to_owned()]).await;
    }
    let running = run(world.processor().order(Order::Serial), sets.clone());
    world.until(State::Succeeded, 2).await;
    running.stop().await;
    assert_eq!(world.state("b").await.0, State::Failed);
    let found = sets.found.lock().unwrap().clone();
    assert_eq!(found[1], found[0]);
}
