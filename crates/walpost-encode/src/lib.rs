//! A routed record to the bytes of a message.
//!
//! Key and value are encoded separately, [raw](Encoder::Raw) or as
//! [JSON](Encoder::Json); the bytes are those of Kafka Connect's
//! `StringConverter` (for `bytea`, `ByteArrayConverter`) and `JsonConverter`
//! without schemas. Headers follow its `SimpleHeaderConverter`.
//!
//! The key's encoding decides the partition: Kafka hashes the encoded bytes,
//! and JSON puts quotes around a text.
//!
//! ```
//! use walpost_encode::{Encoder, Encoding, JsonOptions, JsonPayload, NullKey};
//! # use walpost_event::{Field, Identity, Record, RecordValue, type_oid};
//! # fn field(type_oid: u32, text: &'static str) -> Field {
//! #     Field { column: None, type_oid, type_modifier: -1, bytes: Some(text.into()) }
//! # }
//! # let record = Record {
//! #     identity: Identity::default(),
//! #     topic: "outbox.event.order".into(),
//! #     partition: None,
//! #     key: Some(field(type_oid::TEXT, "42")),
//! #     value: RecordValue::Payload(field(type_oid::JSONB, r#"{"a": 1}"#)),
//! #     headers: Default::default(),
//! #     timestamp_ms: None,
//! # };
//!
//! let escaping = JsonOptions { json_payload: JsonPayload::Escape, null_key: NullKey::Null };
//! let value = Encoder::Json(escaping);
//! let message = Encoding { key: Encoder::Raw, value }.encode(record)?;
//! assert_eq!(message.key.as_deref(), Some(&b"42"[..]));
//! assert_eq!(message.value.as_deref(), Some(&br#""{\"a\": 1}""#[..]));
//! # Ok::<(), walpost_encode::EncodeError>(())
//! ```
//!
//! There, types that Kafka Connect has no counterpart for, dates, times and
//! timestamps are their PostgreSQL text. What Debezium and Kafka Connect make of
//! every type, schemas included, is [`connect`].

#[cfg(feature = "avro")]
pub mod avro;
pub mod connect;
mod encode;
mod error;
mod json;
#[cfg(feature = "avro")]
pub mod json_schema;
mod memory;
mod number;
#[cfg(feature = "avro")]
pub mod protobuf;
mod raw;
#[cfg(feature = "avro")]
mod schema_ids;

pub use crate::{
    encode::{Encoder, Encoding},
    error::{EncodeError, EncodeErrorKind, Part, SchemaType, Unencoded, UnknownSchema},
    json::{JsonOptions, JsonPayload, NullKey},
};
