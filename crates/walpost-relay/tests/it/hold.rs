//! Whose the slot is, and on which server.

use tokio::net::{TcpListener, TcpStream};
use walpost_relay::{Initial, RunningRelay};
use walpost_testkit::{Process, local::Postgres, until};

use crate::rig::{Rig, SOON, status, stop};

async fn ends_with(mut relay: RunningRelay, expected: &[&str]) {
    let ended = tokio::time::timeout(SOON, relay.finished()).await.expect("it refuses to go on");
    let text = ended.unwrap_err().to_string();
    for part in expected {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
}

/// A relay that has looked at its slot and does not hold it yet: it publishes
/// what was there before.
async fn loading() -> (Rig, RunningRelay) {
    let mut rig = Rig::new().await;
    rig.config.initial = Some(Initial::Publish);
    rig.insert("a", &["1"]).await;
    rig.world.hold(true);
    let relay = rig.start();
    status(&relay, "the row on its way", |status| status.outstanding == 1).await;
    rig.insert("a", &["2"]).await;
    (rig, relay)
}

#[tokio::test]
async fn a_slot_that_was_advanced_before_it_was_held_is_refused() {
    let (rig, relay) = loading().await;
    let advance = "select pg_replication_slot_advance($1, pg_current_wal_lsn())";
    rig.client.query(advance, &[&rig.config.slot]).await.unwrap();
    rig.world.hold(false);
    ends_with(relay, &["ahead of", "events in between may be missing"]).await;
    assert_eq!(rig.world.values(), ["1"]);
}

#[tokio::test]
async fn a_slot_that_was_made_anew_before_it_was_held_is_refused() {
    let (rig, relay) = loading().await;
    rig.client.query("select pg_drop_replication_slot($1)", &[&rig.config.slot]).await.unwrap();
    let create = "select pg_create_logical_replication_slot($1, 'pgoutput')";
    rig.client.query(create, &[&rig.config.slot]).await.unwrap();
    rig.world.hold(false);
    ends_with(relay, &["ahead of", "created it anew"]).await;
    assert_eq!(rig.world.values(), ["1"]);
}

#[tokio::test]
async fn a_slot_that_somebody_else_still_reads_is_taken_over_where_it_is_left() {
    let server = Postgres::builder().setting("wal_level", "logical").start().unwrap();
    let server = Box::leak(Box::new(server));
    let mut rig = Rig::on_local(server).await;
    rig.config.initial = Some(Initial::Skip);
    let create = "select pg_create_logical_replication_slot($1, 'pgoutput')";
    rig.client.query(create, &[&rig.config.slot]).await.unwrap();
    let reader = Process::start(
        server.client_program("pg_recvlogical").unwrap(),
        [
            "-d",
            &server.conninfo("postgres"),
            "--slot",
            &rig.config.slot,
            "--start",
            "--file=-",
            "--fsync-interval=1",
            "--status-interval=1",
            "--option=proto_version=1",
            "--option=publication_names=walpost",
        ],
        [("PGCONNECT_TIMEOUT", "10")],
    );
    let active = format!(
        "select count(*) from pg_replication_slots where slot_name = '{}' and active",
        rig.config.slot
    );
    until(SOON, "the other reader", async || rig.count(&active).await == 1).await;
    let relay = rig.start();
    crate::rig::phase(&relay, &walpost_relay::Phase::Standby).await;
    assert_eq!(rig.count("select count(*) from walpost.checkpoint").await, 0);
    rig.insert("a", &["1"]).await;
    let inserted = rig.lsn("select pg_current_wal_insert_lsn()::text").await;
    until(SOON, "the other reader's progress", async || rig.slot_position().await >= inserted)
        .await;
    reader.kill();
    rig.insert("a", &["2"]).await;
    assert_eq!(rig.landed(1).await, ["2"]);
    stop(relay).await;
}

/// Connects clients in turn to one and the other, as a name with two addresses
/// may.
async fn in_turn(ports: [u16; 2]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        for target in ports.into_iter().cycle() {
            let (mut client, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
                // Its end is the clients' affair.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn two_connections_to_two_servers_are_refused() {
    let mut rig = Rig::new().await;
    rig.config.start_timeout_ms = Some(1_000);
    // A server of its own: the shared one of any version may be that of the rig.
    let server = Postgres::builder().throwaway().start().unwrap();
    let other = walpost_postgres::Database::parse(&server.url("postgres")).unwrap();
    let dbname = rig.database.dbname().to_owned();
    let client = other.connect().await.unwrap();
    client.batch_execute(&format!("create database \"{dbname}\"")).await.unwrap();
    let port = in_turn([rig.database.first_target().1, other.first_target().1]).await;
    let user = rig.database.user().to_owned();
    let rig = rig.connecting_to(&format!("host=127.0.0.1 port={port} user={user} dbname={dbname}"));
    let refusal = rig.refusal().await;
    assert!(refusal.contains("the replication connection leads to database"), "{refusal}");
    assert!(refusal.contains("name one server"), "{refusal}");
}
