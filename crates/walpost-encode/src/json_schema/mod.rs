//! Kafka Connect's values as JSON under a JSON Schema of a registry, as
//! Confluent's `JsonSchemaConverter` writes them: a zero byte, the schema's id,
//! and the value.
//!
//! As [`avro`](crate::avro), it knows no network, and asks for ids.
//!
//! ```
//! use std::sync::Arc;
//! use walpost_encode::{
//!     connect::{Kind, Schema, Unconverted, Value},
//!     json_schema::{JsonSchemaConverter, JsonSchemaOptions},
//! };
//!
//! let mut converter = JsonSchemaConverter::new(JsonSchemaOptions::default(), false);
//! let schema = Arc::new(Schema::new(Kind::String));
//! let value = Value::String("a".into());
//!
//! let Err(Unconverted::Ask(asked)) = converter.convert("t", Some(&schema), &value) else {
//!     panic!("nobody has registered it")
//! };
//! assert_eq!((&*asked.subject, &*asked.schema), ("t-value", r#"{"type":"string"}"#));
//!
//! converter.learn(&asked, 7);
//! let bytes = converter.convert("t", Some(&schema), &value)?.expect("a value");
//! assert_eq!(bytes, &b"\0\0\0\0\x07\"a\""[..]);
//! # Ok::<(), Unconverted>(())
//! ```

mod datum;
mod schema;

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    avro::SubjectName,
    connect::{DecimalFormat, Schema, Unconverted, Value},
    error::{EncodeErrorKind, SchemaType, UnknownSchema},
    schema_ids::{SchemaIds, framed},
};

/// Options of Confluent's `JsonSchemaConverter` that decide schemas and values.
/// The default is Confluent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonSchemaOptions {
    /// `key.subject.name.strategy` or `value.subject.name.strategy`
    pub subject: SubjectName,
    /// `object.additional.properties`: an object may have more members than its
    /// schema names.
    pub additional_properties: bool,
    /// `decimal.format`: how decimal numbers appear.
    pub decimal_format: DecimalFormat,
    /// `ignore.default.for.nullables`: NULL stays NULL where there is a default.
    pub ignore_default: bool,
    /// `schemas.cache.size`: how many schemas are remembered.
    pub schemas_cache_size: usize,
}

impl Default for JsonSchemaOptions {
    fn default() -> Self {
        Self {
            subject: SubjectName::default(),
            additional_properties: true,
            decimal_format: DecimalFormat::default(),
            ignore_default: false,
            schemas_cache_size: 1_000,
        }
    }
}

/// Confluent's `JsonSchemaConverter`, but for the network.
#[derive(Clone, Debug)]
pub struct JsonSchemaConverter {
    options: JsonSchemaOptions,
    ids: SchemaIds,
}

impl JsonSchemaConverter {
    /// A converter that knows no id; `is_key` decides the subject.
    pub fn new(options: JsonSchemaOptions, is_key: bool) -> Self {
        let size = options.schemas_cache_size;
        Self { options, ids: SchemaIds::new(SchemaType::Json, options.subject, is_key, size) }
    }

    /// The id that the registry has given a schema.
    pub fn learn(&mut self, schema: &UnknownSchema, id: u32) {
        self.ids.learn(schema, id);
    }

    /// The bytes of a value; `None` for a tombstone, which is NULL without a
    /// schema or where the schema requires a value. Where it does not, NULL is
    /// JSON's `null`.
    ///
    /// # Errors
    /// [`Unconverted::Ask`] until the id is [learned](Self::learn); else the
    /// event is to be parked: [`EncodeErrorKind::NoSchema`] for a value without
    /// a schema, and the values that Confluent's converter refuses to write.
    pub fn convert(
        &mut self,
        topic: &str,
        schema: Option<&Arc<Schema>>,
        value: &Value,
    ) -> Result<Option<Bytes>, Unconverted> {
        let Some(schema) = schema else {
            let is_null = *value == Value::Null;
            return if is_null { Ok(None) } else { Err(EncodeErrorKind::NoSchema.into()) };
        };
        let mut json = Vec::with_capacity(64);
        let is_written = datum::write(schema, value, self.options, &mut json)?;
        if !is_written {
            return Ok(None);
        }
        let derive = |schema: &Schema| schema::derive(schema, self.options);
        let mut out = framed(self.ids.id(topic, schema, derive)?, json.len());
        out.extend_from_slice(&json);
        Ok(Some(out.into()))
    }
}
