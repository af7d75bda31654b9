//! Whoever dies, sleeps or loses its connection costs no effect and repeats
//! none.

use std::time::Duration;

use tokio_postgres::types::Type;
use walpost_inbox::{ClaimTerms, RetrySchedule, State};
use walpost_testkit::{until, until_some};

use crate::{
    member::{self, HANDLER_TIMEOUT_MS, LEASE_MS, READY},
    support::{ByType, LIMIT, World, ids, run},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_receipt_and_processing_costs_nothing() {
    let world = World::new().await;
    let receiver = member::start(&world, "receive", "one");
    receiver.wait_for_log("received", LIMIT);
    receiver.kill();
    let running = run(world.processor(), ByType);
    world.until(State::Succeeded, 1).await;
    running.stop().await;
    assert_eq!(world.effects().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_the_handler_counts_and_the_event_is_processed_under_a_new_fence() {
    let world = World::new().await;
    world.receive("apply", ["a".to_owned()]).await;
    let dying = member::start(&world, "hang", "dying");
    dying.wait_for_log("in its handler", LIMIT);
    dying.kill();
    // Its lease is not waited for, but ended as time would.
    world.past_triggers("update walpost.inbox set lease_until = now() - interval '1 s'").await;
    // One attempt more is left, so that the count of the dead one shows.
    let retries = RetrySchedule::new([Duration::ZERO]);
    let running = run(world.processor().retries(retries), ByType);
    world.until(State::Succeeded, 1).await;
    let snapshot = running.stop().await;
    assert_eq!(world.effects().await, ["a"]);
    assert_eq!((snapshot.lease_expired, snapshot.retries, snapshot.succeeded), (1, 1, 1));
    let row = "select count(*) from walpost.inbox where attempts = 2 and fence = 2 \
               and claimed_by = 'inbox'";
    assert_eq!(world.number(row).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_ends_every_process_is_given_up() {
    let world = World::new().await;
    world.receive("apply", ["a".to_owned()]).await;
    let dying = member::start(&world, "hang", "dying");
    dying.wait_for_log("in its handler", LIMIT);
    dying.kill();
    world.past_triggers("update walpost.inbox set lease_until = now() - interval '1 s'").await;
    let running = run(world.processor().retries(RetrySchedule::new([])), ByType);
    world.until(State::Failed, 1).await;
    running.stop().await;
    assert_eq!(world.state("a").await, (State::Failed, Some("lease_expired".to_owned())));
    assert_eq!(world.effects().await, [""; 0]);
}

/// A transaction with an effect, begun under the claim; what the database says
/// at its end, and whether the effect is there.
async fn zombie(world: &World, meanwhile: &str) -> (Option<String>, usize) {
    let number = world.plant(State::Processing).await;
    let mut client = world.database.connect().await;
    let tx = client.transaction().await.unwrap();
    let key = [(&number as &(dyn tokio_postgres::types::ToSql + Sync), Type::INT8)];
    tx.query_typed("select walpost.inbox_begin($1, 1, 60000, 60000)", &key).await.unwrap();
    tx.batch_execute("insert into effect (event_id) values ('zombie')").await.unwrap();
    world.past_triggers(&meanwhile.replace("$seq", &number.to_string())).await;
    let ended = tx.query_typed("select walpost.inbox_succeed($1, 1)", &key).await;
    let code = ended.err().map(|error| error.code().unwrap().code().to_owned());
    let _ = tx.commit().await;
    (code, world.effects().await.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lost_its_lease_is_refused_by_the_database_with_its_effect() {
    let expire = "update walpost.inbox set lease_until = now() - interval '1 s' where seq = $seq";
    let taken = "update walpost.inbox set fence = 2, attempts = 2 where seq = $seq";
    let failed = "update walpost.inbox set processing_state = 'failed', reason = 'lease_expired', \
                  lease_until = null where seq = $seq";
    let done = "update walpost.inbox set processing_state = 'succeeded', lease_until = null, \
                processed_at = now(), next_attempt_at = null where seq = $seq";
    for meanwhile in [expire, taken, failed, done] {
        let world = World::new().await;
        assert_eq!(zombie(&world, meanwhile).await, (Some("WP011".to_owned()), 0), "{meanwhile}");
    }
    let world = World::new().await;
    assert_eq!(zombie(&world, "select $seq").await, (None, 1), "with its lease");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn whoever_sleeps_between_state_and_commit_is_ended_by_the_server() {
    let world = World::new().await;
    world.receive("apply", ["a".to_owned()]).await;
    let mut client = world.database.connect().await;
    let terms = ClaimTerms::new("sleeper").lease_ms(15_000);
    let claims = world.inbox.claim(&mut client, &terms).await.unwrap();
    let number = claims[0].head().number();
    let tx = client.transaction().await.unwrap();
    let begin = format!("select walpost.inbox_begin({number}, 1, 15000, 15000)");
    tx.batch_execute(&begin).await.unwrap();
    tx.batch_execute("insert into effect (event_id) values ('sleeper')").await.unwrap();
    world.inbox.succeed(&tx, &claims[0]).await.unwrap();
    // It holds the row, and does not commit.
    let mut other = world.database.connect().await;
    let terms = ClaimTerms::new("other");
    let taken = until_some(LIMIT, "a claim behind the ended session", async || {
        world.inbox.claim(&mut other, &terms).await.unwrap().pop()
    })
    .await;
    assert_eq!((taken.head().number(), taken.fence()), (number, 2));
    tx.commit().await.unwrap_err();
    assert_eq!(world.effects().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn a_process_that_sleeps_past_its_lease_and_wakes_repeats_nothing() {
    let world = World::new().await;
    world.receive("apply", ["a".to_owned()]).await;
    let zombie = member::start(&world, "hang", "zombie");
    zombie.wait_for_log("in its handler", LIMIT);
    zombie.pause();
    world.past_triggers("update walpost.inbox set lease_until = now() - interval '1 s'").await;
    let running = run(world.processor(), ByType);
    world.until(State::Succeeded, 1).await;
    zombie.resume();
    assert!(zombie.terminate(LIMIT).success(), "{}", zombie.log());
    running.stop().await;
    assert_eq!(world.effects().await, ["a"]);
    // It was refused, or did not even ask, or got no answer while its lease would have lasted.
    let log = zombie.log();
    let gave_up =
        ["WP011", "claim lost", "left to its lease"].iter().any(|line| log.contains(line));
    assert!(gave_up, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_processor_that_is_dropped_leaves_no_effect_and_its_event_to_its_lease() {
    let world = World::new().await;
    world.receive("slow", ["slow".to_owned()]).await;
    let running = run(world.processor(), ByType);
    let begun = "select count(*) from pg_stat_activity where state = 'idle in transaction' \
                 and query like 'insert into effect%' \
                 and datname = current_database()";
    until(LIMIT, "a handler at work", async || world.number(begun).await == 1).await;
    running.abort().await;
    until(LIMIT, "no transaction left", async || world.number(begun).await == 0).await;
    assert_eq!(world.state("slow").await.0, State::Processing);
    assert_eq!(world.effects().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processors_on_one_table_under_kills_make_each_effect_once() {
    let world = World::new().await;
    let events = ids("a", 400);
    let mut members = [0, 1].map(|n| member::start(&world, "process", &format!("member {n}")));
    for (round, events) in events.chunks(50).enumerate() {
        world.receive("apply", events.iter().cloned()).await;
        // Copies as senders make them.
        world.receive("apply", events.iter().rev().step_by(3).cloned()).await;
        let n = round % 2;
        let some = format!("some effects of round {round}");
        let enough = (round * 40) as i64;
        until(LIMIT, &some, async || world.number("select count(*) from effect").await >= enough)
            .await;
        members[n].kill();
        members[n] = member::start(&world, "process", &format!("member {n} of round {round}"));
    }
    world.until(State::Succeeded, 400).await;
    for member in members {
        member.wait_for_log(READY, LIMIT);
        assert!(member.terminate(LIMIT).success(), "{}", member.log());
    }
    assert_eq!(world.sorted_effects().await, events);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_ended_at_any_moment_cost_no_effect_and_repeat_none() {
    let world = World::new().await;
    let events = ids("a", 200);
    let retries = RetrySchedule::new([Duration::ZERO]).repeating_last();
    let builder = || {
        world
            .processor()
            .lease_ms(LEASE_MS)
            .handler_timeout_ms(HANDLER_TIMEOUT_MS)
            .retries(retries.clone())
    };
    let running = [run(builder(), ByType), run(builder().name("other"), ByType)];
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
               where datname = current_database() and pid <> pg_backend_pid()";
    for chunk in events.chunks(20) {
        world.receive("apply", chunk.iter().cloned()).await;
        until(LIMIT, "sessions to end", async || world.number(end).await > 0).await;
    }
    world.until(State::Succeeded, 200).await;
    for running in running {
        running.stop().await;
    }
    assert_eq!(world.sorted_effects().await, events);
    until(LIMIT, "no claim left", async || {
        world.number("select count(*) from walpost.inbox where lease_until is not null").await == 0
    })
    .await;
}
