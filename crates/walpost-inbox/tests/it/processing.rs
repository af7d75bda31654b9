use std::time::Duration;

use tokio_postgres::IsolationLevel;
use walpost_inbox::{Database, Error, NewEvent, OnUnknown, Processor, RetrySchedule, State};
use walpost_testkit::{fresh_database, unique_name, until};

use crate::support::{ByType, LIMIT, World, ids, run};

/// Attempts of an event, and whether another one will come.
async fn attempts(world: &World, event_id: &str) -> (i32, bool) {
    let sql = "select attempts, next_attempt_at is not null from walpost.inbox where event_id = $1";
    let row = world.client.query_one(sql, &[&event_id]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: an older PostgreSQL"]
async fn effect_and_state_are_there_together_and_once_on_postgres_14() {
    effect_and_state(World::of(14).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn effect_and_state_are_there_together_and_once_on_postgres_18() {
    effect_and_state(World::of(18).await).await;
}

async fn effect_and_state(world: World) {
    world.receive("apply", ids("a", 50)).await;
    let running = run(world.processor(), ByType);
    world.until(State::Succeeded, 50).await;
    // Copies of what is done, and new ones meanwhile.
    world.receive("apply", ids("a", 50)).await;
    world.receive("apply", ids("b", 10)).await;
    world.until(State::Succeeded, 60).await;
    let snapshot = running.stop().await;
    assert_eq!(world.sorted_effects().await, [ids("a", 50), ids("b", 10)].concat());
    assert_eq!((snapshot.succeeded, snapshot.failures, snapshot.lost), (60, 0, 0));
    let sql = "select count(*) from walpost.inbox where attempts = 1 and fence = 1 \
               and processed_at >= received_at and claimed_by = 'inbox'";
    assert_eq!(world.number(sql).await, 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_inserted_before_a_start_and_outside_of_the_library_is_processed() {
    let world = World::new().await;
    let sql = "insert into walpost.inbox (event_id, event_type, payload) values ('a', 'apply', '')";
    world.client.batch_execute(sql).await.unwrap();
    let running = run(world.processor(), ByType);
    world.until(State::Succeeded, 1).await;
    world.client.batch_execute(&sql.replace("'a'", "'b'")).await.unwrap();
    world.until(State::Succeeded, 2).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_leaves_nothing_is_tried_again_and_given_up_behind_the_last_attempt() {
    let world = World::new().await;
    for kind in ["retry", "twice", "give_up", "panics", "json", "swallow", "unique"] {
        world.receive(kind, [kind.to_owned()]).await;
    }
    let running = run(world.processor(), ByType);
    world.until(State::Failed, 6).await;
    world.until(State::Succeeded, 1).await;
    assert_eq!(world.effects().await, ["twice"]);
    let mut given_up = 0;
    for (id, tries, reason) in [
        ("retry", 3, "not today"),
        ("give_up", 1, "no such invoice"),
        ("panics", 3, "the handler panicked"),
        ("json", 1, "the payload is JSON of another shape than was expected (line 1, column 6)"),
        (
            "swallow",
            3,
            "ERROR 25P02: current transaction is aborted, commands ignored until end of \
             transaction block",
        ),
        (
            "unique",
            3,
            "ERROR 23505 (unique violation), constraint note_pkey, schema public, table note, full \
             text in the server's log",
        ),
    ] {
        assert_eq!(world.state(id).await, (State::Failed, Some(reason.to_owned())), "{id}");
        assert_eq!(attempts(&world, id).await, (tries, false), "{id}");
        given_up += 1;
    }
    assert_eq!(world.state("twice").await, (State::Succeeded, None));
    let snapshot = running.stop().await;
    assert_eq!((snapshot.given_up, snapshot.succeeded), (given_up, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_takes_too_long_is_ended_on_the_server_too() {
    let world = World::new().await;
    world.receive("sleeps", ["sleeps".to_owned()]).await;
    let running = run(world.processor().handler_timeout_ms(1_000), ByType);
    world.until(State::Failed, 1).await;
    running.stop().await;
    // The server ends it or the clock does, whichever is first.
    let reason = world.state("sleeps").await.1.unwrap();
    assert!(reason.contains("took too long") || reason.contains("57014"), "{reason}");
    assert_eq!(attempts(&world, "sleeps").await, (3, false));
    let busy = "select count(*) from pg_stat_activity where query like '%pg_sleep(600)%' \
                and pid <> pg_backend_pid() and datname = current_database()";
    until(LIMIT, "no statement of a handler", async || world.number(busy).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_waits_for_ever_is_ended_and_its_attempt_counts() {
    let world = World::new().await;
    world.receive("slow", ["slow".to_owned()]).await;
    world.receive("apply", ["other".to_owned()]).await;
    let running = run(world.processor().handler_timeout_ms(3_000), ByType);
    world.until(State::Failed, 1).await;
    world.until(State::Succeeded, 1).await;
    running.stop().await;
    let reason = "the handler took too long".to_owned();
    assert_eq!(world.state("slow").await, (State::Failed, Some(reason)));
    assert_eq!(attempts(&world, "slow").await, (3, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_transaction_or_the_surroundings_are_at_fault_for_does_not_count() {
    let world = World::new().await;
    world.receive("conflict", ["conflict".to_owned()]).await;
    let running = run(world.processor(), ByType);
    world.until(State::Succeeded, 1).await;
    let snapshot = running.processor.snapshot();
    assert_eq!((snapshot.failures, snapshot.transient), (0, 0), "tried again in one claim");
    assert_eq!(attempts(&world, "conflict").await, (1, false));

    // Without end it is put off, and still does not count.
    world.receive("conflicts", ["conflicts".to_owned()]).await;
    let put_off = "select count(*) from walpost.inbox where event_id = 'conflicts' \
                   and processing_state = 'failed' and attempts = 0 and fence > 0 \
                   and next_attempt_at is not null";
    until(LIMIT, "an attempt put off", async || world.number(put_off).await == 1).await;
    // The row is there before it is counted.
    let counted = async || running.processor.snapshot().transient >= 1;
    until(LIMIT, "it is counted", counted).await;
    running.stop().await;
    assert_eq!(world.effects().await, ["conflict"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_ends_its_transaction_is_found_out_and_not_run_again() {
    let world = World::new().await;
    world.receive("commit", ["commit".to_owned()]).await;
    let running = run(world.processor(), ByType);
    world.until(State::Failed, 1).await;
    running.stop().await;
    let (_, reason) = world.state("commit").await;
    let reason = reason.unwrap();
    assert_eq!(reason, "ERROR WP014: the handler ended the transaction");
    assert_eq!(attempts(&world, "commit").await, (1, false));
    assert_eq!(world.effects().await, ["commit"], "made once, by its own COMMIT");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_no_connection_has_exhausts_its_attempts() {
    let world = World::new().await;
    world.receive("unprepared", ["unprepared".to_owned()]).await;
    let running = run(world.processor(), ByType);
    world.until(State::Failed, 1).await;
    running.stop().await;
    let (_, reason) = world.state("unprepared").await;
    assert!(reason.unwrap().contains("26000"));
    assert_eq!(attempts(&world, "unprepared").await, (3, false));
    assert_eq!(world.effects().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_types_go_to_review_or_are_ignored_and_run_no_handler() {
    for (on_unknown, state) in
        [(OnUnknown::Review, State::Review), (OnUnknown::Ignore, State::Ignored)]
    {
        let world = World::new().await;
        world.receive("unknown", ids("u", 3)).await;
        world.receive("select_panics", ["p".to_owned()]).await;
        world.receive("apply", ["a".to_owned()]).await;
        let running = run(world.processor().on_unknown(on_unknown), ByType);
        world.until(State::Succeeded, 1).await;
        world.until(state, if state == State::Review { 4 } else { 3 }).await;
        for id in ids("u", 3) {
            assert_eq!(world.state(&id).await, (state, Some("unknown_type".to_owned())));
        }
        let reason = Some("select_panicked".to_owned());
        assert_eq!(world.state("p").await, (State::Review, reason));
        let snapshot = running.stop().await;
        let expected = if state == State::Review { (0, 4) } else { (3, 1) };
        assert_eq!((snapshot.ignored, snapshot.reviewed), expected);
        assert_eq!(world.effects().await, ["a"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_wakes_before_the_next_look() {
    let world = World::new().await;
    // The next look would be too late for this test.
    let running = run(world.processor().poll_ms(60_000), ByType);
    let listening = "select count(*) from pg_stat_activity where query = 'listen walpost_inbox' \
                     and datname = current_database()";
    until(LIMIT, "a listener", async || world.number(listening).await == 1).await;
    for number in 1..=5 {
        world.receive("apply", [format!("a{number}")]).await;
        let sql = "select count(*) from effect";
        until(Duration::from_secs(25), "a processed event", async || {
            world.number(sql).await == number
        })
        .await;
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_notifications_and_listening_events_are_found_by_looking() {
    let mut world = World::new().await;
    world.inbox = world.inbox.without_notify();
    let running = run(world.processor().without_listen(), ByType);
    world.until(State::Succeeded, 0).await;
    world.receive("apply", ids("a", 3)).await;
    world.until(State::Succeeded, 3).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_sources_a_processor_may_serve_one() {
    let world = World::new().await;
    for source in ["bank", "shop"] {
        let _ = world.insert(&NewEvent::new("1", "apply", *b"1").source(source)).await;
    }
    let running = run(world.processor().source("bank"), ByType);
    world.until(State::Succeeded, 1).await;
    running.stop().await;
    let left = "select source from walpost.inbox where processing_state = 'pending'";
    assert_eq!(world.texts(left, &[]).await, ["shop"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_tables_and_rights_end_it_with_the_next_step() {
    let database = fresh_database().await;
    let builder = Processor::builder(Database::config(database.config()));
    let error = run(builder, ByType).error().await;
    assert!(matches!(error, Error::NotMigrated { .. }), "{error:?}");
    assert!(error.to_string().contains("walpost migrate --set inbox"), "{error}");

    let world = World::new().await;
    let name = unique_name("reader");
    let sql = format!(
        "create role {name} login password 'x'; select walpost.inbox_grant('reader', '{name}')"
    );
    world.client.batch_execute(&sql).await.unwrap();
    world.receive("apply", ["a".to_owned()]).await;
    let mut config = world.database.config();
    config.user(&name).password("x");
    let error = run(Processor::builder(Database::config(config)), ByType).error().await;
    assert!(matches!(error, Error::Denied { kind: "processor", .. }), "{error:?}");
    assert_eq!(world.state("a").await.0, State::Pending);
}

#[tokio::test(flavor = "multi_thread")]
async fn serialisation_failures_also_at_commit_are_tried_again_and_do_not_count() {
    let world = World::new().await;
    world.receive("ticket", ids("t", 40)).await;
    let builder = world.processor().isolation(IsolationLevel::Serializable);
    let running = run(builder, ByType);
    world.until(State::Succeeded, 40).await;
    let snapshot = running.stop().await;
    assert_eq!((snapshot.failures, snapshot.given_up), (0, 0));
    assert_eq!(world.sorted_effects().await, ids("t", 40));
    assert_eq!(world.number("select max(number)::int8 from ticket").await, 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_what_was_begun_and_begins_nothing_more() {
    let world = World::new().await;
    world.client.batch_execute("select pg_advisory_lock(7)").await.unwrap();
    world
        .client
        .batch_execute(
            "create function held() returns trigger language plpgsql as $$ begin \
             perform pg_advisory_xact_lock(7); return new; end $$; \
             create trigger held before insert on effect for each row execute function held()",
        )
        .await
        .unwrap();
    world.receive("apply", ids("a", 5)).await;
    let builder = world.processor().concurrency(2).retries(RetrySchedule::new([]));
    let running = run(builder, ByType);
    let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted \
                   and database = (select oid from pg_database where datname = current_database())";
    until(LIMIT, "two handlers at work", async || world.number(waiting).await == 2).await;
    until(LIMIT, "a count while every hand is busy", async || {
        let backlog = running.processor.snapshot().backlog;
        backlog.is_some_and(|backlog| (backlog.processing, backlog.pending) == (2, 3))
    })
    .await;
    let stopping = tokio::spawn(running.stop());
    world.client.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
    stopping.await.unwrap();
    assert_eq!(world.sorted_effects().await, ids("a", 2));
    world.until(State::Succeeded, 2).await;
    world.until(State::Pending, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_looks_in_vain_leaves_no_transaction_open() {
    let world = World::new().await;
    let running = run(world.processor().poll_ms(20).without_listen(), ByType);
    let looks = "select count(*) from pg_stat_activity where datname = current_database() \
                 and pid <> pg_backend_pid() and backend_type = 'client backend' \
                 and query_start > backend_start + interval '1 s'";
    until(LIMIT, "a second of looks in vain", async || world.number(looks).await > 0).await;
    let left = "select count(*) from pg_stat_activity where datname = current_database() \
                and pid <> pg_backend_pid() and backend_type = 'client backend' \
                and xact_start < now() - interval '500 ms'";
    until(LIMIT / 10, "none open", async || world.number(left).await == 0).await;
    world.receive("apply", ids("a", 3)).await;
    world.until(State::Succeeded, 3).await;
    running.stop().await;
}
