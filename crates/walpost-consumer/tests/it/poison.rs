//! Events and handlers that fail.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use walpost_consumer::{
    Error, Event, Handler, HandlerError, PartitionState, RetrySchedule, SliceError,
    tokio_postgres::Transaction,
};

use crate::support::{Ask, World, each, effect, ids, run};

fn without(ids: &[String], missing: &str) -> Vec<String> {
    ids.iter().filter(|id| *id != missing).cloned().collect()
}

#[tokio::test]
async fn a_poison_event_is_parked_after_its_attempts_and_the_others_go_on() {
    let world = World::new(1).await;
    let events = ids("a", 400);
    world.publish(0, &events).await;
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let handler = Ask(move |event: &Event| match event.id() {
        "a150" => {
            counted.fetch_add(1, Ordering::SeqCst);
            Err(HandlerError::retry("no such customer"))
        }
        _ => Ok(()),
    });
    let mut running = run(world.consumer().max_attempts(3).handler(handler).unwrap());
    let status = running.until_applied(399).await;
    assert_eq!(status.counts.parked, 1);
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&without(&events, "a150"), 1));
    assert_eq!(calls.load(Ordering::SeqCst), 4, "once among others, three times alone");
    let row = world
        .client
        .query_one("select event_id, off, attempts, reason, value, header_names[1] from walpost.consumer_parked", &[])
        .await
        .unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, i64>(1)), ("a150", 150));
    assert_eq!(row.get::<_, i32>(2), 3);
    assert_eq!(row.get::<_, &str>(3), "the handler failed: no such customer");
    assert_eq!((row.get::<_, &[u8]>(4), row.get::<_, &str>(5)), (&b"a150"[..], "id"));
    assert_eq!(world.stored().await, 400);
}

/// Takes longer than a statement may, and writes what an index does not take.
struct Beyond;

impl Handler for Beyond {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        effect(tx, event).await?;
        match event.id() {
            "a1" => {
                tx.batch_execute("set local statement_timeout = '200ms'").await?;
                tx.batch_execute("select pg_sleep(60)").await?;
            }
            "a2" => {
                let random = "select string_agg(md5(n::text), '') from generate_series(1, 2000) n";
                tx.batch_execute(&format!("insert into indexed {random}")).await?;
            }
            _ => {}
        }
        Ok(())
    }
}

#[tokio::test]
async fn what_the_server_takes_from_no_event_is_parked_and_blocks_nothing() {
    let world = World::new(1).await;
    world.client.batch_execute("create table indexed (text text primary key)").await.unwrap();
    let long = "x".repeat(3_000);
    world.publish(0, ["a0", "a1", "a2", &long, "a3"]).await;
    let mut running = run(world.consumer().max_attempts(2).handler(Beyond).unwrap());
    running.until_applied(2).await;
    running.until("all that is parked", |status| status.counts.parked == 3).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&["a0".to_owned(), "a3".to_owned()], 1));
    let rows = "select off, reason from walpost.consumer_parked order by off";
    let rows = world.client.query(rows, &[]).await.unwrap();
    let reasons: Vec<(i64, &str)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let [(1, cancelled), (2, index), (3, id)] = reasons[..] else { panic!("{reasons:?}") };
    assert!(cancelled.contains("57014"), "{cancelled}");
    assert!(index.contains("54000"), "{index}");
    assert_eq!(id, "id header is longer than 1,000 bytes");
}

/// Fails as a whole where `poison` is among the events, without saying which.
struct Silent {
    poison: &'static str,
}

impl Handler for Silent {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        self.handle_slice(tx, std::slice::from_ref(event)).await.map_err(SliceError::into_inner)
    }

    async fn handle_slice(&self, tx: &Transaction<'_>, events: &[Event]) -> Result<(), SliceError> {
        for event in events {
            effect(tx, event).await?;
        }
        if events.iter().any(|event| event.id() == self.poison) {
            tx.execute("select 1 / 0", &[]).await?;
        }
        Ok(())
    }
}

