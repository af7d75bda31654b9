use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use walpost_relay::{Initial, Outcome, Phase};
use walpost_testkit::{postgres_of, until};

use crate::{
    proven::{open_transaction, proven},
    rig::{Rig, SLOTS, SOON, phase, status, stop},
};

#[tokio::test]
async fn rows_that_no_slot_has_seen_need_a_decision() {
    let rig = Rig::new().await;
    rig.insert("a", &["1"]).await;
    let (outcome, detail) = rig.checked("first start").await;
    assert_eq!(outcome, Outcome::Fail);
    let refusal = rig.refusal().await;
    assert!(refusal.starts_with(&detail), "{refusal}");
    assert!(refusal.contains("initial = \"publish\""), "{refusal}");
    assert_eq!(rig.count(SLOTS).await, 0, "a refusal leaves no slot behind");
}

#[tokio::test]
async fn skip_leaves_them_and_publish_sends_them_first() {
    for (initial, expected) in [(Initial::Skip, vec!["3"]), (Initial::Publish, vec!["1", "2", "3"])]
    {
        let mut rig = Rig::new().await;
        rig.config.initial = Some(initial);
        rig.insert("a", &["1", "2"]).await;
        let relay = rig.streaming().await;
        rig.insert("a", &["3"]).await;
        assert_eq!(rig.landed(expected.len()).await, expected, "{initial:?}");
        stop(relay).await;
    }
}

