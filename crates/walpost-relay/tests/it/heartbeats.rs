//! Heartbeats: Debezium's records, in nobody's way, and a statement at each.

use std::time::Duration;

use tokio::task::JoinHandle;
use walpost_encode::connect::{
    Converter, Converters, HeaderConverter, JsonConverter, JsonConverterOptions, TypedRecord,
};
use walpost_event::Message;
use walpost_relay::{Heartbeat, Heartbeats, Phase, RunningRelay};
use walpost_testkit::until;

use crate::{
    rig::{Rig, SOON, interrupt, phase, stop},
    sink::World,
};

const TOPIC: &str = "__debezium-heartbeat.shop";

async fn rig(action_query: Option<&str>) -> Rig {
    let mut rig = Rig::new().await;
    rig.config.heartbeat = Some(Heartbeat {
        interval_ms: 20,
        topic: TOPIC.to_owned(),
        server_name: "shop".to_owned(),
        action_query: action_query.map(str::to_owned),
    });
    rig
}

fn converters() -> Converters {
    let options = JsonConverterOptions { schemas: false, ..Default::default() };
    let json = Converter::Json(JsonConverter::new(options));
    Converters { key: json.clone(), value: json, header: HeaderConverter::Simple }
}

/// Has the heartbeats of a relay come to a world.
fn beat(rig: &Rig, relay: &RunningRelay, world: &World) -> JoinHandle<()> {
    let heartbeats = Heartbeats::new(&rig.database, &rig.config).unwrap();
    let world = world.clone();
    let connect = move || {
        let world = world.clone();
        async move { world.connect().await }
    };
    let mut converters = converters();
    let form = move |record: TypedRecord| {
        let message = converters.convert(&record).map_err(|error| format!("{error:?}"));
        async move { message.map(Some) }
    };
    tokio::spawn(heartbeats.run(relay.status(), connect, form))
}

fn beats(world: &World) -> Vec<Message> {
    world.landed().into_iter().filter(|message| &*message.topic == TOPIC).collect()
}

/// Of the pipeline's own.
fn events(world: &World) -> usize {
    world.landed().iter().filter(|message| &*message.topic != TOPIC).count()
}

async fn more_beats(world: &World) {
    let before = beats(world).len();
    until(SOON, "two more heartbeats", async || beats(world).len() >= before + 2).await;
}

#[tokio::test]
async fn heartbeats_come_while_the_pipeline_streams_and_end_with_it() {
    let (rig, world) = (rig(None).await, World::default());
    let relay = rig.streaming().await;
    let beating = beat(&rig, &relay, &world);
    more_beats(&world).await;
    let first = &beats(&world)[0];
    assert_eq!(first.key.as_deref(), Some(&br#"{"serverName":"shop"}"#[..]));
    assert_eq!((first.partition, first.headers.len()), (Some(0), 0));
    let value: serde_json::Value = serde_json::from_slice(first.value.as_deref().unwrap()).unwrap();
    assert!(value["ts_ms"].as_i64().unwrap() > 1_700_000_000_000, "{value}");
    // Another relay has the slot: this one is silent.
    let (other, silent) = (rig.start(), World::default());
    phase(&other, &Phase::Standby).await;
    let standing_by = beat(&rig, &other, &silent);
    more_beats(&world).await;
    assert_eq!(silent.count(), 0);
    stop(other).await;
    stop(relay).await;
    for task in [beating, standing_by] {
        tokio::time::timeout(SOON, task).await.expect("it ends with the pipeline").unwrap();
    }
}

#[tokio::test]
async fn an_action_query_that_fails_stops_nothing_and_is_tried_again() {
    let query = "insert into pulse default values";
    let (rig, world) = (rig(Some(query)).await, World::default());
    let relay = rig.streaming().await;
    let beating = beat(&rig, &relay, &world);
    more_beats(&world).await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    rig.client.batch_execute("create table pulse (at timestamptz default now())").await.unwrap();
    let pulses = "select count(*) from pulse";
    until(SOON, "the statement works", async || rig.count(pulses).await > 1).await;
    // Its session is gone, as behind a restart of the server.
    let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                where datname = current_database() and query = 'insert into pulse default values'";
    assert!(rig.count(kill).await > 0);
    let before = rig.count(pulses).await;
    until(SOON, "it goes on", async || rig.count(pulses).await > before + 1).await;
    assert_eq!(relay.status().borrow().phase, Phase::Streaming);
    assert_eq!(relay.status().borrow().failed_sessions, 0);
    stop(relay).await;
    beating.await.unwrap();
}

#[tokio::test]
async fn heartbeats_pass_no_event_that_is_not_delivered_and_are_none_at_a_restart() {
    let (rig, beside) = (rig(None).await, World::default());
    let relay = rig.streaming().await;
    let beating = beat(&rig, &relay, &beside);
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    rig.world.hold(true);
    rig.insert("a", &["2"]).await;
    let written = rig.lsn("select pg_current_wal_insert_lsn()::text").await;
    more_beats(&beside).await;
    more_beats(&beside).await;
    assert!(rig.slot_position().await < written, "the event is not delivered");
    rig.world.hold(false);
    rig.landed(2).await;
    // In the same topics' brokers, where a start reads back.
    let beating_too = beat(&rig, &relay, &rig.world);
    more_beats(&rig.world).await;
    interrupt(&rig, &relay).await;
    phase(&relay, &Phase::Streaming).await;
    rig.insert("a", &["3"]).await;
    until(SOON, "the event behind", async || events(&rig.world) >= 3).await;
    more_beats(&rig.world).await;
    assert_eq!(events(&rig.world), 3, "each event once");
    let parked = "select count(*) from walpost.parked";
    assert_eq!(rig.count(parked).await, 0);
    stop(relay).await;
    for task in [beating, beating_too] {
        tokio::time::timeout(Duration::from_secs(20), task).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_topic_that_is_missing_costs_heartbeats_and_nothing_else() {
    let (rig, world) = (rig(None).await, World::default());
    world.remove_topic(TOPIC);
    let relay = rig.streaming().await;
    let beating = beat(&rig, &relay, &world);
    until(SOON, "attempts", async || world.sessions() >= 3).await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    world.create_topic(TOPIC);
    more_beats(&world).await;
    stop(relay).await;
    beating.await.unwrap();
}
