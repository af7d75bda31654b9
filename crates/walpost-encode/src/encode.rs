use std::sync::Arc;

use bytes::Bytes;
use walpost_event::{Field, Header, Headers, Message, NamedField, Record, RecordValue};

use crate::{
    error::{EncodeError, EncodeErrorKind, Part},
    json::{self, JsonOptions},
    raw,
};

/// How a key or a value becomes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encoder {
    /// Text as it is, `bytea` as its bytes. NULL gives no key, and no value:
    /// a NULL payload is then the same as a tombstone. Values stay shared with
    /// the row. An envelope has no raw form.
    ///
    /// Text is what PostgreSQL prints, but `true` and `false` for `boolean` and
    /// Java's form for floating-point numbers, as `StringConverter` has them.
    Raw,
    /// JSON without schemas. A NULL payload is the four bytes `null`; only a
    /// tombstone is a record without a value.
    ///
    /// Integers, floating-point numbers and `numeric` are numbers (NaN and the
    /// infinities strings), `boolean` is `true` or `false`, `bytea` a base64
    /// string, `json` and `jsonb` as [`JsonOptions::json_payload`] says, and
    /// everything else its text as a string.
    Json(JsonOptions),
}

/// How records become messages: one encoder for keys and one for values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// For keys. Decides the partition, as Kafka hashes the encoded key.
    pub key: Encoder,
    /// For values.
    pub value: Encoder,
}

impl Encoding {
    /// Encodes one record.
    ///
    /// # Errors
    /// [`EncodeError`] for an envelope under [`Encoder::Raw`], text that is not
    /// UTF-8 under [`Encoder::Json`], and text that is no value of its type.
    pub fn encode(&self, record: Record) -> Result<Message, EncodeError> {
        let Record { topic, partition, key, value, headers, timestamp_ms, identity: _ } = record;
        Ok(Message {
            key: self.key.encode_key(key.as_ref(), &topic)?,
            value: self.value.encode_value(value, &topic)?,
            headers: encode_headers(headers, &topic)?,
            partition,
            timestamp_ms,
            topic,
        })
    }
}

impl Encoder {
    fn encode_key(
        self,
        key: Option<&Field>,
        topic: &Arc<str>,
    ) -> Result<Option<Bytes>, EncodeError> {
        let encoded = match self {
            Self::Raw => key.map_or(Ok(None), raw::encode),
            Self::Json(options) => json::encode_key(key, options),
        };
        encoded.map_err(|kind| EncodeError::new(kind, Part::Key, topic))
    }

    fn encode_value(
        self,
        value: RecordValue,
        topic: &Arc<str>,
    ) -> Result<Option<Bytes>, EncodeError> {
        let encoded = match (value, self) {
            (RecordValue::Tombstone, _) => return Ok(None),
            (RecordValue::Payload(field), Self::Raw) => raw::encode(&field).map_err(of_value),
            (RecordValue::Payload(field), Self::Json(options)) => {
                json::encode(&field, options).map(Some).map_err(of_value)
            }
            (RecordValue::Envelope(_), Self::Raw) => Err(of_value(EncodeErrorKind::RawEnvelope)),
            (RecordValue::Envelope(members), Self::Json(options)) => {
                json::encode_envelope(&members, options).map(Some)
            }
        };
        encoded.map_err(|(kind, part)| EncodeError::new(kind, part, topic))
    }
}

fn of_value(kind: EncodeErrorKind) -> (EncodeErrorKind, Part) {
    (kind, Part::Value)
}

fn encode_headers(
    headers: impl IntoIterator<Item = NamedField>,
    topic: &Arc<str>,
) -> Result<Headers, EncodeError> {
    let encode = |NamedField { name, field }| match raw::encode_header(&field) {
        Ok(value) => Ok(Header { name, value }),
        Err(kind) => Err(EncodeError::new(kind, Part::Header(name), topic)),
    };
    headers.into_iter().map(encode).collect()
}
