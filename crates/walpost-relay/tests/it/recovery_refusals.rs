//! What stands in the way of a recovery is said, with what to do.

use walpost_relay::{LostSlot, Outcome, plan_recovery, request_recovery};
use walpost_testkit::until;

use crate::{
    proven::proven,
    rig::{Rig, SLOTS, SOON, stop},
};

/// One event published and proven, and then no slot.
async fn without_slot() -> Rig {
    let mut rig = Rig::new().await;
    rig.config.on_lost_slot = LostSlot::Recover;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    proven(&rig, 1).await;
    stop(relay).await;
    rig.released().await;
    run(&rig, &format!("select pg_drop_replication_slot('{}')", rig.config.slot)).await;
    rig
}

async fn run(rig: &Rig, sql: &str) {
    rig.client.batch_execute(sql).await.unwrap();
}

/// `check` finds what the start refuses, no slot is made, and the row stays.
async fn refused(rig: &Rig, expected: &[&str]) {
    let (outcome, detail) = rig.checked("slot").await;
    assert_eq!(outcome, Outcome::Fail, "{detail}");
    let refusal = rig.refusal().await;
    assert!(refusal.starts_with(&detail), "{refusal}\n{detail}");
    for part in expected.iter().chain(&["cannot be recovered", "initial = \"skip\""]) {
        assert!(refusal.contains(part), "expected {part:?} in: {refusal}");
    }
    let left = "select count(*) from walpost.checkpoint where recovery is null";
    assert_eq!(rig.count(left).await, 1);
    // A session that has ended may take a moment to be gone with what it held.
    until(SOON, "no slot", async || rig.count(SLOTS).await == 0).await;
}

#[tokio::test]
async fn a_check_says_beforehand_that_nothing_could_be_recovered_and_the_statement_mends_it() {
    let rig = Rig::new().await;
    let found = async || {
        let results = walpost_relay::check(&rig.database, &rig.config, &rig.router).await;
        results.into_iter().find(|result| result.name == "recovery of a lost slot")
    };
    assert_eq!(found().await, None);
    run(&rig, "alter table walpost.outbox drop column xid, drop column seq").await;
    let statement = async |missing: &str| {
        let warned = found().await.unwrap();
        assert_eq!(warned.outcome, Outcome::Warn);
        assert!(warned.detail.contains(&format!("has no {missing}:")), "{warned:?}");
        warned.next_step.unwrap().split('`').nth(1).unwrap().to_owned()
    };
    run(&rig, &statement("columns xid and seq").await).await;
    assert_eq!(found().await, None);
    run(&rig, "alter table walpost.outbox drop column seq").await;
    run(&rig, &statement("column seq").await).await;
    assert_eq!(found().await, None);
}

#[tokio::test]
async fn without_the_columns_or_a_proven_snapshot_it_is_refused() {
    let rig = without_slot().await;
    for (break_it, expected, mend_it) in [
        (
            "alter table walpost.outbox rename column seq to seq_",
            ["no column seq", "add column seq bigint not null generated always as identity"],
            "alter table walpost.outbox rename column seq_ to seq",
        ),
        (
            "alter table walpost.outbox alter column xid drop default",
            ["no column xid", "add column xid xid8 not null default pg_current_xact_id()"],
            "alter table walpost.outbox alter column xid set default pg_current_xact_id()",
        ),
        (
            "alter table walpost.checkpoint rename column proven to kept; \
             alter table walpost.checkpoint add column proven jsonb",
            ["no snapshot of it was proven", "published up to"],
            "alter table walpost.checkpoint drop column proven; \
             alter table walpost.checkpoint rename column kept to proven",
        ),
    ] {
        run(&rig, break_it).await;
        refused(&rig, &expected).await;
        run(&rig, mend_it).await;
    }
    let relay = rig.streaming().await;
    rig.insert("a", &["2"]).await;
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    stop(relay).await;
}

#[tokio::test]
async fn messages_without_a_table_have_to_be_given_up_by_somebody() {
    let mut rig = Rig::new().await;
    rig.config.on_lost_slot = LostSlot::Recover;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    let emit = r#"select pg_logical_emit_message(true, 'walpost', '{"id":"x","aggregatetype":"order","aggregateid":"a","type":"t","payload":"2"}')"#;
    run(&rig, emit).await;
    rig.landed(2).await;
    proven(&rig, 1).await;
    stop(relay).await;
    rig.released().await;
    run(&rig, &format!("select pg_drop_replication_slot('{}')", rig.config.slot)).await;
    rig.insert("a", &["3"]).await;
    refused(&rig, &["pg_logical_emit_message", "--accept-lost-messages"]).await;
    let asked = request_recovery(&rig.database, &rig.config, false, true).await.unwrap();
    assert!(!asked.is_requested && asked.obstacles.len() == 1, "{asked:?}");
    assert!(request_recovery(&rig.database, &rig.config, true, false).await.unwrap().is_requested);
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(3).await.last().unwrap(), "3");
    stop(relay).await;
}

#[tokio::test]
async fn a_table_whose_rows_are_deleted_at_once_brings_nothing_back() {
    let rig = without_slot().await;
    run(
        &rig,
        "begin; insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
               values ('order', 'a', 'Placed', '2'); delete from walpost.outbox; commit",
    )
    .await;
    let deleted = "select pg_stat_get_tuples_deleted('walpost.outbox'::regclass)";
    until(SOON, "the statistics", async || rig.count(deleted).await > 0).await;
    refused(&rig, &["is empty, and rows of it were deleted", "--accept-deleted-rows"]).await;
    let plan = plan_recovery(&rig.database, &rig.config, false, false).await.unwrap();
    assert_eq!(plan.obstacles.len(), 1, "{plan:?}");
    assert!(request_recovery(&rig.database, &rig.config, false, true).await.unwrap().is_requested);
    let relay = rig.streaming().await;
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.landed(2).await, ["1", "3"]);
    stop(relay).await;
}

#[tokio::test]
async fn records_that_nothing_tells_apart_are_no_ground_for_a_recovery() {
    let mut rig = without_slot().await;
    (rig.config.position_header, rig.config.source_header) = (false, false);
    refused(&rig, &["position_header and source_header are off"]).await;
}

#[tokio::test]
async fn more_published_events_than_ids_are_refused_with_the_number_and_go_on_with_it() {
    let mut rig = Rig::new().await;
    rig.config.on_lost_slot = LostSlot::Recover;
    rig.config.resume_max_ids = 2;
    rig.config.drain_timeout_ms = 200;
    let mut relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    proven(&rig, 1).await;
    let blocker = rig.database.connect().await.unwrap();
    blocker.batch_execute("begin; select from walpost.checkpoint for update").await.unwrap();
    rig.insert("a", &["2", "3", "4"]).await;
    rig.landed(4).await;
    let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                where datname = current_database() and pid <> pg_backend_pid()";
    relay.stop();
    rig.count(kill).await;
    drop(relay.finished().await);
    rig.released().await;
    run(&rig, &format!("select pg_drop_replication_slot('{}')", rig.config.slot)).await;
    let refusal = rig.refusal().await;
    assert!(refusal.contains("resume_max_ids"), "{refusal}");
    rig.config.resume_max_ids = 10;
    let relay = rig.streaming().await;
    rig.insert("a", &["5"]).await;
    assert_eq!(rig.landed(5).await, ["1", "2", "3", "4", "5"]);
    stop(relay).await;
}
