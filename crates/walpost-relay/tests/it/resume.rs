//! What is published already is not published again.

use std::collections::BTreeSet;

use tokio_postgres::Client;
use walpost_event::{Header, Message};
use walpost_relay::{Initial, POSITION_HEADER, RunningRelay};
use walpost_testkit::until;

use crate::rig::{Rig, SOON, interrupt, status, stop};

/// No checkpoint is written but those that name a place.
async fn rig_without_checkpoints() -> Rig {
    let mut rig = Rig::new().await;
    rig.config.checkpoint_interval_ms = 60_000;
    rig.config.settle_ms = 0;
    rig
}

/// From here on no checkpoint is written, until it commits.
async fn without_checkpoints(rig: &Rig) -> Client {
    let blocker = rig.database.connect().await.unwrap();
    blocker.batch_execute("begin; select from walpost.checkpoint for update").await.unwrap();
    blocker
}

/// Ends the relay, and nothing of it writes a checkpoint afterwards.
async fn end_unnoted(rig: &Rig, relay: RunningRelay, blocker: Client) {
    drop(relay);
    rig.released().await;
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
               where wait_event_type = 'Lock' and query like '%walpost%checkpoint%' \
               and datname = current_database()";
    rig.count(end).await;
    blocker.batch_execute("commit").await.unwrap();
}

#[tokio::test]
async fn what_was_acknowledged_and_not_noted_is_not_sent_again() {
    let rig = rig_without_checkpoints().await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2", "3"]).await;
    rig.landed(3).await;
    for round in 4..8 {
        interrupt(&rig, &relay).await;
        let value = round.to_string();
        rig.insert("a", &[&value]).await;
        until(SOON, "the next event", async || rig.world.values().contains(&value)).await;
    }
    assert_eq!(rig.world.values(), ["1", "2", "3", "4", "5", "6", "7"]);
    assert!(rig.world.read_back() >= 3 + 4 + 5 + 6);
    stop(relay).await;
}

#[tokio::test]
async fn without_positions_the_id_tells() {
    let mut rig = rig_without_checkpoints().await;
    rig.config.position_header = false;
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2"]).await;
    rig.landed(2).await;
    interrupt(&rig, &relay).await;
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.landed(3).await, ["1", "2", "3"]);
    stop(relay).await;
}

#[tokio::test]
async fn an_event_that_is_missing_between_two_that_landed_is_sent() {
    let rig = rig_without_checkpoints().await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2", "3"]).await;
    rig.landed(3).await;
    rig.world.lose("2");
    interrupt(&rig, &relay).await;
    assert_eq!(rig.landed(3).await, ["1", "3", "2"]);
    stop(relay).await;
}

