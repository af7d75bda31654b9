use walpost_outbox::{Error, EventId, NewEvent, emit};
use walpost_testkit::{fresh_database, local::Postgres, postgres, postgres_of, unique_name};

use crate::{Slot, event};

/// The JSON of the one message that the slot has.
async fn message(slot: &Slot<'_>) -> String {
    let changes = slot.changes().await;
    let [change] = changes.as_slice() else { panic!("{changes:?}") };
    let (head, content) = change.split_once("content:").unwrap();
    assert!(head.starts_with("message: transactional: 1 prefix: walpost, sz: "), "{head}");
    content.to_owned()
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn a_message_is_decoded_as_it_was_written() {
    let database = fresh_database().await;
    let client = database.connect().await;
    let slot = Slot::create(&client).await;
    let mut writer = database.connect().await;
    let tx = writer.transaction().await.unwrap();
    let event = NewEvent::new("order", "Ü '1'", "placed")
        .raw_json("{\"b\": 1.0,  \"a\": null}")
        .unwrap()
        .header("tenant", "acme");
    let id = emit(&tx, "walpost", &event).await.unwrap();
    tx.commit().await.unwrap();
    let message = message(&slot).await;
    let head = format!(
        "{{\"id\":\"{id}\",\"aggregatetype\":\"order\",\"aggregateid\":\"Ü '1'\",\
         \"type\":\"placed\",\"headers\":{{\"tenant\":\"acme\"}},\"created_at\":\""
    );
    assert!(message.starts_with(&head), "{message}");
    assert!(message.ends_with("\",\"payload\":{\"b\": 1.0,  \"a\": null}}"), "{message}");
    let (_, rest) = message.split_once("\"created_at\":\"").unwrap();
    let (created_at, _) = rest.split_once('"').unwrap();
    assert!(created_at.ends_with('Z') && created_at.contains('T'), "{created_at}");
    let age = format!("select abs(extract(epoch from now() - '{created_at}'::timestamptz)) < 60");
    assert!(client.query_one(&age, &[]).await.unwrap().get::<_, bool>(0), "{created_at}");
    slot.drop().await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn ids_and_prefixes_of_ones_own_are_kept() {
    let database = fresh_database().await;
    let client = database.connect().await;
    let slot = Slot::create(&client).await;
    let mut writer = database.connect().await;
    for (id, text) in [(EventId::from(42), "{\"id\":42,"), ("ulid".into(), "{\"id\":\"ulid\",")] {
        let tx = writer.transaction().await.unwrap();
        assert_eq!(emit(&tx, "walpost", &event().id(id.clone())).await.unwrap(), id);
        tx.commit().await.unwrap();
        let message = message(&slot).await;
        assert!(message.starts_with(text), "{message}");
    }
    let tx = writer.transaction().await.unwrap();
    emit(&tx, "My 'prefix'", &event()).await.unwrap();
    tx.commit().await.unwrap();
    let changes = slot.changes().await;
    assert!(changes[0].contains("prefix: My 'prefix', sz:"), "{changes:?}");
    slot.drop().await;
}

#[tokio::test]
async fn a_database_of_another_encoding_emits_utf_8() {
    let name = unique_name("latin");
    let admin = fresh_database().await.connect().await;
    admin
        .batch_execute(&format!(
            "create database {name} template template0 encoding 'LATIN1' locale 'C'"
        ))
        .await
        .unwrap();
    let mut config: tokio_postgres::Config = postgres().url().parse().unwrap();
    config.dbname(&name);
    let (mut client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let slot = unique_name("latin");
    client
        .query("select pg_create_logical_replication_slot($1, 'pgoutput')", &[&slot])
        .await
        .unwrap();
    let tx = client.transaction().await.unwrap();
    emit(&tx, "walpost", &event().text("ü 漢")).await.unwrap();
    tx.commit().await.unwrap();
    client.batch_execute("create publication p").await.unwrap();
    let rows = client
        .query(
            "select data from pg_logical_slot_get_binary_changes($1, null, null, \
             'proto_version', '1', 'publication_names', 'p', 'messages', 'true')",
            &[&slot],
        )
        .await
        .unwrap();
    let found = rows
        .iter()
        .map(|row| row.get::<_, &[u8]>(0))
        .filter(|data| data[0] == b'M')
        .any(|data| data.ends_with("\"payload\":\"ü 漢\"}".as_bytes()));
    client.query("select pg_drop_replication_slot($1)", &[&slot]).await.unwrap();
    assert!(found);
}

#[tokio::test]
async fn where_nobody_could_read_it_nothing_is_emitted() {
    let server = tokio::task::spawn_blocking(|| {
        Postgres::builder().throwaway().setting("wal_level", "replica").start().unwrap()
    })
    .await
    .unwrap();
    let config: tokio_postgres::Config = server.url("postgres").parse().unwrap();
    let (mut client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let tx = client.transaction().await.unwrap();
    let error = emit(&tx, "walpost", &event()).await.unwrap_err();
    assert!(matches!(&error, Error::WalLevel { wal_level } if wal_level == "replica"), "{error:?}");
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn the_newest_and_the_oldest_server_take_it() {
    for major in [14, 18] {
        let database = postgres_of(major).fresh_database().await;
        let client = database.connect().await;
        let slot = Slot::create(&client).await;
        let mut writer = database.connect().await;
        let tx = writer.transaction().await.unwrap();
        emit(&tx, "walpost", &event().bytes([1, 2])).await.unwrap();
        tx.commit().await.unwrap();
        let message = message(&slot).await;
        let tail = "\"payload_encoding\":\"base64\",\"payload\":\"AQI=\"}";
        assert!(message.ends_with(tail), "{message}");
        slot.drop().await;
    }
}

#[tokio::test]
async fn what_cannot_be_emitted_is_refused_before_anything_is_sent() {
    let mut client = fresh_database().await.connect().await;
    let tx = client.transaction().await.unwrap();
    let error = emit(&tx, "walpost", &event().idempotency_key("k")).await.unwrap_err();
    assert!(matches!(error, Error::KeyWithoutTable), "{error:?}");
    let error = emit(&tx, "", &event()).await.unwrap_err();
    assert!(matches!(error, Error::Name { what: "prefix", .. }), "{error:?}");
    // The transaction is none the worse.
    emit(&tx, "walpost", &event()).await.unwrap();
}
