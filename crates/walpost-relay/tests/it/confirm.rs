use std::time::Duration;

use walpost_event::Lsn;
use walpost_testkit::{local::Postgres, until};

use crate::rig::{Rig, SOON, status, stop};

const WAL_NOW: &str = "select pg_current_wal_insert_lsn()::text";

/// A server that nobody else writes to.
fn alone() -> &'static mut Postgres {
    Box::leak(Box::new(Postgres::builder().setting("wal_level", "logical").start().unwrap()))
}

#[tokio::test]
async fn nothing_is_confirmed_before_the_sink_has_it() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    rig.world.hold(true);
    rig.insert("a", &["1", "2"]).await;
    let behind_them = rig.lsn(WAL_NOW).await;
    status(&relay, "the events on their way", |status| status.outstanding == 2).await;
    // Other WAL comes and goes; the position stays below the held events.
    rig.client.batch_execute("create table noise (n int)").await.unwrap();
    let seen = rig.lsn(WAL_NOW).await;
    status(&relay, "the noise received", |status| status.received >= seen).await;
    assert!(rig.slot_position().await < behind_them);

    rig.world.hold(false);
    let after = rig.lsn(WAL_NOW).await;
    until(SOON, "the slot follows", async || rig.slot_position().await >= after).await;
    stop(relay).await;
}

#[tokio::test]
async fn a_quiet_outbox_beside_a_busy_table_follows_the_wal() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    rig.client.batch_execute("create table busy (n int, filler text)").await.unwrap();
    rig.client
        .batch_execute(
            "insert into busy select n, repeat('x', 500) from generate_series(1, 20000) n",
        )
        .await
        .unwrap();
    let written: Lsn = rig.lsn(WAL_NOW).await;
    until(SOON, "the slot follows", async || rig.slot_position().await >= written).await;
    assert!(rig.world.values().is_empty());
    stop(relay).await;
}

#[tokio::test]
async fn an_idle_pipeline_stops_writing_checkpoints() {
    let rig = Rig::on_local(alone()).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    let inserted = rig.lsn(WAL_NOW).await;
    until(SOON, "the slot follows", async || rig.slot_position().await >= inserted).await;
    // The relay's own writes must not keep it writing: within twenty intervals
    // of an idle server comes one in which nothing moves.
    until(SOON, "a second without a checkpoint", async || {
        let now = relay.status().borrow().confirmed;
        let mut status = relay.status();
        let moved = status.wait_for(|status| status.confirmed > now);
        tokio::time::timeout(Duration::from_secs(1), moved).await.is_err()
    })
    .await;
    stop(relay).await;
}

#[tokio::test]
async fn after_an_orderly_stop_nothing_comes_twice() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    rig.world.hold(true);
    rig.insert("a", &["1", "2", "3"]).await;
    status(&relay, "the events on their way", |status| status.outstanding == 3).await;
    relay.stop();
    rig.world.hold(false);
    stop(relay).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["4"]).await;
    assert_eq!(rig.landed(4).await, ["1", "2", "3", "4"]);
    stop(relay).await;
}

#[tokio::test]
async fn after_a_crash_of_the_server_the_stream_starts_at_the_checkpoint() {
    let server = alone();
    let rig = Rig::on_local(server).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2"]).await;
    rig.landed(2).await;
    let inserted = rig.lsn("select pg_current_wal_flush_lsn()::text").await;
    until(SOON, "a checkpoint beyond the events", async || {
        rig.lsn("select confirmed_lsn::text from walpost.checkpoint").await >= inserted
    })
    .await;
    server.stop_immediate().unwrap();
    server.start().unwrap();
    let rig = rig.reconnected().await;
    until(SOON, "a second session", async || rig.world.sessions() >= 2).await;
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.landed(3).await, ["1", "2", "3"]);
    stop(relay).await;
}
