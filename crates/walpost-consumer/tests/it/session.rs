//! What a handler sets in its session, and what is left of it for the next event.

use std::sync::{Arc, Mutex};

use tokio_postgres::NoTls;
use walpost_consumer::{
    Builder, Database, Error, Event, Guard, Handler, HandlerError, OnReset,
    tokio_postgres::Transaction,
};
use walpost_testkit::SESSION;

use crate::support::{World, each, effect, run};

/// By itself, each of these reaches beyond a transaction or an event.
const SETS: [&str; 20] = [
    "set search_path = pg_catalog",
    "set timezone = 'Asia/Tokyo'",
    "set statement_timeout = '77s'",
    "set lock_timeout = '78s'",
    "set app.tenant = '7'",
    "select set_config('app.tenant', '7', false)",
    "set local app.tenant = '7'",
    "set local search_path = pg_catalog",
    "set session characteristics as transaction isolation level serializable",
    "set role tenant",
    "set local role tenant",
    "set session authorization tenant",
    "create temp table left_over (n int)",
    "prepare left_over as select 1",
    "listen left_over",
    "select pg_advisory_lock(7)",
    "declare left_over cursor with hold for select 1",
    "declare left_over cursor for select 1",
    "reset all; set constraints all immediate; set constraints all immediate",
    "set constraints all immediate; reset all; set role tenant; set app.tenant = '7'",
];

/// Runs the statements that the event's id numbers, and otherwise writes what it
/// finds in the session.
#[derive(Clone, Default)]
struct Sets {
    found: Arc<Mutex<Vec<String>>>,
}

impl Handler for Sets {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        effect(tx, event).await?;
        match event.id().split_once('-') {
            Some(("set", number)) => {
                tx.batch_execute(SETS[number.parse::<usize>().unwrap()]).await?;
            }
            _ => {
                let row = tx.query_one(SESSION, &[]).await?;
                self.found.lock().unwrap().push(row.get(0));
            }
        }
        Ok(())
    }
}

const TENANT: &str = "do $$ begin create role tenant; exception when duplicate_object \
    or unique_violation then null; end $$; grant all on all tables in schema public to tenant; \
    create table parent (id int primary key); \
    create table child (parent int references parent deferrable initially deferred)";

async fn world() -> World {
    let world = World::new(1).await;
    world.client.batch_execute(TENANT).await.unwrap();
    world
}

fn ids() -> Vec<String> {
    let set = |number| [format!("set-{number}"), format!("look{number}")];
    ["look".to_owned()].into_iter().chain((0..SETS.len()).flat_map(set)).collect()
}

fn guarded(builder: Builder) -> Builder {
    builder.guard(Guard::business_key(["parent_pkey"])).on_reset(OnReset::Fill)
}

async fn nothing_is_left(build: impl Fn(Builder) -> Builder) {
    let (world, sets, ids) = (world().await, Sets::default(), ids());
    world.publish(0, &ids).await;
    let mut running = run(build(world.consumer()).handler(sets.clone()).unwrap());
    let status = running.until_applied(ids.len() as u64).await;
    assert_eq!(status.counts.parked, 0);
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&ids, 1));
    let found = sets.found.lock().unwrap().clone();
    for (at, session) in found.iter().enumerate() {
        assert_eq!(*session, found[0], "after {:?}", at.checked_sub(1).map(|at| SETS[at]));
    }
    assert!(found[0].contains("\"$user\", public") && found[0].ends_with("- 0 0 0 0"), "{found:?}");
}

#[tokio::test]
async fn a_session_does_not_reach_the_next_event_of_a_batch() {
    nothing_is_left(|builder| builder).await;
}

#[tokio::test]
async fn a_session_does_not_reach_the_next_batch() {
    nothing_is_left(|builder| builder.max_batch_events(1)).await;
}

#[tokio::test]
async fn a_session_does_not_reach_the_next_batch_of_a_lane() {
    // All events have one key, and so one lane.
    nothing_is_left(|builder| builder.max_batch_events(1).lanes(2)).await;
}

#[tokio::test]
async fn a_session_does_not_reach_the_next_event_beside_a_business_key() {
    nothing_is_left(guarded).await;
}

/// Leaves behind what a rollback does not undo, and fails.
#[derive(Clone, Default)]
struct Fails {
    found: Arc<Mutex<Vec<String>>>,
}

impl Handler for Fails {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        if event.id() == "bad" {
            let leaves =
                "prepare left_over as select 1; select pg_advisory_lock(7); set app.tenant = '7'";
            tx.batch_execute(leaves).await?;
            return Err(HandlerError::park("no such customer"));
        }
        let row = tx.query_one(SESSION, &[]).await?;
        self.found.lock().unwrap().push(row.get(0));
        effect(tx, event).await
    }
}

