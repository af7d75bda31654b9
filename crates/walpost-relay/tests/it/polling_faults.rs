//! A polled outbox whose sink, session or poller fails.

use std::time::Duration;

use walpost_relay::{AppliesTo, Requeue};
use walpost_testkit::{Direction, MARKER, QUOTING_SCHEMA, Quoting, until};

use crate::{
    polling_rig::Polled,
    rig::{SOON, status, stop},
    sink::World,
};

#[tokio::test]
async fn a_row_that_is_refused_waits_by_the_schedule_then_fails_and_holds_its_aggregate() {
    let mut polled = Polled::new().await;
    polled.polling.retry_delays = [40, 60_000].map(Duration::from_millis).to_vec();
    polled.polling.max_attempts = 3;
    polled.rig.world.never("1");
    let relay = polled.polling().await;
    polled.rig.insert("a", &["1", "2"]).await;
    polled.rig.insert("b", &["3"]).await;
    until(SOON, "the second attempt", async || polled.row("1").await.1 == 2).await;
    assert_eq!(polled.row("1").await, ("NEW".to_owned(), 2));
    let waits = "select count(*) from walpost.outbox where payload = '1' and next_attempt_at \
                 between clock_timestamp() + interval '15 s' \
                 and clock_timestamp() + interval '60 s'";
    assert_eq!(polled.rig.count(waits).await, 1, "by the second delay of the schedule");
    let over = "update walpost.outbox set next_attempt_at = clock_timestamp() where payload = '1'";
    polled.rig.client.batch_execute(over).await.unwrap();
    polled.reaches("FAILED", 1).await;
    assert_eq!(polled.row("1").await, ("FAILED".to_owned(), 3));
    assert_eq!(polled.row("2").await, ("NEW".to_owned(), 0), "it waits behind");
    assert_eq!(polled.rig.world.values(), ["3"]);
    polled.rig.world.mend();
    assert_eq!(polled.requeue(Requeue::All, false).await.len(), 1);
    polled.reaches("PUBLISHED", 3).await;
    stop(relay).await;
    assert_eq!(polled.rig.world.values(), ["3", "1", "2"]);
}

#[tokio::test]
async fn without_an_answer_attempts_grow_and_are_committed_and_the_row_stays_new() {
    let mut polled = Polled::new().await;
    polled.polling.send_timeout_ms = 100;
    polled.polling.max_attempts = 1;
    polled.rig.world.hold(true);
    let relay = polled.polling().await;
    polled.rig.insert("a", &["1", "2"]).await;
    until(SOON, "the third attempt", async || polled.row("1").await.1 >= 3).await;
    assert_eq!(polled.row("1").await.0, "NEW");
    status(&relay, "trouble", |status| status.trouble.is_some()).await;
    polled.rig.world.hold(false);
    polled.reaches("PUBLISHED", 2).await;
    status(&relay, "no trouble", |status| status.trouble.is_none()).await;
    stop(relay).await;
    assert_eq!(polled.rig.world.values(), ["1", "2"]);
    let stamped = "select count(*) from walpost.outbox where published_at is not null";
    assert_eq!(polled.rig.count(stamped).await, 2);
}

#[tokio::test]
async fn where_all_attempts_count_an_outage_fails_rows_which_requeue_brings_back() {
    let mut polled = Polled::new().await;
    polled.polling.send_timeout_ms = 100;
    polled.polling.max_attempts = 2;
    polled.polling.max_attempts_applies_to = AppliesTo::All;
    polled.rig.world.hold(true);
    let relay = polled.polling().await;
    // One behind the other would wait for it once that has failed.
    polled.rig.insert("a", &["1"]).await;
    polled.rig.insert("b", &["2"]).await;
    polled.reaches("FAILED", 2).await;
    assert_eq!(polled.row("1").await.1, 2);
    polled.rig.world.hold(false);
    assert_eq!(polled.requeue(Requeue::All, false).await.len(), 2);
    assert_eq!(polled.row("2").await.1, 0, "with all its attempts before it");
    polled.reaches("PUBLISHED", 2).await;
    stop(relay).await;
    let mut landed = polled.rig.world.values();
    landed.sort();
    assert_eq!(landed, ["1", "2"]);
}

#[tokio::test]
async fn of_rows_that_are_refused_together_only_the_guilty_one_has_an_attempt() {
    let mut polled = Polled::new().await;
    polled.polling.max_attempts = 1;
    polled.rig.world.spoil("3");
    let relay = polled.polling().await;
    polled.rig.insert("a", &["1", "2"]).await;
    polled.rig.insert("b", &["3", "4"]).await;
    polled.rig.insert("c", &["5"]).await;
    polled.reaches("FAILED", 1).await;
    polled.reaches("PUBLISHED", 3).await;
    assert_eq!(polled.row("3").await, ("FAILED".to_owned(), 1));
    assert_eq!(polled.row("4").await, ("NEW".to_owned(), 0));
    let tried = "select count(*) from walpost.outbox where attempts > 0";
    assert_eq!(polled.rig.count(tried).await, 1);
    stop(relay).await;
}

