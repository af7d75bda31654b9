use smallvec::smallvec;
use walpost_encode::{EncodeErrorKind, Encoder, Encoding, Part};
use walpost_event::{Field, RecordValue, type_oid};

use crate::fixture::{DEBEZIUM, WALPOST, field, named, null, record};

fn header(encoder: Encoder, field: Field) -> Option<String> {
    let mut record = record(None, RecordValue::Tombstone);
    record.headers = smallvec![named("h", field)];
    let message = Encoding { key: encoder, value: encoder }.encode(record).expect("a header");
    let value = message.headers[0].value.clone();
    value.map(|bytes| String::from_utf8(bytes.into()).expect("UTF-8"))
}

#[test]
fn headers_are_the_same_under_every_encoder() {
    let cases = [
        (type_oid::BOOL, "t", "true"),
        (type_oid::BOOL, "f", "false"),
        (type_oid::INT4, "7", "7"),
        (type_oid::BYTEA, "bin!", "YmluIQ=="),
        (type_oid::FLOAT8, "10000000000", "1.0E10"),
        (type_oid::JSONB, "{\"a\": 1}", "{\"a\": 1}"),
        (type_oid::NUMERIC, "12.30", "12.30"),
        (
            type_oid::UUID,
            "59a42efd-b015-44a9-9dde-cb36d9002425",
            "59a42efd-b015-44a9-9dde-cb36d9002425",
        ),
        (type_oid::TEXT, "\"ä", "\"ä"),
    ];
    for encoder in [Encoder::Raw, DEBEZIUM, WALPOST] {
        for (oid, text, expected) in cases {
            assert_eq!(header(encoder, field(oid, text)).as_deref(), Some(expected));
        }
        assert_eq!(header(encoder, null(type_oid::BYTEA)), None);
    }
}

#[test]
fn headers_keep_their_order_and_their_duplicates() {
    let mut record = record(None, RecordValue::Tombstone);
    record.headers = smallvec![
        named("id", field(type_oid::TEXT, "1")),
        named("a", null(type_oid::TEXT)),
        named("id", field(type_oid::TEXT, "2")),
    ];
    let message = Encoding { key: Encoder::Raw, value: Encoder::Raw }.encode(record).unwrap();
    let found: Vec<_> =
        message.headers.iter().map(|header| (&*header.name, header.value.as_deref())).collect();
    assert_eq!(found, [("id", Some(&b"1"[..])), ("a", None), ("id", Some(b"2"))]);
}

#[test]
fn a_header_that_cannot_be_written_is_named() {
    let mut record = record(None, RecordValue::Tombstone);
    record.headers = smallvec![named("flag", field(type_oid::BOOL, "secret"))];
    let error = Encoding { key: Encoder::Raw, value: Encoder::Raw }.encode(record).unwrap_err();
    let expected = EncodeErrorKind::Malformed { type_oid: type_oid::BOOL, len: 6 };
    assert_eq!((error.kind(), error.part()), (&expected, &Part::Header("flag".into())));
    assert!(!error.to_string().contains("secret"));
}
