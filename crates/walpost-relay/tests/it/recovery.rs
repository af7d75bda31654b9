//! A slot that is lost is replaced, and what it has not brought is published
//! from the table: nothing is missing, and nothing comes twice.

use tokio_postgres::Client;
use walpost_relay::{Initial, LostSlot, Phase, RunningRelay, plan_recovery, request_recovery};
use walpost_testkit::{local::Postgres, until};

use crate::{
    proven::{open_transaction, proven},
    rig::{Rig, SOON, phase, status, stop},
    slot_states::{give_up_the_slot, rig_on, server_of},
};

async fn recovering_rig(server: &Postgres) -> Rig {
    let mut rig = rig_on(server).await;
    rig.config.on_lost_slot = LostSlot::Recover;
    rig.config.settle_ms = 0;
    rig.config.drain_timeout_ms = 200;
    rig
}

/// Ends every session but these processes', as the relay's death would.
async fn crash_but(rig: &Rig, others: &[i32]) {
    let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                where datname = current_database() and pid <> pg_backend_pid() and pid <> all($1)";
    rig.client.query_one(kill, &[&others]).await.unwrap();
}

async fn pid(client: &Client) -> i32 {
    client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0)
}

/// Ends the relay, whatever it has on its way.
async fn dead(rig: &Rig, relay: RunningRelay) {
    dead_but(rig, relay, &[]).await;
}

async fn dead_but(rig: &Rig, mut relay: RunningRelay, others: &[i32]) {
    relay.stop();
    crash_but(rig, others).await;
    let ended = tokio::time::timeout(SOON, relay.finished()).await;
    // With an error or without one.
    drop(ended.expect("it ends"));
    rig.released().await;
}

async fn drop_slot(rig: &Rig) {
    rig.released().await;
    let drop = format!("select pg_drop_replication_slot('{}')", rig.config.slot);
    rig.client.batch_execute(&drop).await.unwrap();
}

/// What landed of one aggregate, which its values begin with.
fn of(rig: &Rig, aggregate: &str) -> Vec<String> {
    rig.world.values().into_iter().filter(|value| value.contains(aggregate)).collect()
}

fn quoted(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| format!("\"{value}\"")).collect()
}

