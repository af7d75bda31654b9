use std::{collections::BTreeMap, fs};

use toml::{Table, Value};
use walpost_connector::{
    Of, Origin, Properties, Rule, SECTIONS, SettingValue, Standing, Unknown, When, judge,
};
use walpost_postgres::Database;

use super::{judged, laid, settings, text, with};

const DEFAULT_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../walpost/config.default.toml");

/// Walpost's own configuration.
fn defaults() -> Table {
    let text = fs::read_to_string(DEFAULT_FILE).expect("the default file");
    toml::from_str(&text).expect("TOML")
}

/// librdkafka's keys are passed through and have no default there.
fn default_of<'a>(defaults: &'a Table, section: &str, key: &str) -> Option<&'a Value> {
    defaults.get(section)?.get(key)
}

fn rules() -> impl Iterator<Item = (&'static walpost_connector::Section, &'static Rule)> {
    SECTIONS.iter().flat_map(|section| section.rules.iter().map(move |rule| (section, rule)))
}

#[test]
fn every_key_that_a_property_sets_is_in_the_default_file() {
    let defaults = defaults();
    for (_, rule) in rules() {
        let Some(native) = rule.native else { continue };
        let is_there = default_of(&defaults, native.section, native.key).is_some();
        assert!(is_there || native.section == "kafka", "{}: {native:?}", rule.name);
    }
}

/// One that is Walpost's too may be set, so that messages name its property.
#[test]
fn a_default_is_set_where_it_is_not_walposts() {
    let defaults = defaults();
    for (section, rule) in rules() {
        let Some(native) = rule.native.filter(|native| native.when != When::Judged) else {
            continue;
        };
        // The producer's are left to Walpost, as they decide speed alone; and
        // what is mapped means something else there.
        let is_mapped = !matches!(rule.standing, Standing::Honoured(_));
        if section.of == Of::Producer || is_mapped {
            assert_eq!(native.when, When::Given, "{}", rule.name);
            continue;
        }
        let theirs = rule.default.unwrap_or_default();
        let ours = default_of(&defaults, native.section, native.key).unwrap();
        let ours = ours.as_str().map_or_else(|| ours.to_string(), str::to_owned);
        assert!(native.when == When::Always || theirs == ours, "{}: {theirs:?}", rule.name);
    }
}

#[test]
fn the_least_connector_lays_what_debezium_does_without_being_told() {
    let connector = settings(&[]);
    let given: BTreeMap<String, (String, bool)> = connector
        .settings
        .iter()
        .map(|setting| {
            let value = if setting.is_secret { "***".into() } else { setting.value.to_string() };
            (format!("{}.{}", setting.section, setting.key), (value, setting.is_default))
        })
        .collect();
    let expected = [
        ("pipeline.create_publication", "false", false),
        ("pipeline.initial", "\"skip\"", false),
        ("pipeline.message_prefixes", "[]", true),
        ("pipeline.name", "\"orders\"", false),
        ("pipeline.publication", "\"dbz_publication\"", true),
        ("pipeline.slot", "\"debezium\"", true),
        ("postgres.url", "***", false),
        ("router.additional_missing", "\"error\"", true),
        ("router.additional_placement", "\"\"", true),
        ("router.event_id", "\"id\"", true),
        ("router.event_key", "\"aggregateid\"", true),
        ("router.event_payload", "\"payload\"", true),
        ("router.event_timestamp", "\"\"", true),
        ("router.headers_column", "\"\"", false),
        ("router.null_header", "\"send\"", false),
        ("router.route_by_field", "\"aggregatetype\"", true),
    ];
    let expected: BTreeMap<String, (String, bool)> = expected
        .map(|(key, value, is_default)| (key.to_owned(), (value.to_owned(), is_default)))
        .into();
    assert_eq!(given, expected);
    assert_eq!(laid(&connector, "pipeline.message_prefixes"), Some(&SettingValue::List(vec![])));
}

