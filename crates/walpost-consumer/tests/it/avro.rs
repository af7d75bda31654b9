//! Values in Avro, under schemas of a real registry.

use std::sync::OnceLock;

use apache_avro::{Schema, types::Record, writer::datum::GenericDatumWriter};
use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer},
};
use serde::Deserialize;
use walpost_consumer::{
    AvroRegistry, Event, Handler, HandlerError, PartitionState, tokio_postgres::Transaction,
};
use walpost_testkit::{self as testkit, local::Registry};

use crate::support::{LIMIT, World, each, effect, ids, run};

const FIRST: &str = r#"{"type":"record","name":"Order","fields":[
    {"name":"id","type":"string"},{"name":"total","type":"int"}]}"#;
/// A later version: a field more, and one that may be null.
const SECOND: &str = r#"{"type":"record","name":"Order","fields":[
    {"name":"id","type":"string"},{"name":"note","type":["null","string"],"default":null},
    {"name":"total","type":"int"}]}"#;
/// In values that cannot be read.
const CONTENTS: &str = "s3cr3t";

/// What the handler reads of either version.
#[derive(Deserialize)]
struct Order {
    id: String,
    total: i32,
    #[serde(default)]
    note: Option<String>,
}

/// Writes an effect with what it has read.
struct Reads(AvroRegistry);

impl Handler for Reads {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        let order: Order = event.avro(&self.0).await?;
        effect(tx, event).await?;
        let value = format!("{} {} {}", order.id, order.total, order.note.unwrap_or_default());
        let update = "update effect set value = $1 where event_id = $2";
        tx.execute(update, &[&value, &event.id()]).await?;
        Ok(())
    }
}

fn registry() -> &'static Registry {
    static SHARED: OnceLock<Registry> = OnceLock::new();
    SHARED.get_or_init(start)
}

fn start() -> Registry {
    Registry::start_new().unwrap_or_else(|error| panic!("the tests need a registry: {error}"))
}

fn reads(registry: &Registry) -> Reads {
    Reads(AvroRegistry::builder(registry.url()).answer_limit_ms(2_000).build().unwrap())
}

/// Registers a schema under a new subject, and returns its id.
fn register(registry: &Registry, schema: &str) -> u32 {
    #[derive(Deserialize)]
    struct Registered {
        id: u32,
    }
    let body = serde_json::json!({ "schema": schema }).to_string();
    let answer = registry.register(&testkit::unique_name("subject"), &body).unwrap();
    let registered: Registered =
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
    registered.id
}

/// A framed value.
fn framed(id: u32, schema: &str, event: &str, note: Option<&str>) -> Vec<u8> {
    let schema = Schema::parse_str(schema).unwrap();
    let mut record = Record::new(&schema).unwrap();
    record.put("id", event);
    record.put("total", 12);
    record.put("note", note);
    let writer = GenericDatumWriter::builder(&schema).build().unwrap();
    let mut value = vec![0];
    value.extend(id.to_be_bytes());
    value.extend(writer.write_value_to_vec(record).unwrap());
    value
}

