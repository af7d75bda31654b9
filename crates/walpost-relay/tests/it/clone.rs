//! A server that is not the one that the pipeline ran on, though much is alike.

use walpost_relay::{Initial, Outcome};
use walpost_testkit::{local::Postgres, postgres_of, until};

use crate::rig::{Rig, SOON, stop};

const FORGET: &str = "delete from walpost.checkpoint";

/// Tables and rows were copied to another cluster, as by `pg_dump`.
#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn rows_copied_to_another_cluster_are_refused_with_both_of_them() {
    let rig = Rig::on(postgres_of(14)).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    stop(relay).await;
    let identity = "select system_identifier::text from pg_control_system()";
    let here: String = rig.client.query_one(identity, &[]).await.unwrap().get(0);

    let mut other = Rig::on(postgres_of(18)).await;
    let there: String = other.client.query_one(identity, &[]).await.unwrap().get(0);
    let read = "select to_jsonb(c)::text from walpost.checkpoint c";
    let row: String = rig.client.query_one(read, &[]).await.unwrap().get(0);
    let write = "insert into walpost.checkpoint \
                 select * from jsonb_populate_record(null::walpost.checkpoint, $1::text::jsonb)";
    other.client.execute(write, &[&row]).await.unwrap();
    other.config.slot.clone_from(&rig.config.slot);
    other.world = rig.world.clone();
    let create = "select pg_create_logical_replication_slot($1, 'pgoutput')";
    other.client.query(create, &[&other.config.slot]).await.unwrap();
    other.insert("a", &["2"]).await;

    let both = format!("was started on cluster {here}, this is cluster {there}");
    assert_eq!(
        other.checked("checkpoint").await,
        (Outcome::Fail, format!("pipeline \"shop\" {both}"))
    );
    let refusal = other.refusal().await;
    assert!(refusal.contains(&both), "{refusal}");
    assert!(refusal.contains("delete the pipeline's row in walpost.checkpoint"), "{refusal}");
    assert_eq!(other.world.values(), ["1"]);
    // The way that the refusal names: a history of its own.
    other.client.batch_execute(FORGET).await.unwrap();
    other.config.initial = Some(Initial::Skip);
    let relay = other.streaming().await;
    assert_eq!(other.landed(2).await, ["1", "2"]);
    stop(relay).await;
}

/// The disk of the server as it was once, as from a snapshot: system, timeline,
/// slot and checkpoint are all alike.
#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn a_server_that_was_set_back_without_a_new_timeline_is_refused() {
    let server = Postgres::builder().throwaway().start().unwrap();
    let server: &Postgres = Box::leak(Box::new(server));
    let rig = Rig::on_local(server).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    stop(relay).await;
    server.stop_fast().unwrap();
    let earlier = Postgres::builder().throwaway().clone_of(server).start().unwrap();
    server.start().unwrap();

    let rig = rig.reconnected().await;
    let relay = rig.streaming().await;
    // Farther than the other one will have come.
    let noise = "select pg_logical_emit_message(false, 'other', repeat('x', 1024 * 1024))";
    rig.client.batch_execute(noise).await.unwrap();
    rig.insert("a", &["2"]).await;
    rig.landed(2).await;
    stop(relay).await;

    let mut rig = rig.connecting_to(&earlier.url("postgres")).reconnected().await;
    let refusal = rig.refusal().await;
    for part in [
        "has published an event from 0/",
        "the server's WAL ends at 0/",
        "set back without a new timeline",
        "delete the pipeline's row in walpost.checkpoint",
    ] {
        assert!(refusal.contains(part), "expected {part:?} in: {refusal}");
    }
    assert_eq!(rig.world.values(), ["1", "2"]);
    rig.client.batch_execute(FORGET).await.unwrap();
    rig.config.initial = Some(Initial::Skip);
    rig.insert("a", &["3"]).await;
    let relay = rig.streaming().await;
    let third = async || rig.world.values().contains(&"3".to_owned());
    until(SOON, "the event of this server", third).await;
    // As the refusal says, what stands behind the slot may come again.
    assert!(["1", "3"].contains(&&*rig.world.values()[2]), "{:?}", rig.world.values());
    stop(relay).await;
}
