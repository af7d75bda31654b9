//! What Debezium and Kafka Connect would write, from real rows.

use walpost_encode::connect::{
    Action, Condition, Converter, Converters, HeaderConverter, JsonConverter, JsonConverterOptions,
    ShapeOptions, Test, Transform, Transforms, TypingOptions, literal,
};
use walpost_event::Message;
use walpost_relay::{
    ConnectOptions, ContextHeaders, PollingRelay, Registries, Relay, ReplayFilter, ReplayState,
    Replayer, RunningRelay,
};
use walpost_router::{InvalidOperation, Pattern, Rewrite, RouterConfig};
use walpost_testkit::until;

use crate::{
    polling_rig::Polled,
    replay::{order, run},
    rig::{Rig, SOON, phase, status, stop},
};

fn json(schemas: bool) -> Converter {
    Converter::Json(JsonConverter::new(JsonConverterOptions {
        schemas,
        ..JsonConverterOptions::default()
    }))
}

/// Kafka Connect's defaults, and JSON with schemas.
pub(crate) fn options() -> ConnectOptions {
    ConnectOptions {
        shape: ShapeOptions { topic_prefix: "shop".to_owned(), ..ShapeOptions::default() },
        typing: TypingOptions::default(),
        transforms: Transforms::default(),
        converters: Converters {
            key: json(true),
            value: json(true),
            header: HeaderConverter::Simple,
        },
        registries: Registries::default(),
        context_headers: ContextHeaders::None,
    }
}

pub(crate) async fn streaming(rig: &Rig, options: ConnectOptions) -> RunningRelay {
    let (database, config) = (rig.database.clone(), rig.config.clone());
    let world = rig.world.clone();
    let relay = Relay::new(database, config, rig.router.clone(), options).unwrap();
    let relay = relay.start(async move || world.connect().await);
    phase(&relay, &walpost_relay::Phase::Streaming).await;
    relay
}

fn always(action: Action) -> Transform {
    Transform { action, condition: None }
}

fn of_topic(action: Action, pattern: &str) -> Transform {
    let test = Test::TopicMatches(Pattern::new(pattern).unwrap());
    Transform { action, condition: Some(Condition { test, negate: false }) }
}

fn text(bytes: Option<&bytes::Bytes>) -> &str {
    std::str::from_utf8(bytes.map_or(b"(none)", |bytes| bytes)).unwrap()
}

/// The headers that are not the relay's own.
fn headers(message: &Message) -> Vec<(String, String)> {
    let theirs = message.headers.iter().filter(|header| !header.name.starts_with("walpost-"));
    theirs.map(|header| (header.name.to_string(), text(header.value.as_ref()).to_owned())).collect()
}

const TEXT_A: &str = r#"{"schema":{"type":"string","optional":false},"payload":"a"}"#;
const SCHEMA: &str =
    r#""type":"string","optional":true,"name":"io.debezium.data.Json","version":1"#;

