use std::sync::Arc;

use bytes::Bytes;

use super::{
    charset::Charset,
    json::JsonConverter,
    schema::{Kind, Schema},
    text,
    value::{Text, Value},
};
use crate::error::{EncodeErrorKind, UnknownSchema};

/// A converter of Kafka Connect or Debezium: what makes bytes of a key or a
/// value (`key.converter`, `value.converter`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Converter {
    /// `org.apache.kafka.connect.storage.StringConverter`: text, and of
    /// structures the text of Java's `toString`.
    ///
    /// Bytes have none, but the name of a Java object, and the event is parked
    /// instead; so have dates under `time.precision.mode=connect`.
    String,
    /// The same in another encoding than UTF-8: `converter.encoding`.
    StringIn(Charset),
    /// `org.apache.kafka.connect.json.JsonConverter`
    Json(JsonConverter),
    /// `org.apache.kafka.connect.converters.ByteArrayConverter`: bytes alone.
    ByteArray,
    /// `io.debezium.converters.BinaryDataConverter`: bytes as they are, and
    /// anything else by the converter of `delegate.converter.type`.
    BinaryData(Option<Box<Converter>>),
    /// `io.confluent.connect.avro.AvroConverter`
    #[cfg(feature = "avro")]
    Avro(crate::avro::AvroConverter),
    /// `io.confluent.connect.json.JsonSchemaConverter`
    #[cfg(feature = "avro")]
    JsonSchema(crate::json_schema::JsonSchemaConverter),
    /// `io.confluent.connect.protobuf.ProtobufConverter`
    #[cfg(feature = "avro")]
    Protobuf(crate::protobuf::ProtobufConverter),
}

/// What makes bytes of headers (`header.converter`).
#[derive(Clone, Debug)]
pub enum HeaderConverter {
    /// `org.apache.kafka.connect.storage.SimpleHeaderConverter`, the default.
    Simple,
    /// A converter that is one of headers as well.
    Of(Converter),
}

/// Why a value is not converted, and what now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unconverted {
    /// The registry has to say the id of the schema, which then is to be
    /// [learned](Converter::learn).
    #[error(transparent)]
    Ask(Box<UnknownSchema>),
    /// The converter does not take the value.
    #[error(transparent)]
    Failed(#[from] EncodeErrorKind),
}

impl Converter {
    /// The bytes of a value; `None` for none, which is a null key, or a
    /// tombstone. Only what asks a registry
    /// looks at the topic, for the subject of its schema.
    ///
    /// # Errors
    /// [`Unconverted::Failed`] for a value that the converter does not take;
    /// where Kafka Connect fails the task, the event is to be parked. Only
    /// what writes schemas into a registry asks.
    #[cfg_attr(
        not(feature = "avro"),
        expect(
            clippy::only_used_in_recursion,
            reason = "a registry's subjects alone have the topic"
        )
    )]
    pub fn convert(
        &mut self,
        topic: &str,
        schema: Option<&Arc<Schema>>,
        value: &Value,
    ) -> Result<Option<Bytes>, Unconverted> {
        match self {
            Self::String => match value {
                Value::Null => Ok(None),
                Value::String(text) => Ok(Some(text.as_bytes().clone())),
                value => {
                    let text = text::java_string(schema.map(|schema| &**schema), value)?;
                    Ok(Some(text.into()))
                }
            },
            Self::StringIn(charset) => {
                let text = Self::String.convert(topic, schema, value)?.map(Text::try_from);
                let text = text.transpose().expect("a String or text of Java's is UTF-8");
                Ok(text.map(|text| charset.encode(&text)))
            }
            Self::Json(json) => Ok(json.convert(schema, value)?),
            Self::ByteArray if !is_bytes(schema) => Err(EncodeErrorKind::NotBytes.into()),
            Self::ByteArray => match value {
                Value::Null => Ok(None),
                Value::Bytes(bytes) => Ok(Some(bytes.clone())),
                _ => Err(EncodeErrorKind::NotBytes.into()),
            },
            Self::BinaryData(delegate) => match (value, delegate) {
                (Value::Null, _) if is_bytes(schema) => Ok(None),
                (Value::Bytes(bytes), _) if is_bytes(schema) => Ok(Some(bytes.clone())),
                (value, Some(delegate)) => delegate.convert(topic, schema, value),
                (_, None) => Err(EncodeErrorKind::NoDelegate.into()),
            },
            #[cfg(feature = "avro")]
            Self::Avro(avro) => avro.convert(topic, schema, value),
            #[cfg(feature = "avro")]
            Self::JsonSchema(json) => json.convert(topic, schema, value),
            #[cfg(feature = "avro")]
            Self::Protobuf(protobuf) => protobuf.convert(topic, schema, value),
        }
    }
}

impl Converter {
    /// The id that the registry has given a schema that was asked for.
    #[cfg_attr(
        not(feature = "avro"),
        expect(clippy::only_used_in_recursion, reason = "a registry alone is asked")
    )]
    pub fn learn(&mut self, schema: &UnknownSchema, id: u32) {
        match self {
            #[cfg(feature = "avro")]
            Self::Avro(avro) => avro.learn(schema, id),
            #[cfg(feature = "avro")]
            Self::JsonSchema(json) => json.learn(schema, id),
            #[cfg(feature = "avro")]
            Self::Protobuf(protobuf) => protobuf.learn(schema, id),
            Self::BinaryData(Some(delegate)) => delegate.learn(schema, id),
            Self::BinaryData(None)
            | Self::String
            | Self::StringIn(_)
            | Self::Json(_)
            | Self::ByteArray => {}
        }
    }
}

fn is_bytes(schema: Option<&Arc<Schema>>) -> bool {
    schema.is_none_or(|schema| schema.kind == Kind::Bytes)
}

impl HeaderConverter {
    /// The bytes of a header's value; `None` for a null header.
    ///
    /// # Errors
    /// As [`Converter::convert`].
    pub fn convert(
        &mut self,
        topic: &str,
        schema: Option<&Arc<Schema>>,
        value: &Value,
    ) -> Result<Option<Bytes>, Unconverted> {
        match self {
            Self::Simple => Ok(match value {
                Value::Null => None,
                Value::String(text) => Some(text.as_bytes().clone()),
                value => Some(text::header(schema.map(|schema| &**schema), value).into()),
            }),
            Self::Of(converter) => converter.convert(topic, schema, value),
        }
    }
}
