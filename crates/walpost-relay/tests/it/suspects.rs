//! What the sink refuses after it has accepted it, and what follows from many
//! refusals.

use std::collections::BTreeSet;

use walpost_relay::Initial;
use walpost_testkit::until;

use crate::{
    parking::{allow_no_type, parked},
    rig::{Rig, SOON, status, stop},
};

/// The values of the parked records with their refusals, in the order of the
/// stream.
async fn records(rig: &Rig) -> Vec<(String, i32)> {
    let sql = "select convert_from(record_value, 'UTF8'), attempts from walpost.parked \
               order by commit_lsn, ordinal, id";
    let rows = rig.client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

async fn landed_are(rig: &Rig, values: &[&str]) {
    let expected: BTreeSet<String> = values.iter().map(|value| (*value).to_owned()).collect();
    let landed = || rig.world.values().into_iter().collect::<BTreeSet<_>>();
    until(SOON, "all that is not refused", async || landed().len() >= expected.len()).await;
    assert_eq!(landed(), expected);
}

/// Why the relay has ended.
async fn halted(relay: &mut walpost_relay::RunningRelay) -> String {
    tokio::time::timeout(SOON, relay.finished()).await.unwrap().unwrap_err().to_string()
}

#[tokio::test]
async fn what_the_sink_refuses_afterwards_is_parked_and_nothing_behind_it_is_lost() {
    let rig = Rig::new().await;
    rig.world.reject("2");
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2", "3"]).await;
    rig.insert("b", &["4"]).await;
    landed_are(&rig, &["1", "4"]).await;
    parked(&rig, "rejected behind").await;
    assert_eq!(records(&rig).await, [("2".to_owned(), 2), ("3".to_owned(), 0)]);
    stop(relay).await;
}

#[tokio::test]
async fn of_a_refused_batch_only_what_is_refused_alone_is_parked() {
    let rig = Rig::new().await;
    rig.world.spoil("3");
    rig.world.spoil("5");
    rig.world.hold(true);
    let relay = rig.streaming().await;
    let sql = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
               select 'order', n::text, 'Placed', to_jsonb(n) from generate_series(1, 7) n";
    rig.client.batch_execute(sql).await.unwrap();
    status(&relay, "a batch of seven", |status| status.outstanding == 7).await;
    rig.world.hold(false);
    landed_are(&rig, &["1", "2", "4", "6", "7"]).await;
    parked(&rig, "rejected rejected").await;
    assert_eq!(records(&rig).await, [("3".to_owned(), 2), ("5".to_owned(), 2)]);
    // The batch; then alone up to 3, up to 5, and to the end.
    assert_eq!(rig.world.sessions(), 4);
    stop(relay).await;
}

#[tokio::test]
async fn a_suspect_waits_for_what_is_on_its_way_and_what_follows_waits_for_the_suspect() {
    let rig = Rig::new().await;
    rig.world.spoil("2");
    rig.world.hold(true);
    let relay = rig.streaming().await;
    for (aggregate, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
        rig.insert(aggregate, &[value]).await;
    }
    status(&relay, "a batch of three", |status| status.outstanding == 3).await;
    rig.world.hold(false);
    parked(&rig, "rejected").await;
    assert_eq!(records(&rig).await, [("2".to_owned(), 2)]);
    landed_are(&rig, &["1", "3"]).await;
    stop(relay).await;
}

/// A relay that loads these rows, and whose first session has ended but for
/// its last moment.
async fn loading(rig: &mut Rig, values: &[&str]) -> walpost_relay::RunningRelay {
    rig.config.initial = Some(Initial::Publish);
    for value in values {
        rig.insert(value, &[value]).await;
    }
    rig.world.keep_open(true);
    let relay = rig.start();
    until(SOON, "a refusal", async || rig.world.closing() == 1).await;
    relay
}

async fn delete(rig: &Rig, value: &str) {
    let sql = format!("delete from walpost.outbox where payload = '{value}'");
    assert_eq!(rig.client.execute(&sql, &[]).await.unwrap(), 1);
}

#[tokio::test]
async fn a_row_that_moves_to_the_position_of_a_refused_one_is_not_parked_for_it() {
    let mut rig = Rig::new().await;
    rig.world.reject("2");
    let relay = loading(&mut rig, &["1", "2", "3", "4"]).await;
    delete(&rig, "1").await;
    rig.world.keep_open(false);
    landed_are(&rig, &["1", "3", "4"]).await;
    parked(&rig, "rejected").await;
    assert_eq!(records(&rig).await[0].0, "2");
    stop(relay).await;
}

#[tokio::test]
async fn a_row_that_moves_to_the_position_of_a_parked_one_has_a_row_of_its_own() {
    let mut rig = Rig::new().await;
    rig.world.never("1");
    rig.world.reject("3");
    let relay = loading(&mut rig, &["1", "2", "3", "4"]).await;
    delete(&rig, "1").await;
    rig.world.never("2");
    rig.world.lose("2");
    rig.world.keep_open(false);
    landed_are(&rig, &["4"]).await;
    parked(&rig, "rejected rejected rejected").await;
    let values: BTreeSet<String> = records(&rig).await.into_iter().map(|(v, _)| v).collect();
    assert_eq!(values, ["1", "2", "3"].map(str::to_owned).into());
    stop(relay).await;
}

#[tokio::test]
async fn too_many_in_a_row_are_a_fault_and_halt() {
    let mut rig = Rig::new().await;
    rig.config.parked_halt_after = 3;
    allow_no_type(&rig).await;
    let mut relay = rig.streaming().await;
    for n in 0..5 {
        let sql = format!(
            "insert into walpost.outbox (aggregateid, type, payload) values ('a{n}', 'x', '1')"
        );
        rig.client.batch_execute(&sql).await.unwrap();
    }
    let error = halted(&mut relay).await;
    assert!(error.contains("3 events in a row"), "{error}");
    parked(&rig, "unroutable unroutable unroutable").await;
}

#[tokio::test]
async fn too_many_refusals_in_a_row_halt_although_each_ends_a_session() {
    let mut rig = Rig::new().await;
    rig.config.parked_halt_after = 3;
    let mut relay = rig.streaming().await;
    for n in 0..8 {
        let value = n.to_string();
        rig.world.reject(&value);
        rig.insert(&value, &[&value]).await;
    }
    let error = halted(&mut relay).await;
    assert!(error.contains("3 events in a row"), "{error}");
    parked(&rig, "rejected rejected rejected").await;
    assert!(rig.world.values().is_empty());
}

#[tokio::test]
async fn what_is_on_its_way_may_still_end_a_row_of_parked_events() {
    let mut rig = Rig::new().await;
    rig.config.parked_halt_after = 3;
    rig.world.hold(true);
    let relay = rig.streaming().await;
    for n in 0..10 {
        let (refused, fine) = ((2 * n).to_string(), (2 * n + 1).to_string());
        rig.world.never(&refused);
        rig.insert(&refused, &[&refused]).await;
        rig.insert(&fine, &[&fine]).await;
    }
    status(&relay, "three events on their way", |status| status.outstanding == 3).await;
    parked(&rig, "rejected rejected rejected").await;
    rig.world.hold(false);
    assert_eq!(rig.landed(10).await.last().unwrap(), "19");
    parked(&rig, &["rejected"; 10].join(" ")).await;
    assert_eq!(rig.world.sessions(), 1);
    stop(relay).await;
}
