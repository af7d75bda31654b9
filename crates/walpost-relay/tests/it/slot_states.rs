//! Every state in which a start may find its slot, on every version.

use walpost_relay::{Initial, Outcome, Phase};
use walpost_testkit::{local::Postgres, unique_name, until};

use crate::rig::{Rig, SOON, phase, status, stop};

/// A server of the test's own, since some states are made by its settings and
/// its crashes.
pub(crate) fn server_of(version: u32) -> &'static Postgres {
    let server = Postgres::builder()
        .version(Some(version))
        .throwaway()
        .setting("autovacuum", "off")
        .setting("checkpoint_timeout", "1h");
    Box::leak(Box::new(server.start().unwrap()))
}

pub(crate) async fn rig_on(server: &Postgres) -> Rig {
    let name = unique_name("states");
    let admin = walpost_postgres::Database::parse(&server.url("postgres")).unwrap();
    let create = format!("create database {name} template template0");
    admin.connect().await.unwrap().batch_execute(&create).await.unwrap();
    Rig::at(&server.url(&name)).await
}

/// A start is refused with these words, `check` has found the same before, and
/// nothing was published.
async fn refused(rig: &Rig, expected: &[&str]) {
    let before = rig.world.values();
    let (outcome, detail) = rig.checked("slot").await;
    assert_eq!(outcome, Outcome::Fail, "{detail}");
    let refusal = rig.refusal().await;
    assert!(refusal.starts_with(&detail), "{refusal}\n{detail}");
    for part in expected {
        assert!(refusal.contains(part), "expected {part:?} in: {refusal}");
    }
    assert_eq!(rig.world.values(), before);
}

/// One event, published and confirmed, and no relay any more.
async fn left_in_order(rig: &Rig) {
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    stop(relay).await;
    rig.released().await;
}

async fn run(rig: &Rig, sql: &str) {
    rig.client.batch_execute(&sql.replace("SLOT", &rig.config.slot)).await.unwrap();
}

const ADVANCE: &str = "select pg_replication_slot_advance('SLOT', pg_current_wal_lsn())";
const DROP: &str = "select pg_drop_replication_slot('SLOT')";
const CREATE: &str = "select pg_create_logical_replication_slot('SLOT', 'pgoutput')";
const FORGET: &str = "delete from walpost.checkpoint";

/// The server flushes the slot's position late, so a crash sets it back behind
/// the checkpoint: the stream starts at the checkpoint.
async fn gone_back(server: &Postgres) {
    let mut rig = rig_on(server).await;
    left_in_order(&rig).await;
    let mut landed = vec!["1".to_owned()];
    // Now and then the server has just written it.
    for round in 1..5 {
        run(&rig, "checkpoint").await;
        let relay = rig.streaming().await;
        // With the first of them it notes where decoding may begin, on disk.
        for value in [2 * round, 2 * round + 1] {
            rig.insert("a", &[&value.to_string()]).await;
            let inserted = rig.lsn("select pg_current_wal_insert_lsn()::text").await;
            let follows = async || {
                // Its own checkpoint alone leads the relay to write no other.
                run(&rig, "select pg_logical_emit_message(false, 'other', '')").await;
                rig.slot_position().await >= inserted
            };
            until(SOON, "the slot follows", follows).await;
            landed.push(value.to_string());
        }
        assert_eq!(rig.landed(landed.len()).await, landed);
        stop(relay).await;
        rig.released().await;
        let before = rig.slot_position().await;
        server.stop_immediate().unwrap();
        server.start().unwrap();
        rig = rig.reconnected().await;
        if rig.slot_position().await < before {
            let checkpoint = "select confirmed_lsn::text from walpost.checkpoint";
            assert!(rig.slot_position().await < rig.lsn(checkpoint).await);
            let relay = rig.streaming().await;
            rig.insert("a", &["100"]).await;
            landed.push("100".to_owned());
            assert_eq!(rig.landed(landed.len()).await, landed);
            return stop(relay).await;
        }
    }
    panic!("no crash has set the slot back");
}

async fn in_use(server: &Postgres) {
    let rig = rig_on(server).await;
    let first = rig.streaming().await;
    let second = rig.start();
    phase(&second, &Phase::Standby).await;
    let (outcome, detail) = rig.checked("slot").await;
    assert_eq!(outcome, Outcome::Warn);
    assert!(detail.contains("in use by process"), "{detail}");
    stop(first).await;
    phase(&second, &Phase::Streaming).await;
    stop(second).await;
}

