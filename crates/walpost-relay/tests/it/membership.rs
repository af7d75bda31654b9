//! What is committed while the outbox table is in no publication comes in no
//! stream: it is noticed, and published from the table.

use walpost_relay::{Initial, LostSlot, Outcome, Phase, TableName, plan_recovery};
use walpost_testkit::{postgres_of, until};

use crate::{
    proven::proven,
    rig::{Rig, SOON, phase, stop},
};

const TAKE_OUT: &str = "alter publication walpost drop table walpost.outbox";
const PUT_BACK: &str = "alter publication walpost add table walpost.outbox";
const DROP: &str = "drop publication walpost";
const CREATE: &str =
    "create publication walpost for table walpost.outbox with (publish = 'insert')";
const NO_INSERTS: &str = "alter publication walpost set (publish = 'delete')";
const INSERTS: &str = "alter publication walpost set (publish = 'insert')";

async fn rig_of(version: u32) -> Rig {
    let mut rig = Rig::on(postgres_of(version)).await;
    rig.config.settle_ms = 0;
    rig
}

async fn run(rig: &Rig, sql: &str) {
    rig.client.batch_execute(sql).await.unwrap();
}

/// While no relay runs: refused, and published from the table once that is
/// asked for.
async fn gap_between_two_runs(version: u32, open: &str, close: &str) {
    let mut rig = rig_of(version).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    proven(&rig, 1).await;
    stop(relay).await;
    rig.released().await;
    run(&rig, open).await;
    rig.insert("a", &["2", "3"]).await;
    run(&rig, close).await;
    rig.insert("a", &["4"]).await;

    let (outcome, detail) = rig.checked("slot").await;
    assert_eq!(outcome, Outcome::Fail, "{detail}");
    let refusal = rig.refusal().await;
    for part in ["was dropped and made again, its options were set", "walpost slot recover"] {
        assert!(refusal.contains(part), "expected {part:?} in: {refusal}");
    }
    let plan = plan_recovery(&rig.database, &rig.config, false, false).await.unwrap();
    assert_eq!((plan.rows[0].1, plan.obstacles), (3, vec![]));
    assert_eq!(rig.world.values(), ["1"]);

    rig.config.on_lost_slot = LostSlot::Recover;
    let relay = rig.streaming().await;
    rig.insert("a", &["5"]).await;
    assert_eq!(rig.landed(5).await, ["1", "2", "3", "4", "5"]);
    stop(relay).await;
}

