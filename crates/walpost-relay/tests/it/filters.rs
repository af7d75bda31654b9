//! What of the stream is an event, by pattern and operation; and what is passed
//! over aloud.

use walpost_relay::{Outcome, Phase, SkippedOperations, StreamOrigin};
use walpost_router::{MissingColumn, NameFilter, Pattern};
use walpost_testkit::{postgres_of, until};

use crate::rig::{Rig, SLOTS, SOON, phase, status, stop};

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::new(text).unwrap()).collect()
}

async fn emit(rig: &Rig, prefix: &str, payload: &str) {
    let sql = format!(
        "select pg_logical_emit_message(true, '{prefix}', \
         '{{\"id\": \"{prefix}\", \"aggregatetype\": \"order\", \"aggregateid\": \"a\", \
         \"type\": \"Placed\", \"payload\": \"{payload}\"}}')"
    );
    rig.client.batch_execute(&sql).await.unwrap();
}

#[tokio::test]
async fn messages_are_events_by_pattern_and_walposts_own_never() {
    for (filter, expected) in [
        (NameFilter::All, ["orders", "stock", "end"].as_slice()),
        (NameFilter::Include(patterns(&["ord.*", "end", "walpost.*"])), &["orders", "end"]),
        (NameFilter::Exclude(patterns(&["ord.*"])), &["stock", "end"]),
    ] {
        let mut rig = Rig::new().await;
        rig.config.message_prefixes = Vec::new();
        rig.config.message_filter = Some(filter);
        let relay = rig.streaming().await;
        for prefix in ["orders", "walpost-move", "stock", "end"] {
            emit(&rig, prefix, prefix).await;
        }
        assert_eq!(rig.landed(expected.len()).await, expected);
        stop(relay).await;
        assert_eq!(rig.world.values(), expected);
    }
}

#[tokio::test]
async fn a_column_that_is_not_read_is_not_published_and_one_that_is_needed_is_refused() {
    let mut rig = Rig::new().await;
    rig.client.batch_execute("alter table walpost.outbox add column secret text").await.unwrap();
    rig.router.additional_placement = Some("secret:header".to_owned());
    rig.router.additional_missing = MissingColumn::Ignore;
    rig.config.columns = NameFilter::Exclude(patterns(&[r"walpost\.outbox\.secret"]));
    let relay = rig.streaming().await;
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload, secret) \
                  values ('order', 'a', 'Placed', '1', 'hunter2')";
    rig.client.batch_execute(insert).await.unwrap();
    rig.landed(1).await;
    let names: Vec<String> =
        rig.world.landed()[0].headers.iter().map(|header| header.name.to_string()).collect();
    assert!(names.iter().all(|name| name != "secret") && names.len() > 1, "{names:?}");
    stop(relay).await;
    rig.config.columns = NameFilter::Exclude(patterns(&[r"walpost\.outbox\.payload"]));
    let (outcome, said) = rig.checked("outbox table").await;
    assert!(outcome == Outcome::Fail && said.contains("is not read"), "{said}");
    assert!(rig.refusal().await.contains("column \"payload\""));
}