#[tokio::test]
pub(crate) async fn the_event_is_found_when_a_slice_fails_as_a_whole() {
    let world = World::new(1).await;
    let events = ids("a", 300);
    world.publish(0, &events).await;
    let handler = Silent { poison: "a123" };
    let mut running = run(world.consumer().max_attempts(2).handler(handler).unwrap());
    running.until_applied(299).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&without(&events, "a123"), 1));
    let parked = "select count(*) from walpost.consumer_parked where event_id = 'a123' \
                  and attempts = 1 and reason like '%division by zero%'";
    assert_eq!(world.number(parked).await, 1);
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_panic_and_a_handler_that_hangs_are_failures_of_the_event() {
    struct Odd;
    impl Handler for Odd {
        async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
            effect(tx, event).await?;
            match event.id() {
                "a3" => panic!("a handler's bug"),
                "a6" => std::future::pending().await,
                "a8" => {
                    tx.execute("select pg_sleep(600)", &[]).await?;
                }
                _ => {}
            }
            Ok(())
        }
    }
    let world = World::new(1).await;
    world.publish(0, ids("a", 10)).await;
    let consumer = world.consumer().max_attempts(1).handler_timeout_ms(6_000).claim_timeout_ms(500);
    let mut running = run(consumer.handler(Odd).unwrap());
    running.until("the end", |status| status.counts.applied + status.counts.parked == 10).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await.len(), 7);
    let parked = world
        .client
        .query("select event_id, reason from walpost.consumer_parked order by off", &[]);
    let parked = parked.await.unwrap();
    let text: Vec<(&str, &str)> = parked.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(text[0], ("a3", "the handler failed: the handler panicked"));
    assert_eq!(text[1], ("a6", "the handler failed: the handler took longer than 6000 ms"));
    assert_eq!(text[2].0, "a8");
}

#[tokio::test]
async fn park_needs_one_attempt_and_a_copy_of_a_parked_event_is_not_parked_again() {
    let world = World::new(1).await;
    world.publish(0, ["a", "bad", "b", "bad", "c"]).await;
    let handler = Ask(|event: &Event| match event.id() {
        "bad" => Err(HandlerError::park("never")),
        _ => Ok(()),
    });
    let mut running = run(world.consumer().handler(handler).unwrap());
    let status = running
        .until("the end", |status| status.counts.applied == 3 && status.counts.duplicates == 1)
        .await;
    assert_eq!(status.counts.parked, 1);
    running.stop().await.unwrap();
    let parked = "select count(*) from walpost.consumer_parked where attempts = 1 and off = 1";
    assert_eq!(world.number(parked).await, 1);
}

#[tokio::test]
async fn a_record_without_an_id_is_parked_with_that_reason() {
    let world = World::new(1).await;
    world.publish(0, ["a", "b"]).await;
    world.publish_without_id(0, "who am I").await;
    world.publish(0, ["c"]).await;
    let mut running = run(world.consumer().handler(Ask(|_: &Event| Ok(()))).unwrap());
    let status = running.until_applied(3).await;
    assert_eq!(status.counts.parked, 1);
    running.stop().await.unwrap();
    let parked = "select count(*) from walpost.consumer_parked where event_id is null and off = 2 \
                  and reason = 'missing id header' and value = 'who am I' and attempts = 0";
    assert_eq!(world.number(parked).await, 1);
}