#[test]
fn values_have_the_types_of_the_default_file_and_each_key_is_set_once() {
    let defaults = defaults();
    let worker = Properties::from_pairs([
        ("bootstrap.servers", "w:9092"),
        ("producer.linger.ms", "7"),
        ("producer.batch.size", "1000"),
    ]);
    let more = [
        ("producer.override.batch.size", "2000"),
        ("producer.override.buffer.memory", "1000"),
        ("producer.override.compression.type", "ZSTD"),
        ("producer.override.compression.zstd.level", "5"),
        ("max.queue.size", "9000"),
        ("max.queue.size.in.bytes", "1000000"),
        ("database.query.timeout.ms", "0"),
        ("transaction.boundary.interval.ms", "250"),
        ("exactly.once.support", "REQUIRED"),
        ("errors.deadletterqueue.topic.name", "letters"),
        ("publication.autocreate.mode", "no_tables"),
        ("transforms", "decode,outbox"),
        (
            "transforms.decode.type",
            "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent",
        ),
        ("transforms.outbox.table.fields.additional.error.on.missing", "false"),
        ("transforms.outbox.table.op.invalid.behavior", "Fatal"),
        ("transforms.outbox.route.tombstone.on.empty.payload", "TRUE"),
    ];
    let judgement = judge(&with(&more), Some(&worker), Unknown::Refuse);
    assert!(judgement.verdicts.is_usable(), "{:?}", judgement.verdicts.refused().next());
    let mut keys = BTreeMap::new();
    for setting in judgement.settings() {
        let known = default_of(&defaults, setting.section, setting.key);
        let is_typed = match (&setting.value, known) {
            (SettingValue::Text(_), None) => setting.section == "kafka",
            (SettingValue::Text(_), Some(Value::String(_)))
            | (SettingValue::Number(_), Some(Value::Integer(_)))
            | (SettingValue::Boolean(_), Some(Value::Boolean(_)))
            | (SettingValue::List(_), Some(Value::Array(_))) => true,
            _ => false,
        };
        assert!(is_typed, "{setting:?}");
        let before = keys.insert((setting.section, setting.key), setting.property.as_str());
        assert_eq!(before, None, "{setting:?}");
    }
    assert_eq!(keys[&("kafka", "batch.size")], "producer.override.batch.size");
    assert_eq!(keys[&("kafka", "bootstrap.servers")], "bootstrap.servers");
    assert_eq!(keys[&("sink", "queue_max_bytes")], "max.queue.size.in.bytes");
    let former = "transforms.outbox.table.fields.additional.error.on.missing";
    assert_eq!(keys[&("router", "additional_missing")], former);
    let connector = judgement.connector.unwrap();
    assert_eq!(text(&connector, "router.invalid_operation"), "fatal");
    assert_eq!(text(&connector, "sink.publish"), "transactional");
    assert_eq!(laid(&connector, "pipeline.tables"), Some(&SettingValue::List(vec![])));
    assert_eq!(laid(&connector, "pipeline.message_prefixes"), None);
    let timeout = laid(&connector, "pipeline.statement_timeout_ms");
    assert_eq!(timeout, Some(&SettingValue::Number(600_000)));
}

#[test]
fn a_setting_knows_where_its_property_is() {
    let base = with(&[]);
    let lines: String =
        base.iter().map(|property| format!("{} = {}\n", property.name, property.value)).collect();
    let file = format!("{lines}\nslot.name = orders\n");
    let judgement = judge(&Properties::read(file.as_bytes()).unwrap(), None, Unknown::Refuse);
    let of = |key: &str| judgement.settings().iter().find(|setting| setting.key == key).unwrap();
    let slot = of("slot");
    assert_eq!((&*slot.property, slot.origin), ("slot.name", Origin::Connector));
    let last = u32::try_from(file.lines().count()).unwrap();
    assert_eq!(slot.at.map(|at| at.line), Some(last));
    assert!(!slot.is_default);
    let publication = of("publication");
    assert!(publication.is_default && publication.at.is_none());
}

#[test]
fn a_connection_string_is_one_whatever_its_parts() {
    let connector = settings(&[
        ("database.hostname", "db.internal"),
        ("database.password", r"h'u\nter2 x=y"),
        ("database.sslmode", "require"),
        ("database.sslrootcert", "/ca.pem"),
        ("database.sslcert", "/client.crt"),
        ("database.sslkey", "/client.pk8"),
        ("database.sslpassword", r"of'the key nter2"),
        ("database.tcpKeepAlive", "false"),
    ]);
    let url = text(&connector, "postgres.url");
    assert!(!url.contains("sslrootcert"), "no server is checked by require in Java: {url}");
    for part in [
        "sslcert='/client.crt'",
        "sslkey='/client.pk8'",
        r"sslpassword='of\'the key nter2'",
        "keepalives='0'",
    ] {
        assert!(url.contains(part), "{url}");
    }
    let database = Database::parse(url).unwrap();
    assert_eq!(database.config().get_password(), Some(br"h'u\nter2 x=y".as_slice()));
    assert_eq!(database.config().get_dbname(), Some("shop"));
    assert_eq!(database.config().get_ports(), [5432]);
    assert!(!format!("{connector:?}").contains("nter2"));
    let judgement = judged(&[("database.sslmode", "verify-full")]);
    let note = super::row(&judgement, "database.sslrootcert").note;
    assert!(note.contains("the system's"), "{note}");
    let row = super::row(&judged(&[("database.sslpassword", "x")]), "database.sslpassword");
    assert!(row.note.contains("names no key"), "{row}");
}