/// Refused, and then on the way that the refusal names.
async fn missing(server: &Postgres) {
    let mut rig = rig_on(server).await;
    left_in_order(&rig).await;
    run(&rig, DROP).await;
    rig.insert("a", &["2"]).await;
    refused(&rig, &["is gone", "had published up to", "initial = \"publish\""]).await;
    assert_eq!(rig.count("select count(*) from walpost.checkpoint").await, 1);
    run(&rig, FORGET).await;
    rig.config.initial = Some(Initial::Publish);
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(3).await, ["1", "1", "2"]);
    stop(relay).await;
}

async fn ahead_or_made_anew(server: &Postgres) {
    for other in [ADVANCE.to_owned(), format!("{DROP}; {CREATE}")] {
        let mut rig = rig_on(server).await;
        left_in_order(&rig).await;
        rig.insert("a", &["2"]).await;
        for statement in other.split("; ") {
            run(&rig, statement).await;
        }
        let expected =
            ["ahead of", "created it anew", "events in between may be missing", "a standby took"];
        refused(&rig, &expected).await;
        run(&rig, FORGET).await;
        rig.config.initial = Some(Initial::Skip);
        let relay = rig.streaming().await;
        rig.insert("a", &["3"]).await;
        assert_eq!(rig.landed(2).await, ["1", "3"], "after {other}");
        stop(relay).await;
    }
}

/// Has the server give the slot up.
pub(crate) async fn give_up_the_slot(server: &Postgres, rig: &Rig) {
    server.set("max_slot_wal_keep_size", "1MB").unwrap();
    server.reload().unwrap();
    let told = "select count(*) from pg_settings where name = 'max_slot_wal_keep_size' \
                and setting = '1'";
    until(SOON, "the setting", async || rig.count(told).await == 1).await;
    for _ in 0..4 {
        run(rig, "select pg_logical_emit_message(false, 'other', 'x')").await;
        run(rig, "select pg_switch_wal()").await;
    }
    let lost = format!(
        "select count(*) from pg_replication_slots where slot_name = '{}' and wal_status = 'lost'",
        rig.config.slot
    );
    until(SOON, "the end of the slot", async || {
        // The checkpointer may be told of the setting later than a session.
        run(rig, "checkpoint").await;
        rig.count(&lost).await == 1
    })
    .await;
    server.set("max_slot_wal_keep_size", "-1").unwrap();
    server.reload().unwrap();
}

/// The server gives the slot up under a relay that cannot publish.
async fn lost(server: &Postgres) {
    let mut rig = rig_on(server).await;
    let mut relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    rig.world.hold(true);
    rig.insert("a", &["2"]).await;
    status(&relay, "the event on its way", |status| status.outstanding == 1).await;
    give_up_the_slot(server, &rig).await;
    let ended = tokio::time::timeout(SOON, relay.finished()).await.expect("it ends");
    let text = ended.unwrap_err().to_string();
    let confirmed = rig.slot_position().await.to_string();
    let expected = ["is lost", "max_slot_wal_keep_size", "drop the slot", "initial = \"publish\""];
    for part in expected.iter().chain(&[confirmed.as_str()]) {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
    refused(&rig, &expected).await;
    rig.world.hold(false);
    run(&rig, DROP).await;
    run(&rig, FORGET).await;
    rig.config.initial = Some(Initial::Publish);
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(3).await, ["1", "1", "2"]);
    stop(relay).await;
}

async fn every_state(version: u32) {
    let server = server_of(version);
    in_use(server).await;
    missing(server).await;
    ahead_or_made_anew(server).await;
    lost(server).await;
    gone_back(server).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn every_state_of_a_slot_on_postgres_14() {
    every_state(14).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn every_state_of_a_slot_on_postgres_15() {
    every_state(15).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn every_state_of_a_slot_on_postgres_16() {
    every_state(16).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn every_state_of_a_slot_on_postgres_17() {
    every_state(17).await;
}

#[tokio::test]
async fn every_state_of_a_slot_on_postgres_18() {
    every_state(18).await;
}

#[tokio::test]
async fn a_slot_that_was_given_up_for_being_idle_is_refused_with_that_reason() {
    let server = server_of(18);
    let rig = rig_on(server).await;
    left_in_order(&rig).await;
    server.set("idle_replication_slot_timeout", "1s").unwrap();
    server.reload().unwrap();
    let lost = format!(
        "select count(*) from pg_replication_slots \
         where slot_name = '{}' and invalidation_reason = 'idle_timeout'",
        rig.config.slot
    );
    until(SOON, "the end of the slot", async || {
        run(&rig, "checkpoint").await;
        rig.count(&lost).await == 1
    })
    .await;
    refused(&rig, &["is lost", "idle_replication_slot_timeout", "drop the slot"]).await;
}
