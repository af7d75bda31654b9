use walpost_encode::{EncodeErrorKind, Part};
use walpost_event::{RecordValue, type_oid};

use crate::fixture::{DEBEZIUM, WALPOST, bytes, field, key, named, null, payload, refusal, value};

#[test]
fn a_json_payload_is_a_string_literal_as_in_debezium_or_stays_json() {
    for oid in [type_oid::JSON, type_oid::JSONB] {
        assert_eq!(payload(DEBEZIUM, field(oid, "{\"a\": 1}")).unwrap(), r#""{\"a\": 1}""#);
        assert_eq!(payload(WALPOST, field(oid, "{\"a\": 1}")).unwrap(), r#"{"a": 1}"#);
    }
    for encoder in [DEBEZIUM, WALPOST] {
        let text = field(type_oid::TEXT, "{\"a\": 1}");
        assert_eq!(payload(encoder, text).unwrap(), r#""{\"a\": 1}""#);
    }
}

#[test]
fn embedded_json_is_shared() {
    let json = field(type_oid::JSONB, "{\"a\": 1}");
    let shared = json.bytes.as_ref().unwrap().as_ptr();
    let written = value(WALPOST, RecordValue::Payload(json)).unwrap().unwrap();
    assert_eq!(written.as_ptr(), shared);
}

#[test]
fn keys_are_typed() {
    assert_eq!(key(DEBEZIUM, Some(field(type_oid::TEXT, "10711fa5"))).unwrap(), "\"10711fa5\"");
    assert_eq!(key(DEBEZIUM, Some(field(type_oid::INT8, "42"))).unwrap(), "42");
    let id = "59a42efd-b015-44a9-9dde-cb36d9002425";
    assert_eq!(key(DEBEZIUM, Some(field(type_oid::UUID, id))).unwrap(), format!("\"{id}\""));
}

#[test]
fn a_null_key_is_four_bytes_in_debezium_and_no_key_in_walpost() {
    for null in [None, Some(null(type_oid::TEXT))] {
        assert_eq!(key(DEBEZIUM, null.clone()).as_deref(), Some("null"));
        assert_eq!(key(WALPOST, null), None);
    }
}

#[test]
fn a_null_payload_is_four_bytes_and_a_tombstone_is_none() {
    for encoder in [DEBEZIUM, WALPOST] {
        assert_eq!(payload(encoder, null(type_oid::JSONB)).as_deref(), Some("null"));
        assert_eq!(value(encoder, RecordValue::Tombstone), Ok(None));
    }
}

#[test]
fn every_type_has_its_json() {
    let cases = [
        (type_oid::INT2, "-7", "-7"),
        (type_oid::INT4, "7", "7"),
        (type_oid::INT8, "9223372036854775807", "9223372036854775807"),
        (type_oid::XID8, "18446744073709551615", "18446744073709551615"),
        (type_oid::BOOL, "t", "true"),
        (type_oid::BOOL, "f", "false"),
        (type_oid::BOOL, "true", "true"),
        (type_oid::FLOAT8, "1e+10", "1.0E10"),
        (type_oid::FLOAT4, "0.5", "0.5"),
        (type_oid::FLOAT8, "NaN", "\"NaN\""),
        (type_oid::FLOAT8, "-Infinity", "\"-Infinity\""),
        (type_oid::NUMERIC, "12.30", "12.30"),
        (type_oid::NUMERIC, "NaN", "\"NaN\""),
        (type_oid::BYTEA, "bin!", "\"YmluIQ==\""),
        (type_oid::TIMESTAMPTZ, "2019-03-24 20:46:19+00", "\"2019-03-24 20:46:19+00\""),
        (90_001, "happy", "\"happy\""),
    ];
    for (oid, text, expected) in cases {
        assert_eq!(payload(DEBEZIUM, field(oid, text)).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn strings_are_escaped_as_kafka_connect_does() {
    let text = "\"\\/\u{8}\t\n\u{c}\r\0\u{1f}\u{7f}ä\u{2028}😀";
    let expected = "\"\\\"\\\\/\\b\\t\\n\\f\\r\\u0000\\u001F\u{7f}ä\u{2028}\\uD83D\\uDE00\"";
    assert_eq!(payload(DEBEZIUM, field(type_oid::TEXT, text)).unwrap(), expected);
}

#[test]
fn an_envelope_is_an_object_in_the_order_of_its_members() {
    let envelope = || {
        RecordValue::Envelope(vec![
            named("payload", field(type_oid::JSONB, "{\"a\": 1}")),
            named("eventType", field(type_oid::VARCHAR, "UserCreated")),
            named("n\"", null(type_oid::INT4)),
            named("raw", bytes(type_oid::BYTEA, b"bin!")),
        ])
    };
    let rest = r#","eventType":"UserCreated","n\"":null,"raw":"YmluIQ=="}"#;
    let written = |encoder| value(encoder, envelope()).unwrap().unwrap();
    assert_eq!(written(DEBEZIUM), format!(r#"{{"payload":"{{\"a\": 1}}"{rest}"#));
    assert_eq!(written(WALPOST), format!(r#"{{"payload":{{"a": 1}}{rest}"#));
}

#[test]
fn the_envelope_of_the_reference_comes_out_byte_for_byte() {
    let envelope = RecordValue::Envelope(vec![
        named("payload", field(type_oid::JSONB, "{\"a\": 1}")),
        named("eventType", field(type_oid::VARCHAR, "UserCreated")),
    ]);
    let expected = r#"{"payload":"{\"a\": 1}","eventType":"UserCreated"}"#;
    assert_eq!(value(DEBEZIUM, envelope).unwrap().unwrap(), expected);
}

#[test]
fn text_that_is_no_value_of_its_type_is_an_error() {
    for (type_oid, text) in [
        (type_oid::INT4, "x"),
        (type_oid::INT4, "1.5"),
        (type_oid::BOOL, "yes"),
        (type_oid::FLOAT8, "1,5"),
    ] {
        let expected = EncodeErrorKind::Malformed { type_oid, len: text.len() };
        let payload = RecordValue::Payload(field(type_oid, text));
        assert_eq!(refusal(DEBEZIUM, payload), (expected, Part::Value));
    }
}

#[test]
fn text_that_is_not_utf8_is_an_error_that_names_the_member() {
    let text = bytes(type_oid::TEXT, b"\xff");
    let envelope = RecordValue::Envelope(vec![named("payload", null(25)), named("note", text)]);
    let expected = (EncodeErrorKind::NotUtf8 { len: 1 }, Part::Member("note".into()));
    assert_eq!(refusal(DEBEZIUM, envelope), expected);
}