#[test]
fn statements_do_not_show() {
    let connector = [
        ("database.initial.statements", "set app.key = 'hunter2'; select ';;'"),
        ("heartbeat.action.query", "select 'hunter2'"),
        ("heartbeat.interval.ms", "1000"),
        ("snapshot.select.statement.overrides", "a.b"),
        ("snapshot.select.statement.overrides.a.b", "select 'hunter2'"),
    ];
    let judgement = judged(&connector);
    assert!(judgement.connector.is_some());
    let shown = format!("{judgement:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    let connector = judgement.connector.unwrap();
    assert_eq!(connector.database.initial_statements[1].expose(), "select ';'");
}

/// What no flat key can say: regexes, chains, groups and tables of SQL.
const OF_TABLES: &[&str] = &[
    "transforms",
    "transforms.*",
    "predicates",
    "predicates.*",
    "topic.creation.groups",
    "topic.creation.*",
    "schema.include.list",
    "schema.exclude.list",
    "table.include.list",
    "table.exclude.list",
    "table.ignore.builtin",
    "column.include.list",
    "column.exclude.list",
    "message.prefix.exclude.list",
    "signal.data.collection",
    "snapshot.include.collection.list",
    "snapshot.select.statement.overrides",
    "snapshot.select.statement.overrides.*",
    "database.initial.statements",
    "producer.override.*",
    "key.converter.*",
    "value.converter.*",
    "header.converter.*",
];

/// What one key could say, and none does yet: the connector's structures have it.
const WITHOUT_A_KEY: &[&str] = &[
    "binary.handling.mode",
    "decimal.handling.mode",
    "extended.headers.enabled",
    // Of the router, and of the connector.
    "field.name.adjustment.mode",
    "field.name.adjustment.mode",
    "flush.lsn.source",
    "header.converter",
    "heartbeat.action.query",
    "heartbeat.interval.ms",
    "hstore.handling.mode",
    "include.unknown.datatypes",
    "internal.slot.seek.to.known.offset.on.start",
    "interval.handling.mode",
    "key.converter",
    "lsn.flush.mode",
    "money.fraction.digits",
    "offset.mismatch.strategy",
    "offsets.storage.topic",
    "publish.via.partition.root",
    "schema.name.adjustment.mode",
    "skipped.operations",
    "slot.drop.on.stop",
    "slot.seek.to.known.offset.on.start",
    "slot.stream.params",
    "snapshot.mode.configuration.based.snapshot.data",
    "snapshot.mode.configuration.based.snapshot.on.data.error",
    "snapshot.mode.configuration.based.start.stream",
    "table.expand.json.payload",
    "table.field.event.schema.version",
    "table.json.payload.empty.array.behavior",
    "table.json.payload.null.behavior",
    "time.precision.mode",
    "topic.delimiter",
    "topic.heartbeat.name",
    "topic.heartbeat.prefix",
    "topic.prefix",
    "value.converter",
    "walpost.debezium.version",
];

/// What Walpost does whatever they say, as their verdicts tell.
const WITHOUT_A_CHOICE: &[&str] = &[
    "column.propagate.source.type",
    "connector.class",
    "custom.sanitize.pattern",
    "datatype.propagate.source.type",
    "errors.max.retries",
    "errors.tolerance",
    "event.converting.failure.handling.mode",
    "event.processing.failure.handling.mode",
    "plugin.name",
    "retriable.restart.connector.wait.ms",
    "slot.failover",
    "slot.max.retries",
    "slot.retry.delay.ms",
    "snapshot.isolation.mode",
    "transaction.boundary",
];

#[test]
fn every_property_that_does_something_has_a_key_or_a_reason_for_none() {
    let mut without: Vec<&str> = Vec::new();
    for (section, rule) in rules() {
        let is_plain = section.of == Of::Connector || section.title == "Outbox Event Router";
        let does = match rule.standing {
            Standing::Honoured(_) | Standing::Mapped(_) | Standing::Alias(_) => true,
            Standing::Ignored(_)
            | Standing::Only(..)
            | Standing::Refused(_)
            | Standing::Removed(_) => false,
        };
        if is_plain && does && rule.native.is_none() {
            without.push(rule.name);
        }
    }
    without.sort_unstable();
    let mut reasons = [OF_TABLES, WITHOUT_A_KEY, WITHOUT_A_CHOICE].concat();
    reasons.sort_unstable();
    assert_eq!(without, reasons);
}
