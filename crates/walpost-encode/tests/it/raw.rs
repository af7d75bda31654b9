use walpost_encode::{EncodeErrorKind, Encoder::Raw, Encoding, Part};
use walpost_event::{Bytes, RecordValue, type_oid};

use crate::fixture::{DEBEZIUM, bytes, field, key, named, null, payload, record, refusal, value};

#[test]
fn text_is_written_as_postgres_prints_it() {
    for type_oid in [type_oid::JSONB, type_oid::JSON, type_oid::TEXT, type_oid::UUID, 90_001] {
        assert_eq!(payload(Raw, field(type_oid, "{\"a\": 1}")).unwrap(), "{\"a\": 1}");
    }
    assert_eq!(payload(Raw, field(type_oid::TEXT, "")).unwrap(), "");
    assert_eq!(key(Raw, Some(field(type_oid::TEXT, "10711fa5"))).unwrap(), "10711fa5");
    assert_eq!(key(Raw, Some(field(type_oid::INT8, "42"))).unwrap(), "42");
}

#[test]
fn bytea_is_written_as_its_bytes() {
    let written = value(Raw, RecordValue::Payload(bytes(type_oid::BYTEA, b"\x00\xffbin!")));
    assert_eq!(written.unwrap(), Some(Bytes::from_static(b"\x00\xffbin!")));
}

#[test]
fn text_need_not_be_utf8() {
    let written = value(Raw, RecordValue::Payload(bytes(type_oid::TEXT, b"\xff")));
    assert_eq!(written.unwrap(), Some(Bytes::from_static(b"\xff")));
}

#[test]
fn null_and_a_tombstone_are_null() {
    assert_eq!(payload(Raw, null(type_oid::JSONB)), None);
    assert_eq!(value(Raw, RecordValue::Tombstone), Ok(None));
    assert_eq!(key(Raw, None), None);
    assert_eq!(key(Raw, Some(null(type_oid::TEXT))), None);
}

#[test]
fn boolean_and_floating_point_are_written_as_in_java() {
    assert_eq!(payload(Raw, field(type_oid::BOOL, "t")).unwrap(), "true");
    assert_eq!(payload(Raw, field(type_oid::BOOL, "false")).unwrap(), "false");
    assert_eq!(payload(Raw, field(type_oid::FLOAT8, "1e+10")).unwrap(), "1.0E10");
    assert_eq!(payload(Raw, field(type_oid::NUMERIC, "12.30")).unwrap(), "12.30");
}

#[test]
fn an_envelope_is_refused_with_what_to_do() {
    let envelope = || RecordValue::Envelope(vec![named("payload", null(type_oid::TEXT))]);
    assert_eq!(refusal(Raw, envelope()), (EncodeErrorKind::RawEnvelope, Part::Value));
    let error = value(Raw, envelope()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "encoding the value of a record for topic outbox.event.User failed: \
         columns placed in the envelope have no raw form, \
         encode the value as json or place them in headers"
    );
}

#[test]
fn values_are_shared_and_the_rest_of_the_record_is_kept() {
    let payload = field(type_oid::JSONB, "{}");
    let shared = payload.bytes.as_ref().unwrap().as_ptr();
    let record = record(Some(field(type_oid::TEXT, "k")), RecordValue::Payload(payload));
    let message = Encoding { key: DEBEZIUM, value: Raw }.encode(record).unwrap();
    assert_eq!(message.value.unwrap().as_ptr(), shared);
    assert_eq!(message.key.as_deref(), Some(&b"\"k\""[..]));
    assert_eq!(&*message.topic, "outbox.event.User");
    assert_eq!((message.partition, message.timestamp_ms), (Some(3), Some(7)));
}
