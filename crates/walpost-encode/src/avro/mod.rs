//! Kafka Connect's values as Avro, as Confluent's `AvroConverter` writes them:
//! a zero byte, the schema's id in the registry, and the value.
//!
//! The conversion knows no network. A schema whose id is not known yet is no
//! value yet, but what to ask the registry for; with the answer
//! ([`AvroConverter::learn`]) the same value is converted. [`Registry`] is who
//! asks.
//!
//! ```
//! use std::sync::Arc;
//! use walpost_encode::{
//!     avro::{AvroConverter, AvroOptions},
//!     connect::{Kind, Schema, Unconverted, Value},
//! };
//!
//! let mut converter = AvroConverter::new(AvroOptions::default(), false);
//! let schema = Arc::new(Schema::new(Kind::String));
//! let value = Value::String("a".into());
//!
//! let Err(Unconverted::Ask(asked)) = converter.convert("t", Some(&schema), &value) else {
//!     panic!("nobody has registered it")
//! };
//! assert_eq!((&*asked.subject, &*asked.schema), ("t-value", "\"string\""));
//!
//! converter.learn(&asked, 7);
//! let bytes = converter.convert("t", Some(&schema), &value)?.expect("a value");
//! assert_eq!(bytes, &[0, 0, 0, 0, 7, 2, b'a'][..]);
//! # Ok::<(), Unconverted>(())
//! ```

#[cfg(feature = "registry")]
mod client;
mod datum;
#[cfg(not(feature = "registry"))]
mod no_client;
mod registry;
mod schema;
mod subject;

use std::sync::Arc;

use bytes::Bytes;

#[cfg(feature = "registry")]
pub use self::client::Registry;
#[cfg(not(feature = "registry"))]
pub use self::no_client::Registry;
pub use self::{
    registry::{Credentials, RegistryConfig, RegistryError, RegistryErrorKind},
    subject::SubjectName,
};
pub use crate::error::{SchemaType, UnknownSchema};
use crate::{
    connect::{Kind, Schema, Unconverted, Value},
    error::EncodeErrorKind,
    schema_ids::{SchemaIds, framed},
};

/// Whose serializer is behind the converter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AvroSerializer {
    /// Confluent's: that a record may be missing is part of the schema, and bytes
    /// that are required and no part of anything go out without their length.
    #[default]
    Confluent,
    /// Apicurio's `AvroKafkaSerializer`: the schema of a structure is the record's
    /// own, whether or not it may be missing, and bytes have their length before
    /// them.
    Apicurio,
}

/// Options of Confluent's `AvroConverter` that decide schemas and subjects. The
/// default is Confluent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvroOptions {
    /// `key.subject.name.strategy` or `value.subject.name.strategy`
    pub subject: SubjectName,
    /// `connect.meta.data`: properties such as `connect.name` in schemas.
    pub connect_meta_data: bool,
    /// `scrub.invalid.names`: other characters than Avro allows in names become
    /// `_`.
    pub scrub_invalid_names: bool,
    /// Confluent's, or that of Apicurio's converter, which is otherwise the same.
    pub serializer: AvroSerializer,
    /// `schemas.cache.config`: how many schemas are remembered.
    pub schemas_cache_size: usize,
}

impl Default for AvroOptions {
    fn default() -> Self {
        Self {
            subject: SubjectName::default(),
            connect_meta_data: true,
            scrub_invalid_names: false,
            serializer: AvroSerializer::default(),
            schemas_cache_size: 1_000,
        }
    }
}

/// Confluent's `AvroConverter`, but for the network.
#[derive(Clone, Debug)]
pub struct AvroConverter {
    options: AvroOptions,
    ids: SchemaIds,
}

impl AvroConverter {
    /// A converter that knows no id; `is_key` decides the subject.
    pub fn new(options: AvroOptions, is_key: bool) -> Self {
        let size = options.schemas_cache_size;
        Self { options, ids: SchemaIds::new(SchemaType::Avro, options.subject, is_key, size) }
    }

    /// The id that the registry has given a schema.
    pub fn learn(&mut self, schema: &UnknownSchema, id: u32) {
        self.ids.learn(schema, id);
    }

    /// The bytes of a value; `None` for NULL, a tombstone.
    ///
    /// # Errors
    /// [`Unconverted::Ask`] until the id is [learned](Self::learn); else the
    /// event is to be parked: [`EncodeErrorKind::InvalidAvro`] for a schema
    /// that is none in Avro, as a name in it is not allowed or names two
    /// things; [`EncodeErrorKind::RequiredValue`] for NULL where the schema has
    /// none, and [`EncodeErrorKind::NoSchema`] where there is no schema.
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
        if *value == Value::Null {
            let is_allowed = schema.optional;
            return if is_allowed { Ok(None) } else { Err(EncodeErrorKind::RequiredValue.into()) };
        }
        let serializer = self.options.serializer;
        let is_record = matches!(schema.kind, Kind::Struct(_));
        let derive = |schema: &Schema| match serializer {
            AvroSerializer::Apicurio if is_record => {
                let record = Schema { optional: false, ..schema.clone() };
                schema::derive(&record, &self.options)
            }
            _ => schema::derive(schema, &self.options),
        };
        let id = self.ids.id(topic, schema, derive)?;
        let mut out = framed(id, 11 + datum::size_hint(value));
        match serializer {
            AvroSerializer::Apicurio if is_record => datum::write_present(schema, value, &mut out)?,
            AvroSerializer::Apicurio => datum::write_datum(schema, value, &mut out)?,
            AvroSerializer::Confluent => datum::write(schema, value, &mut out)?,
        }
        Ok(Some(out.into()))
    }
}
