//! Kafka Connect's values as Protobuf, as Confluent's `ProtobufConverter` writes
//! them: a zero byte, the schema's id in the registry, which of the schema's
//! messages it is, and the message.
//!
//! As [`avro`](crate::avro), it knows no network, and asks for ids.
//!
//! ```
//! use std::sync::Arc;
//! use walpost_encode::{
//!     connect::{Kind, Schema, Unconverted, Value},
//!     protobuf::{ProtobufConverter, ProtobufOptions},
//! };
//!
//! let mut converter = ProtobufConverter::new(ProtobufOptions::default(), false);
//! let fields = Schema::fields([("id", Schema::new(Kind::Int32))]);
//! let schema = Arc::new(Schema { name: Some("shop.Order".into()), ..Schema::new(fields) });
//! let value = Value::Struct(vec![Value::Int32(7)]);
//!
//! let Err(Unconverted::Ask(asked)) = converter.convert("t", Some(&schema), &value) else {
//!     panic!("nobody has registered it")
//! };
//! assert_eq!(
//!     &*asked.schema,
//!     "syntax = \"proto3\";\npackage shop;\n\nmessage Order {\n  int32 id = 1;\n}\n"
//! );
//!
//! converter.learn(&asked, 7);
//! let bytes = converter.convert("t", Some(&schema), &value)?.expect("a value");
//! assert_eq!(bytes, &[0, 0, 0, 0, 7, 0, 8, 7][..]);
//! # Ok::<(), Unconverted>(())
//! ```

mod datum;
mod known;
mod names;
mod schema;
mod text;
mod wire;

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    avro::SubjectName,
    connect::{Schema, Unconverted, Value},
    error::{EncodeErrorKind, SchemaType, UnknownSchema},
    schema_ids::{SchemaIds, framed},
};

/// Options of Confluent's `ProtobufConverter` that decide schemas and values.
/// The default is Confluent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtobufOptions {
    /// `key.subject.name.strategy` or `value.subject.name.strategy`
    pub subject: SubjectName,
    /// `scrub.invalid.names`: other characters than Protobuf allows in names
    /// become `_`.
    pub scrub_invalid_names: bool,
    /// `optional.for.nullables`: fields that may be NULL are `optional`.
    pub optional_for_nullables: bool,
    /// `wrapper.for.nullables`: fields that may be NULL are wrapped, as in
    /// `google.protobuf.StringValue`.
    pub wrapper_for_nullables: bool,
    /// `ignore.default.for.nullables`: NULL stays NULL where there is a default.
    pub ignore_default: bool,
    /// `schemas.cache.config`: how many schemas are remembered.
    pub schemas_cache_size: usize,
}

impl Default for ProtobufOptions {
    fn default() -> Self {
        Self {
            subject: SubjectName::default(),
            scrub_invalid_names: false,
            optional_for_nullables: false,
            wrapper_for_nullables: false,
            ignore_default: false,
            schemas_cache_size: 1_000,
        }
    }
}

/// Confluent's `ProtobufConverter`, but for the network.
#[derive(Clone, Debug)]
pub struct ProtobufConverter {
    options: ProtobufOptions,
    ids: SchemaIds,
}

impl ProtobufConverter {
    /// A converter that knows no id; `is_key` decides the subject.
    pub fn new(options: ProtobufOptions, is_key: bool) -> Self {
        let size = options.schemas_cache_size;
        Self { options, ids: SchemaIds::new(SchemaType::Protobuf, options.subject, is_key, size) }
    }

    /// The id that the registry has given a schema.
    pub fn learn(&mut self, schema: &UnknownSchema, id: u32) {
        self.ids.learn(schema, id);
    }

    /// The bytes of a value; `None` for NULL, a tombstone.
    ///
    /// Numbers, texts and bytes by themselves are messages of
    /// `google/protobuf/wrappers.proto`. NULL in a field, and without one of the
    /// options so is zero, is no field.
    ///
    /// # Errors
    /// [`Unconverted::Ask`] until the id is [learned](Self::learn); else the
    /// event is to be parked: [`EncodeErrorKind::InvalidProtobuf`] for a schema
    /// that is none in Protobuf, [`EncodeErrorKind::RequiredValue`] for NULL in
    /// an array, and [`EncodeErrorKind::NoSchema`] where there is no schema.
    pub fn convert(
        &mut self,
        topic: &str,
        schema: Option<&Arc<Schema>>,
        value: &Value,
    ) -> Result<Option<Bytes>, Unconverted> {
        let is_null = *value == Value::Null;
        let Some(schema) = schema else {
            return if is_null { Ok(None) } else { Err(EncodeErrorKind::NoSchema.into()) };
        };
        if is_null {
            schema::check(schema, self.options)?;
            return Ok(None);
        }
        let mut message = Vec::with_capacity(64);
        datum::write(schema, value, self.options, &mut message)?;
        let derive = |schema: &Schema| schema::derive(schema, self.options);
        let mut out = framed(self.ids.id(topic, schema, derive)?, message.len());
        out.extend_from_slice(&message);
        Ok(Some(out.into()))
    }
}
