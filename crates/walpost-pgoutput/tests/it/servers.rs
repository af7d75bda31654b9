//! Streams of real PostgreSQL servers, read with
//! `pg_logical_slot_peek_binary_changes`, in text and in binary.

use tokio_postgres::Client;
use walpost_event::{Operation, Row, RowChange, Value};
use walpost_pgoutput::{Begin, Bytes, Commit, Decoder, Truncate, WalMessage};
use walpost_testkit::{postgres_of, unique_name};

const SCHEMA: &str = "
    create type mood as enum ('glad', 'sad');
    create table outbox (
        id uuid primary key, n int, payload jsonb, raw bytea, flag bool, feeling mood, note text
    );
    alter table outbox alter note set storage external;
    create table other (id int primary key, tag varchar(12));
    create publication walpost for table outbox, other;";

const WORK: [&str; 14] = [
    r#"insert into outbox values ('59a42efd-b015-44a9-9dde-cb36d9002425', 7, '{"a": 1}', '\x00ff',
        true, 'glad', repeat('x', 10000))"#,
    "insert into other select i, 'tag' || i from generate_series(1, 2) i",
    "update outbox set n = 8",
    "update outbox set id = '00000000-0000-0000-0000-000000000001'",
    "alter table outbox replica identity full",
    "update outbox set note = null, flag = false",
    "delete from outbox",
    "delete from other where id = 2",
    "truncate outbox",
    "truncate outbox, other restart identity cascade",
    "select pg_logical_emit_message(true, 'outbox', '{\"id\": \"e1\"}')",
    r"select pg_logical_emit_message(false, 'raw', '\x00ff'::bytea)",
    "alter table other add more int",
    "insert into other values (3, null, -1)",
];