fn publish(world: &World, events: &[(String, Vec<u8>)]) {
    let bootstrap = testkit::kafka().bootstrap();
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", bootstrap).create().unwrap();
    for (id, value) in events {
        let headers = OwnedHeaders::new().insert(Header { key: "id", value: Some(id) });
        let record = BaseRecord::<str, [u8]>::to(&world.topic).partition(0).payload(value);
        producer.send(record.headers(headers)).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(LIMIT).unwrap();
}

/// Half of the events under each version.
fn orders(registry: &Registry, prefix: &str, count: usize) -> Vec<(String, Vec<u8>)> {
    let versions = [(register(registry, FIRST), FIRST), (register(registry, SECOND), SECOND)];
    let value = |(index, event): (usize, String)| {
        let (id, schema) = versions[index % 2];
        let note = (index % 4 == 1).then_some("fragile");
        let value = framed(id, schema, &event, note);
        (event, value)
    };
    ids(prefix, count).into_iter().enumerate().map(value).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs a schema registry"]
async fn events_in_avro_of_two_versions_take_effect_once_over_copies() {
    let world = World::new(1).await;
    let orders = orders(registry(), "a", 100);
    publish(&world, &orders);
    let copies: Vec<(String, Vec<u8>)> = orders.iter().step_by(10).cloned().collect();
    publish(&world, &copies);
    let mut running =
        run(world.consumer().max_batch_events(30).handler(reads(registry())).unwrap());
    let status = running
        .until("the end", |status| status.counts.applied + status.counts.duplicates == 110)
        .await;
    assert_eq!((status.counts.duplicates, status.counts.parked), (10, 0));
    running.stop().await.unwrap();
    let events: Vec<String> = orders.into_iter().map(|(event, _)| event).collect();
    assert_eq!(world.effects().await, each(&events, 1));
    let read = "select count(*) from effect where value = event_id || ' 12 '";
    assert_eq!(world.number(read).await, 75);
    let noted = "select count(*) from effect where value = event_id || ' 12 fragile'";
    assert_eq!(world.number(noted).await, 25);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs a schema registry"]
async fn what_is_no_avro_is_parked_with_its_reason_and_without_contents() {
    let world = World::new(1).await;
    let good = orders(registry(), "good", 2);
    let shape = r#"{"type":"record","name":"Other","fields":[{"name":"id","type":"string"}]}"#;
    let (known, other) = (register(registry(), FIRST), register(registry(), shape));
    let unknown = framed(4_000_000_000, FIRST, CONTENTS, None);
    let cut = {
        let whole = framed(known, FIRST, CONTENTS, None);
        whole[..whole.len() - 1].to_vec()
    };
    let bad = [
        ("unknown", unknown),
        ("cut", cut),
        ("shape", framed(other, shape, CONTENTS, None)),
        ("json", format!("{{\"id\":\"{CONTENTS}\"}}").into_bytes()),
    ];
    let bad = bad.map(|(event, value)| (event.to_owned(), value));
    publish(&world, &good[..1]);
    publish(&world, &bad);
    publish(&world, &good[1..]);
    let mut running = run(world.consumer().max_attempts(2).handler(reads(registry())).unwrap());
    let status = running.until_applied(2).await;
    assert_eq!(status.counts.parked, 4);
    running.stop().await.unwrap();
    let rows = "select event_id, attempts, reason from walpost.consumer_parked order by off";
    let rows = world.client.query(rows, &[]).await.unwrap();
    let parked: Vec<(&str, i32, &str)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    let gave_up = "the handler gave the event up: the value";
    let not = format!("{gave_up} is not written under schema id {known}");
    let of = format!("{gave_up}, of schema id {other}, is Avro of another shape");
    let none = format!("{gave_up} does not begin with a zero byte and the id of a schema");
    let unknown = "the handler failed: schema id 4000000000 is unknown to the registry";
    assert_eq!(
        parked,
        [("unknown", 2, unknown), ("cut", 1, &not), ("shape", 1, &of), ("json", 1, &none)]
    );
}

/// Reads values of any schema, all of them.
struct Takes(AvroRegistry);

impl Handler for Takes {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        let Any = event.avro(&self.0).await?;
        effect(tx, event).await
    }
}

struct Any;

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// The first would overflow the stack of each member that reads it, the second
/// takes half a gigabyte.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs a schema registry"]
async fn avro_that_would_end_the_process_is_parked() {
    const NODE: &str =
        r#"{"type":"record","name":"Node","fields":[{"name":"next","type":["null","Node"]}]}"#;
    const MANY: &str = r#"{"type":"record","name":"Many","fields":[
        {"name":"list","type":{"type":"array","items":"null"}}]}"#;
    let world = World::new(1).await;
    let (node, many) = (register(registry(), NODE), register(registry(), MANY));
    let value = |id: u32, data: &[u8]| [&[0], &id.to_be_bytes()[..], data].concat();
    let nodes = |count: usize| value(node, &[vec![2; count - 1], vec![0]].concat());
    let nulls = |count: i64| {
        let long = GenericDatumWriter::builder(&Schema::Long).build().unwrap();
        value(many, &[long.write_value_to_vec(count).unwrap(), vec![0]].concat())
    };
    assert_eq!(nulls(9_000_000).len(), 10);
    let events = [
        ("a", nodes(3)),
        ("deep", nodes(200_000)),
        ("b", nodes(128)),
        ("many", nulls(9_000_000)),
        ("c", nulls(1_000)),
        ("cut", nodes(3)[..7].to_vec()),
        ("d", nodes(3)),
    ];
    publish(&world, &events.map(|(event, value)| (event.to_owned(), value)));
    let mut running = run(world.consumer().handler(Takes(reads(registry()).0)).unwrap());
    let status = running.until_applied(4).await;
    assert_eq!(status.counts.parked, 3);
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&["a", "b", "c", "d"].map(str::to_owned), 1));
    let rows = "select event_id, reason from walpost.consumer_parked order by off";
    let rows = world.client.query(rows, &[]).await.unwrap();
    let parked: Vec<(&str, &str)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let value = "the handler gave the event up: the value";
    let deep = format!("{value}, of schema id {node}, is nested deeper than 128 levels");
    let size =
        format!("{value}, of schema id {many}, says to have more items than its size allows");
    let cut = format!("{value} is not written under schema id {node}");
    assert_eq!(parked, [("deep", deep.as_str()), ("many", &size), ("cut", &cut)]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs a schema registry"]
async fn a_registry_that_is_away_is_waited_for() {
    let registry = start();
    let world = World::new(1).await;
    let orders = orders(&registry, "a", 20);
    registry.pause().unwrap();
    publish(&world, &orders);
    let mut running = run(world.consumer().max_attempts(1).handler(reads(&registry)).unwrap());
    running
        .until("a wait", |status| {
            let waits = |state: &PartitionState| matches!(state, PartitionState::Retrying);
            status.partitions.values().any(|partition| waits(&partition.state))
        })
        .await;
    assert_eq!(world.stored().await, 0);
    registry.resume().unwrap();
    let status = running.until_applied(20).await;
    assert_eq!(status.counts.parked, 0);
    // Schemas that are known need no registry.
    registry.pause().unwrap();
    let more: Vec<(String, Vec<u8>)> =
        orders.iter().map(|(event, value)| (format!("more-{event}"), value.clone())).collect();
    publish(&world, &more);
    running.until_applied(40).await;
    running.stop().await.unwrap();
    assert_eq!(world.number("select count(distinct event_id) from effect").await, 40);
}
