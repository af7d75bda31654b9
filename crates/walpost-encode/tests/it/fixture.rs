//! Records in few words.

use smallvec::smallvec;
use walpost_encode::{
    EncodeError, EncodeErrorKind, Encoder, Encoding, JsonOptions, JsonPayload, NullKey, Part,
};
use walpost_event::{Bytes, Field, Identity, Message, NamedField, Record, RecordValue};

/// As Kafka Connect's `JsonConverter` without schemas.
pub(crate) const DEBEZIUM: Encoder =
    Encoder::Json(JsonOptions { json_payload: JsonPayload::Escape, null_key: NullKey::Null });
pub(crate) const WALPOST: Encoder = Encoder::Json(JsonOptions::WALPOST);

pub(crate) fn field(type_oid: u32, text: &'static str) -> Field {
    Field {
        column: None,
        type_oid,
        type_modifier: -1,
        bytes: Some(Bytes::from_static(text.as_bytes())),
    }
}

pub(crate) fn bytes(type_oid: u32, bytes: &'static [u8]) -> Field {
    Field { column: None, type_oid, type_modifier: -1, bytes: Some(Bytes::from_static(bytes)) }
}

pub(crate) fn null(type_oid: u32) -> Field {
    Field { column: None, type_oid, type_modifier: -1, bytes: None }
}

pub(crate) fn named(name: &str, field: Field) -> NamedField {
    NamedField { name: name.into(), field }
}

pub(crate) fn record(key: Option<Field>, value: RecordValue) -> Record {
    Record {
        identity: Identity::default(),
        topic: "outbox.event.User".into(),
        partition: Some(3),
        key,
        value,
        headers: smallvec![],
        timestamp_ms: Some(7),
    }
}

fn encode(encoder: Encoder, record: Record) -> Result<Message, EncodeError> {
    Encoding { key: encoder, value: encoder }.encode(record)
}

pub(crate) fn value(encoder: Encoder, value: RecordValue) -> Result<Option<Bytes>, EncodeError> {
    encode(encoder, record(None, value)).map(|message| message.value)
}

/// The encoded payload as text.
pub(crate) fn payload(encoder: Encoder, field: Field) -> Option<String> {
    let bytes = value(encoder, RecordValue::Payload(field)).expect("a value that encodes");
    bytes.map(|bytes| String::from_utf8(bytes.into()).expect("UTF-8"))
}

/// The encoded key as text.
pub(crate) fn key(encoder: Encoder, field: Option<Field>) -> Option<String> {
    let message = encode(encoder, record(field, RecordValue::Tombstone)).expect("a key");
    message.key.map(|bytes| String::from_utf8(bytes.into()).expect("UTF-8"))
}

/// Kind and part of the error that the payload gives.
pub(crate) fn refusal(encoder: Encoder, value: RecordValue) -> (EncodeErrorKind, Part) {
    let error = encode(encoder, record(None, value)).expect_err("a value that cannot be encoded");
    assert_eq!(error.topic(), "outbox.event.User");
    (error.kind().clone(), error.part().clone())
}
