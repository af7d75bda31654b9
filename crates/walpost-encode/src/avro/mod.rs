//! Kafka Connect's values as Avro, as Confluent's `AvroConverter` writes them:
//! a zero byte, the schema's id in the registry, and the value.
//!
//! The conversion knows no network. A schema whose id is not known yet is an
//! error that carries what to ask the registry for; with the answer
//! ([`AvroConverter::learn`]) the same value is converted. [`Registry`] is who
//! asks.
//!
//! ```
//! use std::sync::Arc;
//! use walpost_encode::{
//!     EncodeErrorKind,
//!     avro::{AvroConverter, AvroOptions},
//!     connect::{Kind, Schema, Value},
//! };
//!
//! let mut converter = AvroConverter::new(AvroOptions::default(), false);
//! let schema = Arc::new(Schema::new(Kind::String));
//! let value = Value::String("a".to_owned());
//!
//! let Err(EncodeErrorKind::UnknownSchema(asked)) = converter.convert("t", Some(&schema), &value)
//! else {
//!     panic!("nobody has registered it")
//! };
//! assert_eq!((&*asked.subject, &*asked.schema), ("t-value", "\"string\""));
//!
//! converter.learn(&asked, 7);
//! let bytes = converter.convert("t", Some(&schema), &value)?.expect("a value");
//! assert_eq!(bytes, &[0, 0, 0, 0, 7, 2, b'a'][..]);
//! # Ok::<(), EncodeErrorKind>(())
//! ```

mod datum;
mod registry;
mod schema;
mod subject;

use std::{collections::HashMap, fmt, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};

use self::{datum::Layout, schema::AvroSchema};
pub use self::{
    registry::{Credentials, Registry, RegistryConfig, RegistryError, RegistryErrorKind},
    subject::SubjectName,
};
use crate::{
    connect::{Schema, Value},
    error::EncodeErrorKind,
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

/// A schema whose id the registry has to say.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct UnknownSchema {
    /// The subject to look under, or to register under.
    pub subject: Arc<str>,
    /// Its text, character by character as Confluent's converter sends it: the
    /// registry compares text.
    pub schema: Arc<str>,
}

impl fmt::Debug for UnknownSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnknownSchema({}, {} bytes)", self.subject, self.schema.len())
    }
}

/// Confluent's `AvroConverter`, but for the network.
#[derive(Clone, Debug)]
pub struct AvroConverter {
    options: AvroOptions,
    is_key: bool,
    /// By the address of the schema, which is kept with it.
    schemas: HashMap<usize, (Arc<Schema>, Arc<Derived>)>,
    ids: HashMap<UnknownSchema, u32>,
}

/// What is worked out once for each schema.
#[derive(Debug)]
struct Derived {
    schema: AvroSchema,
    layout: Layout,
}

impl AvroConverter {
    /// A converter that knows no id; `is_key` decides the subject.
    pub fn new(options: AvroOptions, is_key: bool) -> Self {
        Self { options, is_key, schemas: HashMap::new(), ids: HashMap::new() }
    }

    /// The id that the registry has given a schema.
    pub fn learn(&mut self, schema: &UnknownSchema, id: u32) {
        if self.ids.len() >= self.options.schemas_cache_size {
            self.ids.clear();
        }
        self.ids.insert(schema.clone(), id);
    }

    /// The bytes of a value; `None` for NULL, a tombstone.
    ///
    /// # Errors
    /// [`EncodeErrorKind::UnknownSchema`] until the id is
    /// [learned](Self::learn); [`EncodeErrorKind::InvalidAvro`] for a schema
    /// that is none in Avro, as a name in it is not allowed or names two
    /// things; [`EncodeErrorKind::RequiredValue`] for NULL where the schema has
    /// none, and [`EncodeErrorKind::NoSchema`] where there is no schema.
    pub fn convert(
        &mut self,
        topic: &str,
        schema: Option<&Arc<Schema>>,
        value: &Value,
    ) -> Result<Option<Bytes>, EncodeErrorKind> {
        let Some(schema) = schema else {
            return if *value == Value::Null { Ok(None) } else { Err(EncodeErrorKind::NoSchema) };
        };
        if *value == Value::Null {
            return if schema.optional { Ok(None) } else { Err(EncodeErrorKind::RequiredValue) };
        }
        let derived = self.derived(schema)?;
        let name = derived.schema.name.as_deref();
        let subject = self.options.subject.of(topic, self.is_key, name)?;
        let asked = UnknownSchema { subject, schema: Arc::clone(&derived.schema.text) };
        let Some(id) = self.ids.get(&asked) else {
            return Err(EncodeErrorKind::UnknownSchema(Box::new(asked)));
        };
        let body = derived.layout.encode(schema, value)?;
        let mut out = BytesMut::with_capacity(5 + body.len());
        out.put_u8(0);
        out.put_u32(*id);
        out.put_slice(&body);
        Ok(Some(out.freeze()))
    }

    fn derived(&mut self, schema: &Arc<Schema>) -> Result<Arc<Derived>, EncodeErrorKind> {
        let address = Arc::as_ptr(schema).addr();
        if let Some((_, derived)) = self.schemas.get(&address) {
            return Ok(Arc::clone(derived));
        }
        let avro = AvroSchema::derive(schema, &self.options)?;
        let derived = Arc::new(Derived { schema: avro, layout: Layout::of(schema)? });
        if self.schemas.len() >= self.options.schemas_cache_size {
            self.schemas.clear();
        }
        self.schemas.insert(address, (Arc::clone(schema), Arc::clone(&derived)));
        Ok(derived)
    }
}
