//! Every message of the protocol, one frame each.

use std::sync::Arc;

use walpost_event::{Lsn, Operation, ReplicaIdentity, Value, type_oid};
use walpost_pgoutput::{
    Begin, Bytes, Commit, Decoder, LogicalMessage, Origin, Truncate, TypeName, UNDECODABLE,
    WalMessage,
};

use crate::frames::{self, Cell, ColumnSpec, Frame, OUTBOX};

const EPOCH_2000_US: i64 = 946_684_800_000_000;

fn decode(frame: Bytes) -> WalMessage {
    with_outbox().decode(frame).expect("a well-formed frame")
}

fn with_outbox() -> Decoder {
    let mut decoder = Decoder::new();
    decoder.decode(frames::outbox()).expect("a well-formed frame");
    decoder
}

fn decode_row(frame: Bytes) -> walpost_event::RowChange {
    match decode(frame) {
        WalMessage::Row(change) => change,
        other => panic!("expected a row, found {other:?}"),
    }
}

#[test]
fn begin_carries_the_commit_position_and_its_time_since_1970() {
    let WalMessage::Begin(begin) = decode(frames::begin(7, 1_500_000, 731)) else {
        panic!("a begin")
    };
    let expected =
        Begin { final_lsn: Lsn::from(7), commit_time_us: EPOCH_2000_US + 1_500_000, xid: 731 };
    assert_eq!(begin, expected);
}

#[test]
fn commit_carries_start_and_end_of_the_commit_record() {
    let WalMessage::Commit(commit) = decode(frames::commit(7, 9, -1)) else { panic!("a commit") };
    let expected = Commit {
        commit_lsn: Lsn::from(7),
        end_lsn: Lsn::from(9),
        commit_time_us: EPOCH_2000_US - 1,
    };
    assert_eq!(commit, expected);
}

#[test]
fn relation_carries_names_types_and_keys() {
    let WalMessage::Relation(relation) = Decoder::new().decode(frames::outbox()).unwrap() else {
        panic!("a relation")
    };
    assert_eq!((relation.oid, &*relation.schema, &*relation.name), (OUTBOX, "public", "outbox"));
    assert_eq!(relation.replica_identity, ReplicaIdentity::Default);
    let columns: Vec<_> = relation
        .columns
        .iter()
        .map(|c| (&*c.name, c.type_oid, c.type_modifier, c.is_key))
        .collect();
    assert_eq!(columns, [("id", 2950, -1, true), ("payload", 3802, -1, false)]);
}

#[test]
fn a_relation_is_called_as_it_is_known_whatever_its_name_was() {
    let known = [(OUTBOX, ("shop".to_owned(), "events".to_owned()))].into();
    let mut decoder = Decoder::naming(known);
    let mut name = |oid: u32, name: &str| {
        let frame = frames::relation(oid, "public", name, &[]);
        let WalMessage::Relation(relation) = decoder.decode(frame).unwrap() else {
            panic!("a relation")
        };
        format!("{}.{}", relation.schema, relation.name)
    };
    assert_eq!(name(OUTBOX, "outbox"), "shop.events");
    assert_eq!(name(OUTBOX, "renamed"), "shop.events");
    assert_eq!(name(OUTBOX + 1, "outbox"), "public.outbox");
}

#[test]
fn every_replica_identity_is_known() {
    let cases = [
        (b'd', ReplicaIdentity::Default),
        (b'n', ReplicaIdentity::Nothing),
        (b'f', ReplicaIdentity::Full),
        (b'i', ReplicaIdentity::Index),
    ];
    for (letter, expected) in cases {
        let frame = Frame::new(b'R').u32(1).string("s").string("t").byte(letter).i16(0).bytes();
        let WalMessage::Relation(relation) = decode(frame) else { panic!("a relation") };
        assert_eq!(relation.replica_identity, expected);
    }
}

#[test]
fn an_empty_schema_name_is_pg_catalog() {
    let WalMessage::Relation(relation) = decode(frames::relation(9, "", "t", &[])) else {
        panic!("a relation")
    };
    assert_eq!(relation.schema, "pg_catalog");
}

#[test]
fn a_relation_described_again_unchanged_stays_the_same_allocation() {
    let mut decoder = Decoder::new();
    let mut describe = |frame| match decoder.decode(frame).unwrap() {
        WalMessage::Relation(relation) => relation,
        other => panic!("expected a relation, found {other:?}"),
    };
    let first = describe(frames::outbox());
    let second = describe(frames::outbox());
    assert!(Arc::ptr_eq(&first, &second));
    let changed = describe(frames::relation(OUTBOX, "public", "outbox", &[]));
    assert!(changed.columns.is_empty());
}

#[test]
fn a_column_of_a_domain_has_the_type_below_it_if_that_is_asked_for() {
    const DOMAIN: u32 = 16_390;
    let described = |mut decoder: Decoder, schema: &str, type_name: &str| {
        decoder.decode(frames::type_name(DOMAIN, schema, type_name)).unwrap();
        let (name, is_key) = ("payload".to_owned(), false);
        let column = ColumnSpec { name, type_oid: DOMAIN, type_modifier: -1, is_key };
        match decoder.decode(frames::relation(OUTBOX, "public", "outbox", &[column])).unwrap() {
            WalMessage::Relation(relation) => relation.columns[0].type_oid,
            other => panic!("expected a relation, found {other:?}"),
        }
    };
    let based = || Decoder::new().with_base_types();
    assert_eq!(described(based(), "", "jsonb"), type_oid::JSONB);
    assert_eq!(described(Decoder::new(), "", "jsonb"), DOMAIN);
    assert_eq!(described(based(), "public", "jsonb"), DOMAIN, "not the built-in one");
    assert_eq!(described(based(), "public", "order_state"), DOMAIN, "an enum");
    // A type that was dropped and another one that got its OID.
    let mut decoder = based();
    decoder.decode(frames::type_name(DOMAIN, "", "jsonb")).unwrap();
    assert_eq!(described(decoder, "public", "order_state"), DOMAIN);
}

