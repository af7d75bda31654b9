//! How often an event is tried whose statement the database refuses.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_postgres::Client;
use walpost_consumer::{
    Builder, Event, Handler, HandlerError, RetrySchedule, tokio_postgres::Transaction,
};

use crate::support::{World, effect, run};

const TABLES: &str = "create table item (id int primary key, amount int not null check (amount > 0), \
    span int4range, exclude using gist (span with &&)); \
    create table part (item int references item); \
    create table late (item int references item deferrable initially deferred); \
    create view positive as select id, amount from item where amount < 100 with check option; \
    insert into item values (1, 1, '[1,5)')";

/// Each event's statement, which fails, and how often it is tried.
const REFUSED: [(&str, &str, i32); 12] = [
    ("22P02", "select 'x'::text::int", 1),
    ("22003", "select 1000000::smallint", 1),
    ("22012", "select 1 / (select 0)", 1),
    ("22021", "select convert_from('\\xff', 'UTF8')", 1),
    ("21000", "select (select n from generate_series(1, 2) n)", 1),
    ("23502", "insert into item (id) values (2)", 1),
    ("23514", "insert into item values (2, 0)", 1),
    ("44000", "insert into positive values (2, 1000)", 1),
    ("23505", "insert into item values (1, 1)", 2),
    ("23P01", "insert into item values (2, 1, '[2,3)')", 2),
    ("23503", "insert into part values (9)", 3),
    // The partition has just stood still for such an event.
    ("23503", "insert into late values (9)", 2),
];

/// Runs the statement that the event's id numbers.
struct Refused;

impl Handler for Refused {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        effect(tx, event).await?;
        if let Ok(number) = event.id().parse::<usize>() {
            tx.batch_execute(REFUSED[number].1).await?;
        }
        Ok(())
    }
}

/// Retries by the schedule would take minutes.
fn patient(builder: Builder) -> Builder {
    builder.retry_schedule(RetrySchedule::new([Duration::from_secs(60)]).repeating_last())
}

async fn world() -> World {
    let world = World::new(1).await;
    world.client.batch_execute(TABLES).await.unwrap();
    world
}

async fn parked(world: &World) -> Vec<(String, i32, String)> {
    let sql = "select event_id, attempts, reason from walpost.consumer_parked order by off";
    let rows = world.client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

#[tokio::test]
async fn an_error_that_time_does_not_cure_is_parked_at_once() {
    let world = world().await;
    let numbers = (0..REFUSED.len()).map(|number| number.to_string());
    world.publish(0, numbers.flat_map(|id| [format!("good{id}"), id])).await;
    let mut running = run(patient(world.consumer()).handler(Refused).unwrap());
    let started = Instant::now();
    let count = REFUSED.len() as u64;
    running.until("all parked", |status| status.counts.parked == count).await;
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    running.until_applied(count).await;
    running.stop().await.unwrap();
    let parked = parked(&world).await;
    for (number, (state, _, attempts)) in REFUSED.iter().enumerate() {
        let (id, tried, reason) = &parked[number];
        assert_eq!((id, tried), (&number.to_string(), attempts), "{state}: {reason}");
        assert!(reason.starts_with(&format!("the handler failed: ERROR {state}")), "{reason}");
    }
}

/// Sorts the error itself.
struct Sorts;

impl Handler for Sorts {
    async fn handle(&self, tx: &Transaction<'_>, _: &Event) -> Result<(), HandlerError> {
        tx.batch_execute(REFUSED[0].1).await.map_err(HandlerError::retry)
    }
}

#[tokio::test]
async fn an_error_that_the_application_sorts_follows_the_schedule() {
    let world = world().await;
    world.publish(0, ["a"]).await;
    let mut running = run(world.consumer().max_attempts(4).handler(Sorts).unwrap());
    running.until("parked", |status| status.counts.parked == 1).await;
    running.stop().await.unwrap();
    assert_eq!(parked(&world).await[0].1, 4);
}

/// Inserts an item unless it is there; another connection has inserted it in
/// between at the first attempt.
struct Races {
    other: Client,
    attempts: AtomicU32,
}

impl Handler for Races {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        const INSERT: &str = "insert into item values (2, 1)";
        effect(tx, event).await?;
        if tx.query_opt("select from item where id = 2", &[]).await?.is_none() {
            if self.attempts.fetch_add(1, Ordering::SeqCst) == 0 {
                self.other.batch_execute(INSERT).await.map_err(HandlerError::halt)?;
            }
            tx.batch_execute(INSERT).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_row_of_a_concurrent_transaction_is_seen_by_the_second_attempt() {
    let world = world().await;
    world.publish(0, ["a"]).await;
    let handler = Races { other: world.database.connect().await, attempts: AtomicU32::new(0) };
    let mut running = run(patient(world.consumer()).handler(handler).unwrap());
    let status = running.until_applied(1).await;
    assert_eq!(status.counts.parked, 0);
    running.stop().await.unwrap();
}

/// Refers to an item, which another connection inserts a little after the first
/// attempt; or looks for it by a query that has to find it.
struct Refers {
    other: Arc<Client>,
    attempts: AtomicU32,
    looks: bool,
}

impl Handler for Refers {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        effect(tx, event).await?;
        if self.attempts.fetch_add(1, Ordering::SeqCst) == 0 {
            let other = Arc::clone(&self.other);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                other.batch_execute("insert into item values (2, 1)").await.unwrap();
            });
        }
        if self.looks {
            tx.query_one("select from item where id = 2", &[]).await?;
        } else {
            tx.batch_execute("insert into part values (2)").await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_row_that_another_event_brings_within_a_second_is_waited_for() {
    for looks in [false, true] {
        let world = world().await;
        world.publish(0, ["a"]).await;
        let (other, attempts) = (Arc::new(world.database.connect().await), AtomicU32::new(0));
        let handler = Refers { other, attempts, looks };
        let mut running = run(patient(world.consumer()).handler(handler).unwrap());
        let status = running.until_applied(1).await;
        assert_eq!(status.counts.parked, 0);
        running.stop().await.unwrap();
    }
}
