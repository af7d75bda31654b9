//! Which snapshot the checkpoint calls proven.

use tokio_postgres::Client;
use walpost_testkit::until;

use crate::rig::{Rig, SOON, stop};

/// Rows that the proven snapshot sees.
pub(crate) const PROVEN: &str = "select count(*) from walpost.outbox, walpost.checkpoint \
     where pg_visible_in_snapshot(xid, (proven ->> 'snapshot')::pg_snapshot)";

/// Waits until the proven snapshot sees so many rows.
pub(crate) async fn proven(rig: &Rig, rows: i64) {
    until(SOON, &format!("{rows} proven rows"), async || rig.count(PROVEN).await == rows).await;
}

pub(crate) async fn open_transaction(rig: &Rig, aggregate: &str, value: &str) -> Client {
    let writer = rig.database.connect().await.unwrap();
    let insert = format!(
        "begin; insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
         values ('order', '{aggregate}', 'Placed', '{value}')"
    );
    writer.batch_execute(&insert).await.unwrap();
    writer
}

#[tokio::test]
async fn rows_are_proven_once_they_are_published_and_an_open_one_is_not() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2"]).await;
    proven(&rig, 2).await;
    let late = open_transaction(&rig, "b", "3").await;
    rig.insert("a", &["4"]).await;
    proven(&rig, 3).await;
    rig.world.hold(true);
    rig.insert("a", &["5"]).await;
    late.batch_execute("commit").await.unwrap();
    // Whatever is looked at meanwhile, nothing that is on its way is proven.
    let checkpoints = "select extract(epoch from updated_at)::float8::text from walpost.checkpoint";
    let before: String = rig.client.query_one(checkpoints, &[]).await.unwrap().get(0);
    rig.client.batch_execute("create table other as select 1").await.unwrap();
    until(SOON, "both on their way", async || relay.status().borrow().outstanding == 2).await;
    assert_eq!(rig.count(PROVEN).await, 3);
    rig.world.hold(false);
    proven(&rig, 5).await;
    let after: String = rig.client.query_one(checkpoints, &[]).await.unwrap().get(0);
    assert_ne!(before, after);
    stop(relay).await;
}

#[tokio::test]
async fn a_slot_beside_an_empty_table_begins_with_a_proven_snapshot() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    let proven = "select count(*) from walpost.checkpoint where proven is not null \
                  and tables = array['\"walpost\".\"outbox\"']";
    assert_eq!(rig.count(proven).await, 1);
    stop(relay).await;
}

#[tokio::test]
async fn under_lag_a_pending_snapshot_survives_the_session() {
    let mut rig = Rig::new().await;
    (rig.config.in_flight_max_events, rig.config.drain_timeout_ms) = (1, 500);
    let relay = rig.streaming().await;
    rig.insert("a", &["0"]).await;
    proven(&rig, 1).await;
    let mut allowed = 1;
    rig.world.hold_after(allowed);
    let values: Vec<String> = (1..3000).map(|n: u32| n.to_string()).collect();
    rig.insert("a", &values.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let pending = "select count(*) from walpost.checkpoint where pending is not null";
    until(SOON, "a pending snapshot", async || {
        allowed += 10;
        rig.world.hold_after(allowed);
        rig.count(pending).await == 1
    })
    .await;
    stop(relay).await;
    rig.released().await;
    rig.world.hold(false);
    let relay = rig.streaming().await;
    proven(&rig, 3000).await;
    assert_eq!(rig.world.values().len(), 3000);
    stop(relay).await;
}
