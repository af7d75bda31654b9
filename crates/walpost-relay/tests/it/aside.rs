//! A topic that cannot be used holds up nobody else: its events are set aside,
//! sent in order when it can, and parked when that takes too long.

use walpost_relay::{Initial, LostSlot, Phase, PipelineStatus, SwitchTo};
use walpost_testkit::until;

use crate::{
    parking::parked,
    polling_rig::Polled,
    proven::proven,
    rig::{Rig, SOON, interrupt, phase, status, stop},
    switching::switch,
};

const LOST: &str = "outbox.event.lost";

/// One event in a transaction of its own.
async fn event(rig: &Rig, kind: &str, aggregate: &str, value: u32) {
    let sql = format!(
        "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
         values ('{kind}', '{aggregate}', 'Placed', '{value}')"
    );
    rig.client.batch_execute(&sql).await.unwrap();
}

/// With the lost topic away, and four events of which the second and the fourth
/// are published.
async fn two_set_aside(timeout_ms: u64) -> Rig {
    let mut rig = Rig::new().await;
    rig.config.missing_topic_timeout_ms = timeout_ms;
    rig.world.remove_topic(LOST);
    rig
}

async fn four_events(rig: &Rig) {
    event(rig, "lost", "a", 1).await;
    event(rig, "order", "b", 2).await;
    event(rig, "lost", "a", 3).await;
    event(rig, "order", "b", 4).await;
    assert_eq!(rig.landed(2).await, ["2", "4"]);
}

const WAL_NOW: &str = "select pg_current_wal_insert_lsn()::text";
const ROWS: &str = "select count(*) from walpost.parked";

#[tokio::test]
async fn events_of_a_missing_topic_are_set_aside_and_follow_in_order_when_it_is_there() {
    let rig = two_set_aside(60_000).await;
    let relay = rig.streaming().await;
    let before = rig.lsn(WAL_NOW).await;
    four_events(&rig).await;
    let now = rig.lsn(WAL_NOW).await;
    status(&relay, "all of it received", |status| status.received >= now).await;
    let first =
        rig.count("select pg_wal_lsn_diff(confirmed_lsn, '0/0')::bigint from walpost.checkpoint");
    assert!(first.await as u64 <= u64::from(now), "the position waits for them");
    assert!(relay.status().borrow().done < now && relay.status().borrow().done <= before.max(now));

    rig.world.create_topic(LOST);
    assert_eq!(rig.landed(4).await, ["2", "4", "1", "3"]);
    event(&rig, "lost", "a", 5).await;
    event(&rig, "order", "b", 6).await;
    assert_eq!(rig.landed(6).await[4..], ["5", "6"]);
    let now = rig.lsn(WAL_NOW).await;
    until(SOON, "the slot follows", async || rig.slot_position().await >= now).await;
    assert_eq!((rig.count(ROWS).await, rig.world.sessions()), (0, 1));
    stop(relay).await;
}

#[tokio::test]
async fn whoever_dies_with_events_set_aside_loses_and_repeats_none() {
    let rig = two_set_aside(60_000).await;
    let relay = rig.streaming().await;
    four_events(&rig).await;
    interrupt(&rig, &relay).await;
    event(&rig, "order", "b", 5).await;
    assert_eq!(rig.landed(3).await, ["2", "4", "5"]);
    // An orderly stop does not wait for them either.
    stop(relay).await;
    assert_eq!(rig.count(ROWS).await, 0);
    let relay = rig.streaming().await;
    event(&rig, "order", "b", 6).await;
    assert_eq!(rig.landed(4).await, ["2", "4", "5", "6"]);
    rig.world.create_topic(LOST);
    assert_eq!(rig.landed(6).await, ["2", "4", "5", "6", "1", "3"]);
    stop(relay).await;
}

