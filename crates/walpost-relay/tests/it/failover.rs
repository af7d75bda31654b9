//! A primary dies and its standby is promoted.

use std::time::Duration;

use tokio_postgres::{Client, types::ToSql};
use walpost_postgres::Database;
use walpost_relay::{Initial, Outcome, Phase};
use walpost_testkit::{
    Signal,
    local::{Postgres, send_signal},
    until,
};

use crate::rig::{Rig, SOON, phase, status, stop};

const PATIENCE: Duration = Duration::from_secs(60);
const INSERT: &str = "insert into walpost.outbox (id, aggregatetype, aggregateid, type, payload) values \
     ('00000000-0000-4000-8000-000000000007', 'order', 'a', 'Placed',";

/// A primary and its standby, and a rig that knows the addresses of both.
struct Pair {
    primary: &'static Postgres,
    standby: Postgres,
    rig: Rig,
}

impl Pair {
    async fn new(version: u32) -> Self {
        let primary = Postgres::builder().version(Some(version)).throwaway().start().unwrap();
        let primary: &Postgres = Box::leak(Box::new(primary));
        let rig = Rig::on_local(primary).await;
        let create = "select pg_create_physical_replication_slot('second', true)";
        rig.client.query(create, &[]).await.unwrap();
        primary.stop_fast().unwrap();
        let mut standby = Postgres::builder()
            .throwaway()
            .standby_of(primary)
            .setting("primary_conninfo", primary.conninfo("postgres"))
            .setting("primary_slot_name", "second")
            .setting("hot_standby_feedback", "on")
            .setting("wal_receiver_status_interval", "1s")
            .setting("wal_retrieve_retry_interval", "100ms");
        if version >= 17 {
            standby = standby.setting("sync_replication_slots", "on");
        }
        let standby = standby.start().unwrap();
        primary.start().unwrap();
        // The standby first: it accepts connections too.
        let url = format!(
            "host=127.0.0.1,127.0.0.1 port={},{} user=postgres dbname=postgres \
             target_session_attrs=read-write",
            standby.port(),
            primary.port()
        );
        let rig = rig.connecting_to(&url).reconnected().await;
        Self { primary, standby, rig }
    }

    /// The primary sends nothing to a relay that the standby has not got.
    async fn synchronized(self) -> Self {
        self.primary.set("synchronized_standby_slots", "second").unwrap();
        self.primary.reload().unwrap();
        let told = "select count(*) from pg_settings \
                    where name = 'synchronized_standby_slots' and setting = 'second'";
        until(SOON, "the setting", async || self.rig.count(told).await == 1).await;
        self
    }

    async fn on_standby(&self) -> Client {
        Database::parse(&self.standby.url("postgres")).unwrap().connect().await.unwrap()
    }

    /// Waits until the standby has a slot that survives its promotion.
    async fn slot_on_standby(&self) {
        let client = self.on_standby().await;
        let ready = "select count(*) from pg_replication_slots where slot_name = $1 \
                     and synced and not temporary and invalidation_reason is null";
        until(PATIENCE, "the slot on the standby", async || {
            // Where decoding may begin is noted every 15 s; the standby looks
            // less and less often, and at once when it is told to.
            let note = "select pg_log_standby_snapshot()";
            self.rig.client.query(note, &[]).await.unwrap();
            self.standby.reload().unwrap();
            let row = client.query_one(ready, &[&self.rig.config.slot]).await.unwrap();
            row.get::<_, i64>(0) == 1
        })
        .await;
    }

    /// Waits until the standby has all WAL that the primary has now.
    async fn standby_has_all(&self) {
        let client = self.on_standby().await;
        let written = self.rig.lsn("select pg_current_wal_flush_lsn()::text").await.to_string();
        let received = format!("select pg_last_wal_replay_lsn() >= '{written}'");
        until(SOON, "the WAL on the standby", async || {
            client.query_one(&received, &[]).await.unwrap().get(0)
        })
        .await;
    }

    /// The standby gets no more WAL. What it asks of slots is answered.
    async fn freeze_wal(&self) {
        let sender = "select active_pid::int8 from pg_replication_slots where slot_name = 'second'";
        let pid = self.rig.count(sender).await.try_into().unwrap();
        send_signal(pid, Signal::Stop).unwrap();
    }