fn payload(default: &str, text: &str) -> String {
    format!(r#"{{"schema":{{{SCHEMA}{default}}},"payload":{text}}}"#)
}

#[tokio::test]
async fn rows_become_what_kafka_connect_makes_of_them() {
    let rig = Rig::new().await;
    let mut options = options();
    options.context_headers = ContextHeaders::Four;
    let insert = Action::InsertHeader { name: "origin".into(), value: literal("7").unwrap() };
    options.transforms.before = vec![of_topic(insert, r"shop\.walpost\.outbox")];
    let rename = Rewrite::new(r"outbox\.event\.(.*)", "$1.v2").unwrap();
    options.transforms.after = vec![
        always(Action::DropHeaders(vec!["__debezium.context.taskId".into()])),
        always(Action::RenameTopic(rename)),
    ];
    let relay = streaming(&rig, options).await;
    rig.insert("a", &[r#"{"n": 1}"#]).await;
    assert_eq!(rig.landed(1).await, [payload("", r#""{\"n\": 1}""#)]);
    let message = rig.world.landed().remove(0);
    assert_eq!((&*message.topic, text(message.key.as_ref())), ("order.v2", TEXT_A));
    let id: String =
        rig.client.query_one("select id::text from walpost.outbox", &[]).await.unwrap().get(0);
    let found = headers(&message);
    let names: Vec<&str> = found.iter().map(|(name, _)| &**name).collect();
    assert_eq!(
        names,
        [
            "__debezium.context.connectorLogicalName",
            "__debezium.context.connectorName",
            "__debezium.context.runId",
            "origin",
            "id"
        ]
    );
    let values: Vec<&str> = found.iter().map(|(_, value)| &**value).collect();
    assert_eq!((values[0], values[1], values[3], values[4]), ("shop", "postgresql", "7", &*id));
    assert_eq!(values[2].len(), 36, "a run has a UUID");

    // The stream names no defaults: the catalog is asked again.
    let alter = r#"alter table walpost.outbox alter payload set default '{"d": 1}'"#;
    rig.client.batch_execute(alter).await.unwrap();
    let null = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                values ('order', 'a', 'Placed', null)";
    rig.client.batch_execute(null).await.unwrap();
    let default = r#""{\"d\": 1}""#;
    let expected = payload(&format!(r#","default":{default}"#), default);
    assert_eq!(rig.landed(2).await[1], expected);
    stop(relay).await;
}

#[tokio::test]
async fn rows_from_before_the_slot_are_written_alike() {
    let mut rig = Rig::new().await;
    rig.config.initial = Some(walpost_relay::Initial::Publish);
    rig.insert("a", &["1"]).await;
    let relay = streaming(&rig, options()).await;
    rig.insert("a", &["2"]).await;
    assert_eq!(rig.landed(2).await, [payload("", r#""1""#), payload("", r#""2""#)]);
    stop(relay).await;
}

#[tokio::test]
async fn logical_messages_are_events_where_they_are_decoded() {
    let rig = Rig::new().await;
    let emit = "select pg_logical_emit_message(true, 'walpost', $1)";
    let content = |n: u32| {
        format!(
            "{{\"id\":\"m{n}\",\"aggregatetype\":\"order\",\"aggregateid\":\"a\",\"type\":\"T\",\
             \"payload\":{{\"n\":{n}}}}}"
        )
    };
    let mut decoding = options();
    decoding.converters.value = json(false);
    decoding.transforms.before = vec![of_topic(Action::DecodeMessages, r"shop\.message")];
    let relay = streaming(&rig, decoding).await;
    rig.client.query(emit, &[&content(1)]).await.unwrap();
    assert_eq!(rig.landed(1).await, [r#"{"n":1}"#]);
    let message = rig.world.landed().remove(0);
    let key = r#"{"schema":{"type":"string","optional":true},"payload":"a"}"#;
    assert_eq!(text(message.key.as_ref()), key);
    assert_eq!(headers(&message), [("id".to_owned(), "m1".to_owned())]);
    stop(relay).await;

    let relay = streaming(&rig, options()).await;
    rig.client.query(emit, &[&content(2)]).await.unwrap();
    rig.client.query(emit, &[&"no event"]).await.unwrap();
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.landed(2).await[1], payload("", r#""3""#));
    assert_eq!(rig.count("select count(*) from walpost.parked").await, 0);
    stop(relay).await;
}

/// What is dropped is confirmed as what is published.
#[tokio::test]
async fn a_filter_drops_events_and_nothing_waits_for_them() {
    let rig = Rig::new().await;
    let mut options = options();
    options.transforms.after = vec![of_topic(Action::Drop, r"outbox\.event\.noise")];
    let relay = streaming(&rig, options).await;
    let noise = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                 values ('noise', 'a', 'Placed', '1')";
    rig.client.batch_execute(noise).await.unwrap();
    let behind = rig.lsn("select pg_current_wal_insert_lsn()::text").await;
    status(&relay, "a position behind it", |status| status.confirmed >= behind).await;
    rig.insert("a", &["2"]).await;
    assert_eq!(rig.landed(1).await, [payload("", r#""2""#)]);
    assert_eq!(rig.count("select count(*) from walpost.parked").await, 0);
    stop(relay).await;
}

#[tokio::test]
async fn an_event_that_goes_to_the_dead_letters_by_a_transform_is_parked() {
    let mut rig = Rig::new().await;
    rig.config.dead_letter_topic = Some("dead".to_owned());
    let mut options = options();
    let rename = Action::RenameTopic(Rewrite::new(".*order", "dead").unwrap());
    options.transforms.after = vec![always(rename)];
    let relay = streaming(&rig, options).await;
    rig.insert("a", &["1"]).await;
    let parked = "select count(*) from walpost.parked where reason = 'unroutable'";
    until(SOON, "a parked row", async || rig.count(parked).await == 1).await;
    stop(relay).await;
}

#[tokio::test]
async fn polled_rows_are_written_alike() {
    let polled = Polled::new().await;
    let Rig { database, config, router, world, .. } = &polled.rig;
    let (database, config) = (database.clone(), config.clone());
    let mut options = options();
    options.transforms.after = vec![of_topic(Action::Drop, r"outbox\.event\.noise")];
    let relay =
        PollingRelay::new(database, config, polled.polling.clone(), router.clone(), options);
    let world = world.clone();
    let relay = relay.unwrap().start(async move || world.connect().await);
    polled.rig.insert("a", &["1"]).await;
    let noise = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                 values ('noise', 'a', 'Placed', '2')";
    polled.rig.client.batch_execute(noise).await.unwrap();
    polled.reaches("PUBLISHED", 2).await;
    assert_eq!(polled.rig.world.values(), [payload("", r#""1""#)]);
    stop(relay).await;
}

#[tokio::test]
async fn replayed_rows_are_written_alike() {
    let mut rig = Rig::new().await;
    rig.router = RouterConfig::walpost();
    let relay = streaming(&rig, options()).await;
    rig.insert("a", &["1"]).await;
    let first = rig.landed(1).await;
    let (database, config) = (rig.database.clone(), rig.config.clone());
    let replayer =
        Replayer::open(&database, config, RouterConfig::walpost(), options()).await.unwrap();
    let found = replayer.find(None, ReplayFilter::default(), None).await.unwrap();
    let sink = rig.world.connect().await.unwrap();
    let replay = replayer.begin(found, order(1_000, SOON), sink).await.unwrap();
    let replayed = run(replay).await;
    assert_eq!((replayed.state, replayed.progress.sent), (ReplayState::Done, 1));
    assert_eq!(rig.landed(2).await, [first[0].clone(), first[0].clone()]);
    stop(relay).await;
}

#[tokio::test]
async fn avro_without_a_registry_is_refused() {
    let Rig { database, config, router, .. } = Rig::new().await;
    let mut options = options();
    let avro = walpost_encode::avro::AvroConverter::new(Default::default(), false);
    options.converters.value = Converter::BinaryData(Some(Converter::Avro(avro).into()));
    let error = Relay::new(database, config, router, options);
    assert!(error.unwrap_err().to_string().contains("value.converter writes schemas"));
}

/// A pipeline whose publication has updates too.
async fn with_updates() -> Rig {
    let mut rig = Rig::new().await;
    let made =
        "create publication changes for table walpost.outbox with (publish = 'insert, update')";
    rig.client.batch_execute(made).await.unwrap();
    rig.config.publication = "changes".to_owned();
    rig
}

const OTHER_ID: &str = "00000000-0000-4000-8000-000000000077";

#[tokio::test]
async fn an_update_of_the_primary_key_is_a_new_event_and_no_other_update_is() {
    let rig = with_updates().await;
    let relay = streaming(&rig, options()).await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    let id: String =
        rig.client.query_one("select id::text from walpost.outbox", &[]).await.unwrap().get(0);
    for set in ["type = 'Changed'".to_owned(), format!("id = '{OTHER_ID}', payload = '2'")] {
        let update = format!("update walpost.outbox set {set}");
        rig.client.batch_execute(&update).await.unwrap();
    }
    rig.insert("a", &["3"]).await;
    let values = ["1", "2", "3"].map(|value| payload("", &format!("{value:?}")));
    assert_eq!(rig.landed(3).await, values);
    let expected = [
        ("__debezium.oldkey".to_owned(), format!("{{\"id\":\"{id}\"}}")),
        ("id".to_owned(), OTHER_ID.to_owned()),
    ];
    assert_eq!(headers(&rig.world.landed()[1]), expected);
    stop(relay).await;
}

#[tokio::test]
async fn an_update_of_the_primary_key_beyond_the_limit_is_parked_and_no_other_update_is() {
    let mut rig = with_updates().await;
    rig.config.max_event_bytes = 10_000;
    let relay = streaming(&rig, options()).await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    let large = "payload = to_jsonb(repeat('x', 20000))";
    for set in [format!("type = 'Changed', {large}"), format!("id = '{OTHER_ID}', {large}")] {
        rig.client.batch_execute(&format!("update walpost.outbox set {set}")).await.unwrap();
    }
    rig.insert("b", &["2"]).await;
    let values = ["1", "2"].map(|value| payload("", &format!("{value:?}")));
    assert_eq!(rig.landed(2).await, values);
    let parked = format!(
        "select count(*) from walpost.parked where reason = 'oversize' and event_id = '{OTHER_ID}'"
    );
    until(SOON, "the parked row", async || rig.count(&parked).await == 1).await;
    assert_eq!(rig.count("select count(*) from walpost.parked").await, 1);
    stop(relay).await;
}

#[tokio::test]
async fn a_fatal_update_ends_the_relay_behind_what_came_before_it() {
    let mut rig = with_updates().await;
    rig.router.invalid_operation = InvalidOperation::Fatal;
    let mut relay = streaming(&rig, options()).await;
    rig.insert("a", &["1"]).await;
    rig.landed(1).await;
    rig.world.hold(true);
    let both = "begin; insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                values ('order', 'a', 'Placed', '2'); update walpost.outbox set type = 'x'; commit";
    rig.client.batch_execute(both).await.unwrap();
    rig.insert("a", &["3"]).await;
    until(SOON, "the sink has the event", async || rig.world.queued() >= 2).await;
    rig.world.hold(false);
    let ended = tokio::time::timeout(SOON, relay.finished()).await.expect("it ends");
    let said = ended.unwrap_err().to_string();
    assert!(said.contains("table.op.invalid.behavior is fatal"), "{said}");
    let values = ["1", "2"].map(|value| payload("", &format!("{value:?}")));
    assert_eq!(rig.world.values(), values, "what came before, and nothing behind it");
}
