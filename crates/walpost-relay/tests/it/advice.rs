//! What `check` says of settings that harm, and of a pooler in between.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use walpost_relay::Outcome;
use walpost_testkit::{local::Postgres, until};

use crate::rig::{Rig, SOON};

async fn assert_checked(rig: &Rig, name: &str, outcome: Outcome, part: &str) {
    let found = rig.checked(name).await;
    assert_eq!(found.0, outcome, "{found:?}");
    assert!(found.1.contains(part), "{found:?}");
}

#[tokio::test]
async fn settings_that_harm_are_warnings() {
    let server = Postgres::builder()
        .version(Some(18))
        .throwaway()
        .setting("idle_replication_slot_timeout", "1h")
        .start()
        .unwrap();
    let rig = Rig::on_local(Box::leak(Box::new(server))).await;
    use Outcome::{Ok, Warn};
    let standby = "select pg_create_physical_replication_slot('standby_1')";
    rig.client.batch_execute(standby).await.unwrap();
    assert_checked(&rig, "WAL limit", Warn, "unlimited").await;
    assert_checked(&rig, "idle slots", Warn, "is 3600 s").await;
    assert_checked(&rig, "failover", Warn, "synchronized_standby_slots is empty").await;
    assert_checked(&rig, "synchronous standbys", Ok, "none").await;
    assert_checked(&rig, "direct connection", Ok, "nothing").await;
    for (name, value) in [
        ("max_slot_wal_keep_size", "2GB"),
        ("idle_replication_slot_timeout", "0"),
        ("synchronized_standby_slots", "standby_1"),
        ("synchronous_standby_names", "ANY 1 (s1, walpost)"),
    ] {
        rig.client.batch_execute(&format!("alter system set {name} = '{value}'")).await.unwrap();
    }
    rig.client.batch_execute("select pg_reload_conf()").await.unwrap();
    until(SOON, "the new settings", async || rig.checked("WAL limit").await.0 == Ok).await;
    assert_checked(&rig, "WAL limit", Ok, "2048 MB").await;
    assert_checked(&rig, "idle slots", Ok, "off").await;
    assert!(!names(&rig).await.contains(&"failover"), "nothing to say");
    assert_checked(&rig, "synchronous standbys", Warn, "matches the relay").await;
}

async fn names(rig: &Rig) -> Vec<&'static str> {
    let results = walpost_relay::check(&rig.database, &rig.config, &rig.router).await;
    results.iter().map(|result| result.name).collect()
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn an_older_server_has_no_such_lines() {
    let rig = Rig::on(walpost_testkit::postgres_of(14)).await;
    let names = names(&rig).await;
    assert!(names.contains(&"WAL limit"), "{names:?}");
    assert!(!names.contains(&"idle slots") && !names.contains(&"failover"), "{names:?}");
}

/// Passes sessions on, and answers replication as PgBouncer does.
async fn pooler(target: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut startup = vec![0; client.read_u32().await.unwrap() as usize - 4];
                client.read_exact(&mut startup).await.unwrap();
                if startup.windows(11).any(|window| window == b"replication") {
                    let fields = b"SFATAL\0C08P01\0Munsupported startup parameter: replication\0\0";
                    client.write_u8(b'E').await.unwrap();
                    client.write_u32(fields.len() as u32 + 4).await.unwrap();
                    client.write_all(fields).await.unwrap();
                    return;
                }
                let mut server = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
                server.write_u32(startup.len() as u32 + 4).await.unwrap();
                server.write_all(&startup).await.unwrap();
                // Its end is the clients' affair.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn a_pooler_that_takes_no_replication_is_named() {
    let rig = Rig::new().await;
    let port = pooler(rig.database.first_target().1).await;
    let url = format!(
        "host=127.0.0.1 port={port} user={} dbname={} sslmode=disable",
        rig.database.user(),
        rig.database.dbname()
    );
    let rig = rig.connecting_to(&url);
    assert_checked(&rig, "direct connection", Outcome::Fail, "PgBouncer").await;
    assert_checked(&rig, "replication connection", Outcome::Fail, "unsupported startup").await;
}
