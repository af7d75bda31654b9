use std::sync::{Arc, LazyLock};

use smallvec::SmallVec;

use super::{
    schema::{Kind, Schema},
    value::{Text, Value},
};

/// A record as Kafka Connect has it behind the router: typed, not yet bytes.
///
/// What changes records, as the transforms behind a router do, changes this;
/// [`Converters`](super::Converters) make a message of it.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedRecord {
    /// Kafka topic.
    pub topic: Arc<str>,
    /// Explicit partition; `None` leaves it to the hash of the key.
    pub partition: Option<i32>,
    /// Key.
    pub key: TypedValue,
    /// Value.
    pub value: TypedValue,
    /// Headers in order; a name may occur more than once.
    pub headers: SmallVec<[TypedHeader; 4]>,
    /// Record timestamp in milliseconds since 1970; `None` for the time of
    /// handling.
    pub timestamp_ms: Option<i64>,
}

/// A header of a [`TypedRecord`].
#[derive(Clone, Debug, PartialEq)]
pub struct TypedHeader {
    /// Name.
    pub name: Arc<str>,
    /// Value.
    pub value: TypedValue,
}

/// A value with its schema, if it has one.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedValue {
    /// What it is a value of.
    pub schema: Option<Arc<Schema>>,
    /// The value.
    pub value: Value,
}

impl TypedRecord {
    /// A record for this topic with nothing in it.
    pub fn new(topic: Arc<str>) -> Self {
        Self {
            topic,
            partition: None,
            key: TypedValue::NONE,
            value: TypedValue::NONE,
            headers: SmallVec::new(),
            timestamp_ms: None,
        }
    }

    /// Whether it is a tombstone, as the predicate `RecordIsTombstone` has it:
    /// its value is null, of a schema or of none.
    pub fn is_tombstone(&self) -> bool {
        self.value.value == Value::Null
    }
}

impl TypedValue {
    /// Null, of no schema.
    pub const NONE: Self = Self { schema: None, value: Value::Null };

    /// Required text.
    pub fn text(text: Text) -> Self {
        static TEXT: LazyLock<Arc<Schema>> = LazyLock::new(|| Schema::new(Kind::String).into());
        Self { schema: Some(Arc::clone(&TEXT)), value: Value::String(text) }
    }
}