#[tokio::test]
async fn records_of_others_hide_no_event() {
    let rig = rig_without_checkpoints().await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    let landed = rig.landed(1).await;
    assert_eq!(landed, ["1"]);
    rig.world.hold(true);
    rig.insert("a", &["2"]).await;
    status(&relay, "the event on its way", |status| status.outstanding == 1).await;
    let first = rig.world.landed().remove(0);
    // Of another history, at the very place where the next event stands.
    let position = text(&first, POSITION_HEADER);
    let (_, place) = position.split_once(':').unwrap();
    for other in [format!("00000000:{place}"), "nonsense".to_owned(), String::new()] {
        let mut foreign = first.clone();
        foreign.value = Some("foreign".into());
        for header in foreign.headers.iter_mut().filter(|header| &*header.name == POSITION_HEADER) {
            header.value = Some(other.clone().into());
        }
        rig.world.land(foreign);
    }
    rig.world.land(bare("foreign", "no id of ours"));
    let ids = "select id::text from walpost.outbox where payload = '2'";
    let id: String = rig.client.query_one(ids, &[]).await.unwrap().get(0);
    rig.world.land(bare("foreign", &id));
    interrupt(&rig, &relay).await;
    rig.world.hold(false);
    until(SOON, "the event", async || rig.world.values().contains(&"2".to_owned())).await;
    let own: Vec<String> =
        rig.world.values().into_iter().filter(|value| value != "foreign").collect();
    assert_eq!(own, ["1", "2"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_load_that_was_interrupted_repeats_and_loses_nothing_though_rows_are_deleted() {
    let mut rig = rig_without_checkpoints().await;
    rig.config.initial = Some(Initial::Publish);
    rig.config.drain_timeout_ms = 200;
    let values: Vec<String> = (0..300).map(|n: u32| n.to_string()).collect();
    for chunk in values.chunks(3) {
        rig.insert("a", &chunk.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    rig.world.hold_after(100);
    let relay = rig.start();
    until(SOON, "the first hundred", async || rig.world.values().len() >= 100).await;
    status(&relay, "more on its way", |status| status.outstanding > 0).await;
    stop(relay).await;
    let before = rig.world.count();
    assert!(before < 300, "{before} rows landed");
    // Shifts the ordinals of all others.
    rig.client.batch_execute("delete from walpost.outbox where payload = '7'").await.unwrap();
    rig.world.hold(false);
    let relay = rig.streaming().await;
    until(SOON, "the last row", async || rig.world.values().contains(&"299".to_owned())).await;
    let landed = rig.world.values();
    let distinct: BTreeSet<&String> = landed.iter().collect();
    assert_eq!((landed.len(), distinct.len()), (300, 300));
    stop(relay).await;
}

#[tokio::test]
async fn a_checkpoint_leaves_little_to_read_back() {
    let mut rig = Rig::new().await;
    rig.config.settle_ms = 0;
    let relay = rig.streaming().await;
    let values: Vec<String> = (0..500).map(|n: u32| n.to_string()).collect();
    rig.insert("a", &values.iter().map(String::as_str).collect::<Vec<_>>()).await;
    rig.landed(500).await;
    let inserted = rig.lsn("select pg_current_wal_insert_lsn()::text").await;
    status(&relay, "the confirmation", |status| status.confirmed >= inserted).await;
    interrupt(&rig, &relay).await;
    rig.insert("a", &["500"]).await;
    rig.landed(501).await;
    assert_eq!((rig.world.values().len(), rig.world.read_back()), (501, 0));
    stop(relay).await;
}

#[tokio::test]
async fn nothing_is_sent_before_a_committed_checkpoint_names_the_place() {
    let rig = rig_without_checkpoints().await;
    let relay = rig.streaming().await;
    let blocker = rig.database.connect().await.unwrap();
    blocker.batch_execute("begin; select from walpost.checkpoint for update").await.unwrap();
    rig.insert("a", &["1"]).await;
    let waits = "select count(*) from pg_stat_activity \
                 where wait_event_type = 'Lock' and query like '%floors = $4%' \
                 and datname = current_database()";
    until(SOON, "the checkpoint waits", async || rig.count(waits).await == 1).await;
    status(&relay, "the event received", |status| status.oldest_pending_us.is_some()).await;
    assert_eq!(relay.status().borrow().outstanding, 0);
    assert!(rig.world.values().is_empty());
    blocker.batch_execute("commit").await.unwrap();
    assert_eq!(rig.landed(1).await, ["1"]);
    let floors =
        "select count(*) from walpost.checkpoint where floors #>> '{memory,floors,0}' = '0'";
    assert_eq!(rig.count(floors).await, 1);
    stop(relay).await;
}

#[tokio::test]
async fn a_table_that_is_added_between_two_starts_shifts_ordinals_and_hides_nothing() {
    let mut rig = rig_without_checkpoints().await;
    rig.config.drain_timeout_ms = 400;
    let second = "create table walpost.outbox_b (like walpost.outbox including all); \
                  alter publication walpost add table walpost.outbox_b";
    rig.client.batch_execute(second).await.unwrap();
    let relay = rig.streaming().await;
    rig.insert("a", &["0"]).await;
    rig.landed(1).await;
    let blocker = without_checkpoints(&rig).await;
    let row = |table: &str, value: u32| {
        format!(
            "insert into walpost.{table} (aggregatetype, aggregateid, type, payload) \
             values ('order', 'a', 'Placed', '{value}');"
        )
    };
    let both = format!("begin; {} {} commit", row("outbox_b", 100), row("outbox", 1));
    rig.client.batch_execute(&both).await.unwrap();
    assert_eq!(rig.landed(2).await, ["0", "1"]);
    end_unnoted(&rig, relay, blocker).await;

    rig.config.tables.push("walpost.outbox_b".parse().unwrap());
    rig.config.initial = Some(Initial::Skip);
    let relay = rig.streaming().await;
    let value = "100".to_owned();
    until(SOON, "the event of the new table", async || rig.world.values().contains(&value)).await;
    stop(relay).await;
}

const DETAILS: &str = "select coalesce(string_agg(detail, ' '), '') from walpost.parked";

/// Publishes what a statement writes, and ends before a checkpoint knows of it. What
/// the same relay makes of it with a lower limit, and that something follows.
async fn published_before_the_limit_was_lowered(
    position_header: bool,
    write: &str,
) -> (Rig, String) {
    let mut rig = rig_without_checkpoints().await;
    rig.config.position_header = position_header;
    rig.config.drain_timeout_ms = 400;
    let relay = rig.streaming().await;
    rig.insert("a", &["0"]).await;
    rig.landed(1).await;
    let blocker = without_checkpoints(&rig).await;
    rig.client.batch_execute(write).await.unwrap();
    rig.landed(2).await;
    end_unnoted(&rig, relay, blocker).await;

    rig.config.max_event_bytes = 100_000;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    until(SOON, "what follows", async || rig.world.values().contains(&"1".to_owned())).await;
    assert_eq!(rig.world.count(), 3);
    stop(relay).await;
    let parked = rig.client.query_one(DETAILS, &[]).await.unwrap().get(0);
    (rig, parked)
}

#[tokio::test]
async fn a_row_that_is_published_is_not_parked_when_less_is_taken_than_before() {
    let large = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                 values ('order', 'a', 'Placed', to_jsonb(repeat('x', 200000)))";
    for position_header in [true, false] {
        let (_rig, parked) = published_before_the_limit_was_lowered(position_header, large).await;
        assert_eq!(parked, "", "position_header {position_header}");
    }
}

/// Its id is in what was left out.
#[tokio::test]
async fn of_a_message_that_may_be_published_the_parked_row_says_so() {
    let large = "select pg_logical_emit_message(true, 'walpost', json_build_object('id', 'm1', \
                 'aggregatetype', 'order', 'aggregateid', 'a', 'type', 'Placed', \
                 'payload', repeat('x', 200000))::text)";
    let (rig, parked) = published_before_the_limit_was_lowered(true, large).await;
    assert_eq!(rig.count("select count(*) from walpost.parked").await, 1);
    assert!(parked.ends_with("a record with its position is published, maybe its own"), "{parked}");
}

#[tokio::test]
async fn only_a_stop_that_was_not_orderly_is_waited_for() {
    let mut rig = rig_without_checkpoints().await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    stop(relay).await;
    rig.released().await;
    let relay = rig.streaming().await;
    interrupt(&rig, &relay).await;
    rig.insert("a", &["2"]).await;
    rig.landed(2).await;
    stop(relay).await;
    rig.released().await;
    // The first start, where nothing is to be read, one after a stop, one after
    // an end.
    assert_eq!(rig.world.settled()[1..], [false, true]);

    rig.config.drain_timeout_ms = 400;
    let relay = rig.streaming().await;
    rig.world.hold(true);
    rig.insert("a", &["3"]).await;
    status(&relay, "the event on its way", |status| status.outstanding == 1).await;
    stop(relay).await;
    rig.released().await;
    rig.world.hold(false);
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(3).await, ["1", "2", "3"]);
    assert_eq!(rig.world.settled()[3..], [false, true], "a stop with something on its way");
    stop(relay).await;
}

fn text(message: &Message, header: &str) -> String {
    let header = message.headers.iter().find(|candidate| &*candidate.name == header).unwrap();
    String::from_utf8(header.value.clone().unwrap().to_vec()).unwrap()
}

/// A record of somebody who knows nothing of Walpost.
fn bare(value: &str, id: &str) -> Message {
    Message {
        topic: "memory".into(),
        partition: None,
        key: None,
        value: Some(value.to_owned().into()),
        headers: [Header { name: "id".into(), value: Some(id.to_owned().into()) }]
            .into_iter()
            .collect(),
        timestamp_ms: None,
    }
}
