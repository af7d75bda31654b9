use walpost_relay::SourceKind;
use walpost_testkit::postgres_of;

use crate::rig::{Rig, stop};

async fn publishes_in_commit_order(rig: Rig) {
    let relay = rig.streaming().await;
    let other = rig.database.connect().await.unwrap();
    // Begun first, committed second.
    other.batch_execute("begin").await.unwrap();
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                  values ('order', 'b', 'Placed', '2')";
    other.batch_execute(insert).await.unwrap();
    rig.insert("a", &["1"]).await;
    other.batch_execute("commit").await.unwrap();
    rig.insert("a", &["3", "4", "5"]).await;
    assert_eq!(rig.landed(5).await, ["1", "2", "3", "4", "5"]);

    let messages = rig.world.landed();
    assert_eq!(&*messages[0].topic, "outbox.event.order");
    assert_eq!(messages[0].key.as_deref(), Some(b"a".as_slice()));
    let names: Vec<&str> = messages[0].headers.iter().map(|header| &*header.name).collect();
    assert_eq!(names, ["id", "walpost-position", "walpost-source"]);
    let position = |index: usize| messages[index].headers[1].value.clone().unwrap();
    let ordinal = |index| String::from_utf8(position(index).to_vec()).unwrap();
    assert!(ordinal(2).ends_with(":0") && ordinal(4).ends_with(":2"), "{}", ordinal(4));
    stop(relay).await;
}

#[tokio::test]
async fn the_native_source_publishes_in_commit_order() {
    publishes_in_commit_order(Rig::new().await).await;
}

#[tokio::test]
async fn the_pgwire_source_publishes_in_commit_order() {
    let mut rig = Rig::new().await;
    rig.config.source = SourceKind::Pgwire;
    publishes_in_commit_order(rig).await;
}

#[tokio::test]
async fn the_newest_server_works_alike() {
    publishes_in_commit_order(Rig::on(postgres_of(18)).await).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn the_oldest_server_works_alike() {
    publishes_in_commit_order(Rig::on(postgres_of(14)).await).await;
}

#[tokio::test]
async fn what_was_rolled_back_is_never_published() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    let insert = |value: &str| {
        format!(
            "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
             values ('order', 'a', 'Placed', '{value}');"
        )
    };
    rig.client.batch_execute(&format!("begin; {} rollback;", insert("1"))).await.unwrap();
    rig.client
        .batch_execute(&format!(
            "begin; {} savepoint s; {} rollback to s; {} commit;",
            insert("2"),
            insert("3"),
            insert("4")
        ))
        .await
        .unwrap();
    assert_eq!(rig.landed(2).await, ["2", "4"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_row_deleted_in_its_own_transaction_is_an_event() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    let sql = "begin; insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
               values ('order', 'a', 'Placed', '1'); delete from walpost.outbox; commit";
    rig.client.batch_execute(sql).await.unwrap();
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;
}

async fn inserts_alone_are_events(mut rig: Rig, source: SourceKind) {
    rig.config.source = source;
    let run = async |sql: &str| rig.client.batch_execute(sql).await.unwrap();
    run("alter publication walpost set (publish = 'insert, update, delete, truncate')").await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2"]).await;
    run("update walpost.outbox set payload = '9' where payload = '1'").await;
    run("delete from walpost.outbox where payload = '2'").await;
    rig.insert("a", &["3"]).await;
    run("truncate walpost.outbox").await;
    rig.insert("a", &["4"]).await;
    assert_eq!(rig.landed(4).await, ["1", "2", "3", "4"]);
    stop(relay).await;
}

#[tokio::test]
async fn of_a_publication_of_everything_inserts_alone_are_events() {
    inserts_alone_are_events(Rig::new().await, SourceKind::Native).await;
    inserts_alone_are_events(Rig::new().await, SourceKind::Pgwire).await;
    inserts_alone_are_events(Rig::on(postgres_of(18)).await, SourceKind::Native).await;
}

#[tokio::test]
async fn logical_messages_are_events_between_rows() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    let content = r#"{"id": "m1", "aggregatetype": "order", "aggregateid": "a", "type": "Placed", "payload": {"n":  1}}"#;
    let emit = "select pg_logical_emit_message(true, $1, $2)";
    rig.insert("a", &["1"]).await;
    rig.client.query(emit, &[&"walpost", &content]).await.unwrap();
    rig.client.query(emit, &[&"other", &"no event"]).await.unwrap();
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.landed(3).await, ["1", r#"{"n":  1}"#, "3"]);
    stop(relay).await;
}

#[tokio::test]
async fn one_large_transaction_and_many_small_ones_all_arrive_in_order() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    let sql = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
               select 'order', 'a', 'Placed', to_jsonb(n) from generate_series(1, 20000) n";
    rig.client.batch_execute(sql).await.unwrap();
    for n in 20_001..20_050 {
        rig.insert("a", &[&n.to_string()]).await;
    }
    let landed = rig.landed(20_049).await;
    let expected: Vec<String> = (1..20_050).map(|n: u32| n.to_string()).collect();
    assert!(landed == expected, "every event once and in order");
    stop(relay).await;
}

#[tokio::test]
async fn columns_may_be_added_and_dropped_mid_stream() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.client.batch_execute("alter table walpost.outbox add column tenant text").await.unwrap();
    rig.insert("a", &["2"]).await;
    rig.client.batch_execute("alter table walpost.outbox drop column headers").await.unwrap();
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.landed(3).await, ["1", "2", "3"]);
    stop(relay).await;
}
