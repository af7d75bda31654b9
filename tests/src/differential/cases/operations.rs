//! What is not an INSERT, and transactions of several rows.

use super::{super::case::Converter::JsonWithSchema, Case, Group::Operations};

const INVALID: &str = "table.op.invalid.behavior";
const UPDATE: &str = "update outbox set type = 'changed'";

fn case(name: &str) -> Case {
    Case::new(Operations, name)
}

pub(super) fn all() -> Vec<Case> {
    [updates(), deletes(), transactions(), skipped()].concat()
}

fn updates() -> Vec<Case> {
    let with = |name: &str, behaviour: &str| case(name).router(INVALID, behaviour).insert([]);
    vec![
        case("update: dropped").insert([]).silent(UPDATE).insert([]),
        with("update: dropped with a warning", "warn").silent(UPDATE).insert([]),
        with("update: dropped with an error", "ERROR").silent(UPDATE).insert([]),
        with("update: fatal", "fatal").dies("update").silent(UPDATE).insert([]),
        case("update: an unknown behaviour").router(INVALID, "ignore").refused(INVALID),
        case("update: of the primary key is a new event")
            .insert([])
            .publishes(1, "update outbox set id = '00000000-0000-4000-8000-000000000077'")
            .insert([]),
        case("update: of the primary key, headers of JSON")
            .header(JsonWithSchema)
            .insert([])
            .publishes(1, "update outbox set id = '00000000-0000-4000-8000-000000000077'"),
        case("update: of the primary key, fatal")
            .router(INVALID, "fatal")
            .insert([])
            .publishes(1, "update outbox set id = '00000000-0000-4000-8000-000000000077'")
            .insert([]),
        case("update: with the whole old row")
            .setup("create table other (id int)")
            .insert([])
            .silent("alter table outbox replica identity full")
            .silent(UPDATE)
            .insert([]),
        case("update: by an upsert")
            .insert([])
            .silent(
                "insert into outbox select * from outbox on conflict (id) do update set type = 'u'",
            )
            .insert([]),
    ]
}

fn deletes() -> Vec<Case> {
    let gone = "with new as (insert into outbox values \
                ('00000000-0000-4000-8000-000000000099', '{n}Order', 'a1', 't', '{}') returning id) \
                select from new";
    vec![
        case("delete: dropped").insert([]).silent("delete from outbox").insert([]),
        case("delete: without a tombstone")
            .set("tombstones.on.delete", "false")
            .insert([])
            .silent("delete from outbox")
            .insert([]),
        case("delete: in the transaction of the insert")
            .publishes(1, &format!("begin; {gone}; delete from outbox; commit"))
            .insert([]),
        case("truncate: not read").insert([]).silent("truncate outbox").insert([]),
        case("truncate: read, and fatal")
            .set("skipped.operations", "none")
            .insert([])
            .dies("Exception")
            .goes_out()
            .silent("truncate outbox")
            .insert([]),
    ]
}

fn transactions() -> Vec<Case> {
    let many = "insert into outbox select ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid, \
                '{n}Order', 'a' || n % 7, 't' || n, jsonb_build_object('n', n) \
                from generate_series(1, 300) n";
    let row = |number: u32| {
        format!(
            "insert into outbox values ('00000000-0000-4000-8000-{number:012}', '{{n}}Order', \
             'a1', 't{number}', '{{}}')"
        )
    };
    vec![
        case("transaction: many rows in one statement").publishes(300, many),
        case("transaction: a savepoint that is rolled back").publishes(
            2,
            &format!(
                "begin; {}; savepoint s; {}; rollback to s; {}; commit",
                row(1),
                row(2),
                row(3)
            ),
        ),
        case("transaction: rolled back")
            .silent(&format!("begin; {}; rollback", row(1)))
            .publishes(1, &row(2)),
        case("transaction: several topics, one after the other").publishes(
            3,
            &format!("begin; {}; {}; {}; commit", row(1), row(2).replace("Order", "User"), row(3)),
        ),
        case("transaction: a large payload")
            .column("payload", "text")
            .insert([("payload", "repeat('0123456789', 30000)")])
            .insert([("payload", "'small'")]),
        case("transaction: a payload that is larger than a request may be")
            .column("payload", "text")
            .insert([("payload", "'small'")])
            .dies("RecordTooLargeException")
            .insert([("payload", "repeat('0123456789', 120000)")])
            .insert([("payload", "'small'")]),
        case("transaction: the table changes between rows")
            .insert([])
            .silent("alter table outbox add column extra int default 7")
            .insert([("type", "'x'")])
            .silent("alter table outbox drop column extra")
            .insert([])
            .silent("alter table outbox alter column aggregateid type varchar(80)")
            .insert([]),
        case("transaction: the key's type changes between rows")
            .key(JsonWithSchema)
            .insert([("aggregateid", "'1'")])
            .silent("alter table outbox alter column aggregateid type int using aggregateid::int")
            .insert([("aggregateid", "2")]),
    ]
}

fn skipped() -> Vec<Case> {
    vec![
        case("skipped: updates, so that none is fatal")
            .set("skipped.operations", "u,d,t")
            .router(INVALID, "fatal")
            .insert([])
            .silent(UPDATE)
            .silent("delete from outbox")
            .insert([]),
        case("skipped: inserts")
            .set("skipped.operations", "c,u,d,t")
            .silent(
                "insert into outbox values ('00000000-0000-4000-8000-000000000001', '{n}Order', \
                 'a', 't', '{}')",
            )
            .publishes(1, "select pg_logical_emit_message(true, 'p', 'the last one')"),
        case("skipped: an unknown operation").set("skipped.operations", "x").refused("skipped"),
    ]
}
