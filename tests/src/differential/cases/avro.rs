//! Avro by a schema registry, which both engines ask: schemas, their ids and bytes.

use super::{
    super::case::Converter::{Avro, Json},
    Case, Group,
    types::{TYPES, Type, with},
};

/// How many columns a table has.
const TOGETHER: usize = 8;

/// What Debezium's documentation says with Avro.
fn case(name: &str) -> Case {
    Case::new(Group::Avro, format!("avro: {name}")).set("schema.name.adjustment.mode", "avro")
}

pub(super) fn all() -> Vec<Case> {
    let types = TYPES.chunks(TOGETHER).enumerate().map(together);
    [plain(), expanded(), names()].concat().into_iter().chain(types).collect()
}

fn plain() -> Vec<Case> {
    let all_rows = |case: Case| {
        case.insert([])
            .insert([("payload", "'[1, \"two\", null]'")])
            .insert([("payload", "null")])
            .insert([("aggregateid", "''")])
    };
    vec![
        all_rows(case("the payload as text").value(Avro)),
        all_rows(case("key and value").key(Avro).value(Avro)),
        all_rows(case("keys alone").key(Avro)),
        case("bytes").column("payload", "bytea").value(Avro).insert([("payload", "'\\x00ff'")]),
        case("a number as key")
            .column("aggregateid", "bigint")
            .key(Avro)
            .insert([("aggregateid", "-9000000000")]),
        case("bytes that are required")
            .column("aggregateid", "bytea not null")
            .key(Avro)
            .insert([("aggregateid", r"'\x00ff'")]),
        case("tombstones")
            .value(Avro)
            .router("route.tombstone.on.empty.payload", "true")
            .insert([("payload", "null")]),
        case("an envelope")
            .value(Avro)
            .key(Avro)
            .place("type:envelope,aggregateid:envelope:id")
            .insert([])
            .insert([("payload", "null")]),
        case("a schema's version")
            .column("version", "int")
            .value(Avro)
            .place("type:envelope")
            .router("table.field.event.schema.version", "version")
            .insert([("version", "1")])
            .insert([("version", "2")]),
        case("a default in place of NULL")
            .column("grade", "int default 7")
            .value(Avro)
            .place("grade:envelope")
            .insert([("grade", "1")])
            .insert([("grade", "null")]),
    ]
}

fn expanded() -> Vec<Case> {
    let expand = |name: &str| case(name).value(Avro).router("table.expand.json.payload", "true");
    vec![
        expand("expanded")
            .insert([("payload", r#"'{"a": 1, "b": "x", "c": true, "d": 1.5, "e": null}'"#)])
            .insert([("payload", r#"'{"a": 12345678901, "f": {"g": [1, 2], "h": {"i": "j"}}}'"#)])
            .insert([("payload", r#"'{"a": {"b": {"c": 1}}, "d": [{"e": 1}, {"e": 2}]}'"#)]),
        expand("expanded, in an envelope")
            .place("type:envelope")
            .insert([("payload", r#"'{"a": 1, "b": {"c": "d"}}'"#)]),
        expand("expanded, one schema after another")
            .insert([("payload", r#"'{"a": 1}'"#)])
            .insert([("payload", r#"'{"a": "now text"}'"#)])
            .insert([("payload", r#"'{"a": 2}'"#)]),
        expand("expanded, what is no object")
            .insert([("payload", "'7'")])
            .insert([("payload", "'\"x\"'")]),
    ]
}

/// That Avro does not allow.
fn names() -> Vec<Case> {
    vec![
        case("a field's name")
            .set("field.name.adjustment.mode", "avro")
            .column("\"no-name\"", "int")
            .value(Avro)
            .place("no_name:envelope")
            .insert([("\"no-name\"", "1")]),
        case("a topic's name")
            .value(Avro)
            .place("type:envelope")
            .router("route.topic.replacement", "{n}.with-dashes.${routedByValue}")
            .insert([]),
        case("JSON beside it").key(Json).value(Avro).place("type:envelope").insert([]),
    ]
}

/// Several columns in an envelope.
fn together((number, kinds): (usize, &[Type])) -> Case {
    let names: Vec<String> = (0..kinds.len()).map(|index| format!("c{index}")).collect();
    let placed = names.iter().map(|name| format!("{name}:envelope")).collect::<Vec<_>>();
    let start =
        case(&format!("types {number} in an envelope")).value(Avro).place(&placed.join(","));
    let case = names.iter().zip(kinds).fold(start, |case, (name, kind)| with(case, name, kind));
    let rows = kinds.iter().map(|kind| kind.values.len()).max().unwrap_or_default();
    (0..rows).fold(case, |case, row| {
        let value = |kind: &Type| kind.values[row % kind.values.len()];
        let values = kinds.iter().map(value).collect::<Vec<_>>().join(", ");
        let sql = format!(
            "insert into outbox values ('00000000-0000-4000-8000-{row:012}', '{{n}}Order', 'a', \
             't', '{{}}', {values})"
        );
        case.publishes(1, &sql)
    })
}