#[tokio::test]
async fn an_interrupted_load_goes_on_with_the_same_rows() {
    let mut rig = Rig::new().await;
    rig.config.initial = Some(Initial::Publish);
    rig.config.drain_timeout_ms = 500;
    let values: Vec<String> = (0..2500).map(|n| n.to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    rig.insert("a", &values).await;
    rig.world.hold(true);
    let relay = rig.start();
    phase(&relay, &Phase::Loading).await;
    until(SOON, "a session of the sink", async || rig.world.sessions() == 1).await;
    // Not ours to load: it comes from the stream.
    rig.insert("b", &["-1"]).await;
    stop(relay).await;
    assert_eq!(rig.world.values().len(), 0, "what is interrupted has brought nothing");
    rig.world.hold(false);

    let relay = rig.streaming().await;
    until(SOON, "the late row", async || rig.world.values().contains(&"-1".to_owned())).await;
    let landed = rig.world.values();
    for value in values {
        assert!(landed.iter().any(|seen| seen == value), "{value} is missing");
    }
    assert_eq!(landed.iter().filter(|value| *value == "-1").count(), 1);
    stop(relay).await;
}

#[tokio::test]
async fn a_slot_whose_first_moments_nobody_noted_is_made_again() {
    let mut rig = Rig::new().await;
    rig.config.initial = Some(Initial::Publish);
    rig.insert("a", &["1"]).await;
    // As a relay leaves it that dies between CREATE_REPLICATION_SLOT and its
    // own note of it.
    rig.client
        .execute(
            "insert into walpost.checkpoint (pipeline, token, generation, system_id, timeline, \
             slot, confirmed_lsn, initial) select 'shop', gen_random_uuid(), 7, \
             system_identifier::text, 1, $1, '0/0', 'creating' from pg_control_system()",
            &[&rig.config.slot],
        )
        .await
        .unwrap();
    make_slot(&rig).await;
    rig.insert("a", &["2"]).await;
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    stop(relay).await;
}

async fn make_slot(rig: &Rig) {
    rig.client
        .query("select pg_create_logical_replication_slot($1, 'pgoutput')", &[&rig.config.slot])
        .await
        .unwrap();
}

#[tokio::test]
async fn an_existing_slot_beside_rows_needs_a_decision_and_skip_takes_it_where_it_stands() {
    let mut rig = Rig::new().await;
    rig.insert("a", &["0"]).await;
    make_slot(&rig).await;
    let position = rig.slot_position().await;
    rig.insert("a", &["1"]).await;
    for (initial, parts) in [
        (
            None,
            ["is there already", "`initial` does not say", "from Debezium, set initial = \"skip\""],
        ),
        (
            Some(Initial::Publish),
            ["needs a slot that walpost has created", "drop the slot", "skip"],
        ),
    ] {
        rig.config.initial = initial;
        let (outcome, detail) = rig.checked("first start").await;
        assert_eq!(outcome, Outcome::Fail, "{detail}");
        let refusal = rig.refusal().await;
        assert!(refusal.starts_with(&detail), "{refusal}\n{detail}");
        for part in parts {
            assert!(refusal.contains(part), "expected {part:?} in: {refusal}");
        }
    }
    assert_eq!(rig.slot_position().await, position);
    assert_eq!(rig.count("select count(*) from walpost.checkpoint").await, 0);
    rig.config.initial = Some(Initial::Skip);
    assert_eq!(rig.checked("first start").await.0, Outcome::Ok);
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;
}

#[tokio::test]
async fn an_existing_slot_beside_an_empty_table_needs_none() {
    let rig = Rig::new().await;
    make_slot(&rig).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;
}

/// Waits until the slot is being made, and waits for transactions that are running.
pub(crate) async fn slot_waits(rig: &Rig) {
    let waiting = "select count(*) from walpost.checkpoint c join pg_replication_slots s \
                   on s.slot_name = c.slot where c.initial = 'creating'";
    until(SOON, "the slot waits", async || rig.count(waiting).await == 1).await;
}

#[tokio::test]
async fn what_commits_while_the_slot_is_made_is_published() {
    let rig = Rig::new().await;
    let writer = open_transaction(&rig, "a", "1").await;
    let relay = rig.start();
    // Its snapshot sees what the writer did.
    slot_waits(&rig).await;
    writer.batch_execute("commit").await.unwrap();
    phase(&relay, &Phase::Streaming).await;
    rig.insert("a", &["2"]).await;
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_row_deleted_during_a_load_hides_no_other_behind_a_parked_one() {
    let mut rig = Rig::new().await;
    rig.config.initial = Some(Initial::Publish);
    rig.config.drain_timeout_ms = 500;
    rig.world.never("2");
    for (aggregate, value) in [("a", "0"), ("b", "1"), ("c", "2"), ("d", "3"), ("e", "4")] {
        rig.insert(aggregate, &[value]).await;
    }
    rig.world.hold(true);
    let relay = rig.start();
    let parked = "select count(*) from walpost.parked";
    until(SOON, "the parked row", async || rig.count(parked).await == 1).await;
    stop(relay).await;
    assert_eq!(rig.world.values().len(), 0, "what is interrupted has brought nothing");
    rig.client.batch_execute("delete from walpost.outbox where payload = '0'").await.unwrap();
    rig.released().await;
    rig.world.hold(false);
    let relay = rig.streaming().await;
    until(SOON, "the row behind", async || rig.world.values().contains(&"3".to_owned())).await;
    until(SOON, "the last row", async || rig.world.values().contains(&"4".to_owned())).await;
    stop(relay).await;
}

#[tokio::test]
async fn a_load_holds_a_few_megabytes_of_large_rows_and_not_all_of_them() {
    let mut rig = Rig::new().await;
    rig.config.initial = Some(Initial::Publish);
    rig.config.in_flight_max_events = 1;
    let rows = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                select 'order', 'a', 'Placed', to_jsonb(n || repeat('x', 1024 * 1024)) \
                from generate_series(10, 49) n";
    rig.client.batch_execute(rows).await.unwrap();
    rig.world.hold(true);
    let relay = rig.start();
    // One with the sink, and what is read beside it.
    status(&relay, "rows read", |status| status.outstanding == 1 && status.loaded >= 2).await;
    let loaded = relay.status().borrow().loaded;
    assert!(loaded <= 5, "{loaded} rows of a megabyte were read");
    rig.world.hold(false);
    let landed = rig.landed(40).await;
    let numbers: Vec<&str> = landed.iter().map(|value| &value[1..3]).collect();
    let expected: Vec<String> = (10..50).map(|n: u32| n.to_string()).collect();
    assert_eq!(numbers, expected);
    phase(&relay, &Phase::Streaming).await;
    assert_eq!(relay.status().borrow().loaded, 40);
    stop(relay).await;
}

#[tokio::test]
async fn a_row_beyond_the_limit_is_parked_by_the_load_as_by_the_stream() {
    let mut rig = Rig::new().await;
    rig.config.initial = Some(Initial::Publish);
    rig.config.max_event_bytes = 20_000;
    rig.insert("a", &["1"]).await;
    let large = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                 values ('order', 'b', 'Placed', to_jsonb(repeat('x', 30000)))";
    rig.client.batch_execute(large).await.unwrap();
    rig.insert("a", &["3"]).await;
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(2).await, ["1", "3"]);
    let parked = "select count(*) from walpost.parked join walpost.outbox on event_id = outbox.id::text \
                  where reason = 'oversize' and parked.aggregate_id = 'b'";
    assert_eq!(rig.count(parked).await, 1);
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn a_slot_that_begins_among_transactions_that_roll_back_is_like_any_other() {
    let ended = Arc::new(AtomicBool::new(false));
    let mut sessions = Vec::new();
    let base = Rig::on(postgres_of(15)).await;
    for session in 1..=5 {
        let (client, ended) = (base.database.connect().await.unwrap(), ended.clone());
        let one =
            format!("begin; select pg_current_xact_id(); select pg_sleep(0.00{session}); rollback");
        sessions.push(tokio::spawn(async move {
            while !ended.load(Ordering::Relaxed) {
                client.batch_execute(&one).await.unwrap();
            }
        }));
    }
    // Most of these snapshots have an xmax below their xmin.
    for _ in 0..5 {
        let rig = Rig::on(postgres_of(15)).await;
        let relay = rig.streaming().await;
        rig.insert("a", &["1"]).await;
        proven(&rig, 1).await;
        assert_eq!(rig.landed(1).await, ["1"]);
        stop(relay).await;
        let drop = format!("select pg_drop_replication_slot('{}')", rig.config.slot);
        rig.released().await;
        rig.client.batch_execute(&drop).await.unwrap();
    }
    ended.store(true, Ordering::Relaxed);
    for session in sessions {
        session.await.unwrap();
    }
}