async fn insert(rig: &Rig, aggregate: &str, values: &[&str]) {
    let values = quoted(values);
    rig.insert(aggregate, &values.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

/// Of each kind one: published and noted, published and not noted, parked, on
/// its way, open over the loss, and written while there was no slot.
async fn of_every_kind(version: u32) {
    let server = server_of(version);
    let rig = recovering_rig(server).await;
    let relay = rig.streaming().await;
    insert(&rig, "a", &["a0"]).await;
    proven(&rig, 1).await;
    // No checkpoint knows of what follows.
    let blocker = rig.database.connect().await.unwrap();
    let open = open_transaction(&rig, "o", "\"o1\"").await;
    blocker.batch_execute("begin; select from walpost.checkpoint for update").await.unwrap();
    insert(&rig, "a", &["a1", "a2"]).await;
    rig.landed(3).await;
    rig.world.hold(true);
    insert(&rig, "a", &["a3"]).await;
    status(&relay, "the event on its way", |status| status.outstanding == 1).await;
    let others = [pid(&blocker).await, pid(&open).await];
    dead_but(&rig, relay, &others).await;
    drop_slot(&rig).await;
    rig.world.hold(false);
    blocker.batch_execute("rollback").await.unwrap();
    insert(&rig, "a", &["a4"]).await;
    let relay = rig.start();
    let waiting = "select count(*) from walpost.checkpoint where recovery is not null";
    until(SOON, "the recovery", async || rig.count(waiting).await == 1).await;
    open.batch_execute("commit").await.unwrap();
    phase(&relay, &Phase::Streaming).await;
    insert(&rig, "a", &["a5"]).await;
    until(SOON, "the last", async || of(&rig, "\"a").len() >= 6 && of(&rig, "\"o").len() == 1)
        .await;
    assert_eq!(of(&rig, "\"a"), quoted(&["a0", "a1", "a2", "a3", "a4", "a5"]));
    assert_eq!(of(&rig, "\"o"), quoted(&["o1"]));
    proven(&rig, 7).await;
    stop(relay).await;
}

/// A death between every two steps, and a second loss within.
async fn deaths_between_all_steps(version: u32) {
    let server = server_of(version);
    let rig = recovering_rig(server).await;
    let relay = rig.streaming().await;
    insert(&rig, "a", &["a00000"]).await;
    proven(&rig, 1).await;
    dead(&rig, relay).await;
    drop_slot(&rig).await;
    let all: Vec<String> = (0..1000).map(|n| format!("\"a{n:05}\"")).collect();
    let values: Vec<&str> = all.iter().map(String::as_str).collect();
    rig.insert("a", &values[1..]).await;
    // While the new slot is created, which waits for a transaction.
    let open = open_transaction(&rig, "b", "\"b\"").await;
    let relay = rig.start();
    let begun = "select count(*) from walpost.checkpoint where recovery ->> 'generation' \
                 is not null and recovery ->> 'snapshot' is null";
    until(SOON, "the row says so", async || rig.count(begun).await == 1).await;
    dead_but(&rig, relay, &[pid(&open).await]).await;
    rollback(open).await;
    // Half-way through the rows.
    rig.world.hold_after(100);
    let relay = half_way(&rig, 100).await;
    dead(&rig, relay).await;
    // Before the new slot's place was noted: nobody knows it.
    let unnoted = "update walpost.checkpoint set recovery = recovery || '{\"snapshot\": null}'";
    rig.client.batch_execute(unnoted).await.unwrap();
    rig.world.hold_after(300);
    let relay = half_way(&rig, 300).await;
    dead(&rig, relay).await;
    // The new slot is lost as well.
    drop_slot(&rig).await;
    rig.world.hold_after(500);
    let relay = half_way(&rig, 500).await;
    // All is there, and nothing can be noted.
    let blocker = rig.database.connect().await.unwrap();
    blocker.batch_execute("begin; select from walpost.checkpoint for update").await.unwrap();
    rig.world.hold(false);
    until(SOON, "the last row", async || of(&rig, "\"a").len() >= 1000).await;
    dead(&rig, relay).await;
    let relay = rig.streaming().await;
    let landed = of(&rig, "\"a");
    let differs = landed.iter().zip(&all).position(|(landed, expected)| landed != expected);
    assert_eq!((differs, landed.len()), (None, all.len()));
    let done = "select count(*) from walpost.checkpoint where recovery is null";
    assert_eq!(rig.count(done).await, 1);
    dead(&rig, relay).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["\"a01000\""]).await;
    proven(&rig, 1001).await;
    assert_eq!(of(&rig, "\"a").len(), 1001);
    stop(relay).await;
}

async fn rollback(client: Client) {
    client.batch_execute("rollback").await.unwrap();
}

/// The sink takes what it has at once, so a little more may have landed.
async fn half_way(rig: &Rig, count: usize) -> RunningRelay {
    let relay = rig.start();
    until(SOON, "some rows", async || rig.world.count() >= count).await;
    relay
}

/// What was parked stays where it is, and what was written before it in its
/// aggregate is published before it.
async fn parked_rows_keep_their_place(version: u32) {
    let server = server_of(version);
    let mut rig = recovering_rig(server).await;
    rig.config.checkpoint_interval_ms = 200;
    let relay = rig.streaming().await;
    insert(&rig, "z", &["z0"]).await;
    proven(&rig, 1).await;
    for value in ["\"a2\"", "\"old\""] {
        rig.world.never(value);
    }
    // Long ago, and still open.
    insert(&rig, "p", &["old"]).await;
    proven(&rig, 2).await;
    rig.world.hold(true);
    insert(&rig, "a", &["a1", "a2"]).await;
    let parked = "select count(*) from walpost.parked";
    until(SOON, "both parked", async || rig.count(parked).await == 2).await;
    dead(&rig, relay).await;
    give_up_the_slot(server, &rig).await;
    insert(&rig, "a", &["a3"]).await;
    insert(&rig, "p", &["p2"]).await;
    rig.world.hold(false);
    let relay = rig.streaming().await;
    until(SOON, "what waits behind is parked", async || rig.count(parked).await == 4).await;
    assert_eq!(rig.world.values(), quoted(&["z0", "a1"]));
    rig.world.mend();
    let retry = "update walpost.parked set requested = 'retry' where reason <> 'behind'";
    rig.client.batch_execute(retry).await.unwrap();
    until(SOON, "all of them", async || rig.world.count() >= 6).await;
    assert_eq!(of(&rig, "\"a"), quoted(&["a1", "a2", "a3"]));
    assert_eq!(of(&rig, "old"), quoted(&["old"]));
    assert_eq!(of(&rig, "\"p"), quoted(&["p2"]));
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn every_kind_of_row_is_recovered_once_on_postgres_14() {
    of_every_kind(14).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn every_kind_of_row_is_recovered_once_on_postgres_15() {
    of_every_kind(15).await;
}

#[tokio::test]
async fn every_kind_of_row_is_recovered_once_on_postgres_18() {
    of_every_kind(18).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn deaths_between_all_steps_of_a_recovery_cost_and_repeat_nothing_on_postgres_14() {
    deaths_between_all_steps(14).await;
}

#[tokio::test]
async fn deaths_between_all_steps_of_a_recovery_cost_and_repeat_nothing_on_postgres_18() {
    deaths_between_all_steps(18).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn parked_rows_keep_their_place_over_a_recovery_on_postgres_15() {
    parked_rows_keep_their_place(15).await;
}

#[tokio::test]
async fn parked_rows_keep_their_place_over_a_recovery_on_postgres_18() {
    parked_rows_keep_their_place(18).await;
}

/// As where the session of a killed relay was still making it, and takes it along.
#[tokio::test]
async fn a_slot_that_goes_before_it_is_dropped_costs_no_recovery() {
    let rig = recovering_rig(server_of(15)).await;
    let relay = rig.streaming().await;
    insert(&rig, "a", &["a0"]).await;
    proven(&rig, 1).await;
    dead(&rig, relay).await;
    drop_slot(&rig).await;
    insert(&rig, "a", &["a1"]).await;
    let open = open_transaction(&rig, "b", "\"b\"").await;
    let relay = rig.start();
    let begun = "select count(*) from walpost.checkpoint where recovery ->> 'generation' \
                 is not null and recovery ->> 'snapshot' is null";
    until(SOON, "the row says so", async || rig.count(begun).await == 1).await;
    dead_but(&rig, relay, &[pid(&open).await]).await;
    rollback(open).await;
    let nobodys =
        format!("select pg_create_logical_replication_slot('{}', 'pgoutput')", rig.config.slot);
    rig.client.batch_execute(&nobodys).await.unwrap();

    let blocker = rig.database.connect().await.unwrap();
    blocker.batch_execute("begin; select from walpost.checkpoint for update").await.unwrap();
    let relay = rig.start();
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' \
                 and query like '%checkpoint%' and datname = current_database()";
    until(SOON, "the relay behind the lock", async || rig.count(waits).await == 1).await;
    drop_slot(&rig).await;
    rollback(blocker).await;
    phase(&relay, &Phase::Streaming).await;
    assert_eq!(rig.world.values(), quoted(&["a0", "a1"]));
    stop(relay).await;
}

#[tokio::test]
async fn rows_that_the_publication_leaves_out_stay_out() {
    let mut rig = recovering_rig(server_of(18)).await;
    let filter = "drop publication walpost; create publication walpost for table walpost.outbox \
                  where (id is not null and aggregatetype = 'order') with (publish = 'insert')";
    rig.client.batch_execute(filter).await.unwrap();
    let other = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                 values ('other', 'a', 'Placed', '\"other\"')";
    rig.config.initial = Some(Initial::Publish);
    insert(&rig, "a", &["a0"]).await;
    rig.client.batch_execute(other).await.unwrap();
    let relay = rig.streaming().await;
    insert(&rig, "a", &["a1"]).await;
    proven(&rig, 3).await;
    stop(relay).await;
    drop_slot(&rig).await;
    rig.client.batch_execute(other).await.unwrap();
    insert(&rig, "a", &["a2"]).await;
    let relay = rig.streaming().await;
    insert(&rig, "a", &["a3"]).await;
    assert_eq!(rig.landed(4).await, quoted(&["a0", "a1", "a2", "a3"]));
    stop(relay).await;
}

#[tokio::test]
async fn without_positions_ids_tell_what_was_published() {
    let mut rig = recovering_rig(server_of(18)).await;
    rig.config.position_header = false;
    let relay = rig.streaming().await;
    insert(&rig, "a", &["a1"]).await;
    proven(&rig, 1).await;
    let blocker = rig.database.connect().await.unwrap();
    blocker.batch_execute("begin; select from walpost.checkpoint for update").await.unwrap();
    insert(&rig, "a", &["a2"]).await;
    rig.landed(2).await;
    dead(&rig, relay).await;
    drop_slot(&rig).await;
    insert(&rig, "a", &["a3"]).await;
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(3).await, quoted(&["a1", "a2", "a3"]));
    stop(relay).await;
}

#[tokio::test]
async fn somebody_may_ask_for_it_and_sees_what_it_will_do() {
    let mut rig = recovering_rig(server_of(18)).await;
    rig.config.on_lost_slot = LostSlot::Refuse;
    let relay = rig.streaming().await;
    insert(&rig, "a", &["a1"]).await;
    proven(&rig, 1).await;
    let plan = plan_recovery(&rig.database, &rig.config, false, false).await.unwrap();
    assert_eq!((plan.lost, plan.rows.len()), (None, 0));
    let asked = request_recovery(&rig.database, &rig.config, false, false).await.unwrap();
    assert!(!asked.is_requested, "there is a slot");
    stop(relay).await;
    drop_slot(&rig).await;
    insert(&rig, "a", &["a2", "a3"]).await;
    let refusal = rig.refusal().await;
    assert!(refusal.contains("run `walpost slot recover`"), "{refusal}");
    let plan = plan_recovery(&rig.database, &rig.config, false, false).await.unwrap();
    assert_eq!(plan.lost.as_deref(), Some("missing"));
    assert_eq!(plan.rows, [(rig.config.tables[0].clone(), 2)]);
    assert!(plan.obstacles.is_empty() && !plan.is_requested, "{plan:?}");
    let asked = request_recovery(&rig.database, &rig.config, false, false).await.unwrap();
    assert!(asked.is_requested);
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(3).await, quoted(&["a1", "a2", "a3"]));
    stop(relay).await;
    drop_slot(&rig).await;
    assert!(rig.refusal().await.contains("is gone"), "it was asked for once");
}
