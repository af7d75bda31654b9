//! For all frames, and for all bytes.

use proptest::{collection::vec, prelude::*};
use walpost_event::{Operation, Row, Value};
use walpost_pgoutput::{Bytes, Decoder, WalMessage};

use crate::frames::{self, Cell, ColumnSpec, OUTBOX};

fn cell() -> impl Strategy<Value = Cell> {
    let value = || vec(any::<u8>(), 0..40);
    prop_oneof![
        Just(Cell::Null),
        Just(Cell::Unchanged),
        value().prop_map(Cell::Text),
        value().prop_map(Cell::Binary),
    ]
}

/// A tuple of two values, as the outbox has two columns.
fn pair() -> impl Strategy<Value = Vec<Cell>> {
    vec(cell(), 2)
}

/// Any well-formed frame in a session that knows the outbox.
fn frame() -> impl Strategy<Value = Bytes> {
    let time = || -1_000_000_i64..1_000_000_000_000_000;
    let old_tag = || prop_oneof![Just(b'K'), Just(b'O')];
    prop_oneof![
        (any::<u64>(), time(), any::<u32>()).prop_map(|(l, t, x)| frames::begin(l, t, x)),
        (any::<u64>(), any::<u64>(), time()).prop_map(|(l, e, t)| frames::commit(l, e, t)),
        pair().prop_map(|row| frames::insert(OUTBOX, &row)),
        pair().prop_map(|row| frames::update(OUTBOX, None, &row)),
        (old_tag(), pair(), pair()).prop_map(|(tag, old, new)| frames::update(
            OUTBOX,
            Some((tag, &old)),
            &new
        )),
        (old_tag(), pair()).prop_map(|(tag, row)| frames::delete(OUTBOX, tag, &row)),
        (0_u8..4, vec(Just(OUTBOX), 0..5)).prop_map(|(o, oids)| frames::truncate(o, &oids)),
        (any::<u32>(), "[^\0]{0,9}", "[^\0]{0,9}")
            .prop_map(|(oid, schema, name)| frames::type_name(oid, &schema, &name)),
        (any::<u64>(), "[^\0]{0,9}").prop_map(|(lsn, name)| frames::origin(lsn, &name)),
        (0_u8..2, any::<u64>(), "[^\0]{0,9}", vec(any::<u8>(), 0..40))
            .prop_map(|(f, lsn, prefix, content)| frames::logical(f, lsn, &prefix, &content)),
        relation().prop_map(|(oid, schema, name, columns)| {
            frames::relation(oid, &schema, &name, &columns)
        }),
    ]
}

fn relation() -> impl Strategy<Value = (u32, String, String, Vec<ColumnSpec>)> {
    let column = ("[^\0]{0,9}", any::<u32>(), any::<i32>(), any::<bool>()).prop_map(
        |(name, type_oid, type_modifier, is_key)| ColumnSpec {
            name,
            type_oid,
            type_modifier,
            is_key,
        },
    );
    (any::<u32>(), "[^\0]{1,9}", "[^\0]{0,9}", vec(column, 0..20))
}

fn decoder() -> Decoder {
    let mut decoder = Decoder::new();
    decoder.decode(frames::outbox()).expect("a well-formed frame");
    decoder
}

fn holds(row: &Row, cells: &[Cell]) -> bool {
    cells.iter().enumerate().all(|(index, cell)| match (cell, row.value(index)) {
        (Cell::Null, Value::Null) | (Cell::Unchanged, Value::Unchanged) => true,
        (Cell::Text(expected), Value::Undecodable { bytes, at }) => {
            expected == bytes
                && std::str::from_utf8(expected).err().map(|e| e.valid_up_to()) == Some(at)
        }
        (Cell::Text(expected), Value::Text(found))
        | (Cell::Binary(expected), Value::Binary(found)) => expected == found,
        _ => false,
    })
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = decoder().decode(bytes.into());
    }

    #[test]
    fn arbitrary_bytes_behind_a_known_tag_never_panic(
        tag in proptest::sample::select(b"BCORYIUDTM".to_vec()),
        known in any::<bool>(),
        bytes in vec(any::<u8>(), 0..200),
    ) {
        let mut frame = vec![tag];
        if known {
            frame.extend_from_slice(&OUTBOX.to_be_bytes());
        }
        frame.extend_from_slice(&bytes);
        let _ = decoder().decode(frame.into());
    }

    #[test]
    fn a_changed_byte_never_panics(
        frame in frame(), index in any::<proptest::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = frame.to_vec();
        let at = index.index(bytes.len());
        bytes[at] = byte;
        let _ = decoder().decode(bytes.into());
    }

    #[test]
    fn every_frame_decodes_and_every_part_of_it_does_not(frame in frame()) {
        prop_assert!(decoder().decode(frame.clone()).is_ok());
        for len in 0..frame.len() {
            let error = decoder().decode(frame.slice(..len)).unwrap_err();
            prop_assert!(error.offset() <= len, "offset {} of {len}", error.offset());
        }
    }

    #[test]
    fn every_frame_with_a_byte_more_is_an_error(frame in frame(), byte in any::<u8>()) {
        let mut bytes = frame.to_vec();
        bytes.push(byte);
        prop_assert!(decoder().decode(bytes.into()).is_err());
    }

    #[test]
    fn rows_come_out_as_they_went_in(old in pair(), new in pair()) {
        let frames = [
            (Operation::Insert, frames::insert(OUTBOX, &new)),
            (Operation::Update, frames::update(OUTBOX, Some((b'O', &old)), &new)),
            (Operation::Delete, frames::delete(OUTBOX, b'O', &new)),
        ];
        for (operation, frame) in frames {
            let WalMessage::Row(change) = decoder().decode(frame).unwrap() else {
                panic!("a row")
            };
            prop_assert_eq!(change.operation, operation);
            prop_assert!(holds(&change.row, &new));
            prop_assert_eq!(change.old.is_some(), operation == Operation::Update);
            prop_assert!(change.old.is_none_or(|row| holds(&row, &old)));
        }
    }

    #[test]
    fn relations_come_out_as_they_went_in((oid, schema, name, columns) in relation()) {
        let frame = frames::relation(oid, &schema, &name, &columns);
        let WalMessage::Relation(found) = Decoder::new().decode(frame).unwrap() else {
            panic!("a relation")
        };
        prop_assert_eq!((found.oid, &found.schema, &found.name), (oid, &schema, &name));
        prop_assert_eq!(found.columns.len(), columns.len());
        for (found, column) in found.columns.iter().zip(&columns) {
            prop_assert_eq!(&*found.name, &*column.name);
            prop_assert_eq!(found.type_oid, column.type_oid);
            prop_assert_eq!(found.type_modifier, column.type_modifier);
            prop_assert_eq!(found.is_key, column.is_key);
        }
    }
}
