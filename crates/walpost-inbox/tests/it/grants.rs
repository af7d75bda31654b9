//! Roles have what `inbox_grant` gives them, and no payload with it.

use tokio_postgres::{Client, NoTls, error::SqlState};
use walpost_inbox::{Error, NewEvent};
use walpost_testkit::unique_name;

use crate::support::World;

/// A session of a new role that was granted `kind`, and something else before.
pub(crate) async fn role(world: &World, kind: &str, before: &str) -> Client {
    let role = unique_name(kind);
    let before = before.replace("$role", &role);
    let sql = format!(
        "create role {role} login password 'x'; {before}; \
         select walpost.inbox_grant('{kind}', '{role}')"
    );
    world.client.batch_execute(&sql).await.unwrap();
    let mut config = world.database.config();
    config.user(&role).password("x");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn is_denied(client: &Client, sql: &str) -> bool {
    match client.batch_execute(sql).await {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{sql}: {error:?}");
            true
        }
    }
}

#[tokio::test]
async fn a_reader_sees_everything_but_payloads() {
    let world = World::new().await;
    let _ = world.insert(&NewEvent::new("evt_1", "paid", *b"s3cr3t")).await;
    // What the role had before is gone.
    let reader = role(&world, "reader", "grant all on walpost.inbox to $role").await;
    for sql in [
        "select payload from walpost.inbox",
        "select payload_hash from walpost.inbox",
        "select * from walpost.inbox",
        "select count(*) from walpost.inbox where payload is not null",
        "select i from walpost.inbox i",
        "update walpost.inbox set processing_state = 'ignored'",
        "delete from walpost.inbox",
        "insert into walpost.inbox (event_id, event_type, payload) values ('a', 't', 'p')",
        "update walpost.inbox_window set dedup_window = '1 day'",
    ] {
        assert!(is_denied(&reader, sql).await, "{sql}");
    }
    let row = reader
        .query_one("select event_id, processing_state, payload_bytes from walpost.inbox", &[])
        .await
        .unwrap();
    assert_eq!((row.get(0), row.get(1), row.get(2)), ("evt_1", "pending", 6_i32));
}

#[tokio::test]
async fn a_receiver_inserts_and_reads_no_payload() {
    let world = World::new().await;
    let mut receiver = role(&world, "receiver", "").await;
    let event = NewEvent::new("evt_1", "paid", *b"s3cr3t");
    for _ in 0..2 {
        let tx = receiver.transaction().await.unwrap();
        let _ = world.inbox.insert_once(&tx, &event).await.unwrap();
        tx.commit().await.unwrap();
    }
    for sql in [
        "select payload from walpost.inbox",
        "update walpost.inbox set processing_state = 'ignored'",
        "delete from walpost.inbox",
    ] {
        assert!(is_denied(&receiver, sql).await, "{sql}");
    }
    // Whoever has no grant is told which one to ask for.
    let mut reader = role(&world, "reader", "").await;
    let tx = reader.transaction().await.unwrap();
    let error = world.inbox.insert_once(&tx, &event).await.unwrap_err();
    assert!(matches!(error, Error::Denied { kind: "receiver", .. }), "{error:?}");
    assert!(error.to_string().contains("inbox_grant('receiver'"), "{error}");
}
