use tokio_postgres::Client;
use walpost_outbox::{
    Error, IdColumn, NewEvent, OutboxTable, PayloadColumn, Written, write, write_once,
};
use walpost_testkit::fresh_database;

use crate::{count, event, outbox};

async fn text(client: &Client, sql: &str) -> Option<String> {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn every_column_of_the_shipped_table_is_filled() {
    let (_database, mut client) = outbox().await;
    let tx = client.transaction().await.unwrap();
    let event = NewEvent::new("order", "Ünï '1'", "placed")
        .json(&[1, 2])
        .unwrap()
        .header("tenant", "a\"cme")
        .traceparent("00-0af7-b7ad-01")
        .tracestate("v=1")
        .idempotency_key("k");
    write(&tx, &OutboxTable::default(), &event).await.unwrap();
    tx.commit().await.unwrap();
    let row = "select concat_ws('|', aggregatetype, aggregateid, type, payload, headers, \
               traceparent, tracestate, idempotency_key) from walpost.outbox";
    assert_eq!(
        text(&client, row).await.unwrap(),
        r#"order|Ünï '1'|placed|[1, 2]|{"tenant": "a\"cme"}|00-0af7-b7ad-01|v=1|k"#
    );
}

/// `bytea` as PostgreSQL shows it.
fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\\x{digits}")
}

