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

mod datum;
mod registry;
mod schema;
mod subject;

use std::sync::Arc;

use bytes::Bytes;

use self::schema::AvroSchema;
pub use self::{
    registry::{Credentials, Registry, RegistryConfig, RegistryError, RegistryErrorKind},
    subject::SubjectName,
};
pub use crate::error::UnknownSchema;
use crate::{
    connect::{Schema, Unconverted, Value},
    error::EncodeErrorKind,
    memory::Memory,
};

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
    /// `schemas.cache.config`: how many schemas are remembered.
    pub schemas_cache_size: usize,
}

impl Default for AvroOptions {
    fn default() -> Self {
        Self {
            subject: SubjectName::default(),
            connect_meta_data: true,
            scrub_invalid_names: false,
            schemas_cache_size: 1_000,
        }
    }
}

/// Confluent's `AvroConverter`, but for the network.
#[derive(Clone, Debug)]
pub struct AvroConverter {
    options: AvroOptions,
    is_key: bool,
    /// By the address of the schema, which is kept with it.
    schemas: Memory<usize, Derived>,
    ids: Memory<UnknownSchema, u32>,
}

/// Bytes of schemas that are remembered, and as many of ids.
const MAX_SCHEMAS_BYTES: usize = 16 << 20;

/// Ids that are remembered of one schema, each of another topic.
const MAX_TOPICS: usize = 1_000;
const MAX_TOPICS_BYTES: usize = 64 << 10;

/// What is worked out once for each schema.
#[derive(Clone, Debug)]
struct Derived {
    schema: Arc<Schema>,
    avro: Arc<AvroSchema>,
    /// Its ids, by topic: what is looked up for every record.
    ids: Memory<Box<str>, u32>,
}

impl AvroConverter {
    /// A converter that knows no id; `is_key` decides the subject.
    pub fn new(options: AvroOptions, is_key: bool) -> Self {
        let size = options.schemas_cache_size;
        let schemas = Memory::new(size, MAX_SCHEMAS_BYTES);
        Self { options, is_key, schemas, ids: Memory::new(size, MAX_SCHEMAS_BYTES) }
    }

    /// The id that the registry has given a schema.
    pub fn learn(&mut self, schema: &UnknownSchema, id: u32) {
        let bytes = schema.subject.len() + schema.schema.len();
        self.ids.insert(schema.clone(), id, bytes);
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
        let id = self.id(topic, schema)?;
        let mut out = Vec::with_capacity(16 + datum::size_hint(value));
        out.push(0);
        out.extend_from_slice(&id.to_be_bytes());
        datum::write(schema, value, &mut out)?;
        Ok(Some(out.into()))
    }

    fn id(&mut self, topic: &str, schema: &Arc<Schema>) -> Result<u32, Unconverted> {
        let address = Arc::as_ptr(schema).addr();
        let avro = match self.schemas.get(&address) {
            Some(derived) => match derived.ids.get(topic) {
                Some(id) => return Ok(*id),
                None => Arc::clone(&derived.avro),
            },
            None => self.derive(schema)?,
        };
        let subject = self.options.subject.of(topic, self.is_key, avro.name.as_deref())?;
        let asked = UnknownSchema { subject, schema: Arc::clone(&avro.text) };
        let Some(id) = self.ids.get(&asked).copied() else {
            return Err(Unconverted::Ask(asked.into()));
        };
        if let Some(derived) = self.schemas.get(&address) {
            derived.ids.insert(topic.into(), id, topic.len());
        }
        Ok(id)
    }

    fn derive(&mut self, schema: &Arc<Schema>) -> Result<Arc<AvroSchema>, EncodeErrorKind> {
        let avro = Arc::new(AvroSchema::derive(schema, &self.options)?);
        let bytes = schema.size_bytes() + avro.text.len();
        let ids = Memory::new(MAX_TOPICS, MAX_TOPICS_BYTES);
        let derived = Derived { schema: Arc::clone(schema), avro: Arc::clone(&avro), ids };
        debug_assert!(Arc::ptr_eq(&derived.schema, schema), "the address is that of the schema");
        self.schemas.insert(Arc::as_ptr(schema).addr(), derived, bytes);
        Ok(avro)
    }
}
