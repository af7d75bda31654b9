use walpost_relay::{Initial, Phase};

use crate::rig::{Rig, SOON, phase, stop};
use walpost_testkit::until;

#[tokio::test]
async fn rows_that_no_slot_has_seen_need_a_decision() {
    let rig = Rig::new().await;
    rig.insert("a", &["1"]).await;
    let refusal = rig.refusal().await;
    assert!(refusal.contains("initial = \"publish\""), "{refusal}");
    let slots = "select count(*) from pg_replication_slots where database = current_database()";
    assert_eq!(rig.count(slots).await, 0, "a refusal leaves no slot behind");
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
    let values: Vec<String> = (0..2500).map(|n| n.to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    rig.insert("a", &values).await;
    rig.world.hold(true);
    let relay = rig.start();
    phase(&relay, &Phase::Loading).await;
    until(SOON, "a session of the sink", async || rig.world.sessions() == 1).await;
    // Not ours to load: it comes from the stream.
    rig.insert("b", &["-1"]).await;
    // Gone without a word: no drain, no checkpoint.
    drop(relay);
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
            "insert into walpost.checkpoint (pipeline, token, generation, system_id, slot, mode, \
             confirmed_lsn, initial) select 'shop', gen_random_uuid(), 7, system_identifier::text, \
             $1, 'idempotent', '0/0', 'creating' from pg_control_system()",
            &[&rig.config.slot],
        )
        .await
        .unwrap();
    rig.client
        .query("select pg_create_logical_replication_slot($1, 'pgoutput')", &[&rig.config.slot])
        .await
        .unwrap();
    rig.insert("a", &["2"]).await;
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    stop(relay).await;
}

#[tokio::test]
async fn an_existing_slot_is_taken_over_where_it_stands() {
    let rig = Rig::new().await;
    rig.insert("a", &["0"]).await;
    rig.client
        .query("select pg_create_logical_replication_slot($1, 'pgoutput')", &[&rig.config.slot])
        .await
        .unwrap();
    rig.insert("a", &["1"]).await;
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;
}
