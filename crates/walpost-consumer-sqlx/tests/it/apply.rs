//! Events, copies of events, restarts and other owners.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Semaphore;
use walpost_consumer::{Error, Event, Guard, HandlerError, OnReset, Park};
use walpost_consumer_sqlx::{
    Failed, Sqlx, SqlxHandler,
    sqlx::{self, PgTransaction},
};
use walpost_testkit as testkit;

use crate::support::{Ask, LIMIT, World, each, effect, ids, pool, run};

/// Writes effects, many with one statement.
struct Effects;

impl SqlxHandler for Effects {
    async fn handle(&self, tx: &mut PgTransaction<'_>, event: &Event) -> Result<(), Failed> {
        effect(tx, event).await
    }

    async fn handle_slice(
        &self,
        tx: &mut PgTransaction<'_>,
        events: &[Event],
    ) -> Result<(), Failed> {
        let ids: Vec<&str> = events.iter().map(Event::id).collect();
        let offsets: Vec<i64> = events.iter().map(Event::offset).collect();
        let insert = "insert into effect (event_id, off) \
                      select * from unnest($1::text[], $2::bigint[])";
        sqlx::query(insert).bind(ids).bind(offsets).execute(&mut **tx).await?;
        Ok(())
    }
}

#[tokio::test]
async fn each_event_takes_effect_once_over_copies_and_restarts() {
    let world = World::new(2).await;
    let (first, second) = (ids("a", 300), ids("b", 300));
    world.publish(0, &first).await;
    world.publish(0, first.iter().step_by(10)).await;
    let consumer = || world.builder().max_batch_events(70);
    let mut running = run(consumer().handler(world.sqlx(Effects)).unwrap());
    let status = running
        .until("the first", |status| status.counts.applied + status.counts.duplicates == 330)
        .await;
    assert_eq!((status.counts.applied, status.counts.duplicates), (300, 30));
    running.stop().await.unwrap();
    // Copies in another partition too.
    world.publish(1, first.iter().step_by(10)).await;
    world.publish(1, &second).await;
    let one_by_one = world.sqlx(Ask(|_: &Event| Ok(())));
    let mut running = run(consumer().handler(one_by_one).unwrap());
    let status = running.until_applied(300).await;
    assert_eq!(status.counts.duplicates, 30);
    running.stop().await.unwrap();
    let all: Vec<String> = first.into_iter().chain(second).collect();
    assert_eq!(world.effects().await, each(&all, 1));
    assert_eq!(world.number("select sum(next_offset)::bigint from walpost.position").await, 660);
    assert_eq!(world.number("select count(*) from walpost.done").await, 600);
}

/// Waits at one event until it is let go.
struct Waits {
    at: &'static str,
    reached: Arc<Semaphore>,
    go: Arc<Semaphore>,
}