#[tokio::test]
async fn after_the_stated_time_they_are_parked_and_the_position_goes_on() {
    let rig = two_set_aside(8_000).await;
    let relay = rig.streaming().await;
    four_events(&rig).await;
    parked(&rig, "no_topic no_topic").await;
    let now = rig.lsn(WAL_NOW).await;
    until(SOON, "the slot follows", async || rig.slot_position().await >= now).await;
    let detail = "select detail from walpost.parked order by id limit 1";
    let detail: String = rig.client.query_one(detail, &[]).await.unwrap().get(0);
    assert_eq!(detail, format!("topic {LOST} is missing"));

    // It is back: what follows in the aggregate waits, another does not.
    rig.world.create_topic(LOST);
    event(&rig, "lost", "a", 5).await;
    event(&rig, "lost", "c", 6).await;
    assert_eq!(rig.landed(3).await, ["2", "4", "6"]);
    parked(&rig, "no_topic no_topic behind").await;
    let retry = "update walpost.parked set requested = 'retry' where reason = 'no_topic'";
    rig.client.batch_execute(retry).await.unwrap();
    assert_eq!(rig.landed(6).await, ["2", "4", "6", "1", "3", "5"]);
    stop(relay).await;
}

/// Of 100 ms, by the server's clock.
async fn ten_times_the_stated_time(rig: &Rig) {
    let begun: String =
        rig.client.query_one("select clock_timestamp()::text", &[]).await.unwrap().get(0);
    let late =
        format!("select (clock_timestamp() > '{begun}'::timestamptz + '1 second')::int4::int8");
    until(SOON, "ten times the stated time", async || rig.count(&late).await == 1).await;
}

#[tokio::test]
async fn where_nothing_else_is_published_they_wait_and_nothing_is_parked() {
    let rig = two_set_aside(100).await;
    let relay = rig.streaming().await;
    for value in 1..=3 {
        event(&rig, "lost", "a", value).await;
    }
    let now = rig.lsn(WAL_NOW).await;
    status(&relay, "all of it received", |status| status.received >= now).await;
    ten_times_the_stated_time(&rig).await;
    assert_eq!(rig.count(ROWS).await, 0);
    rig.world.create_topic(LOST);
    assert_eq!(rig.landed(3).await, ["1", "2", "3"]);
    stop(relay).await;
}

#[tokio::test]
async fn more_than_there_is_room_for_are_parked_at_once_and_what_comes_behind_goes_on() {
    let rig = two_set_aside(60_000).await;
    let relay = rig.streaming().await;
    event(&rig, "order", "b", 1).await;
    rig.landed(1).await;
    let many = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                select 'lost', (n % 50)::text, 'Placed', to_jsonb(n) from generate_series(1, 12000) n";
    rig.client.batch_execute(many).await.unwrap();
    event(&rig, "order", "b", 2).await;
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    until(SOON, "rows", async || rig.count(ROWS).await >= 10_000).await;
    let parked = rig.count(ROWS).await;
    rig.world.create_topic(LOST);
    let values = async || rig.world.count() as i64 - 2 + rig.count(ROWS).await;
    until(SOON, "each is published or parked", async || values().await == 12_000).await;
    assert!((10_000..=12_000).contains(&parked), "{parked}");
    let now = rig.lsn(WAL_NOW).await;
    until(SOON, "the slot follows", async || rig.slot_position().await >= now).await;
    stop(relay).await;
}

/// The last event of what ends: nothing comes behind it.
async fn last_of_a_load(rig: &Rig) {
    event(rig, "order", "b", 1).await;
    event(rig, "lost", "a", 2).await;
}

