//! Schemas under the names of a registry, with the ids that it has given them.

use std::sync::Arc;

use crate::{
    avro::SubjectName,
    connect::{Schema, Unconverted},
    error::{EncodeErrorKind, SchemaType, UnknownSchema},
    memory::Memory,
};

/// Bytes of schemas that are remembered, and as many of ids.
const MAX_SCHEMAS_BYTES: usize = 16 << 20;

/// Bytes of a schema's text. Confluent's registry keeps it in a record of Kafka's,
/// which has at most 1 MiB, and says of a larger one that it has a fault of its
/// own: it would be asked for ever.
const MAX_TEXT_BYTES: usize = 512 << 10;

/// Ids that are remembered of one schema, each of another topic.
const MAX_TOPICS: usize = 1_000;
const MAX_TOPICS_BYTES: usize = 64 << 10;

/// A schema as the registry gets it.
#[derive(Debug)]
pub(crate) struct SchemaText {
    pub(crate) text: Arc<str>,
    /// Its name, for subjects that have it.
    pub(crate) name: Option<String>,
}

/// The ids of one converter's schemas.
#[derive(Clone, Debug)]
pub(crate) struct SchemaIds {
    schema_type: SchemaType,
    subject: SubjectName,
    is_key: bool,
    /// By the address of the schema, which is kept with it.
    schemas: Memory<usize, Derived>,
    ids: Memory<UnknownSchema, u32>,
}

/// What is worked out once for each schema.
#[derive(Clone, Debug)]
struct Derived {
    schema: Arc<Schema>,
    text: Arc<SchemaText>,
    /// Its ids, by topic: what is looked up for every record.
    ids: Memory<Box<str>, u32>,
}

impl SchemaIds {
    /// Knows none; `size` is how many schemas are remembered.
    pub(crate) fn new(
        schema_type: SchemaType,
        subject: SubjectName,
        is_key: bool,
        size: usize,
    ) -> Self {
        let schemas = Memory::new(size, MAX_SCHEMAS_BYTES);
        let ids = Memory::new(size, MAX_SCHEMAS_BYTES);
        Self { schema_type, subject, is_key, schemas, ids }
    }

    /// The id that the registry has given a schema.
    pub(crate) fn learn(&mut self, schema: &UnknownSchema, id: u32) {
        let bytes = schema.subject.len() + schema.schema.len();
        self.ids.insert(schema.clone(), id, bytes);
    }

    /// The id of a schema; `derive` says what its text is.
    pub(crate) fn id(
        &mut self,
        topic: &str,
        schema: &Arc<Schema>,
        derive: impl FnOnce(&Schema) -> Result<SchemaText, EncodeErrorKind>,
    ) -> Result<u32, Unconverted> {
        let address = Arc::as_ptr(schema).addr();
        let text = match self.schemas.get(&address) {
            Some(derived) => match derived.ids.get(topic) {
                Some(id) => return Ok(*id),
                None => Arc::clone(&derived.text),
            },
            None => {
                let text = derive(schema)?;
                let bytes = text.text.len();
                if bytes > MAX_TEXT_BYTES {
                    let max_bytes = MAX_TEXT_BYTES;
                    return Err(EncodeErrorKind::SchemaTooLarge { bytes, max_bytes }.into());
                }
                self.remember(schema, text)
            }
        };
        let subject = self.subject.of(topic, self.is_key, text.name.as_deref())?;
        let schema = Arc::clone(&text.text);
        let asked = UnknownSchema { subject, schema, schema_type: self.schema_type };
        let Some(id) = self.ids.get(&asked).copied() else {
            return Err(Unconverted::Ask(asked.into()));
        };
        if let Some(derived) = self.schemas.get(&address) {
            derived.ids.insert(topic.into(), id, topic.len());
        }
        Ok(id)
    }

    fn remember(&mut self, schema: &Arc<Schema>, text: SchemaText) -> Arc<SchemaText> {
        let text = Arc::new(text);
        let bytes = schema.size_bytes() + text.text.len();
        let ids = Memory::new(MAX_TOPICS, MAX_TOPICS_BYTES);
        let derived = Derived { schema: Arc::clone(schema), text: Arc::clone(&text), ids };
        debug_assert!(Arc::ptr_eq(&derived.schema, schema), "the address is that of the schema");
        self.schemas.insert(Arc::as_ptr(schema).addr(), derived, bytes);
        text
    }
}

/// A zero byte and the id, which stand before every value.
pub(crate) fn framed(id: u32, size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(5 + size);
    out.push(0);
    out.extend_from_slice(&id.to_be_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::Kind;

    #[test]
    fn a_schema_that_no_registry_keeps_is_not_asked_for() {
        let mut ids = SchemaIds::new(SchemaType::Avro, SubjectName::Topic, false, 10);
        let schema = Arc::new(Schema::new(Kind::String));
        let mut ask = |bytes: usize| {
            let text = SchemaText { text: "x".repeat(bytes).into(), name: None };
            ids.id("t", &schema, |_| Ok(text))
        };
        let (bytes, max_bytes) = (MAX_TEXT_BYTES + 1, MAX_TEXT_BYTES);
        let too_large = EncodeErrorKind::SchemaTooLarge { bytes, max_bytes };
        assert!(matches!(ask(bytes), Err(Unconverted::Failed(kind)) if kind == too_large));
        assert!(matches!(ask(MAX_TEXT_BYTES), Err(Unconverted::Ask(_))));
    }
}
