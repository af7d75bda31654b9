//! Rows of a real PostgreSQL through the real connector and the real router.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tokio_postgres::Client;
use walpost_encode::{
    Unencoded,
    connect::{
        BinaryHandling, ColumnOptions, ConnectEncoding, Converter, Converters, DecimalHandling,
        EnvelopeNames, HeaderConverter, HstoreHandling, IntervalHandling, JsonConverter,
        NameAdjustment, RowShape, ShapeOptions, TimePrecision, Typing, TypingOptions,
    },
};
use walpost_event::{Message, Row, RowChange};
use walpost_local::Postgres;
use walpost_router::{MissingColumn, Routed, Router, RouterConfig};

use super::{
    ask::{Oracle, Verdict, difference},
    catalog::{connect, rows, table, table_rows},
    converters::json_options,
};

const DRAIN_LIMIT_MS: u64 = 60_000;
const SLOTS_LIMIT: Duration = Duration::from_secs(60);

/// Types by other means than their extensions, which may not be installed:
/// Debezium knows them by name.
const TYPES: &str = include_str!("types.sql");

/// Type and default of a column, then its values; separated by `|`.
const COLUMNS: &str = include_str!("columns.txt");

/// The same; Debezium fails on each value but the first.
const TROUBLE: &str = include_str!("trouble.txt");

struct Column {
    name: String,
    definition: String,
    values: Vec<String>,
}

fn columns(text: &str) -> Vec<Column> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let column = |(index, line): (usize, &str)| {
        let mut parts = line.split('|').map(|part| part.trim().to_owned());
        Column {
            name: format!("c{index}"),
            definition: parts.next().unwrap(),
            values: parts.collect(),
        }
    };
    lines.enumerate().map(column).collect()
}

fn create(name: &str, columns: &[Column]) -> String {
    let more: String =
        columns.iter().map(|column| format!(", {} {}", column.name, column.definition)).collect();
    format!(
        "CREATE TABLE {name} (id int PRIMARY KEY, aggregatetype text NOT NULL, \
         aggregateid text NOT NULL, type text, version int DEFAULT 3, \
         payload jsonb DEFAULT '{{\"d\": 1}}'{more});\n\
         CREATE PUBLICATION {name} FOR TABLE {name}"
    )
}

/// A row that has the value `index` of every column, NULL beyond the last.
fn insert(name: &str, index: usize, columns: &[Column]) -> String {
    let names: String = columns.iter().map(|column| format!(", {}", column.name)).collect();
    let value = |column: &Column| match column.values.get(index) {
        Some(value) if value.starts_with('!') => format!(", {}", &value[1..]),
        Some(value) => format!(", '{}'", value.replace('\'', "''")),
        None if ["NOT NULL", "serial"].iter().any(|word| column.definition.contains(word)) => {
            ", DEFAULT".to_owned()
        }
        None => ", NULL".to_owned(),
    };
    let values: String = columns.iter().map(value).collect();
    let payload = match index % 3 {
        0 => "NULL".to_owned(),
        1 => format!("'{{\"a\": {index}}}'"),
        _ => format!("'[{index}, 1.50]'"),
    };
    let version = if index.is_multiple_of(2) { "7" } else { "NULL" };
    format!(
        "INSERT INTO {name} (id, aggregatetype, aggregateid, type, version, payload{names}) \
         VALUES ({index}, 'order', 'o-{index}', 'T', {version}, {payload}{values})"
    )
}

/// One configuration of the connector, ours and theirs.
struct Mode {
    name: &'static str,
    options: ShapeOptions,
    config: Json,
}

/// Each with its own prefix: two connectors of one name get in each other's way.
fn modes() -> Vec<Mode> {
    let mut modes = modes_with_other_handling();
    modes.extend(modes_with_unknown_types());
    modes
}

fn mode(
    name: &'static str,
    topic_prefix: &str,
    schema_names: NameAdjustment,
    columns: ColumnOptions,
    config: Json,
) -> Mode {
    let mut without_defaults =
        Router::new(RouterConfig::default()).unwrap().columns_without_defaults();
    without_defaults.push("version".to_owned());
    let topic_prefix = topic_prefix.into();
    let options = ShapeOptions {
        topic_prefix,
        schema_names,
        columns,
        without_defaults,
        ..ShapeOptions::default()
    };
    Mode { name, options, config }
}

