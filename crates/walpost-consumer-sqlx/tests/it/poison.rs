//! Events and handlers that fail.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use walpost_consumer::{Error, Event, HandlerError, Park};
use walpost_consumer_sqlx::{
    Failed, SqlxHandler,
    sqlx::{self, Connection, Executor, PgTransaction},
};

use walpost_testkit::{self as testkit, until};

use crate::support::{Ask, LIMIT, World, each, effect, ids, run};

/// In an event, and quoted by PostgreSQL in its failure.
const CONTENTS: &str = "s3cr3t";

/// Fails at some events, by what PostgreSQL says.
struct Quoting;

impl SqlxHandler for Quoting {
    async fn handle(&self, tx: &mut PgTransaction<'_>, event: &Event) -> Result<(), Failed> {
        effect(tx, event).await?;
        if event.id() == "a4" {
            let cast = sqlx::query("select $1::text::int").bind(CONTENTS);
            cast.execute(&mut **tx).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_poison_event_is_parked_without_contents_and_the_others_go_on() {
    let world = World::new(1).await;
    let events = ids("a", 20);
    world.publish(0, &events).await;
    let mut running = run(world.builder().max_attempts(2).handler(world.sqlx(Quoting)).unwrap());
    let status = running.until_applied(19).await;
    assert_eq!(status.counts.parked, 1);
    running.stop().await.unwrap();
    let rest: Vec<String> = events.into_iter().filter(|id| id != "a4").collect();
    assert_eq!(world.effects().await, each(&rest, 1));
    let row = world
        .client
        .query_one("select event_id, attempts, reason from walpost.consumer_parked", &[]);
    let row = row.await.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, i32>(1)), ("a4", 1));
    let reason: &str = row.get(2);
    let expected = "the handler failed: ERROR 22P02 (invalid text representation), full text in \
                    the server's log";
    assert_eq!(reason, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_event_has_a_dead_letter_and_what_waits_behind_it_has_none() {
    for lanes in [1, 3] {
        let (world, broker) = (World::new(1).await, testkit::kafka().bootstrap());
        let topic = testkit::fresh_topic("dead", 1).await;
        world.publish(0, ["a", "bad", "b"]).await;
        let handler = Ask(|event: &Event| match event.id() {
            "bad" => Err(HandlerError::park("not this one")),
            _ => Ok(()),
        });
        let builder = world.builder().park(Park::Key).lanes(lanes).dead_letter_topic(&topic);
        let mut running = run(builder.handler(world.sqlx(handler)).unwrap());
        running.until("all", |status| status.counts.waiting == 1).await;
        let written = "select count(*) from walpost.consumer_parked where dead_letter_at is not \
                       null and dead_letter_error is null";
        until(LIMIT, "a letter", async || world.number(written).await == 1).await;
        running.stop().await.unwrap();
        let letters = testkit::read_all(broker, &topic).await;
        let [letter] = &letters[..] else { panic!("one letter, not {}", letters.len()) };
        assert_eq!((letter.key_text(), letter.value_text()), ("key", "bad"));
        assert_eq!(letter.header_text("id"), Some("bad"));
        let mark = letter.header_text("walpost-dead-letter").unwrap();
        assert!(mark.ends_with(&format!(":1:{}[0]@1", world.topic)), "{mark}");
        let why = letter.header_text("walpost-dead-letter-reason").unwrap();
        assert_eq!(why, "the handler gave the event up: not this one");
    }
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_panic_and_a_handler_that_hangs_cost_their_connection_and_no_other_event() {
    struct Odd;
    impl SqlxHandler for Odd {
        async fn handle(&self, tx: &mut PgTransaction<'_>, event: &Event) -> Result<(), Failed> {
            effect(tx, event).await?;
            match event.id() {
                "a3" => panic!("a handler's bug"),
                "a6" => std::future::pending().await,
                "a8" => {
                    sqlx::query("select pg_sleep(600)").execute(&mut **tx).await?;
                }
                _ => {}
            }
            Ok(())
        }
    }
    let world = World::new(1).await;
    world.publish(0, ids("a", 10)).await;
    let builder = world.builder().max_attempts(1).handler_timeout_ms(6_000).claim_timeout_ms(500);
    let mut running = run(builder.handler(world.sqlx(Odd)).unwrap());
    running.until("the end", |status| status.counts.applied + status.counts.parked == 10).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await.len(), 7);
    let parked = "select event_id, reason from walpost.consumer_parked order by off";
    let parked = world.client.query(parked, &[]).await.unwrap();
    let text: Vec<(&str, &str)> = parked.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(text[0], ("a3", "the handler failed: the handler panicked"));
    assert_eq!(text[1], ("a6", "the handler failed: the handler took longer than 6000 ms"));
    assert_eq!(text[2].0, "a8");
    // None of them came back to the pool within a transaction.
    let open = sqlx::query("select 1 from effect for update").execute(&world.pool).await;
    assert_eq!(open.unwrap().rows_affected(), 7);
}

#[tokio::test]
async fn a_transient_fault_is_no_attempt() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let world = World::new(1).await;
    world.publish(0, ids("a", 5)).await;
    let calls = AtomicU32::new(0);
    let handler = Ask(move |event: &Event| {
        if event.id() == "a3" && calls.fetch_add(1, Ordering::SeqCst) < 3 {
            return Err(HandlerError::transient("the bank is closed"));
        }
        Ok(())
    });
    let mut running = run(world.builder().max_attempts(1).handler(world.sqlx(handler)).unwrap());
    let status = running.until_applied(5).await;
    assert_eq!(status.counts.parked, 0);
    running.stop().await.unwrap();
}

/// Ends the transaction it was given.
struct Ends {
    by: &'static str,
    swallow: bool,
}

impl SqlxHandler for Ends {
    async fn handle(&self, tx: &mut PgTransaction<'_>, event: &Event) -> Result<(), Failed> {
        effect(tx, event).await?;
        let ended = (&mut **tx).execute(self.by).await;
        if !self.swallow {
            ended?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_handler_that_ends_the_transaction_halts_and_keeps_nothing() {
    for (by, swallow) in [("commit", false), ("commit", true), ("rollback", false)] {
        let world = World::new(1).await;
        world.publish(0, ["a0"]).await;
        let handler = world.sqlx(Ends { by, swallow });
        let error = run(world.builder().handler(handler).unwrap()).end().await.unwrap_err();
        let Error::Halted { ref reason, .. } = error else { panic!("{error}") };
        assert!(reason.contains("end"), "{by}: {reason}");
        assert_eq!(world.number("select next_offset from walpost.position").await, 0, "{by}");
        assert_eq!(world.number("select count(*) from walpost.done").await, 0, "{by}");
        assert_eq!(world.number("select count(*) from effect").await, 0, "{by}");
    }
}

#[tokio::test]
async fn a_missing_table_halts_with_what_to_do() {
    let world = World::new(1).await;
    world.client.batch_execute("drop table effect").await.unwrap();
    world.publish(0, ["a0"]).await;
    let handler = world.sqlx(Ask(|_: &Event| Ok(())));
    let mut running = run(world.builder().handler(handler).unwrap());
    let reason = running.until_halted().await;
    assert!(
        reason.contains("ERROR 42P01 (undefined table), full text in the server's log; create"),
        "{reason}"
    );
    running.end().await.unwrap_err();
}

/// Gives up a part of its work.
struct Nested;

impl SqlxHandler for Nested {
    async fn handle(&self, tx: &mut PgTransaction<'_>, event: &Event) -> Result<(), Failed> {
        effect(tx, event).await?;
        let mut part = tx.begin().await?;
        effect(&mut part, event).await?;
        part.rollback().await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_nested_transaction_is_a_savepoint() {
    let world = World::new(1).await;
    let events = ids("a", 5);
    world.publish(0, &events).await;
    let mut running = run(world.builder().handler(world.sqlx(Nested)).unwrap());
    running.until_applied(5).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_event_and_those_behind_it_are_applied_by_request() {
    for lanes in [1, 3] {
        let world = World::new(1).await;
        world.publish(0, ["a", "bad", "b", "bad", "c"]).await;
        let mended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&mended);
        let handler = Ask(move |event: &Event| match event.id() {
            "bad" if !seen.load(Ordering::SeqCst) => Err(HandlerError::park("not yet")),
            _ => Ok(()),
        });
        let builder = world.builder().park(Park::Key).lanes(lanes);
        let mut running = run(builder.handler(world.sqlx(handler)).unwrap());
        running
            .until("all", |status| {
                let counts = status.counts;
                (counts.applied, counts.parked, counts.waiting) == (1, 1, 2)
            })
            .await;
        let ask = "select count(*) from walpost.request_parked((select array_agg(id) from \
                   walpost.consumer_parked where state = 'parked'), 'retry', 'tester')";
        // It fails again, and all stay.
        assert_eq!(world.number(ask).await, 1);
        let again = "select count(*) from walpost.consumer_parked where attempts = 2 \
                     and request is null";
        until(LIMIT, "another attempt", async || world.number(again).await == 1).await;
        mended.store(true, Ordering::SeqCst);
        assert_eq!(world.number(ask).await, 1);
        running.until("the parked ones", |status| status.counts.unparked == 3).await;
        world.publish(0, ["d"]).await;
        running.until_applied(5).await;
        running.stop().await.unwrap();
        let made: Vec<String> = ["a", "bad", "b", "c", "d"].map(str::to_owned).to_vec();
        assert_eq!(world.effects().await, each(&made, 1));
        assert_eq!(world.number("select count(*) from walpost.consumer_parked").await, 0);
    }
}
