//! The files of `connectors/`, of which places alone are others: Debezium's own
//! examples, restated, and ours.

use super::{Case, Group::Examples};

/// The table of Quarkus, and of Debezium's examples.
const EVENT: &str = "(id uuid primary key, aggregatetype varchar(255) not null, \
                     aggregateid varchar(255) not null, type varchar(255) not null, \
                     timestamp timestamp, payload varchar(8000), tracingspancontext varchar(256))";

/// More often than in the files, which nobody waits for.
const HEARTBEATS: &str = "heartbeat.interval.ms";

macro_rules! example {
    ($name:literal) => {
        Case::of_file(
            Examples,
            concat!("example: ", $name),
            include_str!(concat!("../../../../connectors/", $name)),
        )
    };
}

pub(super) fn all() -> Vec<Case> {
    [of_debezium(), of_tables(), of_converters(), of_messages()].concat()
}

fn of_debezium() -> Vec<Case> {
    vec![
        events(example!("debezium-outbox.json"), "inventory"),
        events(example!("debezium-saga.json"), "purchaseorder"),
        example!("debezium-expanded.json")
            .insert([("payload", r#"'{"a": {"b": [1, 2]}, "c": "d"}'"#)])
            .insert([("payload", r#"'{"a": {"b": [3]}, "c": "e"}'"#)]),
        example!("debezium-binary.json")
            .set(HEARTBEATS, "200")
            .column("payload", "bytea")
            .and(1)
            .insert([("payload", r"'\x00ff'")])
            .insert([("payload", r"'\x10'")]),
        example!("debezium-selective.json").insert([]).insert([("aggregateid", "'a2'")]),
    ]
}

/// Rows of a table of Quarkus in this schema.
fn events(case: Case, schema: &str) -> Case {
    let row = |number: u32| {
        format!(
            "insert into {schema}.outboxevent values ('00000000-0000-4000-8000-{number:012}', \
             '{{n}}Order', 'a{number}', 'OrderPlaced', '2024-05-06 07:08:09.123456', \
             '{{\"n\": {number}}}', null)"
        )
    };
    let case = case.without_outbox();
    let case = match schema {
        "public" => case,
        _ => case.setup(&format!("create schema {schema}")),
    };
    case.setup(&format!("create table {schema}.outboxevent {EVENT}"))
        .publishes(1, &row(1))
        .publishes(1, &row(2))
        .silent(&format!("delete from {schema}.outboxevent"))
}

fn of_tables() -> Vec<Case> {
    let custom = "insert into billing.outbox_events values ('e1', 'i-7', '{\"net\": 1}', \
                  '2024-05-06 07:08:09.123', 'issued', 't-1', 2, '{n}billing.invoices', 'x', 'y')";
    let archived = "insert into outbox_archive (id, aggregatetype, aggregateid, type, payload) \
                    values (gen_random_uuid(), '{n}Order', 'old', 'OrderPlaced', '{}')";
    vec![
        events(example!("quarkus.json"), "public"),
        example!("custom-columns.json")
            .without_outbox()
            .set("database.sslmode", "disable")
            .unset("database.sslrootcert")
            .unset("slot.failover")
            .setup("create schema billing")
            .setup(
                "create table billing.outbox_events (event_id text primary key, \
                 invoice_number text, body jsonb, occurred_at timestamp(3), event_name text, \
                 tenant text, shard int, destination text, internal_note text, debug_trace text)",
            )
            .setup(
                "create publication billing_outbox for table billing.outbox_events with \
                 (publish = 'insert')",
            )
            .publishes(1, custom)
            .silent("delete from billing.outbox_events"),
        example!("snapshot.json")
            .column("created_at", "timestamptz not null default now()")
            .setup(
                "create table outbox_archive (id uuid primary key, aggregatetype text, \
                    aggregateid text, type text, payload jsonb)",
            )
            .stored([])
            .stored([("created_at", "now() - interval '8 days'")])
            .and(1)
            .insert([])
            .publishes(1, archived),
        example!("transforms.json")
            .insert([])
            .silent("insert into outbox values (gen_random_uuid(), '{n}x.scratch', 'a', 't', '{}')")
            .insert([]),
    ]
}

fn of_converters() -> Vec<Case> {
    vec![
        example!("json-with-schemas.json")
            .set("topic.creation.default.replication.factor", "1")
            .column("created_at", "timestamptz")
            .column("version", "int")
            .insert([("created_at", "'2024-05-06 07:08:09.123Z'"), ("version", "1")])
            .insert([("payload", r#"'{"b": null, "c": [1.5]}'"#), ("version", "2")]),
        example!("bytes.json")
            .set(HEARTBEATS, "200")
            .setup("create table heartbeat (at timestamptz)")
            .column("payload", "bytea")
            .column("content_type", "text")
            .and(1)
            .insert([("payload", r"'\x00ff'"), ("content_type", "'application/x'")]),
    ]
}

fn of_messages() -> Vec<Case> {
    let emit =
        |content: &str| format!("select pg_logical_emit_message(true, 'outbox', '{content}')");
    let event =
        r#"{"id": "e1", "aggregateType": "{n}Order", "aggregateId": "a1", "payload": {"a": 1}}"#;
    vec![example!("messages.json").without_outbox().publishes(1, &emit(event))]
}