#[tokio::test]
async fn a_poller_whose_claim_was_taken_marks_nothing_when_it_wakes() {
    let mut polled = Polled::new().await;
    polled.polling.send_timeout_ms = 60_000;
    polled.polling.claim_timeout_ms = 65_000;
    let (asleep, awake) = (World::default(), World::default());
    asleep.hold(true);
    let zombie = polled.start_into(&asleep);
    polled.rig.insert("a", &["1", "2"]).await;
    until(SOON, "its claim", async || asleep.queued() == 2).await;
    let successor = polled.start_into(&awake);
    polled.rig.insert("b", &["3"]).await;
    polled.reaches("PUBLISHED", 1).await;
    assert_eq!(awake.values(), ["3"], "what is claimed is left alone");
    // Its transaction is the oldest.
    let kill = "select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity \
                where xact_start is not null and datname = current_database() \
                and pid <> pg_backend_pid() order by xact_start limit 1) zombie";
    assert_eq!(polled.rig.count(kill).await, 1);
    polled.reaches("PUBLISHED", 3).await;
    assert_eq!(awake.values(), ["3", "1", "2"]);
    let noted = "select count(*) from walpost.outbox where published_at is null or attempts > 0";
    asleep.hold(false);
    status(&zombie, "the end of its session", |status| status.failed_sessions == 1).await;
    assert_eq!(asleep.values(), ["1", "2"], "copies, at most what was claimed");
    assert_eq!((polled.rig.count(noted).await, zombie.status().borrow().published), (0, 0));
    stop(zombie).await;
    stop(successor).await;
}

#[tokio::test]
async fn what_a_poller_beyond_a_half_open_connection_had_claimed_is_free_again_in_time() {
    let mut polled = Polled::new().await;
    polled.polling.send_timeout_ms = 100;
    polled.polling.claim_timeout_ms = 5_100;
    polled.rig.config.statement_timeout_ms = 600_000;
    let direct = polled.rig.database.clone();
    let (rig, proxy) = polled.rig.behind_a_proxy().await;
    polled.rig = rig;
    let (beyond, here) = (World::default(), World::default());
    beyond.hold(true);
    let silent = polled.start_into(&beyond);
    polled.rig.insert("a", &["1", "2"]).await;
    until(SOON, "its claim", async || beyond.queued() == 2).await;
    proxy.swallow(Direction::Both);
    polled.rig.database = direct;
    let successor = polled.start_into(&here);
    polled.reaches("PUBLISHED", 2).await;
    assert_eq!(here.values(), ["1", "2"]);
    stop(successor).await;
    drop(silent);
}

#[tokio::test]
async fn a_poller_that_stops_settles_what_is_on_its_way() {
    let polled = Polled::new().await;
    polled.rig.world.hold(true);
    let relay = polled.polling().await;
    polled.rig.insert("a", &["1"]).await;
    until(SOON, "its claim", async || polled.rig.world.queued() == 1).await;
    relay.stop();
    polled.rig.world.hold(false);
    stop(relay).await;
    assert_eq!(polled.row("1").await, ("PUBLISHED".to_owned(), 0));
}

#[tokio::test]
async fn a_stop_without_an_answer_takes_no_attempt() {
    let mut polled = Polled::new().await;
    polled.rig.config.drain_timeout_ms = 200;
    polled.rig.world.hold(true);
    let relay = polled.polling().await;
    polled.rig.insert("a", &["1"]).await;
    until(SOON, "its claim", async || polled.rig.world.queued() == 1).await;
    stop(relay).await;
    assert_eq!(polled.row("1").await, ("NEW".to_owned(), 0));
}

#[tokio::test]
async fn a_long_row_of_events_behind_a_failed_one_keeps_no_other_from_being_found() {
    let mut polled = Polled::new().await;
    polled.polling.max_attempts = 1;
    polled.rig.world.never("0");
    polled.rig.insert("stuck", &["0"]).await;
    let behind = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                  select 'order', 'stuck', 'Placed', to_jsonb(n) from generate_series(1, 11000) n";
    polled.rig.client.batch_execute(behind).await.unwrap();
    let relay = polled.polling().await;
    polled.reaches("FAILED", 1).await;
    polled.rig.insert("free", &["20000", "20001"]).await;
    polled.reaches("PUBLISHED", 2).await;
    polled.rig.insert("free", &["20002"]).await;
    polled.reaches("PUBLISHED", 3).await;
    assert_eq!(polled.rig.world.values(), ["20000", "20001", "20002"]);
    polled.rig.world.mend();
    assert_eq!(polled.requeue(Requeue::All, false).await.len(), 1);
    until(SOON, "those behind", async || polled.rig.world.count() > 1_000).await;
    stop(relay).await;
    assert_eq!(
        polled.rig.world.values()[3..503],
        (0..500).map(|n| n.to_string()).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_value_that_a_trigger_of_the_outbox_quotes_is_in_no_error() {
    let polled = Polled::new().await;
    polled.rig.client.batch_execute(QUOTING_SCHEMA).await.unwrap();
    polled.rig.insert("a", &[&format!("\"{MARKER}\"")]).await;
    for quoting in Quoting::ALL {
        let trigger = quoting.trigger("before update on walpost.outbox", "new.payload #>> '{}'");
        polled.rig.client.batch_execute(&trigger).await.unwrap();
        let mut relay = polled.start();
        let ended = tokio::time::timeout(SOON, relay.finished()).await;
        let error = ended.expect("the poller ends").unwrap_err();
        let text = walpost_event::error_chain(&error);
        assert!(text.contains(quoting.state), "{}: {text}", quoting.name);
        quoting.is_hidden_in(&[text, format!("{error:?}")]);
    }
}
