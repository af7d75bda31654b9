//! What is wrong, where, and that memory is never reserved by a claim.

use walpost_pgoutput::{Bytes, DecodeErrorKind, Decoder, WalMessage};

use crate::frames::{self, Cell, Frame, OUTBOX};

/// Decodes `frame` in a session that knows the outbox, and returns the error's
/// offset and kind.
fn error(frame: Bytes) -> (usize, DecodeErrorKind) {
    let mut decoder = Decoder::new();
    decoder.decode(frames::outbox()).expect("a well-formed frame");
    let error = decoder.decode(frame).expect_err("a malformed frame");
    (error.offset(), error.kind().clone())
}

fn unknown_tag(found: u8, at: usize, frame: Frame) {
    let (offset, kind) = error(frame.bytes());
    assert_eq!(offset, at);
    assert!(matches!(kind, DecodeErrorKind::UnknownTag { found: f, .. } if f == found), "{kind:?}");
}

#[test]
fn a_byte_outside_the_protocol_is_named_with_its_offset() {
    unknown_tag(b'x', 0, Frame::new(b'x'));
    unknown_tag(b'S', 0, Frame::new(b'S').u32(1).byte(1));
    unknown_tag(b'K', 5, Frame::new(b'I').u32(OUTBOX).byte(b'K'));
    unknown_tag(b'x', 5, Frame::new(b'U').u32(OUTBOX).byte(b'x'));
    unknown_tag(b'N', 5, Frame::new(b'D').u32(OUTBOX).byte(b'N'));
    unknown_tag(b'z', 8, Frame::new(b'I').u32(OUTBOX).byte(b'N').i16(2).byte(b'z'));
    unknown_tag(4, 5, Frame::new(b'T').i32(0).byte(4));
    unknown_tag(2, 1, Frame::new(b'M').byte(2));
    unknown_tag(1, 1, Frame::new(b'C').byte(1));
    unknown_tag(b'q', 9, Frame::new(b'R').u32(1).string("s").string("t").byte(b'q'));
    unknown_tag(
        2,
        12,
        Frame::new(b'R').u32(1).string("s").string("t").byte(b'd').i16(1).byte(2).raw(&[0; 9]),
    );
}

#[test]
fn an_update_whose_old_row_is_not_followed_by_a_new_one_is_an_error() {
    let frame = Frame::new(b'U').u32(OUTBOX).byte(b'K').tuple(&[Cell::Null, Cell::Null]);
    unknown_tag(b'K', 10, frame.byte(b'K').tuple(&[Cell::Null, Cell::Null]));
}

#[test]
fn a_row_of_an_unknown_relation_is_an_error() {
    for frame in
        [frames::insert(99, &[]), frames::update(99, None, &[]), frames::delete(99, b'K', &[])]
    {
        assert_eq!(error(frame), (1, DecodeErrorKind::UnknownRelation { oid: 99 }));
    }
    let frame = frames::truncate(0, &[OUTBOX, 99]);
    assert_eq!(error(frame), (10, DecodeErrorKind::UnknownRelation { oid: 99 }));
}

#[test]
fn a_row_with_another_number_of_values_than_columns_is_an_error() {
    for found in [0, 1, 3] {
        let (offset, kind) = error(frames::insert(OUTBOX, &vec![Cell::Null; found]));
        let expected = DecodeErrorKind::ColumnCount {
            schema: "public".into(),
            table: "outbox".into(),
            expected: 2,
            found,
        };
        assert_eq!((offset, kind), (6, expected));
    }
}

#[test]
fn bytes_after_the_message_are_an_error() {
    let frame = Frame::default().raw(&frames::begin(1, 2, 3)).raw(b"xy").bytes();
    assert_eq!(error(frame), (21, DecodeErrorKind::Trailing { len: 2 }));
}

#[test]
fn a_relation_with_bytes_after_it_is_not_kept() {
    let mut decoder = Decoder::new();
    decoder.decode(Frame::default().raw(&frames::outbox()).byte(0).bytes()).unwrap_err();
    let row = frames::insert(OUTBOX, &[Cell::Null, Cell::Null]);
    let error = decoder.decode(row).unwrap_err();
    assert_eq!(*error.kind(), DecodeErrorKind::UnknownRelation { oid: OUTBOX });
}

#[test]
fn a_length_that_claims_more_than_there_is_reserves_nothing() {
    let truncated = |(_, kind)| matches!(kind, DecodeErrorKind::Truncated { .. });
    let huge = i32::MAX;
    let value = Frame::new(b'I').u32(OUTBOX).byte(b'N').i16(2).byte(b't').i32(huge);
    assert!(truncated(error(value.raw(b"abc").bytes())));
    let oids = Frame::new(b'T').i32(huge).byte(0);
    assert!(truncated(error(oids.u32(OUTBOX).bytes())));
    let content = Frame::new(b'M').byte(1).u64(1).string("p").i32(huge);
    assert!(truncated(error(content.raw(b"abc").bytes())));
    let columns = Frame::new(b'R').u32(1).string("s").string("t").byte(b'd').i16(i16::MAX);
    assert!(truncated(error(columns.byte(0).bytes())));
}

#[test]
fn a_negative_count_or_length_is_an_error() {
    let negative = |frame: Frame, at| {
        let (offset, kind) = error(frame.bytes());
        assert_eq!(offset, at);
        assert!(matches!(kind, DecodeErrorKind::Negative { found: -1, .. }), "{kind:?}");
    };
    negative(Frame::new(b'I').u32(OUTBOX).byte(b'N').i16(-1), 6);
    negative(Frame::new(b'I').u32(OUTBOX).byte(b'N').i16(2).byte(b't').i32(-1), 9);
    negative(Frame::new(b'T').i32(-1).byte(0), 1);
    negative(Frame::new(b'R').u32(1).string("s").string("t").byte(b'd').i16(-1), 10);
    negative(Frame::new(b'M').byte(1).u64(1).string("p").i32(-1), 12);
}

#[test]
fn names_must_end_and_bytes_that_are_not_utf8_are_replaced() {
    let (offset, kind) = error(Frame::new(b'Y').u32(1).raw(b"abc").bytes());
    assert_eq!((offset, kind), (5, DecodeErrorKind::Unterminated { expected: "a schema name" }));
    let origin = Frame::new(b'O').u64(1).raw(&[b'a', 0xff, 0]).bytes();
    let Ok(WalMessage::Origin(origin)) = Decoder::new().decode(origin) else { panic!("no origin") };
    assert_eq!(origin.name, "a\u{fffd}");
}

#[test]
fn a_commit_time_beyond_64_bits_is_an_error() {
    assert_eq!(error(frames::begin(1, i64::MAX, 1)), (9, DecodeErrorKind::TimeOutOfRange));
}

#[test]
fn an_error_says_where_and_what_was_expected() {
    let mut decoder = Decoder::new();
    let error = decoder.decode(Bytes::from_static(b"B\x00")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "decoding a pgoutput message failed at byte 1: \
         expected a commit position of 8 bytes, but only 1 remain"
    );
}