fn modes_with_other_handling() -> Vec<Mode> {
    let default = ColumnOptions::default();
    vec![
        mode("adaptive", "p", NameAdjustment::None, default, json!({})),
        mode(
            "connect",
            "p.q-1",
            NameAdjustment::None,
            ColumnOptions {
                time: TimePrecision::Connect,
                decimal: DecimalHandling::String,
                binary: BinaryHandling::Base64,
                interval: IntervalHandling::String,
                hstore: HstoreHandling::Map,
                ..default
            },
            json!({
                "time.precision.mode": "connect",
                "decimal.handling.mode": "string",
                "binary.handling.mode": "base64",
                "interval.handling.mode": "string",
                "hstore.handling.mode": "map",
            }),
        ),
        mode(
            "isostring",
            "1-p",
            NameAdjustment::Avro,
            ColumnOptions {
                time: TimePrecision::IsoString,
                decimal: DecimalHandling::Double,
                binary: BinaryHandling::Hex,
                money_fraction_digits: 3,
                ..default
            },
            json!({
                "time.precision.mode": "isostring",
                "decimal.handling.mode": "double",
                "binary.handling.mode": "hex",
                "money.fraction.digits": "3",
                "schema.name.adjustment.mode": "avro",
            }),
        ),
    ]
}

fn modes_with_unknown_types() -> Vec<Mode> {
    let default = ColumnOptions::default();
    vec![
        mode(
            "microseconds",
            "p_x-y",
            NameAdjustment::AvroUnicode,
            ColumnOptions {
                time: TimePrecision::Microseconds,
                binary: BinaryHandling::Base64UrlSafe,
                money_fraction_digits: 1,
                unknown_types: true,
                ..default
            },
            json!({
                "time.precision.mode": "microseconds",
                "binary.handling.mode": "base64-url-safe",
                "money.fraction.digits": "1",
                "include.unknown.datatypes": "true",
                "schema.name.adjustment.mode": "avro_unicode",
            }),
        ),
        mode(
            "nanoseconds",
            "p5",
            NameAdjustment::None,
            ColumnOptions { time: TimePrecision::Nanoseconds, unknown_types: true, ..default },
            json!({ "time.precision.mode": "nanoseconds", "include.unknown.datatypes": "true" }),
        ),
        mode(
            "adaptive_time",
            "p6",
            NameAdjustment::None,
            ColumnOptions { time: TimePrecision::AdaptiveTimeMicroseconds, ..default },
            json!({ "time.precision.mode": "adaptive_time_microseconds" }),
        ),
    ]
}

/// One configuration of router and converters, ours and theirs.
struct Way {
    router: RouterConfig,
    encoding: ConnectEncoding,
    theirs: Json,
}

fn way(placement: &str, columns: &[Column], version: bool, key: &str, schemas: bool) -> Way {
    let placements: Vec<String> =
        columns.iter().map(|column| format!("{}:{placement}", column.name)).collect();
    let placements = placements.join(",");
    let (options, config) = json_options(schemas, !schemas, true);
    let json = || Converter::Json(JsonConverter::new(options));
    let header = if schemas { HeaderConverter::Of(json()) } else { HeaderConverter::Simple };
    let json_class = "org.apache.kafka.connect.json.JsonConverter";
    let header_class =
        if schemas { json_class } else { "org.apache.kafka.connect.storage.SimpleHeaderConverter" };
    let mut router = json!({
        "table.field.event.key": key,
        "table.fields.additional.placement": placements,
        "table.field.additional.missing": "ignore",
    });
    if version {
        router["table.field.event.schema.version"] = "version".into();
    }
    Way {
        router: RouterConfig {
            event_key: key.to_owned(),
            additional_placement: Some(placements),
            additional_missing: MissingColumn::Ignore,
            ..RouterConfig::default()
        },
        encoding: ConnectEncoding {
            typing: Typing::new(TypingOptions {
                key_column: key.into(),
                version_column: version.then(|| "version".into()),
                ignore_missing: true,
                envelope_names: EnvelopeNames::FirstRouted,
                ..TypingOptions::default()
            }),
            converters: Converters { key: json(), value: json(), header },
        },
        theirs: json!({
            "router": router,
            "key": { "class": json_class, "config": config, "key": true },
            "value": { "class": json_class, "config": config },
            "header": { "class": header_class, "config": config, "header": true },
        }),
    }
}