/// Under a relay that runs: it stops confirming, and its next session publishes
/// them, behind what came meanwhile.
async fn gap_under_a_relay(version: u32) {
    let mut rig = rig_of(version).await;
    rig.config.on_lost_slot = LostSlot::Recover;
    // Whoever looks while the table is out ends for good: the gap is over before
    // the next look.
    rig.config.checkpoint_interval_ms = 2_000;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    proven(&rig, 1).await;
    let gap = format!(
        "begin; {TAKE_OUT}; commit; \
         begin; insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
         values ('order', 'a', 'Placed', '2'), ('order', 'a', 'Placed', '3'); commit; \
         begin; {PUT_BACK}; commit"
    );
    let noted = "select (extract(epoch from updated_at) * 1e6)::int8 from walpost.checkpoint";
    let before = rig.count(noted).await;
    until(SOON, "a look", async || {
        run(&rig, "select pg_logical_emit_message(false, 'other', '')").await;
        rig.count(noted).await != before
    })
    .await;
    run(&rig, &gap).await;
    rig.insert("a", &["4"]).await;
    until(SOON, "those that no stream has", async || rig.world.values().len() >= 4).await;
    phase(&relay, &Phase::Streaming).await;
    rig.insert("a", &["5"]).await;
    let mut landed = rig.landed(5).await;
    landed.sort();
    assert_eq!(landed, ["1", "2", "3", "4", "5"]);
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn rows_committed_without_a_publication_are_found_missing_on_postgres_14() {
    gap_between_two_runs(14, TAKE_OUT, PUT_BACK).await;
    gap_between_two_runs(14, NO_INSERTS, INSERTS).await;
    gap_under_a_relay(14).await;
}

#[tokio::test]
async fn rows_committed_without_a_publication_are_found_missing_on_postgres_18() {
    gap_between_two_runs(18, TAKE_OUT, PUT_BACK).await;
    gap_between_two_runs(18, DROP, CREATE).await;
    gap_between_two_runs(18, NO_INSERTS, INSERTS).await;
    gap_under_a_relay(18).await;
}

/// Nobody puts it back: the position stays below what no stream brings.
#[tokio::test]
async fn without_inserts_nothing_is_confirmed_any_more() {
    let rig = rig_of(18).await;
    let mut relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    proven(&rig, 1).await;
    run(&rig, NO_INSERTS).await;
    rig.insert("a", &["2"]).await;
    let ended = tokio::time::timeout(SOON, relay.finished()).await.expect("it ends");
    let refusal = ended.unwrap_err().to_string();
    assert!(refusal.contains("does not publish inserts"), "{refusal}");
    let covered = "select count(*) from walpost.checkpoint c, walpost.outbox o \
                   where o.payload = '2' and pg_visible_in_snapshot(o.xid, \
                   (c.proven ->> 'snapshot')::pg_snapshot)";
    assert_eq!(rig.count(covered).await, 0, "the row is proven to be published, and is not");
}

/// Whether it was dropped or is only named wrongly is not known.
#[tokio::test]
async fn of_the_slot_of_a_publication_that_is_not_there_check_says_nothing() {
    let mut rig = rig_of(18).await;
    stop(rig.streaming().await).await;
    rig.released().await;
    assert_eq!(rig.checked("slot").await.0, Outcome::Ok);
    rig.config.publication = "wallpost".to_owned();
    rig.config.create_publication = false;
    let results = walpost_relay::check(&rig.database, &rig.config, &rig.router).await;
    let failed: Vec<&str> = results
        .iter()
        .filter(|result| result.outcome == Outcome::Fail)
        .map(|result| result.name)
        .collect();
    assert_eq!(failed, ["publication"]);
    assert!(!results.iter().any(|result| result.name == "slot"), "{results:?}");
}

/// Whether the schema was in it all the time nothing would tell.
#[tokio::test]
async fn a_publication_of_the_schema_alone_is_refused() {
    let rig = rig_of(18).await;
    run(&rig, DROP).await;
    run(&rig, "create publication walpost for tables in schema walpost").await;
    let refusal = rig.refusal().await;
    for part in ["by its schema alone", "alter publication \"walpost\" add table"] {
        assert!(refusal.contains(part), "expected {part:?} in: {refusal}");
    }
    run(&rig, PUT_BACK).await;
    stop(rig.streaming().await).await;
}

#[tokio::test]
async fn rows_of_a_table_that_is_added_have_to_be_decided_about() {
    let mut rig = rig_of(18).await;
    stop(rig.streaming().await).await;
    rig.released().await;
    run(&rig, "create table walpost.second (like walpost.outbox including all)").await;
    run(&rig, "alter publication walpost add table walpost.second").await;
    rig.config.tables.push(TableName { schema: "walpost".into(), name: "second".into() });
    stop(rig.streaming().await).await;
    rig.released().await;

    let added = rig.config.tables.pop().unwrap();
    let relay = rig.streaming().await;
    let insert = "insert into walpost.second (aggregatetype, aggregateid, type, payload) \
                  values ('order', 'a', 'Placed', '1')";
    run(&rig, insert).await;
    rig.insert("a", &["0"]).await;
    assert_eq!(rig.landed(1).await, ["0"]);
    stop(relay).await;
    rig.released().await;
    rig.config.tables.push(added);
    let refusal = rig.refusal().await;
    for part in ["second is new to pipeline", "initial = \"skip\""] {
        assert!(refusal.contains(part), "expected {part:?} in: {refusal}");
    }
    rig.config.initial = Some(Initial::Skip);
    let relay = rig.streaming().await;
    run(&rig, &insert.replace("'1'", "'2'")).await;
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.landed(3).await, ["0", "2", "3"]);
    stop(relay).await;
}

/// Of a commit that nobody sees yet the stream may have passed over the row.
#[tokio::test]
async fn rows_of_a_table_that_is_added_are_waited_for_until_they_are_seen() {
    let mut rig = rig_of(18).await;
    stop(rig.streaming().await).await;
    rig.released().await;
    run(&rig, "create table walpost.second (like walpost.outbox including all)").await;
    run(&rig, "alter publication walpost add table walpost.second").await;
    rig.config.tables.push(TableName { schema: "walpost".into(), name: "second".into() });
    let writer = rig.database.connect().await.unwrap();
    let insert = "begin; insert into walpost.second (aggregatetype, aggregateid, type, payload) \
                  values ('order', 'a', 'Placed', '1')";
    writer.batch_execute(insert).await.unwrap();
    let commit = async {
        let waits = "select count(*) from pg_stat_activity where datname = current_database() \
                     and query like 'select distinct virtualtransaction%'";
        until(SOON, "the start waits", async || rig.count(waits).await == 1).await;
        writer.batch_execute("commit").await.unwrap();
    };
    let (refusal, ()) = tokio::join!(rig.refusal(), commit);
    assert!(refusal.contains("second is new to pipeline"), "{refusal}");
}
