use std::time::Duration;

use walpost_relay::{Initial, Phase, RunningRelay};
use walpost_testkit::{Direction, Proxy, until};

use crate::rig::{Rig, SOON, status, stop};

/// A rig whose connections go through a proxy.
async fn behind_a_proxy() -> (Rig, Proxy) {
    Rig::new().await.behind_a_proxy().await
}

#[tokio::test]
async fn a_cut_connection_is_opened_again_and_nothing_is_missing() {
    let (rig, proxy) = behind_a_proxy().await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    proxy.cut_connections();
    rig.insert("a", &["2"]).await;
    until(SOON, "the event behind the cut", async || rig.world.values().contains(&"2".to_owned()))
        .await;
    stop(relay).await;
}

#[tokio::test]
async fn a_connection_that_swallows_everything_is_noticed() {
    let (mut rig, proxy) = behind_a_proxy().await;
    rig.config.wal_sender_timeout_ms = 1_000;
    let relay = rig.streaming().await;
    proxy.swallow(Direction::ToClient);
    rig.insert("a", &["1"]).await;
    status(&relay, "the end of the session", |status| status.failed_sessions > 0).await;
    proxy.restore();
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;
}

/// After no fewer seconds of silence. The next session may have begun when this
/// looks, and the reason be gone.
async fn assert_session_ended_after(relay: &RunningRelay, seconds: u32) {
    let mut reason = None;
    status(relay, "the end of the session", |status| {
        if let Phase::Waiting { error } = &status.phase {
            reason.get_or_insert_with(|| error.clone());
        }
        status.failed_sessions > 0
    })
    .await;
    if let Some(reason) = reason {
        let (_, silence) = reason.split_once("nothing heard from the server for ").expect(&reason);
        let silence: u32 = silence.split(' ').next().unwrap().parse().unwrap();
        assert!(silence >= seconds, "{reason}");
    }
}

#[tokio::test]
async fn a_connection_that_goes_dead_without_a_word_is_noticed_in_time() {
    let (mut rig, proxy) = behind_a_proxy().await;
    // The server does not notice either.
    rig.config.wal_sender_timeout_ms = 600_000;
    // The checkpoint's connection is dead, too, and shall not be found first.
    rig.config.statement_timeout_ms = 600_000;
    let relay = rig.streaming().await;
    proxy.hold(Direction::Both);
    assert_session_ended_after(&relay, 10).await;
    proxy.restore();
    rig.insert("a", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_sink_that_takes_nothing_for_long_does_not_end_the_session() {
    let mut rig = Rig::new().await;
    rig.config.wal_sender_timeout_ms = 9_000;
    rig.config.in_flight_max_events = 10;
    let relay = rig.streaming().await;
    rig.world.hold(true);
    let values: Vec<String> = (0..500).map(|n| n.to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    rig.insert("a", &values).await;
    // Longer than the server's patience and than our own.
    let old = format!(
        "select count(*) from pg_stat_replication r join pg_replication_slots s \
         on s.active_pid = r.pid where s.slot_name = '{}' \
         and clock_timestamp() - r.backend_start > '12 s'",
        rig.config.slot
    );
    until(SOON, "a session of 12 s", async || rig.count(&old).await == 1).await;
    rig.world.hold(false);
    assert_eq!(rig.landed(500).await.len(), 500);
    assert_eq!(relay.status().borrow().failed_sessions, 0);
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_server_that_has_nothing_to_say_is_asked_and_not_taken_for_gone() {
    let mut rig = Rig::new().await;
    // By itself it would not say a word for minutes.
    rig.config.wal_sender_timeout_ms = 600_000;
    let relay = rig.streaming().await;
    let old = format!(
        "select count(*) from pg_stat_replication r join pg_replication_slots s \
         on s.active_pid = r.pid where s.slot_name = '{}' \
         and clock_timestamp() - r.backend_start > '13 s'",
        rig.config.slot
    );
    until(SOON, "a session of 13 s", async || rig.count(&old).await == 1).await;
    assert_eq!(relay.status().borrow().failed_sessions, 0);
    stop(relay).await;
}

#[tokio::test]
async fn an_initial_load_whose_connection_goes_dead_begins_again() {
    let (mut rig, proxy) = behind_a_proxy().await;
    rig.config.initial = Some(Initial::Publish);
    rig.config.start_timeout_ms = None;
    rig.config.statement_timeout_ms = 4_000;
    // More than all buffers on the way take.
    let rows = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                select 'order', 'a', 'Placed', to_jsonb(repeat(md5(n::text), 100) || n) \
                from generate_series(1, 20000) n";
    rig.client.batch_execute(rows).await.unwrap();
    rig.world.hold(true);
    let relay = rig.start();
    status(&relay, "rows on their way", |status| status.outstanding > 0).await;
    proxy.hold(Direction::ToClient);
    rig.world.hold(false);
    assert_session_ended_after(&relay, 4).await;
    proxy.restore();
    let done = "select count(*) from walpost.checkpoint where initial = 'done'";
    until(Duration::from_secs(60), "the end of the load", async || rig.count(done).await == 1)
        .await;
    let values: std::collections::HashSet<String> = rig.world.values().into_iter().collect();
    assert_eq!(values.len(), 20_000);
    stop(relay).await;
}