    /// The primary dies; what the standby has is what there is from now on.
    async fn promoted(self) -> (Rig, Postgres) {
        self.primary.stop_immediate().unwrap();
        self.standby.start().unwrap();
        let client = self.on_standby().await;
        let promoted: bool = client.query_one("select pg_promote()", &[]).await.unwrap().get(0);
        assert!(promoted);
        (self.rig.reconnected().await, self.standby)
    }
}

async fn with_synchronized_standby_slots(version: u32) {
    let pair = Pair::new(version).await;
    let (outcome, detail) = pair.rig.checked("failover").await;
    assert_eq!(outcome, Outcome::Warn);
    assert!(detail.contains("synchronized_standby_slots is empty"), "{detail}");
    let pair = pair.synchronized().await;
    let relay = pair.rig.streaming().await;
    let found = walpost_relay::check(&pair.rig.database, &pair.rig.config, &pair.rig.router).await;
    assert!(found.iter().all(|result| result.name != "failover"), "{found:?}");
    pair.rig.insert("a", &["1", "2"]).await;
    pair.rig.landed(2).await;
    pair.slot_on_standby().await;
    // Committed on the primary alone: the relay does not get it.
    pair.standby.stop_fast().unwrap();
    pair.rig.client.batch_execute(&format!("{INSERT} '\"lost\"')")).await.unwrap();
    let waits = format!(
        "select count(*) from pg_stat_activity a join pg_replication_slots s \
         on s.active_pid = a.pid where s.slot_name = '{}' \
         and a.wait_event = 'WaitForStandbyConfirmation'",
        pair.rig.config.slot
    );
    until(SOON, "the primary waits", async || pair.rig.count(&waits).await == 1).await;
    assert_eq!(pair.rig.world.values(), ["1", "2"]);

    let (rig, _promoted) = pair.promoted().await;
    rig.client.batch_execute(&format!("{INSERT} '3')")).await.unwrap();
    let third = async || rig.world.values().len() >= 3;
    until(PATIENCE, "the event of the new primary", third).await;
    assert_eq!(rig.count("select timeline from walpost.checkpoint").await, 2);
    rig.insert("a", &["4"]).await;
    assert_eq!(rig.landed(4).await, ["1", "2", "3", "4"]);
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: standbys and failover"]
async fn a_failover_loses_and_repeats_nothing_on_postgres_17() {
    with_synchronized_standby_slots(17).await;
}

#[tokio::test]
#[ignore = "deep: standbys and failover"]
async fn a_failover_loses_and_repeats_nothing_on_postgres_18() {
    with_synchronized_standby_slots(18).await;
}

async fn without_synchronized_standby_slots(version: u32) {
    let pair = Pair::new(version).await;
    let relay = pair.rig.streaming().await;
    pair.rig.insert("a", &["1", "2"]).await;
    pair.rig.landed(2).await;
    pair.slot_on_standby().await;
    pair.standby_has_all().await;
    pair.standby.stop_fast().unwrap();
    // Published, and with the primary it is gone from the database.
    pair.rig.client.batch_execute(&format!("{INSERT} '\"phantom\"')")).await.unwrap();
    pair.rig.landed(3).await;

    let (rig, _promoted) = pair.promoted().await;
    rig.client.batch_execute(&format!("{INSERT} '3')")).await.unwrap();
    let third = async || rig.world.values().len() >= 4;
    until(PATIENCE, "the event of the new primary", third).await;
    rig.insert("a", &["4"]).await;
    assert_eq!(rig.landed(5).await, ["1", "2", "\"phantom\"", "3", "4"]);
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: standbys and failover"]
async fn a_failover_to_a_standby_that_is_behind_hides_nothing_on_postgres_17() {
    without_synchronized_standby_slots(17).await;
}

#[tokio::test]
#[ignore = "deep: standbys and failover"]
async fn a_failover_to_a_standby_that_is_behind_hides_nothing_on_postgres_18() {
    without_synchronized_standby_slots(18).await;
}

/// The standby gets the slot's last position, and not the checkpoint that was
/// committed behind it.
#[tokio::test]
#[ignore = "deep: standbys and failover"]
async fn a_slot_that_came_without_its_checkpoint_is_refused_and_nothing_is_missing() {
    let mut pair = Pair::new(18).await;
    let relay = pair.rig.streaming().await;
    pair.rig.insert("a", &["1"]).await;
    pair.rig.landed(1).await;
    pair.slot_on_standby().await;
    stop(relay).await;
    pair.rig.released().await;
    // From now on the only checkpoint that moves is that of the end.
    pair.rig.config.checkpoint_interval_ms = 60_000;
    pair.rig.config.drain_timeout_ms = 12_000;
    let relay = pair.rig.streaming().await;
    pair.rig.insert("a", &["2"]).await;
    pair.rig.landed(2).await;
    pair.rig.world.hold(true);
    pair.rig.insert("a", &["3"]).await;
    status(&relay, "the event on its way", |status| status.outstanding == 1).await;
    pair.standby_has_all().await;
    pair.freeze_wal().await;
    stop(relay).await;
    pair.rig.released().await;
    pair.rig.world.hold(false);
    let left_at = pair.rig.slot_position().await;
    let client = pair.on_standby().await;
    let brought = "select confirmed_flush_lsn >= $1::text::pg_lsn from pg_replication_slots \
                   where slot_name = $2";
    until(PATIENCE, "the slot's position on the standby", async || {
        pair.standby.reload().unwrap();
        let parameters: [&(dyn ToSql + Sync); 2] = [&left_at.to_string(), &pair.rig.config.slot];
        client.query_one(brought, &parameters).await.unwrap().get(0)
    })
    .await;

    let (mut rig, _promoted) = pair.promoted().await;
    let checkpoint = rig.lsn("select confirmed_lsn::text from walpost.checkpoint").await;
    assert!(checkpoint < rig.slot_position().await, "the case that is meant");
    let refusal = rig.refusal().await;
    for part in ["ahead of", "a standby took over", "synchronized_standby_slots"] {
        assert!(refusal.contains(part), "expected {part:?} in: {refusal}");
    }
    assert_eq!(rig.world.values(), ["1", "2"]);
    // The way that the refusal names.
    rig.client.batch_execute("delete from walpost.checkpoint").await.unwrap();
    rig.config.initial = Some(Initial::Skip);
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(3).await, ["1", "2", "3"]);
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: standbys and failover"]
async fn a_standby_without_the_slot_is_refused_with_the_way_on() {
    let pair = Pair::new(16).await;
    let mut relay = pair.rig.streaming().await;
    pair.rig.insert("a", &["1"]).await;
    pair.rig.landed(1).await;
    pair.standby_has_all().await;
    let (rig, _promoted) = pair.promoted().await;
    let ended = tokio::time::timeout(PATIENCE, relay.finished()).await.expect("it ends");
    let text = ended.unwrap_err().to_string();
    for part in ["is gone", "a standby took over that did not have it", "had published up to"] {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
    assert_eq!(rig.world.values(), ["1"]);
}

/// Of several hosts the first may be a standby: both connections lead to the
/// primary.
#[tokio::test]
#[ignore = "deep: standbys and failover"]
async fn a_standby_that_is_named_first_is_passed_over() {
    let pair = Pair::new(15).await;
    let relay = pair.rig.start();
    phase(&relay, &Phase::Streaming).await;
    pair.rig.insert("a", &["1"]).await;
    pair.rig.landed(1).await;
    status(&relay, "no failed session", |status| status.failed_sessions == 0).await;
    stop(relay).await;
}

/// A name or an address that follows the primary leads to the next one before that
/// is promoted.
#[tokio::test]
#[ignore = "deep: standbys and failover"]
async fn a_relay_that_has_streamed_waits_for_the_promotion_of_a_standby() {
    let server = Postgres::builder().setting("wal_level", "logical").start().unwrap();
    let server: &Postgres = Box::leak(Box::new(server));
    let mut rig = Rig::on_local(server).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    server.stop_fast().unwrap();
    std::fs::write(server.data_dir().join("standby.signal"), "").unwrap();
    server.start().unwrap();
    status(&relay, "waiting for a promotion", |status| {
        matches!(&status.phase, Phase::Waiting { error } if error.contains("the server is a standby"))
    })
    .await;

    // A start is not for ever.
    rig.config.start_timeout_ms = Some(100);
    let refusal = rig.refusal().await;
    assert!(refusal.contains("the server is a standby; connect to the primary"), "{refusal}");
    let (outcome, detail) = rig.checked("database").await;
    assert_eq!((outcome, &*detail), (Outcome::Fail, "the server is a standby"));

    let rig = rig.reconnected().await;
    assert!(rig.client.query_one("select pg_promote()", &[]).await.unwrap().get::<_, bool>(0));
    rig.insert("a", &["2"]).await;
    until(PATIENCE, "the next event", async || rig.world.values() == ["1", "2"]).await;
    stop(relay).await;
}