#[tokio::test]
async fn inserts_that_are_skipped_are_no_events_and_rows_from_before_are() {
    let mut rig = Rig::new().await;
    rig.config.initial = Some(walpost_relay::Initial::Publish);
    rig.config.skipped = SkippedOperations { insert: true, update: true };
    rig.insert("a", &["1"]).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["2"]).await;
    emit(&rig, "walpost", "3").await;
    assert_eq!(rig.landed(2).await, ["1", "3"]);
    stop(relay).await;
    // The slot has passed what is no event.
    let relay = rig.streaming().await;
    emit(&rig, "walpost", "4").await;
    assert_eq!(rig.landed(3).await, ["1", "3", "4"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_signal_ends_the_relay_and_says_how_to_go_on() {
    let mut rig = Rig::new().await;
    let signals = "create table signals (id text, type text, data text)";
    rig.client.batch_execute(signals).await.unwrap();
    rig.config.signal_table = Some("public.signals".parse().unwrap());
    rig.config.publication = "made".to_owned();
    let mut relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    let signal = "insert into signals values ('1', 'execute-snapshot', '{}')";
    rig.client.batch_execute(signal).await.unwrap();
    let ended = tokio::time::timeout(SOON, relay.finished()).await.expect("it ends");
    let said = ended.unwrap_err().to_string();
    assert!(said.contains("public.signals") && said.contains("not supported"), "{said}");
    // It is not forgotten by a restart; without the setting it is no event.
    rig.insert("a", &["2"]).await;
    assert!(rig.refusal().await.contains("not supported"));
    rig.config.signal_table = None;
    let relay = rig.streaming().await;
    rig.landed(2).await;
    stop(relay).await;
    assert_eq!(rig.world.values(), ["1", "2"]);
}

#[tokio::test]
async fn a_signal_table_that_is_not_published_is_told() {
    let mut rig = Rig::new().await;
    stop(rig.streaming().await).await;
    rig.client.batch_execute("create table signals (id text)").await.unwrap();
    rig.config.signal_table = Some("public.signals".parse().unwrap());
    let (outcome, said) = rig.checked("publication").await;
    assert!(outcome == Outcome::Ok && said.contains("seen by nobody"), "{said}");
}

#[tokio::test]
async fn a_publication_is_made_as_its_rows_are_to_be_named() {
    for via_root in [true, false] {
        let mut rig = Rig::new().await;
        rig.config.publish_via_partition_root = via_root;
        rig.config.publication = "made".to_owned();
        stop(rig.streaming().await).await;
        let found = "select count(*) from pg_publication where pubname = 'made' and pubviaroot";
        assert_eq!(rig.count(found).await, i64::from(via_root));
    }
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn an_origin_is_passed_on_where_the_server_knows_it() {
    let mut old = Rig::on(postgres_of(15)).await;
    old.config.stream_origin = Some(StreamOrigin::None);
    assert!(old.refusal().await.contains("needs PostgreSQL 16"));
    let (outcome, said) = old.checked("publication").await;
    assert!(outcome == Outcome::Fail && said.contains("needs PostgreSQL 16"), "{said}");

    let mut rig = Rig::on(postgres_of(18)).await;
    rig.config.stream_origin = Some(StreamOrigin::None);
    let relay = rig.streaming().await;
    // As logical replication marks what it has brought.
    let replicated = "select pg_replication_origin_create('elsewhere'); \
                      select pg_replication_origin_session_setup('elsewhere')";
    rig.client.batch_execute(replicated).await.unwrap();
    rig.insert("a", &["1"]).await;
    rig.client.batch_execute("select pg_replication_origin_session_reset()").await.unwrap();
    rig.insert("a", &["2"]).await;
    assert_eq!(rig.landed(1).await, ["2"]);
    stop(relay).await;
    rig.client.batch_execute("select pg_replication_origin_drop('elsewhere')").await.unwrap();
}

#[tokio::test]
async fn a_slot_that_somebody_else_moves_is_told_nothing_and_nothing_comes_twice() {
    let mut rig = Rig::new().await;
    rig.config.confirm_slot = false;
    let relay = rig.streaming().await;
    let before = rig.slot_position().await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    let written = "select count(*) from walpost.checkpoint c join pg_replication_slots s \
                   on s.slot_name = c.slot where c.confirmed_lsn > s.confirmed_flush_lsn";
    until(SOON, "a checkpoint", async || rig.count(written).await == 1).await;
    stop(relay).await;
    rig.released().await;
    let relay = rig.streaming().await;
    rig.insert("a", &["2"]).await;
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    status(&relay, "all of it is done", |status| status.outstanding == 0).await;
    stop(relay).await;
    rig.released().await;
    assert_eq!(rig.slot_position().await, before);
    // Whoever moves it ahead of what is published is told, unless that is meant.
    rig.insert("a", &["3"]).await;
    let advance =
        format!("select pg_replication_slot_advance('{}', pg_current_wal_lsn())", rig.config.slot);
    rig.client.batch_execute(&advance).await.unwrap();
    assert!(rig.refusal().await.contains("ahead of"));
    rig.config.accept_advanced_slot = true;
    let relay = rig.streaming().await;
    rig.insert("a", &["4"]).await;
    assert_eq!(rig.landed(3).await, ["1", "2", "4"]);
    phase(&relay, &Phase::Streaming).await;
    stop(relay).await;
}

#[tokio::test]
async fn a_stop_that_drops_the_slot_loses_nothing_where_the_table_tells_what_came_since() {
    let mut rig = Rig::new().await;
    rig.config.drop_slot_on_stop = true;
    for at in 1..4 {
        let relay = rig.streaming().await;
        rig.insert("a", &[&format!("{at}1")]).await;
        rig.landed(at * 2 - 1).await;
        stop(relay).await;
        assert_eq!(rig.count(SLOTS).await, 0);
        rig.insert("a", &[&format!("{at}2")]).await;
    }
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(6).await, ["11", "12", "21", "22", "31", "32"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_stop_that_drops_the_slot_goes_on_anew_where_no_table_tells() {
    let mut rig = Rig::new().await;
    rig.client
        .batch_execute(
            "create table events (id uuid default gen_random_uuid(), aggregatetype text, \
             aggregateid text, type text, payload text)",
        )
        .await
        .unwrap();
    rig.config.tables = vec!["public.events".parse().unwrap()];
    rig.config.publication = "made".to_owned();
    rig.config.drop_slot_on_stop = true;
    let insert = |value: &str| {
        format!(
            "insert into events (aggregatetype, aggregateid, type, payload) \
             values ('order', 'a', 'Placed', '{value}')"
        )
    };
    let relay = rig.streaming().await;
    rig.client.batch_execute(&insert("1")).await.unwrap();
    rig.landed(1).await;
    stop(relay).await;
    rig.client.batch_execute(&insert("lost")).await.unwrap();
    assert_eq!(rig.checked("slot").await.0, Outcome::Warn);
    let relay = rig.streaming().await;
    rig.client.batch_execute(&insert("2")).await.unwrap();
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_session_begins_with_its_statements_or_not_at_all() {
    let mut rig = Rig::new().await;
    let begin = |statements: &[&str], rig: &Rig| {
        let statements = statements.iter().map(|text| (*text).to_owned()).collect();
        rig.database.clone().with_initial_statements(statements)
    };
    let plain = rig.database.clone();
    rig.database = begin(&["set application_name = 'begun'", "set work_mem = '5MB'"], &rig);
    let relay = rig.streaming().await;
    let begun = "select count(*) from pg_stat_activity where datname = current_database() \
                 and application_name = 'begun'";
    assert!(rig.count(begun).await > 0);
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    stop(relay).await;
    rig.database = plain;
    rig.database = begin(&["select 1", "set no_such_setting = 'hunter2'"], &rig);
    let refusal = rig.refusal().await;
    assert!(refusal.contains("statement 2 at the beginning of a session"), "{refusal}");
    assert!(!refusal.contains("hunter2"), "{refusal}");
}
