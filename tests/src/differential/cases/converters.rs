//! `key.converter`, `value.converter`, `header.converter`.

use super::{
    super::case::Converter::{
        self, Binary, BinaryOrJson, BinaryOrText, Bytes, Json, JsonWithSchema, Simple, Text,
    },
    Case,
    Group::Converters,
};

fn case(name: String) -> Case {
    Case::new(Converters, name)
}

pub(super) fn all() -> Vec<Case> {
    [values(), keys(), headers(), options()].concat()
}

/// A type of the payload, and values of it.
const PAYLOADS: [(&str, &[&str]); 4] = [
    ("jsonb", &[r#"'{"b": [1, 2.50], "a": "x\ty"}'"#, "'\"text\"'", "'null'", "null"]),
    ("text", &["'plain'", "E'tab\\t \\u0001 \"quoted\" \\\\ / é 🎉 \\u2028'", "''", "null"]),
    ("bytea", &[r"'\x00ff10'", r"'\x'", "'{\"a\": 1}'", "null"]),
    ("int", &["42", "-1", "null"]),
];

/// What a pair does not take, with what the trace then has.
fn refusal(converter: Converter, kind: &str) -> Option<&'static str> {
    match (converter, kind) {
        (Bytes, "jsonb" | "text" | "int") => Some("Invalid schema type for ByteArrayConverter"),
        (Binary, "jsonb" | "text" | "int") => Some("delegate"),
        _ => None,
    }
}

fn values() -> Vec<Case> {
    let all = [Text, Json, JsonWithSchema, Bytes, Binary, BinaryOrJson, BinaryOrText];
    let pairs = all.into_iter().flat_map(|converter| PAYLOADS.map(|payload| (converter, payload)));
    pairs
        .map(|(converter, (kind, values))| {
            let start = case(format!("value: {converter:?} of {kind}"));
            let start = start.column("payload", kind).value(converter);
            let start = match refusal(converter, kind) {
                Some(text) => start.dies(text),
                None => start,
            };
            values.iter().fold(start, |case, value| case.insert([("payload", value)]))
        })
        .collect()
}

fn keys() -> Vec<Case> {
    let kinds = [
        ("text", ["'a \"quoted\" key'", "'ключ'", "''"]),
        ("bigint", ["42", "-9000000000", "0"]),
        ("bytea", [r"'\x00ff10'", r"'\x'", "'a'"]),
        ("jsonb", [r#"'{"tenant": 1}'"#, "'[]'", "'\"x\"'"]),
    ];
    let all = [Json, JsonWithSchema, Bytes, BinaryOrText];
    let pairs = all.into_iter().flat_map(|converter| kinds.map(|kind| (converter, kind)));
    pairs
        .map(|(converter, (kind, values))| {
            let start = case(format!("key: {converter:?} of {kind}"));
            let start = start.column("aggregateid", kind).key(converter);
            let start = match refusal(converter, if kind == "bigint" { "int" } else { kind }) {
                Some(text) => start.dies(text),
                None => start,
            };
            values.iter().fold(start, |case, value| case.insert([("aggregateid", value)]))
        })
        .collect()
}

fn headers() -> Vec<Case> {
    let columns = [
        ("h_text", "text", "'x \"y\" é'"),
        ("h_number", "int", "7"),
        ("h_json", "jsonb", r#"'{"a": [1]}'"#),
        ("h_bytes", "bytea", r"'\x0102'"),
        ("h_flag", "bool", "true"),
        ("h_list", "text[]", r#"'{a,"b\"c",NULL}'"#),
        ("h_null", "text", "null"),
    ];
    let placement = columns.map(|(name, ..)| format!("{name}:header")).join(",");
    let of = |converter: Converter| {
        let start = case(format!("header: {converter:?}")).header(converter).place(&placement);
        let case = columns.iter().fold(start, |case, (name, kind, _)| case.column(name, kind));
        case.insert(columns.map(|(name, _, value)| (name, value)))
    };
    vec![
        of(Simple),
        of(Text),
        of(Json),
        of(JsonWithSchema),
        case("header: ByteArrayConverter of text".to_owned())
            .header(Bytes)
            .dies("Invalid schema type for ByteArrayConverter")
            .insert([]),
    ]
}

fn options() -> Vec<Case> {
    let decimal = |name: &str, format: &str| {
        case(name.to_owned())
            .column("amount", "numeric(10,2)")
            .column("rate", "numeric")
            .place("amount:envelope,rate:envelope")
            .value(Json)
            .set("value.converter.decimal.format", format)
            .insert([("amount", "12.30"), ("rate", "0.000000000123")])
            .insert([("amount", "-99999999.99"), ("rate", "1e20")])
            .insert([("amount", "0"), ("rate", "100.0")])
    };
    let encodings = ["US-ASCII", "latin1", "ISO-8859-15", "cp1252", "UTF-16", "UTF-16LE"];
    let mut all: Vec<Case> = encodings.map(encoded).into();
    all.extend([
        decimal("option: decimals as base64", "BASE64"),
        decimal("option: decimals as numbers", "NUMERIC"),
        decimal("option: decimals as numbers, in small letters", "numeric"),
        case("option: schemas of keys alone".to_owned()).key(JsonWithSchema).value(Json).insert([]),
        case("option: JSON has schemas unless it is told".to_owned())
            .set("value.converter", "org.apache.kafka.connect.json.JsonConverter")
            .insert([]),
        case("option: the converters of the worker".to_owned())
            .unset("key.converter")
            .unset("value.converter")
            .insert([]),
        case("option: another encoding of text".to_owned())
            .column("payload", "text")
            .set("value.converter.converter.encoding", "ISO-8859-1")
            .insert([("payload", "'é'")]),
        case("option: a class that is not there".to_owned())
            .set("value.converter", "com.example.NoConverter")
            .refused("com.example.NoConverter"),
        case("option: Debezium's own ByteArrayConverter".to_owned())
            .column("payload", "bytea")
            .set("value.converter", "io.debezium.converters.ByteArrayConverter")
            .dies("ByteArrayConverter")
            .insert([]),
    ]);
    all
}

/// Text of keys, values and headers in an encoding.
fn encoded(encoding: &str) -> Case {
    const TEXT: &str = "org.apache.kafka.connect.storage.StringConverter";
    let start = case(format!("option: text in {encoding}")).column("payload", "text");
    ["key", "value", "header"]
        .into_iter()
        .fold(start, |case, part| {
            case.set(&format!("{part}.converter"), TEXT)
                .set(&format!("{part}.converter.converter.encoding"), encoding)
        })
        // Whose UUID is known in UTF-8 alone.
        .set("extended.headers.enabled", "false")
        .place("type:header")
        .insert([("payload", "'é€🎉 Š¤'"), ("type", "'ÿ\u{80}'")])
        .insert([("payload", "''"), ("aggregateid", "'ключ'"), ("type", "''")])
}