/// One line a message, without the begins and commits.
fn expected(is_binary: bool) -> Vec<String> {
    let id = "59a42efd-b015-44a9-9dde-cb36d9002425";
    let one = "00000000-0000-0000-0000-000000000001";
    let (id, one, json, raw, ok, no) = match is_binary {
        false => (id, one, "{\"a\": 1}", "\\x00ff", "t", "f"),
        true => (
            "0x59a42efdb01544a99ddecb36d9002425",
            "0x00000000000000000000000000000001",
            "0x017b2261223a20317d",
            "0x00ff",
            "0x01",
            "0x00",
        ),
    };
    let int = |number: i32| match is_binary {
        false => number.to_string(),
        true => format!("0x{number:08x}"),
    };
    let word = |text: &str| match is_binary {
        false => text.to_owned(),
        true => hex(text.as_bytes()),
    };
    let (seven, eight) = (int(7), int(8));
    let glad = word("glad");
    let rest = format!("{json}, {raw}, {ok}, {glad}");
    let note = "10000 bytes";
    let columns = "n:23, payload:3802, raw:17, flag:16, feeling:enum, note:25";
    let keys = "n:23*, payload:3802*, raw:17*, flag:16*, feeling:enum*, note:25*";
    let old = format!("{one}, {eight}, {rest}, {note}");
    let new = format!("{one}, {eight}, {json}, {raw}, {no}, {glad}, null");
    let described_again =
        ["type public.mood".to_owned(), format!("relation public.outbox Full id:2950*, {keys}")];
    let lines = [
        "type public.mood".to_owned(),
        format!("relation public.outbox Default id:2950*, {columns}"),
        format!("insert outbox {id}, {seven}, {rest}, {note}"),
        "relation public.other Default id:23*, tag:1043(16)".to_owned(),
        format!("insert other {}, {}", int(1), word("tag1")),
        format!("insert other {}, {}", int(2), word("tag2")),
        format!("update outbox {id}, {eight}, {rest}, unchanged"),
        format!(
            "update outbox {one}, {eight}, {rest}, unchanged \
             from {id}, null, null, null, null, null, null"
        ),
        described_again[0].clone(),
        described_again[1].clone(),
        format!("update outbox {new} from {old}"),
        format!("delete outbox {new}"),
        format!("delete other {}, null", int(2)),
        described_again[0].clone(),
        described_again[1].clone(),
        "truncate outbox false false".to_owned(),
        described_again[0].clone(),
        described_again[1].clone(),
        "relation public.other Default id:23*, tag:1043(16)".to_owned(),
        "truncate outbox other true true".to_owned(),
        "message true outbox {\"id\": \"e1\"}".to_owned(),
        "message false raw 0x00ff".to_owned(),
        "relation public.other Default id:23*, tag:1043(16), more:23".to_owned(),
        format!("insert other {}, null, {}", int(3), int(-1)),
    ];
    lines.into()
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn streams_of_postgres_15_decode_in_text_and_binary() {
    check_streams(15).await;
}

#[tokio::test]
async fn streams_of_postgres_18_decode_in_text_and_binary() {
    check_streams(18).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn a_transaction_from_another_server_names_its_origin() {
    for major in [15, 18] {
        let database = postgres_of(major).fresh_database().await;
        let client = database.connect().await;
        let origin = unique_name("origin");
        let slot = unique_name("slot");
        let statements = [
            "create table t (id int); create publication walpost for table t".to_owned(),
            format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')"),
            format!("select pg_replication_origin_create('{origin}')"),
            format!("select pg_replication_origin_session_setup('{origin}')"),
            "begin; select pg_replication_origin_xact_setup('16/B374D848', now());
                insert into t values (1); commit"
                .to_owned(),
            "select pg_replication_origin_session_reset()".to_owned(),
        ];
        for statement in statements {
            client.batch_execute(&statement).await.expect("a transaction with an origin");
        }
        let messages = decode(&peek(&client, &slot, false).await);
        let found = messages.iter().find_map(|message| match message {
            WalMessage::Origin(origin) => Some((&*origin.name, origin.commit_lsn.to_string())),
            _ => None,
        });
        assert_eq!(found, Some((&*origin, "16/B374D848".to_owned())));
    }
}

async fn check_streams(major: u32) {
    let database = postgres_of(major).fresh_database().await;
    let client = database.connect().await;
    let slot = unique_name("slot");
    client.batch_execute(SCHEMA).await.expect("the tables");
    let create = "select pg_create_logical_replication_slot($1, 'pgoutput')";
    client.execute(create, &[&slot]).await.expect("the slot");
    let started_us = clock_us(&client).await;
    for statement in WORK {
        client.batch_execute(statement).await.expect("a statement of the workload");
    }
    let ended_us = clock_us(&client).await;

    for is_binary in [false, true] {
        let frames = peek(&client, &slot, is_binary).await;
        let messages = decode(&frames);
        check_transactions(&messages, started_us, ended_us);
        let lines: Vec<String> = messages.iter().filter_map(describe).collect();
        assert_eq!(lines, expected(is_binary), "PostgreSQL {major}, binary {is_binary}");
        check_truncations(&frames);
    }
}

async fn clock_us(client: &Client) -> i64 {
    let now = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
    client.query_one(now, &[]).await.expect("the time").get(0)
}

/// The slot's messages, which stay in it.
async fn peek(client: &Client, slot: &str, is_binary: bool) -> Vec<Bytes> {
    let changes = "select data from pg_logical_slot_peek_binary_changes($1, null, null,
        'proto_version', '1', 'publication_names', 'walpost', 'messages', 'true', 'binary', $2)";
    let rows = client.query(changes, &[&slot, &is_binary.to_string()]).await.expect("changes");
    rows.iter().map(|row| Bytes::from(row.get::<_, Vec<u8>>(0))).collect()
}

fn decode(frames: &[Bytes]) -> Vec<WalMessage> {
    let mut decoder = Decoder::new();
    frames.iter().map(|frame| decoder.decode(frame.clone()).expect("a frame")).collect()
}

/// Every begin has its commit, and both tell the truth about time and place.
fn check_transactions(messages: &[WalMessage], started_us: i64, ended_us: i64) {
    let mut open: Option<Begin> = None;
    let mut last: Option<Commit> = None;
    for message in messages {
        match message {
            WalMessage::Begin(begin) => {
                assert!(open.replace(*begin).is_none() && begin.xid > 0);
                assert!((started_us..=ended_us).contains(&begin.commit_time_us));
            }
            WalMessage::Commit(commit) => {
                let begin = open.take().expect("a begin before the commit");
                assert_eq!(begin.final_lsn, commit.commit_lsn);
                assert_eq!(begin.commit_time_us, commit.commit_time_us);
                assert!(commit.commit_lsn < commit.end_lsn);
                assert!(last.replace(*commit).is_none_or(|l| l.end_lsn <= commit.commit_lsn));
            }
            WalMessage::Logical(message) => assert_eq!(message.transactional, open.is_some()),
            _ => assert!(open.is_some()),
        }
    }
    assert!(open.is_none() && last.is_some());
}

/// No part of a real frame decodes.
fn check_truncations(frames: &[Bytes]) {
    let mut decoder = Decoder::new();
    for frame in frames {
        for len in (0..frame.len()).step_by(1 + frame.len() / 200) {
            assert!(decoder.decode(frame.slice(..len)).is_err(), "{len} of {}", frame.len());
        }
        decoder.decode(frame.clone()).expect("the whole frame");
    }
}

fn describe(message: &WalMessage) -> Option<String> {
    Some(match message {
        WalMessage::Begin(_) | WalMessage::Commit(_) => return None,
        WalMessage::Relation(relation) => {
            let columns = relation.columns.iter().map(|column| {
                let oid = match column.type_oid {
                    oid if oid >= 16_384 => "enum".to_owned(),
                    oid => oid.to_string(),
                };
                let modifier = match column.type_modifier {
                    -1 => String::new(),
                    modifier => format!("({modifier})"),
                };
                let key = if column.is_key { "*" } else { "" };
                format!("{}:{oid}{modifier}{key}", column.name)
            });
            let columns = columns.collect::<Vec<_>>().join(", ");
            let identity = relation.replica_identity;
            format!("relation {}.{} {identity:?} {columns}", relation.schema, relation.name)
        }
        WalMessage::Row(change) => describe_change(change),
        WalMessage::Truncate(Truncate { relations, cascade, restart_identity }) => {
            let names: Vec<_> = relations.iter().map(|relation| &*relation.name).collect();
            format!("truncate {} {cascade} {restart_identity}", names.join(" "))
        }
        WalMessage::Type(name) => format!("type {}.{}", name.schema, name.name),
        WalMessage::Logical(message) => {
            let content = match std::str::from_utf8(&message.content) {
                Ok(text) => text.to_owned(),
                Err(_) => hex(&message.content),
            };
            format!("message {} {} {content}", message.transactional, message.prefix)
        }
        WalMessage::Origin(origin) => format!("origin {}", origin.name),
    })
}

fn describe_change(change: &RowChange) -> String {
    let operation = match change.operation {
        Operation::Insert => "insert",
        Operation::Update => "update",
        Operation::Delete => "delete",
    };
    let old = change.old.as_ref().map(|old| format!(" from {}", describe_row(old)));
    let name = &change.row.relation().name;
    format!("{operation} {name} {}{}", describe_row(&change.row), old.unwrap_or_default())
}

fn describe_row(row: &Row) -> String {
    let values = (0..row.relation().columns.len()).map(|index| match row.value(index) {
        Value::Null => "null".to_owned(),
        Value::Unchanged => "unchanged".to_owned(),
        Value::Undecodable { bytes, .. } => format!("undecodable {}", hex(bytes)),
        Value::Text(value) | Value::Binary(value) if value.len() > 1000 => {
            assert!(value.iter().all(|byte| *byte == b'x'));
            format!("{} bytes", value.len())
        }
        Value::Text(value) => String::from_utf8_lossy(value).into_owned(),
        Value::Binary(value) => hex(value),
    });
    values.collect::<Vec<_>>().join(", ")
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}