fn start(oracle: &mut Oracle, postgres: &Postgres, mode: &Mode, table: &str) {
    let mut config = json!({
        "name": mode.name,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": postgres.host(),
        "database.port": postgres.port().to_string(),
        "database.user": "postgres",
        "database.password": "",
        "database.dbname": "postgres",
        "plugin.name": "pgoutput",
        "slot.name": format!("{table}_{}", mode.name),
        "publication.name": table,
        "publication.autocreate.mode": "disabled",
        "topic.prefix": mode.options.topic_prefix,
        "snapshot.mode": "no_data",
        "poll.interval.ms": "10",
        "event.converting.failure.handling.mode": "warn",
    });
    config.as_object_mut().unwrap().extend(mode.config.as_object().unwrap().clone());
    let answer = oracle.ask(&json!({ "op": "start", "name": mode.name, "config": config }));
    assert_eq!(answer, json!({}), "{}", mode.name);
}

/// Returns once that many connectors hold their slots: from there on they see
/// every row.
async fn wait_for_slots(client: &Client, count: usize) {
    let sql = "SELECT count(*) FROM pg_replication_slots, pg_sleep(0.05) WHERE active";
    let start = Instant::now();
    while rows(client, sql).await[0][0].as_deref() != Some(&*count.to_string()) {
        assert!(start.elapsed() < SLOTS_LIMIT, "not every connector holds its slot");
    }
}

fn drain(oracle: &mut Oracle, mode: &Mode, ways: &[Way], count: usize) -> Vec<Json> {
    let ways: Vec<&Json> = ways.iter().map(|way| &way.theirs).collect();
    let question = json!({
        "op": "drain", "name": mode.name, "count": count, "limit_ms": DRAIN_LIMIT_MS, "ways": ways,
    });
    let answer = oracle.ask(&question);
    let rows = answer["rows"].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
    assert_eq!(rows.len(), count, "{}", mode.name);
    rows
}

/// Our message of a row.
fn message(way: &mut Way, shape: &RowShape, row: &Row) -> Result<Message, Unencoded> {
    let row = shape.with_defaults(row).unwrap_or_else(|| row.clone());
    let mut router = Router::new(way.router.clone()).unwrap();
    let Routed::Record(record) = router.route(&RowChange::insert(row.clone())).unwrap() else {
        panic!("an insert is an event")
    };
    way.encoding.encode(&record, &row, shape)
}

/// What differs, each in a line.
pub(crate) fn differences(
    what: &str,
    ours: Result<Message, Unencoded>,
    theirs: &Json,
) -> Vec<String> {
    let ours = match (ours, theirs.get("error")) {
        (Ok(ours), None) => ours,
        (Err(error), None) => return vec![format!("{what}: {error:?}")],
        (_, Some(error)) => return vec![format!("{what}: {error}")],
    };
    let mut found = Vec::new();
    let mut same = |part: &str, ours: Option<&[u8]>, theirs: &Json| {
        let theirs = Verdict::of_hex(theirs);
        let ours = ours.map_or(Verdict::Nothing, |bytes| Verdict::Bytes(bytes.to_vec()));
        if ours != theirs {
            found.push(format!("{what}, {part}: {}", difference(&ours.text(), &theirs.text())));
        }
    };
    let topic = theirs["topic"].as_str().unwrap();
    let hex: String = topic.bytes().map(|byte| format!("{byte:02x}")).collect();
    same("topic", Some(ours.topic.as_bytes()), &hex.into());
    same("key", ours.key.as_deref(), &theirs["key"]);
    same("value", ours.value.as_deref(), &theirs["value"]);
    let headers = theirs["headers"].as_array().unwrap();
    for (ours, theirs) in ours.headers.iter().zip(headers) {
        same(&format!("header {} {}", ours.name, theirs[0]), ours.value.as_deref(), &theirs[1]);
    }
    let names = headers.iter().map(|header| header[0].as_str().unwrap());
    if !ours.headers.iter().map(|header| &*header.name).eq(names) {
        found.push(format!("{what}: other headers"));
    }
    found
}