impl SqlxHandler for Waits {
    async fn handle(&self, tx: &mut PgTransaction<'_>, event: &Event) -> Result<(), Failed> {
        effect(tx, event).await?;
        if event.id() == self.at {
            self.reached.add_permits(1);
            self.go.acquire().await.unwrap().forget();
        }
        Ok(())
    }
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_batch_whose_partition_was_claimed_meanwhile_is_refused_and_made_again() {
    let world = World::new(1).await;
    let (reached, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let handler = Waits { at: "a5", reached: Arc::clone(&reached), go: Arc::clone(&go) };
    let events = ids("a", 10);
    world.publish(0, &events).await;
    let mut running = run(world.builder().handler(world.sqlx(handler)).unwrap());
    tokio::time::timeout(LIMIT, reached.acquire()).await.unwrap().unwrap().forget();
    // As a successor does: end who holds the row, then claim.
    let end = "select pg_terminate_backend(pid, 5000) from pg_stat_activity \
               where datname = current_database() and state = 'idle in transaction'";
    world.client.query(end, &[]).await.unwrap();
    world.claim().await;
    go.add_permits(2);
    let status = running.until_applied(10).await;
    assert_eq!(status.counts.applied, 10);
    assert!(status.counts.claims >= 2, "{status:?}");
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test]
async fn an_owner_of_an_older_epoch_is_refused_and_claims_again() {
    let world = World::new(1).await;
    world.publish(0, ids("a", 10)).await;
    let mut running = run(world.builder().handler(world.sqlx(Effects)).unwrap());
    running.until_applied(10).await;
    let idle = "select count(*) from walpost.position where known = '{10}'";
    testkit::until(LIMIT, "an idle row", async || world.number(idle).await == 1).await;
    world.claim().await;
    world.publish(0, ids("b", 10)).await;
    let status = running.until_applied(20).await;
    assert!(status.counts.claims >= 2, "{status:?}");
    running.stop().await.unwrap();
    let all: Vec<String> = ids("a", 10).into_iter().chain(ids("b", 10)).collect();
    assert_eq!(world.effects().await, each(&all, 1));
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_reset_makes_the_effects_of_the_rewound_range_once_more() {
    let world = World::new(1).await;
    let events = ids("a", 20);
    world.publish(0, &events).await;
    let mut running = run(world.builder().handler(world.sqlx(Effects)).unwrap());
    running.until_applied(20).await;
    let reset = "select walpost.reset_partition(consumer, topic, part, 5, 'rerun') \
                 from walpost.position";
    world.client.query_one(reset, &[]).await.unwrap();
    // What it wakes up for.
    world.publish(0, ["last"]).await;
    running.until_applied(36).await;
    running.stop().await.unwrap();
    let mut expected = each(&events[..5], 1);
    expected.extend(each(&events[5..], 2));
    expected.insert("last".to_owned(), 1);
    assert_eq!(world.effects().await, expected);
}

/// One connection ends what blocks a claim, so one is for the work: of the consumer or of sqlx.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_and_lanes_share_two_connections() {
    for lanes in [1, 3] {
        let world = World::new(3).await;
        let events: Vec<Vec<String>> = ["a", "b", "c"].map(|prefix| ids(prefix, 20)).into();
        for (partition, ids) in (0..).zip(&events) {
            world.publish(partition, ids).await;
        }
        let is_fixed = Arc::new(AtomicBool::new(false));
        let fixed = Arc::clone(&is_fixed);
        let handler = Ask(move |event: &Event| match event.id() {
            "a3" if !fixed.load(Ordering::SeqCst) => Err(HandlerError::park("not yet")),
            _ => Ok(()),
        });
        let builder = world.builder().max_connections(2).lanes(lanes).park(Park::Key);
        let mut running = run(builder.handler(world.sqlx(handler)).unwrap());
        running.until("what is parked", |status| status.counts.waiting == 16).await;
        is_fixed.store(true, Ordering::SeqCst);
        let ask = "select count(*) from walpost.request_parked((select array_agg(id) \
                   from walpost.consumer_parked where state = 'parked'), 'retry', 'tester')";
        assert_eq!(world.number(ask).await, 1);
        let status = running.until_applied(60).await;
        assert_eq!(status.counts.unparked, 17);
        running.stop().await.unwrap();
        assert_eq!(world.effects().await, each(&events.concat(), 1));
    }
}

#[tokio::test]
async fn connections_to_another_database_are_refused() {
    let world = World::new(1).await;
    let other = World::new(1).await;
    let handler = Sqlx::new(pool(&other.database).await, Effects);
    let error = run(world.builder().handler(handler).unwrap()).end().await.unwrap_err();
    assert!(matches!(error, Error::Setting { .. }), "{error}");
    assert!(error.to_string().contains("another database than the consumer's"), "{error}");
}

/// Inserts without `ON CONFLICT`.
struct Pays;

impl SqlxHandler for Pays {
    async fn handle(&self, tx: &mut PgTransaction<'_>, event: &Event) -> Result<(), Failed> {
        effect(tx, event).await?;
        let insert = sqlx::query("insert into payment (ref) values ($1)");
        insert.bind(event.id()).execute(&mut **tx).await?;
        Ok(())
    }
}

#[tokio::test]
async fn with_a_business_key_a_unique_violation_means_done() {
    let world = World::new(1).await;
    let table = "create table payment (ref text constraint payment_ref_key unique)";
    world.client.batch_execute(table).await.unwrap();
    let events = ids("a", 30);
    world.publish(0, &events).await;
    world.publish(0, events.iter().step_by(3)).await;
    let guard = Guard::business_key(["payment_ref_key"]);
    let builder = world.builder().guard(guard).on_reset(OnReset::Fill).max_batch_events(7);
    let mut running = run(builder.handler(world.sqlx(Pays)).unwrap());
    let status = running
        .until("the end", |status| status.counts.applied + status.counts.duplicates == 40)
        .await;
    assert_eq!((status.counts.duplicates, status.counts.parked), (10, 0));
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
    assert_eq!(world.number("select count(*) from walpost.done").await, 0);
}
