//! Rows that are handed from one pipeline to another, under writers.

use walpost_relay::{
    LostSlot, MoveOrder, MovePlan, Outcome, RelayError, make_move, plan_move, prune,
};
use walpost_testkit::until;

use crate::{
    proven::open_transaction,
    retention::retention,
    rig::{Rig, SOON, interrupt, status, stop},
    row_filters::{event, events, tenants_on},
};

pub(crate) const CROSSED: &str = "select count(*) from walpost.move where crossed_at is not null";

pub(crate) async fn run(rig: &Rig, sql: &str) {
    rig.client.batch_execute(sql).await.unwrap();
}

/// Tenants a and b have the first pipeline, c has the second.
pub(crate) async fn two(version: u32) -> (Rig, Rig, Rig) {
    let base = tenants_on(version).await;
    let a = base.beside("a", "tenant in ('a', 'b')").await;
    let b = base.beside("b", "tenant = 'c'").await;
    (base, a, b)
}

/// Tenant b goes to the second pipeline.
pub(crate) fn order() -> MoveOrder {
    MoveOrder {
        from: "a".to_owned(),
        to: "b".to_owned(),
        filter_from: "tenant = 'a'".to_owned(),
        filter_to: "tenant in ('b', 'c')".to_owned(),
        lock_timeout_ms: 10_000,
    }
}

pub(crate) async fn moved(rig: &Rig, order: &MoveOrder) -> MovePlan {
    let plan = make_move(&rig.database, &rig.config, order, "id").await.unwrap();
    assert_eq!(plan.obstacles, [], "{plan:?}");
    assert!(plan.id.is_some(), "{plan:?}");
    plan
}

async fn back_again(base: &Rig, a: &Rig, b: &Rig) {
    let back = MoveOrder {
        from: "b".to_owned(),
        to: "a".to_owned(),
        filter_from: "tenant = 'c'".to_owned(),
        filter_to: "tenant in ('a', 'b')".to_owned(),
        ..order()
    };
    moved(base, &back).await;
    events(base, &[("b", "13"), ("c", "14")]).await;
    assert_eq!(a.landed(6).await, ["1", "2", "4", "7", "10", "13"]);
    assert_eq!(b.landed(8).await, ["3", "5", "6", "8", "9", "11", "12", "14"]);
}