#[tokio::test]
async fn a_transient_fault_is_no_attempt() {
    let world = World::new(1).await;
    world.publish(0, ids("a", 20)).await;
    let calls = AtomicU32::new(0);
    let handler = Ask(move |event: &Event| {
        if event.id() == "a7" && calls.fetch_add(1, Ordering::SeqCst) < 4 {
            return Err(HandlerError::transient("the bank is closed"));
        }
        Ok(())
    });
    let mut running = run(world.consumer().max_attempts(1).handler(handler).unwrap());
    let status = running.until_applied(20).await;
    assert_eq!(status.counts.parked, 0);
    running.stop().await.unwrap();
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn what_was_learnt_of_an_event_is_forgotten_when_another_has_claimed() {
    let world = World::new(1).await;
    world.publish(0, ["a", "bad", "b"]).await;
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let handler = Ask(move |event: &Event| match event.id() {
        "bad" => {
            counted.fetch_add(1, Ordering::SeqCst);
            Err(HandlerError::retry("no such customer"))
        }
        _ => Ok(()),
    });
    // Long enough to claim in between.
    let pause = RetrySchedule::new([10_000, 10].map(Duration::from_millis)).repeating_last();
    let consumer = world.consumer().max_batch_events(1).max_attempts(2).retry_schedule(pause);
    let mut running = run(consumer.handler(handler).unwrap());
    running
        .until("a failed attempt", |status| {
            let retries = |state: &PartitionState| matches!(state, PartitionState::Retrying);
            status.partitions.values().any(|partition| retries(&partition.state))
        })
        .await;
    crate::fence::claim(&world.client).await;
    let status = running.until_applied(2).await;
    assert_eq!(status.counts.parked, 1);
    assert!(status.counts.claims >= 2, "{status:?}");
    running.stop().await.unwrap();
    let calls = calls.load(Ordering::SeqCst);
    assert!(calls >= 3, "once before the claim, twice after it: {calls}");
    let attempts = "select attempts::bigint from walpost.consumer_parked";
    assert_eq!(world.number(attempts).await, 2, "those of before the claim do not count");
}

#[tokio::test]
async fn a_halt_stops_its_partition_and_no_other() {
    let world = World::new(2).await;
    world.publish(0, ["a", "stop", "b"]).await;
    let handler = Ask(|event: &Event| match event.id() {
        "stop" => Err(HandlerError::halt("ask the auditor")),
        _ => Ok(()),
    });
    let mut running = run(world.consumer().max_batch_events(1).handler(handler).unwrap());
    let reason = running.until_halted().await;
    let expected = "at offset 1: the handler halted its partition: ask the auditor; mend that, \
                    then restart the consumer: it begins there, and nothing is lost";
    assert_eq!(reason, expected);
    world.publish(1, ids("other", 10)).await;
    running.until_applied(11).await;
    running.stop().await.unwrap();
    assert_eq!(world.number("select next_offset from walpost.position where part = 0").await, 1);
}

#[tokio::test]
async fn a_missing_table_halts_with_what_to_do_and_a_restart_goes_on() {
    let world = World::new(2).await;
    world.client.batch_execute("alter table effect rename to hidden").await.unwrap();
    world.publish(0, ["a", "b"]).await;
    let mut running = run(world.consumer().handler(Ask(|_: &Event| Ok(()))).unwrap());
    let reason = running.until_halted().await;
    let expected = "at offset 0: the database refused a statement of the handler: ERROR 42P01 \
                    (undefined table), full text in the server's log; create what is missing in \
                    the database of the effects, or correct the statement, then restart the consumer: it begins \
                    there, and nothing is lost";
    assert_eq!(reason, expected);
    world.client.batch_execute("alter table hidden rename to effect").await.unwrap();
    // The other partition was given nothing, and is not halted.
    world.publish(1, ["c"]).await;
    running.until_applied(1).await;
    running.stop().await.unwrap();
    let mut running = run(world.consumer().handler(Ask(|_: &Event| Ok(()))).unwrap());
    running.until_applied(2).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&["a", "b", "c"].map(str::to_owned), 1));
}

#[tokio::test]
async fn parking_everything_halts() {
    let world = World::new(1).await;
    world.publish(0, ids("a", 50)).await;
    let handler = Ask(|_: &Event| Err(HandlerError::park("I never can")));
    let error = run(world.consumer().halt_after_parked(5).handler(handler).unwrap()).end().await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("more than 5 events in a row were parked"), "{error}");
    assert_eq!(world.number("select count(*) from walpost.consumer_parked").await, 6);
}

/// Ends the transaction it was given.
struct Ends {
    by: &'static str,
    swallow: bool,
}

impl Handler for Ends {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        effect(tx, event).await?;
        let ended = tx.batch_execute(self.by).await;
        if !self.swallow {
            ended?;
        }
        Ok(())
    }
}

#[tokio::test]
pub(crate) async fn a_handler_that_ends_the_transaction_halts_and_keeps_nothing() {
    for (by, swallow) in [("commit", false), ("commit", true), ("rollback", false)] {
        let world = World::new(1).await;
        world.publish(0, ids("a", 3)).await;
        let handler = Ends { by, swallow };
        let error = run(world.consumer().handler(handler).unwrap()).end().await.unwrap_err();
        let Error::Halted { ref reason, .. } = error else { panic!("{error}") };
        assert!(reason.contains("end"), "{by}: {reason}");
        assert_eq!(world.stored().await, 0, "{by}");
        assert_eq!(world.number("select count(*) from walpost.done").await, 0, "{by}");
        assert_eq!(
            world.number("select count(*) from effect where event_id = 'a0'").await,
            0,
            "{by}"
        );
    }
}