#[tokio::test]
async fn at_the_end_of_an_initial_load_they_are_parked_and_the_stream_begins() {
    let mut rig = two_set_aside(2_000).await;
    rig.config.initial = Some(Initial::Publish);
    last_of_a_load(&rig).await;
    let relay = rig.start();
    parked(&rig, "no_topic").await;
    phase(&relay, &Phase::Streaming).await;
    event(&rig, "order", "b", 3).await;
    event(&rig, "lost", "a", 4).await;
    assert_eq!(rig.landed(2).await, ["1", "3"]);
    parked(&rig, "no_topic behind").await;
    rig.world.create_topic(LOST);
    let retry = "update walpost.parked set requested = 'retry' where reason = 'no_topic'";
    rig.client.batch_execute(retry).await.unwrap();
    assert_eq!(rig.landed(4).await, ["1", "3", "2", "4"]);
    stop(relay).await;
}

/// Nothing shows that any topic can be used: fewer than would halt the pipeline
/// are parked, and so many wait.
#[tokio::test]
async fn at_the_end_of_a_load_of_missing_topics_alone_few_are_parked_and_many_wait() {
    for (rows, reasons) in [(2, "no_topic no_topic"), (3, "")] {
        let mut rig = two_set_aside(100).await;
        (rig.config.initial, rig.config.parked_halt_after) = (Some(Initial::Publish), 3);
        for value in 1..=rows {
            event(&rig, "lost", "a", value).await;
        }
        let relay = rig.start();
        let is_loading = |status: &PipelineStatus| status.loaded == u64::from(rows);
        status(&relay, "all rows read", is_loading).await;
        if reasons.is_empty() {
            ten_times_the_stated_time(&rig).await;
            rig.world.create_topic(LOST);
            assert_eq!(rig.landed(3).await, ["1", "2", "3"]);
        }
        phase(&relay, &Phase::Streaming).await;
        parked(&rig, reasons).await;
        stop(relay).await;
    }
}

#[tokio::test]
async fn at_the_end_of_a_recovery_they_are_parked_and_the_stream_begins() {
    let mut rig = two_set_aside(2_000).await;
    rig.config.on_lost_slot = LostSlot::Recover;
    let relay = rig.streaming().await;
    event(&rig, "order", "b", 0).await;
    proven(&rig, 1).await;
    stop(relay).await;
    rig.released().await;
    let drop = format!("select pg_drop_replication_slot('{}')", rig.config.slot);
    rig.client.batch_execute(&drop).await.unwrap();
    last_of_a_load(&rig).await;
    let relay = rig.start();
    parked(&rig, "no_topic").await;
    phase(&relay, &Phase::Streaming).await;
    event(&rig, "order", "b", 3).await;
    assert_eq!(rig.landed(3).await, ["0", "1", "3"]);
    stop(relay).await;
}

#[tokio::test]
async fn at_the_cut_of_a_switch_they_are_parked_and_the_switch_says_so() {
    let mut polled = Polled::new().await;
    polled.rig.config.missing_topic_timeout_ms = 300;
    let rig = &polled.rig;
    rig.world.remove_topic(LOST);
    stop(rig.streaming().await).await;
    rig.released().await;
    last_of_a_load(rig).await;
    let error = switch(&polled, SwitchTo::Polling).await.unwrap_err().to_string();
    assert!(error.contains("1 events") && error.contains("are parked"), "{error}");
    parked(rig, "no_topic").await;
    let discard = "update walpost.parked set state = 'discarded'";
    rig.client.batch_execute(discard).await.unwrap();
    assert!(!switch(&polled, SwitchTo::Polling).await.unwrap().is_already);
}

#[tokio::test]
async fn what_another_topic_takes_meanwhile_counts_wherever_it_stands_in_the_stream() {
    let rig = two_set_aside(2_000).await;
    let relay = rig.streaming().await;
    rig.world.hold(true);
    event(&rig, "order", "b", 1).await;
    event(&rig, "lost", "a", 2).await;
    let now = rig.lsn(WAL_NOW).await;
    status(&relay, "both received", |status| status.received >= now).await;
    rig.world.hold(false);
    parked(&rig, "no_topic").await;
    let now = rig.lsn(WAL_NOW).await;
    until(SOON, "the slot follows", async || rig.slot_position().await >= now).await;
    stop(relay).await;
}
