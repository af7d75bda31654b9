use crate::{Compatibility, schema::Schema};

/// What producer and consumers of an event agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contract {
    /// The event's type: the document's heading.
    pub event_type: String,
    /// The aggregate type, which names the topic.
    pub aggregate_type: String,
    /// By what the events are kept in order, in words.
    pub ordering_key: String,
    /// By what a second copy is known, in words.
    pub idempotency_key: String,
    /// Rises with each change of the schema; from 1.
    pub version: u32,
    /// What a change has to keep.
    pub compatibility: Compatibility,
    /// Who produces the event.
    pub owner: String,
    /// Of the payload.
    pub(crate) schema: Schema,
}

impl Contract {
    /// `JSON Schema` or `Avro`.
    pub fn schema_language(&self) -> &'static str {
        match self.schema {
            Schema::Json(_) => "JSON Schema",
            Schema::Avro(_) => "Avro",
        }
    }
}