async fn rows_move(version: u32) {
    let (base, mut a, mut b) = two(version).await;
    let (giver, mut receiver) = (a.streaming().await, b.streaming().await);
    events(&base, &[("a", "1"), ("b", "2"), ("c", "3")]).await;
    a.landed(2).await;
    b.landed(1).await;
    // Begun before, and written to the outbox behind: its id is older than the move.
    let older = base.database.connect().await.unwrap();
    older.batch_execute("create table other (n int)").await.unwrap();
    older.batch_execute("begin; insert into other values (1)").await.unwrap();
    a.world.hold(true);
    events(&base, &[("b", "4"), ("c", "5")]).await;
    b.landed(2).await;
    let plan = moved(&base, &order()).await;
    assert_eq!((plan.tables[0].looked_at, plan.tables[0].moving), (5, 2));
    older.batch_execute(&format!("{}commit", event("b", "6"))).await.unwrap();
    events(&base, &[("a", "7"), ("c", "8"), ("b", "9")]).await;
    // What is behind the boundary waits for the giver, also after a restart.
    for _ in 0..2 {
        status(&receiver, "the boundary", |status| status.waits.is_some()).await;
        assert_eq!(b.world.values(), ["3", "5"]);
        assert_eq!(base.count(CROSSED).await, 0);
        interrupt(&b, &receiver).await;
    }
    status(&receiver, "the boundary", |status| status.waits.is_some()).await;
    stop(receiver).await;
    b.released().await;
    receiver = b.streaming().await;
    interrupt(&a, &giver).await;
    a.world.hold(false);
    assert_eq!(b.landed(5).await, ["3", "5", "6", "8", "9"]);
    assert_eq!(a.landed(4).await, ["1", "2", "4", "7"]);
    assert_eq!(base.count(CROSSED).await, 1);
    status(&receiver, "no wait", |status| status.waits.is_none()).await;
    // With the filters of before they start all the same, and say it.
    let (outcome, detail) = a.checked("row filters").await;
    assert_eq!(outcome, Outcome::Warn);
    assert!(detail.contains("which the pipeline had before move 1"), "{detail}");
    stop(giver).await;
    stop(receiver).await;
    a.released().await;
    b.released().await;
    let running = [a.streaming().await, b.streaming().await];
    events(&base, &[("a", "10"), ("b", "11")]).await;
    a.landed(5).await;
    b.landed(6).await;
    for relay in running {
        stop(relay).await;
    }
    (a.config.row_filter, b.config.row_filter) =
        (Some("tenant = 'a'".to_owned()), Some("tenant in ('b', 'c')".to_owned()));
    a.released().await;
    b.released().await;
    let running = [a.streaming().await, b.streaming().await];
    assert_eq!(a.checked("publication").await.0, Outcome::Ok);
    assert!(!a.checked("row filters").await.1.contains("before move"));
    events(&base, &[("b", "12")]).await;
    assert_eq!(b.landed(7).await.last().unwrap(), "12");
    back_again(&base, &a, &b).await;
    for relay in running {
        stop(relay).await;
    }
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn rows_move_between_running_pipelines_on_postgres_15() {
    rows_move(15).await;
}

#[tokio::test]
async fn rows_move_between_running_pipelines_on_postgres_18() {
    rows_move(18).await;
}

/// Each of both slots is lost around the boundary: rows are published by whom
/// they belonged to when they were committed, and in order.
async fn slots_are_lost(version: u32) {
    let (base, mut a, mut b) = two(version).await;
    for rig in [&mut a, &mut b] {
        rig.config.on_lost_slot = LostSlot::Recover;
        rig.config.start_timeout_ms = None;
    }
    let (giver, receiver) = (a.streaming().await, b.streaming().await);
    events(&base, &[("a", "1"), ("b", "2"), ("c", "3")]).await;
    a.landed(2).await;
    b.landed(1).await;
    stop(giver).await;
    stop(receiver).await;
    events(&base, &[("b", "4"), ("c", "5")]).await;
    moved(&base, &order()).await;
    events(&base, &[("b", "6"), ("a", "7")]).await;
    for rig in [&a, &b] {
        rig.released().await;
        run(&base, &format!("select pg_drop_replication_slot('{}')", rig.config.slot)).await;
    }
    let receiver = b.start();
    status(&receiver, "sessions that wait", |status| status.failed_sessions > 0).await;
    assert_eq!(b.world.values(), ["3"], "the giver has not published 4 yet");
    let giver = a.streaming().await;
    assert_eq!(a.landed(4).await, ["1", "2", "4", "7"]);
    assert_eq!(b.landed(3).await, ["3", "5", "6"]);
    assert_eq!(base.count(CROSSED).await, 1);
    status(&receiver, "streaming", |status| status.phase == walpost_relay::Phase::Streaming).await;
    events(&base, &[("b", "8"), ("a", "9")]).await;
    assert_eq!(b.landed(4).await, ["3", "5", "6", "8"]);
    assert_eq!(a.landed(5).await, ["1", "2", "4", "7", "9"]);
    stop(giver).await;
    stop(receiver).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn slots_that_are_lost_around_a_move_cost_and_repeat_nothing_on_postgres_15() {
    slots_are_lost(15).await;
}

#[tokio::test]
async fn slots_that_are_lost_around_a_move_cost_and_repeat_nothing_on_postgres_18() {
    slots_are_lost(18).await;
}

#[tokio::test]
async fn a_long_transaction_is_named_and_nothing_changes() {
    let (base, a, b) = two(18).await;
    let running = [a.streaming().await, b.streaming().await];
    let writer = open_transaction(&base, "b", "1").await;
    let order = MoveOrder { lock_timeout_ms: 200, ..order() };
    let error = make_move(&base.database, &base.config, &order, "id").await.unwrap_err();
    let RelayError::Prerequisite { problem, .. } = &error else { panic!("{error}") };
    assert!(problem.contains("did not end within 200 ms: process "), "{problem}");
    assert_eq!(base.count("select count(*) from walpost.move").await, 0);
    writer.batch_execute("commit").await.unwrap();
    assert_eq!(a.checked("publication").await.0, Outcome::Ok);
    moved(&base, &MoveOrder { lock_timeout_ms: 10_000, ..order }).await;
    for relay in running {
        stop(relay).await;
    }
}

async fn obstacle(rig: &Rig, order: &MoveOrder) -> String {
    let plan = make_move(&rig.database, &rig.config, order, "id").await.unwrap();
    assert_eq!(plan.id, None);
    plan.obstacles.first().map(|(problem, _)| problem.clone()).unwrap_or_default()
}

#[tokio::test]
async fn what_stands_in_the_way_of_a_move_is_told_and_nothing_moves() {
    let (base, a, b) = two(18).await;
    let found = obstacle(&base, &order()).await;
    assert!(found.contains("pipeline \"a\" has no checkpoint"), "{found}");
    let running = [a.streaming().await, b.streaming().await];
    events(&base, &[("a", "1"), ("b", "2"), ("c", "3")]).await;
    let with = |from: &str, to: &str| MoveOrder {
        filter_from: from.to_owned(),
        filter_to: to.to_owned(),
        ..order()
    };
    let found = obstacle(&base, &with("tenant = 'a'", "tenant = 'c'")).await;
    assert!(found.contains("would be neither's"), "{found}");
    let found = obstacle(&base, &with("tenant in ('a', 'b')", "tenant in ('b', 'c')")).await;
    assert!(found.contains("would be both of"), "{found}");
    let wrong = with("tenants = 'a'", "true");
    let error = plan_move(&base.database, &base.config, &wrong, "id").await.unwrap_err();
    assert!(error.to_string().contains("is no condition over the columns"), "{error}");
    // An event that is parked would be overtaken.
    a.world.never("4");
    events(&base, &[("b", "4")]).await;
    let parked = "select count(*) from walpost.parked where state = 'open'";
    until(SOON, "it is parked", async || base.count(parked).await == 1).await;
    let found = obstacle(&base, &order()).await;
    assert!(found.contains("has 1 parked events"), "{found}");
    run(&base, "update walpost.parked set requested = 'discard'").await;
    until(SOON, "it is discarded", async || base.count(parked).await == 0).await;
    // A publication that somebody changed.
    for relay in running {
        stop(relay).await;
    }
    run(
        &base,
        "alter publication walpost_b drop table walpost.outbox; \
         alter publication walpost_b add table walpost.outbox where (tenant = 'c')",
    )
    .await;
    let found = obstacle(&base, &order()).await;
    assert!(found.contains("is not as its checkpoint has noted it"), "{found}");
    assert_eq!(base.count("select count(*) from walpost.move").await, 0);
}

/// What the giver parks before the boundary holds the receiver.
#[tokio::test]
async fn the_receiver_waits_for_what_the_giver_has_parked() {
    let (base, a, b) = two(18).await;
    let (giver, receiver) = (a.streaming().await, b.streaming().await);
    events(&base, &[("b", "1"), ("c", "2")]).await;
    a.landed(1).await;
    b.landed(1).await;
    stop(giver).await;
    a.world.never("3");
    events(&base, &[("b", "3")]).await;
    moved(&base, &order()).await;
    events(&base, &[("b", "4"), ("a", "5")]).await;
    a.released().await;
    let giver = a.streaming().await;
    a.landed(2).await;
    let waits = |part: &'static str| {
        move |status: &walpost_relay::PipelineStatus| {
            status.waits.as_ref().is_some_and(|text| text.contains(part))
        }
    };
    status(&receiver, "parked events", waits("has 1 parked events")).await;
    assert_eq!(b.world.values(), ["2"]);
    run(&base, "update walpost.parked set requested = 'discard'").await;
    assert_eq!(b.landed(2).await, ["2", "4"]);
    stop(giver).await;
    stop(receiver).await;
}

/// A list over varchar reads otherwise each time the server prints it.
#[tokio::test]
async fn with_the_filters_of_before_they_start_however_the_server_spells_the_new_ones() {
    let base = tenants_on(18).await;
    run(&base, "alter table walpost.outbox alter tenant type varchar(20)").await;
    let a = base.beside("a", "tenant::text in ('a', 'b')").await;
    let b = base.beside("b", "tenant::text = 'c'").await;
    for rig in [&a, &b] {
        stop(rig.streaming().await).await;
        rig.released().await;
    }
    moved(&base, &order()).await;
    events(&base, &[("a", "1"), ("b", "2"), ("c", "3")]).await;
    let running = [a.streaming().await, b.streaming().await];
    assert_eq!(a.landed(1).await, ["1"]);
    assert_eq!(b.landed(2).await, ["2", "3"]);
    for relay in running {
        stop(relay).await;
    }
}

#[tokio::test]
async fn rows_move_between_readers_of_the_wal_alone() {
    let (base, a, b) = two(18).await;
    for rig in [&a, &b] {
        stop(rig.streaming().await).await;
    }
    let polls = "update walpost.checkpoint set source = 'polling' where pipeline = 'b'";
    run(&base, polls).await;
    let found = obstacle(&base, &order()).await;
    assert!(found.contains("pipeline \"b\" polls its outbox table"), "{found}");
}

#[tokio::test]
async fn the_name_of_a_pipeline_that_was_given_up_is_for_no_other() {
    let (base, a, b) = two(18).await;
    for rig in [&a, &b] {
        stop(rig.streaming().await).await;
    }
    moved(&base, &order()).await;
    run(&base, "delete from walpost.checkpoint where pipeline = 'a'").await;
    let refusal = a.refusal().await;
    assert!(refusal.contains("were moved to or from an earlier pipeline"), "{refusal}");
}

/// Who had no row filter has to say that it goes on taking messages.
#[tokio::test]
async fn a_giver_of_all_rows_is_told_of_its_messages() {
    let base = tenants_on(18).await;
    let mut all = base.beside("a", "true").await;
    all.config.row_filter = None;
    let none = base.beside("b", "false").await;
    let running = [all.streaming().await, none.streaming().await];
    run(
        &base,
        "select pg_logical_emit_message(true, 'walpost', '{\"id\":\"1\",\"aggregatetype\":\"order\",\
         \"aggregateid\":\"a\",\"type\":\"Placed\",\"payload\":1}')",
    )
    .await;
    all.landed(1).await;
    let noted = "select count(*) from walpost.checkpoint where has_messages";
    until(SOON, "it is noted", async || base.count(noted).await == 1).await;
    let order = MoveOrder {
        filter_from: "tenant <> 'b'".to_owned(),
        filter_to: "tenant = 'b'".to_owned(),
        ..order()
    };
    assert_eq!(moved(&base, &order).await.with_messages, ["a"]);
    for relay in running {
        stop(relay).await;
    }
    all.config.row_filter = Some(order.filter_from);
    let (outcome, detail) = all.checked("messages").await;
    assert_eq!(outcome, Outcome::Warn);
    assert!(detail.contains("it takes none any more"), "{detail}");
}

/// A row leaves once the pipeline that it belonged to has proven it.
#[tokio::test]
async fn moved_rows_leave_the_outbox_with_whom_they_belonged_to() {
    let (base, a, b) = two(18).await;
    let running = [a.streaming().await, b.streaming().await];
    events(&base, &[("a", "1"), ("b", "2"), ("c", "3")]).await;
    moved(&base, &order()).await;
    events(&base, &[("b", "4")]).await;
    run(&base, "update walpost.outbox set created_at = now() - interval '30 days'").await;
    let proven = "select count(*) from walpost.outbox, walpost.checkpoint \
                  where pg_visible_in_snapshot(xid, (proven ->> 'snapshot')::pg_snapshot) \
                  and (payload::text in ('1', '2')) = (pipeline = 'a')";
    until(SOON, "both have proven their own", async || base.count(proven).await == 4).await;
    let left = "select string_agg(payload::text, ' ' order by seq) from walpost.outbox";
    prune(&a.database, &a.config, "id", &retention(), |_| {}).await.unwrap();
    let rest: String = base.client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(rest, "3 4");
    prune(&b.database, &b.config, "id", &retention(), |_| {}).await.unwrap();
    assert_eq!(base.count("select count(*) from walpost.outbox").await, 0);
    for relay in running {
        stop(relay).await;
    }
}
