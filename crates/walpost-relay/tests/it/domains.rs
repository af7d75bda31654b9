//! Columns of domains are encoded as the types below them, wherever rows come from.

use walpost_encode::{Encoder, Encoding, JsonOptions, JsonPayload, NullKey};
use walpost_event::Message;
use walpost_relay::{Initial, Phase, PollingConfig, PollingRelay, Relay, RunningRelay};

use crate::{
    polling_rig::Polled,
    rig::{Rig, phase, stop},
    sink::value,
};

const TABLE: &str = "create domain document as jsonb check (jsonb_typeof(value) = 'object'); \
    create domain invoice as document; \
    create domain bytes as bytea; \
    create domain moment as timestamptz; \
    create domain flag as boolean; \
    create table public.box (id bigint generated always as identity primary key, \
    aggregatetype text not null default 'order', aggregateid text not null default 'a', \
    payload invoice, scan bytes, at moment, paid flag, status text not null default 'NEW')";

/// An event each: its payload, and further columns.
const EVENT: &str = "insert into public.box (payload, scan, at, paid) values \
    ('{\"n\": 1}', '\\x00ff', '2024-05-06 07:08:09.5+00', true)";

async fn boxes() -> Rig {
    let mut rig = Rig::new().await;
    rig.client.batch_execute(TABLE).await.unwrap();
    rig.config.tables = vec!["public.box".parse().unwrap()];
    rig.config.publication = "boxes".to_owned();
    rig.config.initial = Some(Initial::Publish);
    rig.router.event_timestamp = Some("at".to_owned());
    rig.router.additional_placement = Some("paid:header".to_owned());
    rig
}

fn json() -> Encoding {
    let options = JsonOptions { json_payload: JsonPayload::Embed, null_key: NullKey::None };
    Encoding { key: Encoder::Raw, value: Encoder::Json(options) }
}

fn start(rig: &Rig, encoding: Encoding) -> RunningRelay {
    let relay = Relay::new(rig.database.clone(), rig.config.clone(), rig.router.clone(), encoding);
    let world = rig.world.clone();
    relay.unwrap().start(async move || world.connect().await)
}

fn assert_plain(message: &Message) {
    assert_eq!(value(message), "{\"n\": 1}", "embedded");
    assert_eq!(message.timestamp_ms, Some(1_714_979_289_500));
    let paid = message.headers.iter().find(|header| &*header.name == "paid").unwrap();
    assert_eq!(paid.value.as_deref(), Some(&b"true"[..]));
}

#[tokio::test]
async fn a_domain_is_encoded_as_its_type_by_load_and_stream() {
    let rig = boxes().await;
    rig.client.batch_execute(EVENT).await.unwrap();
    let relay = start(&rig, json());
    rig.landed(1).await;
    rig.client.batch_execute(EVENT).await.unwrap();
    rig.landed(2).await;
    // One that the column gets while the relay runs.
    let alter = "create domain other as jsonb; \
                 alter table public.box alter payload type other";
    rig.client.batch_execute(alter).await.unwrap();
    rig.client.batch_execute(EVENT).await.unwrap();
    rig.landed(3).await;
    stop(relay).await;
    rig.world.landed().iter().for_each(assert_plain);
}

#[tokio::test]
async fn a_domain_over_bytes_is_sent_as_bytes() {
    let mut rig = boxes().await;
    rig.router.event_payload = "scan".to_owned();
    rig.client.batch_execute(EVENT).await.unwrap();
    let relay = start(&rig, Encoding { key: Encoder::Raw, value: Encoder::Raw });
    rig.landed(1).await;
    rig.client.batch_execute(EVENT).await.unwrap();
    rig.landed(2).await;
    stop(relay).await;
    for message in rig.world.landed() {
        assert_eq!(message.value.as_deref(), Some(&b"\x00\xff"[..]));
    }
}

#[tokio::test]
async fn a_poller_encodes_a_domain_as_its_type() {
    let rig = boxes().await;
    rig.client.batch_execute(EVENT).await.unwrap();
    let mut polled = Polled { rig, polling: PollingConfig::default() };
    let polling = &mut polled.polling;
    polling.order_columns = vec!["id".to_owned()];
    for column in [
        &mut polling.attempts_column,
        &mut polling.next_attempt_at_column,
        &mut polling.published_at_column,
        &mut polling.last_error_column,
        &mut polling.created_at_column,
    ] {
        column.clear();
    }
    let Rig { database, config, router, world, .. } = &polled.rig;
    let relay = PollingRelay::new(
        database.clone(),
        config.clone(),
        polled.polling.clone(),
        router.clone(),
        json(),
    );
    let sink = world.clone();
    let relay = relay.unwrap().start(async move || sink.connect().await);
    phase(&relay, &Phase::Streaming).await;
    polled.rig.landed(1).await;
    stop(relay).await;
    assert_plain(&polled.rig.world.landed()[0]);
}

/// Debezium publishes such a message, even one of a transaction that rolled back.
#[tokio::test]
async fn a_message_that_is_part_of_no_transaction_is_parked() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    let emit = |transactional: bool, id: &str| {
        format!(
            "select pg_logical_emit_message({transactional}, 'walpost', \
             '{{\"id\": \"{id}\", \"aggregatetype\": \"order\", \"aggregateid\": \"a\", \
             \"type\": \"Placed\", \"payload\": {{\"n\": \"{id}\"}}}}')"
        )
    };
    let rolled_back = format!("begin; {}; {}; rollback", emit(false, "e1"), emit(true, "e2"));
    rig.client.batch_execute(&rolled_back).await.unwrap();
    rig.client.batch_execute(&emit(true, "e3")).await.unwrap();
    rig.landed(1).await;
    let parked = "select count(*) from walpost.parked where state = 'open' \
                  and detail like 'the message is not transactional%'";
    assert_eq!(rig.count(parked).await, 1);
    stop(relay).await;
    assert_eq!(rig.world.count(), 1);
    assert!(rig.world.values()[0].contains("e3"), "{:?}", rig.world.values());
}
