//! What Kafka Connect's transforms beside the router do to a record.

mod fields;

use std::sync::Arc;

use walpost_router::{Pattern, Rewrite};

use self::fields::{Changed, MAX_CHANGED, MAX_CHANGED_BYTES};
pub use self::fields::{Inserted, InsertedField};
use super::typed::{TypedHeader, TypedRecord, TypedValue};
use crate::{
    error::{EncodeError, EncodeErrorKind, Part},
    memory::Memory,
};

/// What happens to a record on its way, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transforms {
    /// Before the router: they see topic and headers of the row's own record,
    /// `<topic.prefix>.<schema>.<table>`, and of a message's,
    /// `<topic.prefix>.message`.
    pub before: Vec<Transform>,
    /// The router's own condition: what it does not hold for is no event.
    pub router: Option<Condition>,
    /// Behind the router.
    pub after: Vec<Transform>,
}

/// One transform beside the router.
#[derive(Clone, Debug, PartialEq)]
pub struct Transform {
    /// What it does.
    pub action: Action,
    /// When; `None` for always.
    pub condition: Option<Condition>,
}

/// What a transform does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// `DecodeLogicalDecodingMessageContent`: a logical message becomes a row.
    DecodeMessages,
    /// `RegexRouter`: another topic, where the regex matches the whole of it.
    RenameTopic(Rewrite),
    /// `InsertHeader`, at the end of the headers.
    InsertHeader {
        /// Its name.
        name: Arc<str>,
        /// What Kafka Connect takes `value.literal` for:
        /// [`literal`](super::literal()).
        value: TypedValue,
    },
    /// `DropHeaders`: all of these names.
    DropHeaders(Vec<Arc<str>>),
    /// `HeaderFrom$Value`: fields of the value's structure become headers.
    HeaderFromValue {
        /// Each field with the name of its header.
        fields: Vec<(Arc<str>, Arc<str>)>,
        /// Whether the fields stay.
        operation: HeaderOperation,
        /// `replace.null.with.default`, Kafka Connect's default being true: a
        /// default of the schema stands for null.
        replace_null_with_default: bool,
    },
    /// `InsertField$Value`: fields behind those of the value's structure.
    InsertFields {
        /// The fields, in order.
        fields: Vec<InsertedField>,
        /// `replace.null.with.default`, as of [`Self::HeaderFromValue`]; of the
        /// fields that are there.
        replace_null_with_default: bool,
    },
    /// `Filter`: there is no record any more.
    Drop,
}

/// `operation` of `HeaderFrom`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderOperation {
    /// `copy`: the field stays.
    Copy,
    /// `move`: the field goes.
    Move,
}

/// Under what condition a transform acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What is looked at.
    pub test: Test,
    /// `negate`: act where the test fails.
    pub negate: bool,
}

/// What a predicate looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// `TopicNameMatches`: the pattern matches the whole topic.
    TopicMatches(Pattern),
    /// `HasHeaderKey`: a header of this name is there.
    HasHeader(Arc<str>),
    /// `RecordIsTombstone`: there is no value.
    IsTombstone,
}

impl Condition {
    /// Whether it holds for the record.
    pub fn holds(&self, record: &TypedRecord) -> bool {
        let passes = match &self.test {
            Test::TopicMatches(pattern) => pattern.matches(&record.topic),
            Test::HasHeader(name) => record.headers.iter().any(|header| header.name == *name),
            Test::IsTombstone => record.is_tombstone(),
        };
        passes != self.negate
    }
}

impl Transforms {
    /// Whether logical messages become rows, and so events.
    pub fn decodes_messages(&self) -> bool {
        self.before.iter().any(|step| step.action == Action::DecodeMessages)
    }
}

/// Transforms one behind another, with what they remember.
///
/// Pure: the same record becomes the same.
///
/// ```
/// use walpost_encode::connect::{
///     Action, Transform, TransformChain, Transformed, TypedRecord, literal,
/// };
///
/// let action = Action::InsertHeader { name: "version".into(), value: literal("2").unwrap() };
/// let mut chain = TransformChain::new(vec![Transform { action, condition: None }]);
/// let mut record = TypedRecord::new("outbox.event.order".into());
/// assert_eq!(chain.apply(&mut record)?, Transformed::Kept);
/// assert_eq!(&*record.headers[0].name, "version");
/// # Ok::<(), walpost_encode::EncodeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TransformChain {
    steps: Vec<Transform>,
    changed: Changed,
}

impl TransformChain {
    /// In this order.
    pub fn new(steps: Vec<Transform>) -> Self {
        Self { steps, changed: Memory::new(MAX_CHANGED, MAX_CHANGED_BYTES) }
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Transforms a record.
    ///
    /// # Errors
    /// [`EncodeError`] where Kafka Connect fails: the event is to be parked.
    pub fn apply(&mut self, record: &mut TypedRecord) -> Result<Transformed, EncodeError> {
        let Self { steps, changed } = self;
        let mut transformed = Transformed::Kept;
        for (place, Transform { action, condition }) in steps.iter().enumerate() {
            if condition.as_ref().is_some_and(|condition| !condition.holds(record)) {
                continue;
            }
            match action {
                Action::Drop => return Ok(Transformed::Dropped),
                Action::DecodeMessages => transformed = Transformed::Decoded,
                Action::RenameTopic(rewrite) => {
                    let renamed = rewrite.apply(&record.topic).map_err(|gave_up| {
                        let kind = EncodeErrorKind::TopicRegex(gave_up);
                        EncodeError::new(kind, Part::Value, &record.topic)
                    })?;
                    if *renamed != *record.topic {
                        record.topic = renamed.into();
                    }
                }
                Action::InsertHeader { name, value } => {
                    let (name, value) = (Arc::clone(name), value.clone());
                    record.headers.push(TypedHeader { name, value });
                }
                Action::DropHeaders(names) => {
                    record.headers.retain(|header| !names.contains(&header.name));
                }
                Action::HeaderFromValue { fields, operation, replace_null_with_default } => {
                    let defaults = *replace_null_with_default;
                    fields::to_headers(record, place, fields, *operation, defaults, changed)
                        .map_err(|kind| EncodeError::new(kind, Part::Value, &record.topic))?;
                }
                Action::InsertFields { fields, replace_null_with_default } => {
                    let defaults = *replace_null_with_default;
                    fields::insert(record, place, fields, defaults, changed)
                        .map_err(|kind| EncodeError::new(kind, Part::Value, &record.topic))?;
                }
            }
        }
        Ok(transformed)
    }
}

/// What has become of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transformed {
    /// It goes on.
    Kept,
    /// It goes on, and if it is of a logical message, that is decoded.
    Decoded,
    /// There is none any more.
    Dropped,
}

#[cfg(test)]
mod tests;
