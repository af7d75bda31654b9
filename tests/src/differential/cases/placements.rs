//! `table.fields.additional.placement`.

use super::{
    super::case::Converter::{Json, JsonWithSchema, Text},
    Case,
    Group::Placements,
};

const MISSING: &str = "table.field.additional.missing";

fn case(name: &str, placement: &str) -> Case {
    Case::new(Placements, name).place(placement)
}

pub(super) fn all() -> Vec<Case> {
    [headers(), envelopes(), partitions(), missing(), wrong()].concat()
}

fn headers() -> Vec<Case> {
    vec![
        case("header: by its name", "type:header").insert([]).insert([("type", "'x y'")]),
        case("header: by an alias", "type:header:eventType").insert([]),
        case("header: several, in their order", "type:header:b,aggregatetype:header:a,type:header")
            .insert([]),
        case("header: the id once more", "id:header").insert([]),
        case("header: one name twice", "type:header:x,aggregateid:header:x").insert([]),
        case("header: spaces and capitals", " type : HEADER : kind , aggregateid:Header ")
            .insert([]),
        case("header: NULL", "note:header,type:header")
            .column("note", "text")
            .insert([])
            .insert([("note", "''")])
            .insert([("note", "'x'")]),
        case("header: the name of one that Debezium sets", "type:header:__debezium.context.taskId")
            .insert([]),
        case("header: the payload", "payload:header:body").insert([]),
        case("header: a column of another case", "\"Kind\":header,Kind:header")
            .column("\"Kind\"", "text")
            .router(MISSING, "ignore")
            .insert([("\"Kind\"", "'x'")]),
        case("header: long and not ASCII", "note:header")
            .column("note", "text")
            .insert([("note", "'Grüße, 世界 🎉'")])
            .insert([("note", "repeat('long ', 2000)")]),
    ]
}

fn envelopes() -> Vec<Case> {
    let one = |name: &str, placement: &str| case(name, placement).value(Json).insert([]);
    vec![
        one("envelope: by its name", "type:envelope"),
        one("envelope: by an alias", "type:envelope:eventType"),
        one("envelope: several and a header", "type:envelope:t,aggregateid:header:k,id:envelope"),
        one("envelope: NULL in it", "note:envelope").column("note", "text"),
        one("envelope: no payload", "type:envelope").insert([("payload", "null")]),
        one("envelope: with its schema", "type:envelope:eventType,id:envelope")
            .value(JsonWithSchema)
            .insert([("aggregatetype", "'{n}User'")])
            .insert([("payload", "null")]),
        one("envelope: as text", "type:envelope,id:envelope:e").value(Text),
        one("envelope: the payload a second time", "payload:envelope:again"),
        one("envelope: with text for payload", "type:envelope")
            .column("payload", "text")
            .value(JsonWithSchema)
            .insert([("payload", "'plain'")]),
        one("envelope: with bytes for payload", "type:envelope")
            .column("payload", "bytea")
            .value(JsonWithSchema),
        one("envelope: no payload and tombstones", "type:envelope")
            .router("route.tombstone.on.empty.payload", "true")
            .insert([("payload", "null")])
            .insert([]),
        case("envelope: the name of the payload", "type:envelope:payload")
            .value(Json)
            .dies("Cannot create field because of field name duplication payload")
            .insert([]),
        case("envelope: one name twice", "type:envelope:x,id:envelope:x")
            .value(Json)
            .dies("Cannot create field because of field name duplication x")
            .insert([]),
    ]
}

fn partitions() -> Vec<Case> {
    let with = |name: &str, kind: &str| case(name, "part:partition").column("part", kind);
    vec![
        with("partition: a number", "int")
            .insert([("part", "2")])
            .insert([("part", "0")])
            .insert([("part", "1")])
            .insert([("part", "null")]),
        case("partition: the last one counts, aliases do not", "a:partition:x,b:partition:y")
            .column("a", "int")
            .column("b", "int")
            .insert([("a", "1"), ("b", "2")])
            .insert([("a", "1"), ("b", "null")]),
        with("partition: NULL, whatever the default", "int default 1").insert([("part", "null")]),
        with("partition: smallint", "smallint").dies("INT32").insert([("part", "1")]),
        with("partition: bigint", "bigint").dies("INT32").insert([("part", "1")]),
        with("partition: text", "text").dies("INT32").insert([("part", "'1'")]),
        with("partition: less than none", "int")
            .insert([("part", "0")])
            .dies("Invalid partition: -1")
            .insert([("part", "-1")])
            .insert([("part", "0")]),
    ]
}

fn missing() -> Vec<Case> {
    let dies =
        |name: &str, placement: &str| case(name, placement).value(Json).dies("nothing").insert([]);
    vec![
        dies("missing: header", "nothing:header"),
        dies("missing: envelope", "nothing:envelope"),
        dies("missing: partition", "nothing:partition"),
        dies("missing: the former option is read by nobody", "nothing:header")
            .router("table.fields.additional.error.on.missing", "false")
            .goes_out(),
        dies("missing: error", "nothing:header").router(MISSING, "ERROR"),
        case("missing: ignored", "nothing:header,nothing:envelope,nothing:partition,type:header")
            .value(Json)
            .router(MISSING, "ignore")
            .insert([]),
        case("missing: a column that is added later", "note:header")
            .router(MISSING, "ignore")
            .insert([])
            .silent("alter table outbox add column note text")
            .insert([("type", "'x'")])
            .publishes(
                1,
                "insert into outbox values ('00000000-0000-4000-8000-000000000009', \
                 '{n}Order', 'a1', 't', '{}', 'noted')",
            ),
        case("missing: neither", "type:header").router(MISSING, "perhaps").refused(MISSING),
    ]
}

fn wrong() -> Vec<Case> {
    let refused = |name: &str, placement: &str| case(name, placement).refused("placement");
    vec![
        refused("placement: empty", ""),
        refused("placement: no place", "type"),
        refused("placement: four parts", "type:header:a:b"),
        case("placement: misspelt", "type:headr").dies("NullPointerException").insert([]),
    ]
}