#[tokio::test]
async fn a_rolled_back_handler_leaves_no_lock_and_no_statement() {
    let builds: [fn(Builder) -> Builder; 2] = [|builder| builder, guarded];
    for build in builds {
        let (world, fails) = (world().await, Fails::default());
        world.publish(0, ["a", "bad", "b"]).await;
        let mut running = run(build(world.consumer()).handler(fails.clone()).unwrap());
        running.until_applied(2).await;
        running.stop().await.unwrap();
        let found = fails.found.lock().unwrap().clone();
        assert!(found.iter().all(|session| session.ends_with("- 0 0 0 0")), "{found:?}");
        assert!(found.iter().all(|session| *session == found[0]), "{found:?}");
    }
}

/// Ends its transaction, after what hides that.
struct Ends(&'static str);

impl Handler for Ends {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        effect(tx, event).await?;
        tx.batch_execute(self.0).await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_handler_that_ends_its_transaction_halts_whatever_it_sets_before() {
    for ends in [
        "commit",
        "set constraints all immediate; commit",
        "set constraints all immediate; set constraints all immediate; reset all; commit",
        "reset all; commit",
        "reset all; rollback",
        "reset all; rollback; begin",
        "set local role tenant; rollback",
    ] {
        for lanes in [1, 2] {
            let world = world().await;
            world.publish(0, ["a"]).await;
            let running = run(world.consumer().lanes(lanes).handler(Ends(ends)).unwrap());
            let error = running.end().await.unwrap_err();
            let Error::Halted { reason, .. } = error else { panic!("{ends}: {error}") };
            assert!(reason.contains("ended the transaction"), "{ends}: {reason}");
            assert_eq!(world.stored().await, 0, "{ends}");
            assert_eq!(world.number("select count(*) from effect").await, 0, "{ends}");
        }
    }
}

/// At one event, continues in a transaction of its own after it has set something in its session.
#[derive(Clone, Default)]
struct GoesOn {
    found: Arc<Mutex<Vec<String>>>,
}

impl Handler for GoesOn {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        if event.id() == "ends" {
            for statement in ["rollback", "set app.tenant = '7'", "begin"] {
                tx.batch_execute(statement).await?;
            }
            return Ok(());
        }
        let row = tx.query_one(SESSION, &[]).await?;
        self.found.lock().unwrap().push(row.get(0));
        effect(tx, event).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_ends_its_transaction_leaves_its_session_to_no_other_partition() {
    let builds: [fn(Builder) -> Builder; 3] =
        [|builder| builder, |builder| builder.lanes(2), guarded];
    for build in builds {
        let (world, goes_on) = (World::new(2).await, GoesOn::default());
        world.client.batch_execute(TENANT).await.unwrap();
        world.publish(1, ["a"]).await;
        // Both partitions have the one connection in turn.
        let consumer = build(world.consumer().max_connections(2));
        let mut running = run(consumer.handler(goes_on.clone()).unwrap());
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
}

/// Makes the transaction read-only at the first event.
struct Reads;

impl Handler for Reads {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        effect(tx, event).await?;
        if event.id() == "a1" {
            tx.batch_execute("set transaction read only").await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_transaction_that_was_made_read_only_is_of_one_event() {
    let world = World::new(1).await;
    let ids = crate::support::ids("a", 4);
    world.publish(0, &ids).await;
    let mut running = run(world.consumer().handler(Reads).unwrap());
    let status = running.until_applied(4).await;
    assert_eq!(status.counts.parked, 0);
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&ids, 1));
}

#[tokio::test]
async fn what_the_application_set_for_its_connections_stays() {
    let (world, sets, ids) = (world().await, Sets::default(), ids());
    world.publish(0, &ids).await;
    let config = world.database.config();
    let database = Database::connect_with(move || {
        let config = config.clone();
        async move {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(connection);
            let sets = "set search_path = public, pg_temp; set timezone = 'Europe/Rome'; \
                        set statement_timeout = '55s'; set lock_timeout = '3s'";
            client.batch_execute(sets).await?;
            Ok::<_, tokio_postgres::Error>(client)
        }
    });
    let consumer = world.consumer().database(database).max_batch_events(2);
    let mut running = run(consumer.handler(sets.clone()).unwrap());
    running.until_applied(ids.len() as u64).await;
    running.stop().await.unwrap();
    let found = sets.found.lock().unwrap().clone();
    assert!(found[0].contains("public, pg_temp Europe/Rome 55s"), "{found:?}");
    // A handler's own `reset all` takes them, as it says; those are the last two.
    let own = &found[..found.len() - 2];
    assert!(own.iter().all(|session| *session == found[0]), "{own:#?}");
}
