//! Columns of the id, the key, the payload, the timestamp and the version.

use super::{
    super::case::Converter::{Json, JsonWithSchema, Text},
    Case,
    Group::Columns,
};

fn case(name: &str) -> Case {
    Case::new(Columns, name)
}

pub(super) fn all() -> Vec<Case> {
    [ids_and_keys(), timestamps(), wrong_timestamps(), versions()].concat()
}

fn ids_and_keys() -> Vec<Case> {
    let null_key = |name: &str| case(name).column("aggregateid", "text").key(Text);
    vec![
        case("id: another column, a number")
            .column("event_id", "bigint")
            .router("table.field.event.id", "event_id")
            .insert([("event_id", "42")])
            .insert([("event_id", "null")]),
        case("id: a column that is not there")
            .router("table.field.event.id", "nothing")
            .dies("nothing")
            .insert([]),
        case("key: another column, a number")
            .column("number", "int")
            .router("table.field.event.key", "number")
            .insert([("number", "7")])
            .insert([("number", "-1")]),
        case("key: the uuid, with its schema")
            .router("table.field.event.key", "id")
            .key(JsonWithSchema)
            .insert([]),
        case("key: a column that is not there")
            .router("table.field.event.key", "nothing")
            .dies("nothing")
            .insert([]),
        null_key("key: NULL as text").insert([("aggregateid", "null")]).insert([]),
        null_key("key: NULL as JSON")
            .key(Json)
            .insert([("aggregateid", "null")])
            .insert([("aggregateid", "'null'")])
            .insert([]),
        null_key("key: NULL with its schema")
            .key(JsonWithSchema)
            .insert([("aggregateid", "null")])
            .insert([]),
        case("payload: another column")
            .column("body", "text")
            .router("table.field.event.payload", "body")
            .insert([("body", "'x'")])
            .insert([("body", "null")])
            .insert([("body", "''")]),
        case("payload: a column that is not there")
            .router("table.field.event.payload", "nothing")
            .dies("nothing")
            .insert([]),
        case("type: named and read by nothing")
            .router("table.field.event.type", "nothing")
            .insert([]),
        case("id, key, payload and route: one column")
            .router("table.field.event.id", "type")
            .router("table.field.event.key", "type")
            .router("table.field.event.payload", "type")
            .router("route.by.field", "type")
            .insert([("type", "'{n}one'")]),
    ]
}

fn timed(name: &str, kind: &str) -> Case {
    case(name).column("at", kind).router("table.field.event.timestamp", "at")
}

fn timestamps() -> Vec<Case> {
    let one = "'2019-03-24 20:52:59.123456'";
    vec![
        timed("timestamp: in milliseconds", "timestamp(3)").insert([("at", one)]),
        timed("timestamp: in seconds", "timestamp(0)").insert([("at", one)]),
        timed("timestamp: in microseconds, cut", "timestamp")
            .insert([("at", "'2019-03-24 20:52:59.000999'")])
            .insert([("at", one)])
            .insert([("at", "'1970-01-01'")]),
        timed("timestamp: NULL is the time of handling", "timestamp")
            .insert([("at", "null")])
            .insert([("at", one)]),
        timed("timestamp: in nanoseconds", "timestamp")
            .set("time.precision.mode", "nanoseconds")
            .insert([("at", one)]),
        timed("timestamp: microseconds of the mode", "timestamp(3)")
            .set("time.precision.mode", "microseconds")
            .insert([("at", one)]),
        timed("timestamp: NULL, whatever the default", "timestamp default '2001-02-03 04:05:06'")
            .insert([("at", "null")])
            .insert([]),
        timed("timestamp: a millisecond before 1970 is none", "timestamp")
            .insert([("at", "'1969-12-31 23:59:59.999'")]),
        timed("timestamp: less than a millisecond before 1970", "timestamp")
            .insert([("at", "'1969-12-31 23:59:59.9995'")]),
    ]
}

fn wrong_timestamps() -> Vec<Case> {
    let dies = |name: &str, kind: &str, value: &str, text: &str| {
        timed(name, kind).dies(text).insert([("at", value)])
    };
    let one = "'2019-03-24 20:52:59.123456'";
    vec![
        dies("timestamp: with time zone", "timestamptz", one, "INT64").goes_out(),
        dies("timestamp: bigint", "bigint", "1553460779123", "Unsupported"),
        dies("timestamp: text", "text", one, "INT64"),
        dies("timestamp: date", "date", "'2019-03-24'", "INT64"),
        dies("timestamp: time, which is microseconds too", "time", "'20:52:59'", "Unsupported"),
        dies("timestamp: of the mode connect", "timestamp", one, "ClassCastException")
            .set("time.precision.mode", "connect")
            .goes_out(),
        dies("timestamp: of the mode isostring", "timestamp", one, "INT64")
            .set("time.precision.mode", "isostring")
            .goes_out(),
        dies(
            "timestamp: two milliseconds before 1970",
            "timestamp",
            "'1969-12-31 23:59:59.998'",
            "timestamp",
        ),
        dies(
            "timestamp: later than the broker takes",
            "timestamp",
            "'2999-12-31'",
            "Unrecoverable exception from producer send callback",
        ),
        dies("timestamp: a column that is not there", "timestamp", one, "nothing")
            .router("table.field.event.timestamp", "nothing"),
    ]
}

fn versions() -> Vec<Case> {
    let with = |name: &str, kind: &str| {
        case(name)
            .column("version", kind)
            .router("table.field.event.schema.version", "version")
            .value(JsonWithSchema)
    };
    let in_envelope = |name: &str, kind: &str| with(name, kind).place("type:envelope");
    vec![
        with("version: without an envelope it is nowhere", "int").insert([("version", "3")]),
        in_envelope("version: in the schema", "int")
            .insert([("version", "3")])
            .insert([("version", "4"), ("aggregatetype", "'{n}User'")])
            .insert([("version", "3"), ("aggregatetype", "'{n}User'")]),
        in_envelope("version: NULL", "int")
            .insert([("version", "null")])
            .insert([("version", "2")]),
        in_envelope("version: smallint", "smallint").dies("INT32").insert([("version", "3")]),
        in_envelope("version: a column that is not there", "int")
            .router("table.field.event.schema.version", "nothing")
            .dies("nothing")
            .insert([]),
        in_envelope("version: two shapes under one", "int")
            .router("table.expand.json.payload", "true")
            .insert([("version", "1"), ("payload", r#"'{"a": 1}'"#)])
            .dies("do not match")
            .goes_out()
            .insert([("version", "1"), ("payload", r#"'{"b": "x"}'"#)]),
        case("version: a tombstone that comes first names the schema of all")
            .router("route.tombstone.on.empty.payload", "true")
            .place("type:envelope")
            .value(JsonWithSchema)
            .insert([("aggregatetype", "'{n}User'"), ("payload", "null")])
            .insert([]),
        case("version: the first type names the schema of all")
            .place("type:envelope")
            .value(JsonWithSchema)
            .insert([("aggregatetype", "'{n}User'")])
            .insert([])
            .insert([("aggregatetype", "'{n}User'")]),
    ]
}
