//! A server that was promoted or restored.

use walpost_relay::Outcome;
use walpost_testkit::{local::Postgres, until};

use crate::rig::{Rig, SOON, stop};

const TIMELINE: &str = "select timeline from walpost.checkpoint";

/// Ends the server's timeline as a restore from its own WAL does, and begins
/// the next.
fn begin_a_timeline(server: &Postgres) {
    server.stop_fast().unwrap();
    server.set("restore_command", "false").unwrap();
    std::fs::write(server.data_dir().join("recovery.signal"), "").unwrap();
    server.start().unwrap();
}

#[tokio::test]
async fn a_checkpoint_on_the_common_past_goes_on_and_any_other_is_refused() {
    let server = Postgres::builder().setting("wal_level", "logical").start().unwrap();
    let server = Box::leak(Box::new(server));
    let rig = Rig::on_local(server).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    stop(relay).await;
    assert_eq!(rig.count(TIMELINE).await, 1);

    begin_a_timeline(server);
    let rig = rig.reconnected().await;
    let promoted = "select (not pg_is_in_recovery())::int4::int8";
    until(SOON, "the end of the recovery", async || rig.count(promoted).await == 1).await;
    let (outcome, detail) = rig.checked("replication connection").await;
    assert_eq!(outcome, Outcome::Ok);
    assert!(detail.starts_with("timeline 2, since 0/"), "{detail}");
    let relay = rig.streaming().await;
    assert_eq!(rig.count(TIMELINE).await, 2);
    rig.insert("a", &["2"]).await;
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    stop(relay).await;
    rig.released().await;

    // As a row that came here by another way than the WAL.
    let confirmed = |timeline: i64| {
        format!(
            "update walpost.checkpoint set timeline = {timeline}, \
             confirmed_lsn = pg_current_wal_lsn()"
        )
    };
    rig.client.batch_execute(&confirmed(1)).await.unwrap();
    let refusal = rig.refusal().await;
    assert!(refusal.contains("its timeline 2 left that one at"), "{refusal}");
    assert!(refusal.contains("delete the pipeline's row"), "{refusal}");
    assert_eq!(rig.checked("replication connection").await.0, Outcome::Fail);
    rig.client.batch_execute(&confirmed(7)).await.unwrap();
    let refusal = rig.refusal().await;
    assert!(refusal.contains("does not descend from that one"), "{refusal}");
    assert_eq!(rig.world.values(), ["1", "2"]);
}