async fn prepare(postgres: &Postgres, name: &str, columns: &[Column]) -> Client {
    let client = connect(postgres).await;
    client.batch_execute(TYPES).await.unwrap();
    client.batch_execute(&create(name, columns)).await.unwrap();
    client
}

fn server() -> Postgres {
    Postgres::builder()
        .throwaway()
        .setting("wal_level", "logical")
        .setting("max_replication_slots", "20")
        .setting("max_wal_senders", "20")
        .start()
        .unwrap()
}

#[tokio::test]
#[ignore = "deep: needs a Java compiler and Kafka Connect"]
async fn rows_become_what_debezium_makes_of_them() {
    let postgres = server();
    let columns = columns(COLUMNS);
    let client = prepare(&postgres, "outbox", &columns).await;
    let mut oracle = Oracle::start();
    let modes = modes();
    for mode in &modes {
        start(&mut oracle, &postgres, mode, "outbox");
    }
    wait_for_slots(&client, modes.len()).await;
    let count = 1 + columns.iter().map(|column| column.values.len()).max().unwrap();
    for index in 0..count {
        client.batch_execute(&insert("outbox", index, &columns)).await.unwrap();
    }
    let table = table(&client, "outbox").await;
    let all = table_rows(&client, &table.relation).await;
    let mut found = Vec::new();
    for mode in &modes {
        let shape = table.shape(&mode.options);
        let mut ways = [
            way("envelope", &columns, true, "aggregateid", true),
            way("envelope", &columns, false, "id", false),
            way("header", &columns, false, "c0", true),
            way("header", &columns, false, "payload", false),
        ];
        let theirs = drain(&mut oracle, mode, &ways, count);
        for (index, (row, theirs)) in all.iter().zip(&theirs).enumerate() {
            for (at, way) in ways.iter_mut().enumerate() {
                let what = format!("{}, row {index}, way {at}", mode.name);
                found.extend(differences(&what, message(way, &shape, row), &theirs[at]));
            }
        }
    }
    found.truncate(40);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[tokio::test]
#[ignore = "deep: needs a Java compiler and Kafka Connect"]
async fn values_on_which_debezium_fails_are_errors() {
    let postgres = server();
    let columns = columns(TROUBLE);
    let client = prepare(&postgres, "trouble", &columns).await;
    let mut oracle = Oracle::start();
    let mode = &modes()[0];
    start(&mut oracle, &postgres, mode, "trouble");
    wait_for_slots(&client, 1).await;
    let count = columns.iter().map(|column| column.values.len()).max().unwrap();
    for index in 0..count {
        client.batch_execute(&insert("trouble", index, &columns)).await.unwrap();
    }
    let table = table(&client, "trouble").await;
    let all = table_rows(&client, &table.relation).await;
    let shape = table.shape(&mode.options);
    let ways = [way("envelope", &columns, false, "id", false)];
    let theirs = drain(&mut oracle, mode, &ways, count);
    for (index, (row, theirs)) in all.iter().zip(&theirs).enumerate() {
        let text = Verdict::of_hex(&theirs[0]["value"]).text();
        let value: Json = serde_json::from_str(&text).unwrap();
        for column in columns.iter().filter(|column| index < column.values.len()) {
            let (at, ours) = shape.column_named(&column.name).unwrap();
            let ours = ours.value(row.bytes(at).as_ref());
            let what = format!("{} {}", column.definition, column.values[index]);
            // Debezium is told to go on with NULL where it fails.
            let is_null = index > 0 || column.values[index] == "!NULL";
            assert_eq!(value[&column.name].is_null(), is_null, "{what}: {value}");
            assert_eq!(ours.is_err(), index > 0, "{what}: {ours:?}");
        }
    }
}
