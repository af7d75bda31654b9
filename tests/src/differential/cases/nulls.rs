//! NULL, defaults in its place, and what is empty.

use super::{
    super::case::Converter::{Json, JsonWithSchema, Text},
    Case,
    Group::Nulls,
};

fn case(name: &str) -> Case {
    Case::new(Nulls, name)
}

pub(super) fn all() -> Vec<Case> {
    [payloads(), tombstones(), of_every_type(), by_functions()].concat()
}

fn payloads() -> Vec<Case> {
    let with = |name: &str, definition: &str| case(name).column("payload", definition);
    let mut all = Vec::new();
    for converter in [Text, Json, JsonWithSchema] {
        let name = |what: &str| format!("{what}, {converter:?}");
        all.extend([
            with(&name("null: no payload"), "jsonb").value(converter).insert([("payload", "null")]),
            with(&name("null: a default of the payload"), r#"jsonb default '{"z": 0}'"#)
                .value(converter)
                .insert([("payload", "null")])
                .insert([("payload", "default")])
                .insert([]),
            with(&name("null: a default of text"), "text not null default 'usual'")
                .value(converter)
                .insert([("payload", "default")])
                .insert([("payload", "''")]),
        ]);
    }
    all.push(
        with("null: a default of the payload that JSON leaves out", "jsonb default '{}'")
            .value(JsonWithSchema)
            .set("value.converter.replace.null.with.default", "false")
            .insert([("payload", "null")])
            .insert([]),
    );
    all
}

fn tombstones() -> Vec<Case> {
    let with = |name: &str, kind: &str| {
        case(name).column("payload", kind).router("route.tombstone.on.empty.payload", "true")
    };
    let mut all = Vec::new();
    for converter in [Text, Json, JsonWithSchema] {
        let name = |what: &str| format!("{what}, {converter:?}");
        all.extend([
            with(&name("tombstone: of text"), "text")
                .value(converter)
                .insert([("payload", "null")])
                .insert([("payload", "''")])
                .insert([("payload", r"E' \n\t '")])
                .insert([("payload", "U&'\\00a0\\2003'")])
                .insert([("payload", "'x'")]),
            with(&name("tombstone: of jsonb"), "jsonb")
                .value(converter)
                .insert([("payload", "null")])
                .insert([("payload", "'null'")])
                .insert([("payload", r#"'""'"#)])
                .insert([("payload", "'{}'")]),
        ]);
    }
    all.extend([
        with("tombstone: empty bytes are none", "bytea")
            .value(Json)
            .insert([("payload", "''")])
            .insert([("payload", "null")])
            .insert([("payload", "'x'")]),
        with("tombstone: empty bytes as text", "bytea")
            .set("binary.handling.mode", "base64")
            .insert([("payload", "''")])
            .insert([("payload", "null")])
            .insert([("payload", "'x'")]),
        with("tombstone: empty bytes of a domain", "content")
            .setup("create domain content as bytea")
            .set("binary.handling.mode", "hex")
            .value(Json)
            .insert([("payload", "''")])
            .insert([("payload", r"'\x20'")]),
        with("tombstone: empty bits are none", "varbit")
            .value(Json)
            .insert([("payload", "B''")])
            .insert([("payload", "null")]),
        with("tombstone: an empty hstore is none", "hstore")
            .setup("create extension hstore")
            .set("hstore.handling.mode", "json")
            .insert([("payload", "''")])
            .insert([("payload", "null")]),
        with("tombstone: an empty map is none", "hstore")
            .setup("create extension hstore")
            .set("hstore.handling.mode", "map")
            .value(Json)
            .place("type:envelope")
            .insert([("payload", "''")])
            .insert([("payload", "null")]),
        with("tombstone: a default in place of NULL", "text default 'usual'")
            .insert([("payload", "null")]),
        with("tombstone: a default that is empty", "text default ''").insert([("payload", "null")]),
        with("tombstone: a number", "int")
            .value(Json)
            .insert([("payload", "null")])
            .insert([("payload", "0")]),
    ]);
    all
}

/// Columns of many types with defaults, all NULL, in headers and an envelope.
fn of_every_type() -> Vec<Case> {
    let defaults = [
        ("c_bool", "bool default true"),
        ("c_small", "smallint default 3"),
        ("c_int", "int default -5"),
        ("c_big", "bigint default 9000000000"),
        ("c_real", "real default 1.5"),
        ("c_double", "double precision default -0.25"),
        ("c_numeric", "numeric(8,2) default 12.3"),
        ("c_text", "text default 'it''s'"),
        ("c_varchar", "varchar(10) default 'v'"),
        ("c_char", "char(4) default 'c'"),
        ("c_uuid", "uuid default '59a42efd-b015-44a9-9dde-cb36d9002425'"),
        ("c_json", "json default '{\"a\":1}'"),
        ("c_bytea", "bytea default '\\x0102'"),
        ("c_date", "date default '2020-02-29'"),
        ("c_time", "time default '12:34:56.789'"),
        ("c_timestamp", "timestamp default '2020-02-29 12:34:56'"),
        ("c_timestamptz", "timestamptz default '2020-02-29 12:34:56+02'"),
    ];
    let placed = |place: &str| -> String {
        let all = defaults.iter().map(|(name, _)| format!("{name}:{place}"));
        all.collect::<Vec<_>>().join(",")
    };
    let table = |name: &str, place: &str| {
        let start = case(name).value(JsonWithSchema).place(&placed(place));
        let case = defaults.iter().fold(start, |case, (name, kind)| case.column(name, kind));
        let nulls = defaults.iter().map(|_| "null").collect::<Vec<_>>().join(", ");
        let names = defaults.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        case.insert([]).publishes(
            1,
            &format!(
                "insert into outbox (id, aggregatetype, aggregateid, type, {names}) values \
                 ('00000000-0000-4000-8000-000000000009', '{{n}}Order', 'a', 't', {nulls})"
            ),
        )
    };
    vec![
        table("null: defaults of all types in headers", "header"),
        table("null: defaults of all types in the envelope", "envelope"),
        table("null: defaults of all types in headers of JSON", "header").header(JsonWithSchema),
    ]
}

fn by_functions() -> Vec<Case> {
    let with = |name: &str, definition: &str| {
        case(name)
            .column("made", definition)
            .place("made:header,made:envelope")
            .value(JsonWithSchema)
            .insert([("made", "null")])
    };
    vec![
        with("null: gen_random_uuid()", "uuid default gen_random_uuid()"),
        with("null: now()", "timestamp default now()"),
        with("null: now() with time zone", "timestamptz default now()"),
        with("null: a sequence", "bigint default (random() * 0)::bigint"),
        with("null: an expression of text", "text default upper('x') || 'y'"),
        with("null: the date of today", "date default current_date"),
        with("null: NULL by name", "text default null"),
    ]
}
