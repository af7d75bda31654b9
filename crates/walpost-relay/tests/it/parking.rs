//! What is parked, why, and what its row keeps.

use serde_json::Value;
use walpost_relay::ParkMode;
use walpost_testkit::until;

use crate::rig::{Rig, SOON, stop};

/// Waits until the reasons of the parked rows, in the order of the stream, are
/// these.
pub(crate) async fn parked(rig: &Rig, reasons: &str) {
    let sql = "select coalesce(string_agg(reason, ' ' order by commit_lsn, ordinal), '') \
               from walpost.parked";
    let mut found = String::new();
    until(SOON, &format!("parked rows {reasons:?}"), async || {
        found = rig.client.query_one(sql, &[]).await.unwrap().get(0);
        found.split_whitespace().count() >= reasons.split_whitespace().count()
    })
    .await;
    assert_eq!(found, reasons);
}

/// So that an event can be without a route.
pub(crate) async fn allow_no_type(rig: &Rig) {
    let sql = "alter table walpost.outbox alter aggregatetype drop not null";
    rig.client.batch_execute(sql).await.unwrap();
}

/// One text of the only row.
async fn kept(rig: &Rig, expression: &str) -> Option<String> {
    let sql = format!("select ({expression})::text from walpost.parked");
    rig.client.query_one(&sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn an_event_without_a_route_is_parked_and_its_aggregate_waits() {
    let rig = Rig::new().await;
    allow_no_type(&rig).await;
    let relay = rig.streaming().await;
    let lost_route = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                      values (null, 'a', 'Placed', '1'), (null, 'a', 'Placed', '2'), \
                      ('order', 'a', 'Placed', '3')";
    rig.client.batch_execute(lost_route).await.unwrap();
    rig.insert("b", &["4"]).await;
    assert_eq!(rig.landed(2).await, ["3", "4"]);
    parked(&rig, "unroutable behind").await;
    stop(relay).await;

    // Neither parked again nor sent, whoever reads the WAL next.
    let relay = rig.streaming().await;
    rig.insert("b", &["5"]).await;
    assert_eq!(rig.landed(3).await, ["3", "4", "5"]);
    parked(&rig, "unroutable behind").await;
    stop(relay).await;
}

#[tokio::test]
async fn a_row_that_becomes_no_record_is_kept_whole_also_when_it_was_deleted_at_once() {
    let rig = Rig::new().await;
    allow_no_type(&rig).await;
    let relay = rig.streaming().await;
    let sql = "begin; insert into walpost.outbox (id, aggregateid, type, payload, headers) \
               values ('01890000-0000-7000-8000-000000000000', 'a', 'Placed', \
               '{\"of\": \"the customer\"}', '{\"h\": \"é\"}'); \
               delete from walpost.outbox; commit";
    rig.client.batch_execute(sql).await.unwrap();
    parked(&rig, "unroutable").await;

    let columns: Value = serde_json::from_str(&kept(&rig, "row_columns").await.unwrap()).unwrap();
    let column = |name: &str| {
        let mut named = columns.as_array().unwrap().iter().filter(|column| column["name"] == name);
        named.next().unwrap().clone()
    };
    assert_eq!(column("id")["text"], "01890000-0000-7000-8000-000000000000");
    assert_eq!(column("payload")["text"], "{\"of\": \"the customer\"}");
    assert_eq!(column("payload")["type_oid"], 3802);
    assert_eq!(column("headers")["text"], "{\"h\": \"é\"}");
    assert_eq!(column("aggregatetype").get("text"), None);
    let in_table = "select count(*) from pg_attribute \
                    where attrelid = 'walpost.outbox'::regclass and attnum > 0";
    assert_eq!(columns.as_array().unwrap().len() as i64, rig.count(in_table).await);
    assert_eq!(kept(&rig, "source").await.as_deref(), Some("walpost.outbox"));
    assert_eq!(kept(&rig, "topic").await, None);
    assert!(!kept(&rig, "detail").await.unwrap().contains("customer"));
    stop(relay).await;
}

#[tokio::test]
async fn a_row_beyond_the_limit_is_parked_with_its_size_and_the_rest_goes_on() {
    let mut rig = Rig::new().await;
    rig.config.max_event_bytes = 100_000;
    let relay = rig.streaming().await;
    let large = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                 select 'order', 'a', 'Placed', to_jsonb(string_agg(md5(n::text), '')) \
                 from generate_series(1, 10000) n";
    rig.client.batch_execute(large).await.unwrap();
    rig.insert("b", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    parked(&rig, "oversize").await;
    assert!(kept(&rig, "detail").await.unwrap().contains("max_event_bytes is 100000"));
    assert_eq!(kept(&rig, "event_id").await.unwrap().len(), 36);
    assert_eq!(kept(&rig, "aggregate_id").await.as_deref(), Some("a"));
    assert_eq!(kept(&rig, "source").await.as_deref(), Some("walpost.outbox"));
    assert_eq!(kept(&rig, "num_nonnulls(topic, row_columns, message_content)").await.unwrap(), "0");
    stop(relay).await;
}

#[tokio::test]
async fn what_the_sink_refuses_beforehand_is_parked_as_the_record_it_would_have_been() {
    let rig = Rig::new().await;
    rig.world.never("2");
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2", "3"]).await;
    rig.insert("b", &["4"]).await;
    assert_eq!(rig.landed(2).await, ["1", "4"]);
    parked(&rig, "rejected behind").await;
    assert_eq!(rig.world.sessions(), 1);
    let space = "select id::text from walpost.id_space where outbox is not null";
    let space: String = rig.client.query_one(space, &[]).await.unwrap().get(0);
    let sql = "select source, topic, convert_from(record_key, 'UTF8'), \
               convert_from(record_value, 'UTF8'), record_headers, attempts, event_id, \
               commit_lsn::text from walpost.parked order by ordinal";
    for (row, value) in rig.client.query(sql, &[]).await.unwrap().iter().zip(["2", "3"]) {
        let texts: Vec<&str> = (0..4).map(|index| row.get(index)).collect();
        assert_eq!(texts, ["walpost.outbox", "outbox.event.order", "a", value]);
        assert_eq!(row.get::<_, i32>(5), 0);
        let headers: Value = row.get(4);
        assert_eq!(headers[0]["name"], "id");
        assert_eq!(headers[0]["text"], row.get::<_, &str>(6));
        assert_eq!(headers[1]["name"], "walpost-position");
        let position = format!("{}:{}", row.get::<_, &str>(7), u32::from(value == "3") + 1);
        assert!(headers[1]["text"].as_str().unwrap().ends_with(&position), "{headers}");
        assert_eq!(headers[2]["text"], space);
    }
    stop(relay).await;
}

#[tokio::test]
async fn in_event_mode_nothing_waits_behind_a_parked_event() {
    let mut rig = Rig::new().await;
    rig.config.park = ParkMode::Event;
    rig.world.never("2");
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2", "3"]).await;
    assert_eq!(rig.landed(2).await, ["1", "3"]);
    parked(&rig, "rejected").await;
    stop(relay).await;
}

#[tokio::test]
async fn a_message_that_is_no_event_is_parked_with_its_content() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    rig.client
        .batch_execute("select pg_logical_emit_message(true, 'walpost', 'not json')")
        .await
        .unwrap();
    rig.insert("b", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    parked(&rig, "undecodable").await;
    let content = "convert_from(message_content, 'UTF8')";
    assert_eq!(kept(&rig, content).await.as_deref(), Some("not json"));
    assert_eq!(kept(&rig, "source").await.as_deref(), Some("walpost"));
    assert!(!kept(&rig, "detail").await.unwrap().contains("not json"));
    stop(relay).await;
}

#[tokio::test]
async fn a_message_without_a_route_is_parked_with_its_content() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    let content = r#"{"id": "m1", "aggregateid": "a", "type": "Placed", "payload": {"n":  1}}"#;
    let emit = "select pg_logical_emit_message(true, 'walpost', $1)";
    rig.client.query(emit, &[&content]).await.unwrap();
    parked(&rig, "unroutable").await;
    let kept_content = kept(&rig, "convert_from(message_content, 'UTF8')").await;
    assert_eq!(kept_content.as_deref(), Some(content));
    assert_eq!(kept(&rig, "event_id").await.as_deref(), Some("m1"));
    assert_eq!(kept(&rig, "aggregate_id").await.as_deref(), Some("a"));
    stop(relay).await;
}

#[tokio::test]
async fn names_that_no_text_column_takes_do_not_keep_an_event_from_being_parked() {
    let rig = Rig::new().await;
    rig.world.never("7");
    let relay = rig.streaming().await;
    let long = "x".repeat(20_000);
    let content = format!(
        r#"{{"id": "m\u0000", "aggregatetype": "or\u0000der", "aggregateid": "{long}", "type": "x", "payload": 7}}"#
    );
    let emit = "select pg_logical_emit_message(true, 'walpost', $1)";
    rig.client.query(emit, &[&content]).await.unwrap();
    rig.insert("b", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    parked(&rig, "rejected").await;
    assert_eq!(kept(&rig, "event_id").await.as_deref(), Some("m\u{fffd}"));
    assert_eq!(kept(&rig, "aggregate_id").await, Some(long));
    assert_eq!(kept(&rig, "topic").await.as_deref(), Some("outbox.event.or\u{fffd}der"));
    stop(relay).await;
}

#[tokio::test]
async fn a_message_beyond_the_limit_is_parked_and_never_passed_over() {
    let mut rig = Rig::new().await;
    rig.config.max_event_bytes = 100_000;
    let relay = rig.streaming().await;
    let emit = "select pg_logical_emit_message(true, $1, repeat('x', 200000))";
    rig.client.query(emit, &[&"walpost"]).await.unwrap();
    rig.client.query(emit, &[&"other"]).await.unwrap();
    rig.insert("b", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    parked(&rig, "oversize").await;
    assert_eq!(kept(&rig, "source").await.as_deref(), Some("walpost"));
    stop(relay).await;
}
