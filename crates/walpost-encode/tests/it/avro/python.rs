//! Confluent's client for Python reads what is written here, and what it writes
//! is read by the schema that it has registered.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use apache_avro::types::Value as Datum;
use schema_registry_converter::async_impl::{avro::AvroDecoder, schema_registry::SrSettings};
use serde_json::{Value as Json, json};
use walpost_encode::{
    avro::{AvroConverter, AvroOptions, Registry, RegistryConfig, SubjectName},
    connect::{Converter, Decimal, Kind, Schema, Unconverted, Value},
    json_schema::{JsonSchemaConverter, JsonSchemaOptions},
};
use walpost_local::Registry as Server;
use walpost_testkit::python_packages;

const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/avro/python");

/// Answers of the client in Python, one to each order.
fn ask_python(server: &Server, orders: &[Json]) -> Vec<Json> {
    let requirements = std::fs::read_to_string(Path::new(PYTHON).join("requirements.txt")).unwrap();
    let folder = python_packages(Path::new(env!("CARGO_TARGET_TMPDIR")), &requirements);
    let mut child = Command::new("/usr/bin/python3")
        .arg(Path::new(PYTHON).join("serde.py"))
        .arg(server.url())
        .env("PYTHONPATH", folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let orders = serde_json::to_vec(orders).unwrap();
    child.stdin.take().unwrap().write_all(&orders).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the client in Python failed: {}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A value, and what a reader in Python has of it.
struct Case {
    topic: &'static str,
    schema: Arc<Schema>,
    value: Value,
    read: Json,
}

fn text() -> Schema {
    Schema::new(Kind::String)
}

fn connect(kind: Kind, name: &str) -> Schema {
    Schema::logical(kind, &format!("org.apache.kafka.connect.data.{name}"), 1)
}

fn string(text: &str) -> Value {
    Value::String(text.into())
}

/// A record of records, of all that may be null, of defaults, times and numbers,
/// arrays and maps.
fn order() -> Case {
    let address = Schema {
        name: Some("shop.Address".into()),
        ..Schema::new(Schema::fields([("street", text()), ("zip", text().optional())]))
    };
    let with_default = Schema { default: Some(Value::Int32(7)), ..Schema::new(Kind::Int32) };
    let decimal = connect(Kind::Bytes, "Decimal").parameter("scale", "2");
    let map = Schema::new(Kind::Map(text().into(), Schema::new(Kind::Int64).optional().into()));
    let pairs = Schema::new(Kind::Map(Schema::new(Kind::Int32).into(), text().into()));
    let state =
        Schema::logical(Kind::String, "io.debezium.data.Enum", 1).parameter("allowed", "new,paid");
    let schema = Schema {
        name: Some("shop.Order".into()),
        doc: Some("an order".into()),
        ..Schema::new(Schema::fields([
            ("id", Schema::new(Kind::Int64)),
            ("small", Schema::new(Kind::Int8)),
            ("state", state),
            ("address", address.clone()),
            ("billing", address.optional()),
            ("note", text().optional()),
            ("count", with_default.clone()),
            ("weight", with_default.optional()),
            ("total", decimal.optional()),
            ("day", connect(Kind::Int32, "Date")),
            ("at", connect(Kind::Int64, "Timestamp").optional()),
            ("time", connect(Kind::Int32, "Time")),
            ("tags", Schema::array(text().optional())),
            ("stock", map),
            ("pairs", pairs),
            ("raw", Schema::new(Kind::Bytes)),
            ("ratio", Schema::new(Kind::Float64)),
            ("flag", Schema::new(Kind::Boolean).optional()),
        ]))
    };
    let home = || Value::Struct(vec![string("Straße 1"), Value::Null]);
    let value = Value::Struct(vec![
        Value::Int64(i64::MIN),
        Value::Int8(-1),
        string("paid"),
        home(),
        home(),
        Value::Null,
        Value::Int32(-5),
        Value::Null,
        Value::Decimal(Decimal::parse("-12.30").unwrap()),
        Value::Date(86_400_000),
        Value::Date(1_000),
        Value::Date(3_723_004),
        Value::Array(vec![string("a"), Value::Null]),
        Value::Map(vec![(string("x"), Value::Int64(1)), (string("y"), Value::Null)]),
        Value::Map(vec![(Value::Int32(3), string("three"))]),
        Value::Bytes(vec![0, 255].into()),
        Value::Float64(0.1),
        Value::Boolean(true),
    ]);
    let home = json!({ "street": "Straße 1", "zip": null });
    let read = json!({
        "id": i64::MIN, "small": -1, "state": "paid", "address": home, "billing": home,
        // A default stands for NULL.
        "note": null, "count": -5, "weight": 7, "total": "decimal -12.30",
        "day": "date 1970-01-02", "at": "datetime 1970-01-01T00:00:01+00:00",
        "time": "time 01:02:03.004000", "tags": ["a", null], "stock": { "x": 1, "y": null },
        "pairs": [{ "key": 3, "value": "three" }], "raw": "bytes 00ff", "ratio": 0.1, "flag": true,
    });
    Case { topic: "orders", schema: schema.into(), value, read }
}

fn plain_text() -> Case {
    let schema = text().optional().into();
    Case { topic: "texts", schema, value: string("ü"), read: json!("ü") }
}

const STRATEGIES: [(SubjectName, &str); 3] = [
    (SubjectName::Topic, "topic"),
    (SubjectName::Record, "record"),
    (SubjectName::TopicRecord, "topic-record"),
];

/// The bytes of a value, whose schema is registered on the way.
async fn write(registry: &Registry, mut converter: Converter, case: &Case) -> Vec<u8> {
    let asked = match converter.convert(case.topic, Some(&case.schema), &case.value) {
        Err(Unconverted::Ask(asked)) => asked,
        other => panic!("{other:?}"),
    };
    converter.learn(&asked, registry.id(&asked).await.unwrap());
    converter.convert(case.topic, Some(&case.schema), &case.value).unwrap().unwrap().to_vec()
}

fn registering(server: &Server) -> Registry {
    let config = RegistryConfig {
        urls: vec![server.url()],
        credentials: None,
        auto_register: true,
        timeout: Duration::from_secs(30),
    };
    Registry::new(&config).unwrap()
}

#[tokio::test]
#[ignore = "deep: needs Python packages"]
async fn confluents_client_for_python_reads_what_is_written_under_every_subject() {
    let server = Server::start_new().unwrap();
    let registry = registering(&server);
    let (order, text) = (order(), plain_text());
    let (mut orders, mut expected) = (Vec::new(), Vec::new());
    for (subject, strategy) in STRATEGIES {
        for is_key in [false, true] {
            let mut cases = vec![(&order, Some("shop.Order"))];
            // A text alone has no name for a subject.
            cases.extend((subject == SubjectName::Topic).then_some((&text, None)));
            for (case, record) in cases {
                let options = AvroOptions { subject, ..AvroOptions::default() };
                let converter = Converter::Avro(AvroConverter::new(options, is_key));
                let bytes = write(&registry, converter, case).await;
                orders.push(json!({
                    "op": "read", "topic": case.topic, "key": is_key, "strategy": strategy,
                    "record": record, "hex": hex(&bytes),
                }));
                expected.push((strategy, is_key, &case.read));
            }
        }
    }
    for (answer, (strategy, is_key, read)) in ask_python(&server, &orders).iter().zip(expected) {
        assert_eq!(&answer["value"], read, "{strategy} {is_key}");
        assert_eq!(answer["same"], true, "the schema is the subject's latest: {answer}");
    }
}

/// Dates and numbers are as in Kafka Connect's JSON.
#[tokio::test]
#[ignore = "deep: needs Python packages"]
async fn confluents_client_for_python_reads_json_under_its_json_schema() {
    let server = Server::start_new().unwrap();
    let registry = registering(&server);
    let order = order();
    let mut read = order.read.clone();
    let plain = [
        ("total", json!("+zI=")),
        ("day", json!(1)),
        ("at", json!(1_000)),
        ("time", json!(3_723_004)),
        ("raw", json!("AP8=")),
    ];
    for (name, value) in plain {
        read[name] = value;
    }
    let mut orders = Vec::new();
    for (subject, strategy) in STRATEGIES {
        let options = JsonSchemaOptions { subject, ..JsonSchemaOptions::default() };
        let converter = Converter::JsonSchema(JsonSchemaConverter::new(options, false));
        orders.push(json!({
            "op": "read-json", "topic": "orders", "strategy": strategy, "record": "shop.Order",
            "hex": hex(&write(&registry, converter, &order).await),
        }));
    }
    for answer in ask_python(&server, &orders) {
        assert_eq!(answer["value"], read);
    }
}

const WRITTEN: &str = r#"{"type":"record","name":"Order","namespace":"shop","fields":[
    {"name":"id","type":"long"},
    {"name":"state","type":{"type":"enum","name":"State","symbols":["NEW","PAID"]}},
    {"name":"address","type":["null",{"type":"record","name":"Address","fields":[
        {"name":"street","type":"string"}]}],"default":null},
    {"name":"other","type":["null","Address"],"default":null},
    {"name":"total","type":{"type":"bytes","logicalType":"decimal","precision":8,"scale":2}},
    {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
    {"name":"day","type":{"type":"int","logicalType":"date"}},
    {"name":"tags","type":{"type":"array","items":"string"}},
    {"name":"stock","type":{"type":"map","values":["null","int"]}},
    {"name":"hash","type":{"type":"fixed","name":"Hash","size":2}},
    {"name":"count","type":"int","default":7}]}"#;

#[tokio::test]
#[ignore = "deep: needs Python packages"]
async fn what_confluents_client_for_python_writes_is_read() {
    let server = Server::start_new().unwrap();
    let value = json!({
        "id": -3, "state": "PAID", "address": { "street": "Straße 1" }, "total": "decimal 12.30",
        "at": "datetime 1970-01-01T00:00:01+00:00", "day": "date 1970-01-02", "tags": ["a", "b"],
        "stock": { "x": 1, "y": null }, "hash": "bytes 0102",
    });
    let order = |(_, strategy): &(SubjectName, &str)| {
        json!({
            "op": "write", "topic": "orders", "strategy": strategy, "schema": WRITTEN,
            "value": value,
        })
    };
    let orders: Vec<Json> = STRATEGIES.iter().map(order).collect();
    let decoder = AvroDecoder::new(SrSettings::new(server.url()));
    for answer in ask_python(&server, &orders) {
        let bytes = unhex(answer["hex"].as_str().unwrap());
        let read = decoder.decode(Some(&bytes)).await.unwrap();
        assert_eq!(read.name.unwrap().name(), "Order");
        let Datum::Record(fields) = read.value else { panic!("a record") };
        let field = |name: &str| &fields.iter().find(|(known, _)| known == name).unwrap().1;
        assert_eq!(field("id"), &Datum::Long(-3));
        assert_eq!(field("state"), &Datum::Enum(1, "PAID".to_owned()));
        let street = Datum::Record(vec![("street".into(), Datum::String("Straße 1".into()))]);
        assert_eq!(field("address"), &Datum::Union(1, Box::new(street)));
        assert_eq!(field("other"), &Datum::Union(0, Box::new(Datum::Null)));
        assert_eq!(field("total"), &Datum::Decimal(vec![4, 0xce].into()));
        assert_eq!(field("at"), &Datum::TimestampMillis(1_000));
        assert_eq!(field("day"), &Datum::Date(1));
        let tags = ["a", "b"].map(|tag| Datum::String(tag.to_owned()));
        assert_eq!(field("tags"), &Datum::Array(tags.to_vec()));
        let Datum::Map(stock) = field("stock") else { panic!("a map") };
        assert_eq!(stock["x"], Datum::Union(1, Box::new(Datum::Int(1))));
        assert_eq!(stock["y"], Datum::Union(0, Box::new(Datum::Null)));
        assert_eq!(field("hash"), &Datum::Fixed(2, vec![1, 2]));
        assert_eq!(field("count"), &Datum::Int(7), "the default stands for what is missing");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}
