use walpost_relay::ParkMode;
use walpost_testkit::until;

use crate::rig::{Rig, SOON, stop};

const PARKED: &str = "select coalesce(string_agg(reason, ' ' order by commit_lsn, ordinal), '') \
                      from walpost.parked";

async fn reasons(rig: &Rig) -> String {
    rig.client.query_one(PARKED, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn an_event_without_a_route_is_parked_and_its_aggregate_waits() {
    let rig = Rig::new().await;
    rig.client
        .batch_execute("alter table walpost.outbox alter aggregatetype drop not null")
        .await
        .unwrap();
    let relay = rig.streaming().await;
    let lost_route = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                      values (null, 'a', 'Placed', '1'), (null, 'a', 'Placed', '2'), \
                      ('order', 'a', 'Placed', '3')";
    rig.client.batch_execute(lost_route).await.unwrap();
    rig.insert("b", &["4"]).await;
    assert_eq!(rig.landed(2).await, ["3", "4"]);
    assert_eq!(reasons(&rig).await, "unroutable behind");
    stop(relay).await;

    // Neither parked again nor sent, whoever reads the WAL next.
    let relay = rig.streaming().await;
    rig.insert("b", &["5"]).await;
    assert_eq!(rig.landed(3).await, ["3", "4", "5"]);
    assert_eq!(reasons(&rig).await, "unroutable behind");
    stop(relay).await;
}

#[tokio::test]
async fn a_row_beyond_the_limit_is_parked_with_its_size_and_the_rest_goes_on() {
    let mut rig = Rig::new().await;
    rig.config.max_event_bytes = 100_000;
    let relay = rig.streaming().await;
    let large = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                 select 'order', 'a', 'Placed', to_jsonb(string_agg(md5(n::text), '')) \
                 from generate_series(1, 10000) n";
    rig.client.batch_execute(large).await.unwrap();
    rig.insert("b", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    let row = rig
        .client
        .query_one("select reason, detail, event_id, aggregate_id from walpost.parked", &[])
        .await
        .unwrap();
    assert_eq!(row.get::<_, &str>(0), "oversize");
    assert!(row.get::<_, &str>(1).contains("max_event_bytes is 100000"), "{row:?}");
    assert!(row.get::<_, Option<&str>>(2).is_some_and(|id| id.len() == 36));
    assert_eq!(row.get::<_, &str>(3), "a");
    stop(relay).await;
}

#[tokio::test]
async fn what_the_sink_refuses_beforehand_is_parked_without_a_new_session() {
    let rig = Rig::new().await;
    rig.world.never("2");
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2", "3"]).await;
    rig.insert("b", &["4"]).await;
    assert_eq!(rig.landed(2).await, ["1", "4"]);
    assert_eq!(reasons(&rig).await, "rejected behind");
    assert_eq!(rig.world.sessions(), 1);
    stop(relay).await;
}

#[tokio::test]
async fn what_the_sink_refuses_afterwards_is_parked_and_nothing_behind_it_is_lost() {
    let rig = Rig::new().await;
    rig.world.reject("2");
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2", "3"]).await;
    rig.insert("b", &["4"]).await;
    until(SOON, "the event of the other aggregate", async || {
        rig.world.values().contains(&"4".to_owned())
    })
    .await;
    assert_eq!(reasons(&rig).await, "rejected behind");
    assert!(!rig.world.values().contains(&"3".to_owned()));
    stop(relay).await;
}

#[tokio::test]
async fn in_event_mode_nothing_waits_behind_a_parked_event() {
    let mut rig = Rig::new().await;
    rig.config.park = ParkMode::Event;
    rig.world.never("2");
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2", "3"]).await;
    assert_eq!(rig.landed(2).await, ["1", "3"]);
    assert_eq!(reasons(&rig).await, "rejected");
    stop(relay).await;
}

#[tokio::test]
async fn too_many_in_a_row_are_a_fault_and_halt() {
    let mut rig = Rig::new().await;
    rig.config.parked_halt_after = 3;
    rig.router.topic_replacement = "outbox.${routedByValue}".into();
    rig.client
        .batch_execute("alter table walpost.outbox alter aggregatetype drop not null")
        .await
        .unwrap();
    let mut relay = rig.streaming().await;
    for n in 0..5 {
        let sql = format!(
            "insert into walpost.outbox (aggregateid, type, payload) values ('a{n}', 'x', '1')"
        );
        rig.client.batch_execute(&sql).await.unwrap();
    }
    let error = tokio::time::timeout(SOON, relay.finished()).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("3 events in a row"), "{error}");
    assert_eq!(reasons(&rig).await, "unroutable unroutable unroutable");
}

#[tokio::test]
async fn a_message_that_is_no_event_is_parked() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    rig.client
        .batch_execute("select pg_logical_emit_message(true, 'walpost', 'not json')")
        .await
        .unwrap();
    rig.insert("b", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    assert_eq!(reasons(&rig).await, "undecodable");
    stop(relay).await;
}

#[tokio::test]
async fn a_message_beyond_the_limit_is_parked_and_never_passed_over() {
    let mut rig = Rig::new().await;
    rig.config.max_event_bytes = 100_000;
    let relay = rig.streaming().await;
    let emit = "select pg_logical_emit_message(true, $1, repeat('x', 200000))";
    rig.client.query(emit, &[&"walpost"]).await.unwrap();
    rig.client.query(emit, &[&"other"]).await.unwrap();
    rig.insert("b", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    assert_eq!(reasons(&rig).await, "oversize");
    stop(relay).await;
}