#[test]
fn an_insert_carries_every_kind_of_value() {
    let change = decode_row(frames::insert(OUTBOX, &[Cell::text("e1"), Cell::Null]));
    assert_eq!(change.operation, Operation::Insert);
    assert_eq!(change.row.value(0), Value::Text(b"e1"));
    assert_eq!(change.row.value(1), Value::Null);
    assert!(change.old.is_none());

    let change = decode_row(frames::insert(OUTBOX, &[Cell::Binary(vec![0, 255]), Cell::Unchanged]));
    assert_eq!(change.row.value(0), Value::Binary(&[0, 255]));
    assert_eq!(change.row.value(1), Value::Unchanged);
}

#[test]
fn a_text_that_is_not_utf8_is_undecodable_from_its_first_such_byte_on() {
    let change = decode_row(frames::insert(
        OUTBOX,
        &[Cell::Text(b"caf\xe9!".to_vec()), Cell::Text(Vec::new())],
    ));
    assert_eq!(change.row.value(0), Value::Undecodable { bytes: b"caf\xe9!", at: 3 });
    assert_eq!(change.row.text(0), None);
    assert_eq!(change.row.value(1), Value::Text(b""));
}

#[test]
fn a_value_that_is_said_to_be_undecodable_is() {
    let frame = Frame::new(b'I').u32(OUTBOX).byte(b'N').i16(2);
    let frame = frame.byte(UNDECODABLE).i32(2).i32(3).raw(b"abc").byte(b'n');
    let change = decode_row(frame.bytes());
    assert_eq!(change.row.value(0), Value::Undecodable { bytes: b"abc", at: 2 });
    assert_eq!(change.row.value(1), Value::Null);
}

#[test]
fn values_share_the_bytes_of_the_message() {
    let frame = frames::insert(OUTBOX, &[Cell::text("e1"), Cell::text("{}")]);
    let within = frame.as_ptr_range();
    let change = decode_row(frame);
    for index in 0..2 {
        assert!(within.contains(&change.row.bytes(index).unwrap().as_ptr()));
    }
    let frame = frames::logical(1, 5, "outbox", b"{}");
    let within = frame.as_ptr_range();
    let WalMessage::Logical(message) = decode(frame) else { panic!("a message") };
    assert!(within.contains(&message.content.as_ptr()));
}

#[test]
fn an_update_carries_the_old_row_if_there_is_one() {
    let new = [Cell::text("e1"), Cell::Unchanged];
    let change = decode_row(frames::update(OUTBOX, None, &new));
    assert_eq!(change.operation, Operation::Update);
    assert!(change.old.is_none());
    assert_eq!(change.row.value(1), Value::Unchanged);

    for tag in [b'K', b'O'] {
        let old = [Cell::text("e0"), Cell::Null];
        let change = decode_row(frames::update(OUTBOX, Some((tag, &old)), &new));
        assert_eq!(change.old.unwrap().value(0), Value::Text(b"e0"));
        assert_eq!(change.row.value(0), Value::Text(b"e1"));
    }
}

#[test]
fn a_delete_carries_the_old_row() {
    for tag in [b'K', b'O'] {
        let change = decode_row(frames::delete(OUTBOX, tag, &[Cell::text("e1"), Cell::Null]));
        assert_eq!(change.operation, Operation::Delete);
        assert_eq!(change.row.value(0), Value::Text(b"e1"));
    }
}

#[test]
fn a_truncate_names_its_relations_and_options() {
    for (options, cascade, restart_identity) in
        [(0, false, false), (1, true, false), (2, false, true), (3, true, true)]
    {
        let message = decode(frames::truncate(options, &[OUTBOX, OUTBOX]));
        let WalMessage::Truncate(truncate) = message else { panic!("a truncate") };
        let Truncate { relations, .. } = &truncate;
        assert_eq!(relations.len(), 2);
        assert_eq!(relations[0].name, "outbox");
        assert_eq!((truncate.cascade, truncate.restart_identity), (cascade, restart_identity));
    }
}

#[test]
fn type_and_origin_carry_their_names() {
    let WalMessage::Type(found) = decode(frames::type_name(90_001, "public", "mood")) else {
        panic!("a type")
    };
    let expected = TypeName { oid: 90_001, schema: "public".into(), name: "mood".into() };
    assert_eq!(found, expected);

    let WalMessage::Origin(found) = decode(frames::origin(77, "node_b")) else {
        panic!("an origin")
    };
    assert_eq!(found, Origin { commit_lsn: Lsn::from(77), name: "node_b".into() });
}

#[test]
fn a_logical_message_carries_prefix_and_content() {
    for (flags, transactional) in [(0, false), (1, true)] {
        let message = decode(frames::logical(flags, 5, "outbox", b"\x00raw\xff"));
        let WalMessage::Logical(found) = message else { panic!("a message") };
        let expected = LogicalMessage {
            transactional,
            lsn: Lsn::from(5),
            prefix: "outbox".into(),
            content: Bytes::from_static(b"\x00raw\xff"),
        };
        assert_eq!(found, expected);
    }
}

#[test]
fn debug_output_shows_no_content() {
    let message = decode(frames::logical(1, 5, "outbox", b"secret"));
    let change = decode(frames::insert(OUTBOX, &[Cell::text("secret"), Cell::Null]));
    for text in [format!("{message:?}"), format!("{change:?}")] {
        assert!(!text.contains("secret") && !text.contains("115, 101"), "{text}");
    }
}
