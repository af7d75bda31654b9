//! `pg_logical_emit_message`: passed through, or an outbox without a table.

use super::{
    super::case::Converter::{BinaryOrJson, Bytes, Json, JsonWithSchema, Text},
    Case,
    Group::Messages,
};

const DECODE: &str =
    "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent";

pub(super) fn all() -> Vec<Case> {
    [passed(), decoded(), wrong()].concat()
}

fn emit(prefix: &str, content: &str) -> String {
    let content = content.replace('\'', "''");
    format!("select pg_logical_emit_message(true, '{prefix}', '{content}')")
}

fn passed() -> Vec<Case> {
    let case = |name: &str| Case::new(Messages, name);
    let mut all: Vec<Case> = [Text, Json, JsonWithSchema]
        .into_iter()
        .map(|converter| {
            case(&format!("message: passed by the router, {converter:?}"))
                .key(converter)
                .value(converter)
                .publishes(1, &emit("audit", "plain text"))
                .insert([])
                .publishes(1, &emit("", ""))
                .publishes(1, "select pg_logical_emit_message(true, 'b', '\\x00ff'::bytea)")
                .publishes(1, "select pg_logical_emit_message(false, 'outside', 'now')")
                .insert([])
        })
        .collect();
    all.extend([
        case("message: by prefix")
            .value(Json)
            .set("message.prefix.include.list", "audit.*,x")
            .publishes(1, &emit("audit", "1"))
            .publishes(1, &emit("audit.more", "2"))
            .silent(&emit("other", "3"))
            .silent(&emit("xy", "4"))
            .publishes(1, &emit("X", "5"))
            .insert([]),
        case("message: but not of a prefix")
            .value(Json)
            .set("message.prefix.exclude.list", "noise.*")
            .silent(&emit("noise.1", "1"))
            .publishes(1, &emit("audit", "2"))
            .insert([]),
    ]);
    all
}

fn decoding(name: &str) -> Case {
    Case::new(Messages, name)
        .set("transforms", "decode,outbox")
        .set("transforms.decode.type", DECODE)
        .value(Json)
}

fn decoded() -> Vec<Case> {
    let event = r#"{"id": "e1", "aggregatetype": "{n}Order", "aggregateid": "a1", "type": "Placed", "payload": "text"}"#;
    let nested = r#"{"id": 7, "aggregatetype": "{n}Order", "aggregateid": 42, "type": "t", "payload": {"a": 1, "l": [1, 2], "o": {"x": null, "y": 1.50}}}"#;
    let nulls = r#"{"id": "e2", "aggregatetype": "{n}Order", "aggregateid": null, "type": "t", "payload": null}"#;
    let both = |case: Case| case.publishes(1, &emit("o", event)).publishes(1, &emit("o", nested));
    let table = |name: &str| both(decoding(name).set("publication.autocreate.mode", "no_tables"));
    vec![
        both(decoding("decode: beside the table")).insert([]),
        table("decode: without a table").set("publication.name", "none_{n}"),
        both(decoding("decode: with schemas").value(JsonWithSchema).key(JsonWithSchema)),
        both(decoding("decode: as text").value(Text)),
        both(decoding("decode: with a converter of bytes beside").value(BinaryOrJson)),
        decoding("decode: with a converter of bytes alone")
            .value(Bytes)
            .dies("ByteArrayConverter")
            .silent(&emit("o", event)),
        both(
            decoding("decode: into an envelope with schemas")
                .value(JsonWithSchema)
                .header(JsonWithSchema)
                .place("type:envelope,id:header:e"),
        ),
        both(
            decoding("decode: into an envelope and headers")
                .place("type:envelope,type:header,id:envelope:e"),
        ),
        both(decoding("decode: not of a transaction"))
            .publishes(1, &emit("o", event).replace("(true", "(false")),
        decoding("decode: nulls are kept")
            .set("transforms.decode.fields.null.include", "true")
            .publishes(1, &emit("o", nested))
            .publishes(1, &emit("o", nulls)),
        decoding("decode: tombstones")
            .set("transforms.decode.fields.null.include", "true")
            .router("route.tombstone.on.empty.payload", "true")
            .publishes(1, &emit("o", nulls))
            .publishes(1, &emit("o", event)),
        decoding("decode: expanded with schemas")
            .router("table.expand.json.payload", "true")
            .value(JsonWithSchema)
            .publishes(1, &emit("o", &event.replace("\"text\"", r#""{\"a\": [{\"b\": 1}]}""#))),
        decoding("decode: expanded")
            .router("table.expand.json.payload", "true")
            .publishes(1, &emit("o", &event.replace("\"text\"", r#""{\"a\": 1}""#))),
        decoding("decode: a time")
            .router("table.field.event.timestamp", "at")
            .dies("Unsupported")
            .silent(&emit("o", &event.replace("\"id\"", "\"at\": 1553460779123, \"id\""))),
        decoding("decode: the columns have other names")
            .without_outbox()
            .setup(
                "create table outbox (event_id text primary key, key text, body jsonb, kind text)",
            )
            .router("table.field.event.id", "event_id")
            .router("table.field.event.key", "key")
            .router("table.field.event.payload", "body")
            .router("route.by.field", "kind")
            .publishes(
                1,
                &emit(
                    "o",
                    r#"{"event_id": "1", "key": "k", "body": {"a": true}, "kind": "{n}Order"}"#,
                ),
            ),
    ]
}

fn wrong() -> Vec<Case> {
    let dies = |name: &str, text: &str, content: &str| {
        decoding(name).insert([]).dies(text).silent(&emit("o", content)).insert([])
    };
    vec![
        dies("decode: no JSON", "Exception", "plain"),
        dies("decode: an array", "Exception", "[1]"),
        dies("decode: a number", "Exception", "1"),
        dies("decode: nothing", "Exception", ""),
        dies(
            "decode: no key",
            "aggregateid",
            r#"{"id": "1", "aggregatetype": "{n}Order", "payload": "x"}"#,
        ),
        dies(
            "decode: no payload",
            "payload",
            r#"{"id": "1", "aggregatetype": "{n}Order", "aggregateid": "x"}"#,
        ),
        dies(
            "decode: no route",
            "aggregatetype",
            r#"{"id": "1", "aggregateid": "x", "payload": "x"}"#,
        ),
        dies(
            "decode: null without its being kept",
            "aggregateid",
            r#"{"id": "1", "aggregatetype": "{n}Order", "aggregateid": null, "payload": "x"}"#,
        ),
    ]
}