#[tokio::test]
async fn every_payload_has_its_form_in_every_column_or_is_refused() {
    const JSON: &str = r#"{"b": 1.0,  "a": "ü"}"#;
    const TEXT: &str = r#"a "b" \x41"#;
    const QUOTED: &str = r#""a \"b\" \\x41""#;
    let mut client = fresh_database().await.connect().await;
    let (json, words, bytes) = (hex(JSON.as_bytes()), hex(TEXT.as_bytes()), hex(&[0, 255]));
    let cases = [
        ("jsonb", PayloadColumn::Jsonb, [Some(r#"{"a": "ü", "b": 1.0}"#), Some(QUOTED), None]),
        ("json", PayloadColumn::Json, [Some(JSON), Some(QUOTED), None]),
        ("text", PayloadColumn::Text, [Some(JSON), Some(TEXT), None]),
        ("varchar(99)", PayloadColumn::Text, [Some(JSON), Some(TEXT), None]),
        ("bytea", PayloadColumn::Bytea, [Some(&json), Some(&words), Some(&bytes)]),
    ];
    for (kind, column, expected) in cases {
        let create = format!(
            "create table events (id uuid, aggregatetype text, aggregateid text, type text, \
             payload {kind})"
        );
        client.batch_execute(&create).await.unwrap();
        let table =
            OutboxTable::builder("public", "events").payload("payload", column).build().unwrap();
        let events = [event().raw_json(JSON).unwrap(), event().text(TEXT), event().bytes([0, 255])];
        for (event, expected) in events.iter().zip(expected) {
            let tx = client.transaction().await.unwrap();
            let written = write(&tx, &table, event).await;
            let Some(expected) = expected else {
                assert!(matches!(written, Err(Error::Payload { .. })), "{kind} {written:?}");
                continue;
            };
            written.unwrap();
            let row = tx.query_one("select payload::text from events", &[]).await.unwrap();
            assert_eq!(row.get::<_, &str>(0), expected, "{kind}");
        }
        let tx = client.transaction().await.unwrap();
        write(&tx, &table, &event()).await.unwrap();
        let row = tx.query_one("select payload::text from events", &[]).await.unwrap();
        assert_eq!(row.get::<_, Option<&str>>(0), None, "{kind}");
        tx.rollback().await.unwrap();
        client.batch_execute("drop table events").await.unwrap();
    }
}

#[tokio::test]
async fn odd_names_are_names_and_nothing_else() {
    let mut client = fresh_database().await.connect().await;
    client
        .batch_execute(
            r#"create table victim ();
            create schema "My.""Schema""";
            create table "My.""Schema"""."Tab'le; drop table victim; --" (
                "ID" bigint generated always as identity,
                "agg""type" text, "agg.id" text, "Türe" text, "pay load" text,
                "$1" jsonb, "select" text, "x,y" text, "k""; drop table victim; --" text unique
            )"#,
        )
        .await
        .unwrap();
    let table = OutboxTable::builder("My.\"Schema\"", "Tab'le; drop table victim; --")
        .id("ID", IdColumn::BigInt)
        .aggregate_type("agg\"type")
        .aggregate_id("agg.id")
        .event_type("Türe")
        .payload("pay load", PayloadColumn::Text)
        .headers("$1")
        .traceparent("select")
        .tracestate("x,y")
        .idempotency_key("k\"; drop table victim; --")
        .build()
        .unwrap();
    let tx = client.transaction().await.unwrap();
    let event = NewEvent::new("'; drop table victim; --", "$1", "\"")
        .text("t")
        .header("h", "'")
        .traceparent("p")
        .tracestate("s")
        .idempotency_key("k'");
    let first = write_once(&tx, &table, &event).await.unwrap();
    let again = write_once(&tx, &table, &event).await.unwrap();
    assert_eq!(again, Written::AlreadyWritten(first.id().clone()));
    tx.commit().await.unwrap();
    let row = r#"select concat_ws('|', "ID", "agg""type", "agg.id", "Türe", "pay load", "$1",
        "select", "x,y", "k""; drop table victim; --")
        from "My.""Schema"""."Tab'le; drop table victim; --""#;
    assert_eq!(
        text(&client, row).await.unwrap(),
        "1|'; drop table victim; --|$1|\"|t|{\"h\": \"'\"}|p|s|k'"
    );
    assert_eq!(count(&client, "victim").await, 0);
}

#[tokio::test]
async fn further_columns_take_their_types_text_form_and_else_their_default() {
    let mut client = fresh_database().await.connect().await;
    client
        .batch_execute(
            "create type colour as enum ('red', 'green');
             create table events (id uuid, aggregatetype text, aggregateid text, type text, \
             payload jsonb, headers jsonb not null default '{}', tenant int default 7, \
             colour colour, at timestamptz)",
        )
        .await
        .unwrap();
    let table = OutboxTable::builder("public", "events").headers("headers").build().unwrap();
    let tx = client.transaction().await.unwrap();
    let full = event().column("tenant", "8").column("colour", "red").column("at", "2026-01-02Z");
    walpost_outbox::write_all(&tx, &table, &[full, event()]).await.unwrap();
    let error = write(&tx, &table, &event().column("colour", "secret")).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    let expected = "writing to public.events was refused (ERROR 22P02 (invalid text \
                    representation), full text in the server's log) for column \"colour\"; the \
                    value does not fit the type of its column: compare the table with its \
                    OutboxTable, and with what NewEvent::column was given";
    assert_eq!(error.to_string(), expected);
    drop(tx);
    let tx = client.transaction().await.unwrap();
    let mut events = vec![event().column("colour", "red"); 1_100];
    events[1_050] = event().column("at", "secret").column("colour", "red");
    let error = walpost_outbox::write_all(&tx, &table, &events).await.unwrap_err();
    let Error::Refused { column, index, .. } = &error else { panic!("{error:?}") };
    assert_eq!((column.as_deref(), *index), (Some("at"), Some(1_050)));
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    drop(tx);
    let tx = client.transaction().await.unwrap();
    let error = write(&tx, &table, &event().column("color", "red")).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("\"color\"") && text.contains("NewEvent::column"), "{text}");
    drop(tx);
    let tx = client.transaction().await.unwrap();
    let full = event().column("tenant", "8").column("colour", "red").column("at", "2026-01-02Z");
    walpost_outbox::write_all(&tx, &table, &[full, event()]).await.unwrap();
    tx.commit().await.unwrap();
    let rows = client
        .query(
            "select concat_ws('|', headers, tenant, colour, at at time zone 'UTC') from events",
            &[],
        )
        .await
        .unwrap();
    let rows: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(rows, ["{}|8|red|2026-01-02 00:00:00", "{}|7"]);
}
