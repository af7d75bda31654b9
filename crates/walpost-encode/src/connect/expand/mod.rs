//! Expansion of a JSON payload (`table.expand.json.payload`): text to a value
//! with an inferred schema.

mod infer;
mod parse;
mod places;
mod value;

use std::{fmt, sync::Arc};

use self::{
    infer::NoSchema,
    parse::{Node, Unread},
};
use super::{
    options::NameAdjustment,
    schema::Schema,
    typed::TypedValue,
    value::{Text, Value},
};
use crate::memory::Memory;

/// Inferred schemas that are remembered.
const MAX_SCHEMAS: usize = 1_000;
const MAX_SCHEMAS_BYTES: usize = 16 << 20;

/// How JSON payloads are expanded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpandOptions {
    /// `table.json.payload.null.behavior`
    pub null_field: NullField,
    /// `table.json.payload.empty.array.behavior`
    pub empty_array: EmptyArray,
    /// `field.name.adjustment.mode` of the transform.
    pub names: NameAdjustment,
    /// What happens where Debezium fails or loses something.
    pub on_difference: OnDifference,
}

/// `table.json.payload.null.behavior`: what becomes of a member that is `null`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NullField {
    /// `ignore`: it is left out.
    #[default]
    Ignore,
    /// `optional_bytes`: it is NULL, of optional bytes.
    OptionalBytes,
}

/// `table.json.payload.empty.array.behavior`: what becomes of a member that is
/// `[]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmptyArray {
    /// `ignore`: it is left out.
    #[default]
    Ignore,
    /// `optional_string`: it is an array of optional text.
    OptionalString,
}

/// What happens to a payload with a [`Difference`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDifference {
    /// The event is parked.
    #[default]
    Park,
    /// The payload stays the text that it is, as Debezium has payloads that it
    /// cannot expand.
    PassUnexpanded,
}

/// A payload that Debezium fails on, or loses a part of, when it expands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Difference {
    /// An array at the top, such as `[1, 2]`: Debezium's task fails, but under
    /// `StringConverter`, which writes the text.
    TopLevelArray,
    /// `[]` at the top, where columns are placed in the envelope: Debezium's task
    /// fails. Elsewhere it stays a text, which has no schema any more.
    TopLevelEmptyArray,
    /// An integer beyond 64 bits: Debezium's task fails.
    IntegerTooLarge,
    /// Values of different types where one schema has to hold them, such as
    /// `[{"a": 1}, {"a": "x"}]` or `[[1], [2.5]]`, and null beside objects of
    /// different shapes: Debezium's task fails.
    MixedTypes,
    /// A member of an object in an array that the schema of its first objects
    /// has no place for, such as `y` in `[{"a": {"x": 1}}, {"a": {"y": 2}}]`:
    /// Debezium loses it.
    LostMember,
    /// A member whose name had to be adjusted for Avro: Debezium writes NULL
    /// for it.
    AdjustedMember,
    /// A schema of megabytes, by many members or long names around others, as
    /// names of nested structs are whole paths; or objects in an array that have
    /// as many fields more, those of the others, without values. Debezium takes
    /// what memory it gets.
    TooLarge,
    /// Content of a logical message that is no JSON object: Debezium's task
    /// fails.
    NotAnObject,
    /// Half of a surrogate pair, such as `"\ud800"`, which is no character:
    /// Debezium writes it as it is.
    LoneSurrogate,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TopLevelArray => "is an array",
            Self::TopLevelEmptyArray => "is an empty array, which no envelope can hold",
            Self::IntegerTooLarge => "has an integer beyond 64 bits",
            Self::MixedTypes => "has values of different types in one array",
            Self::LostMember => "has objects of different shapes in one array",
            Self::AdjustedMember => "has a member whose name had to be adjusted",
            Self::TooLarge => "has too many members, or names too long, for one schema",
            Self::NotAnObject => "is no JSON object",
            Self::LoneSurrogate => "has half of a surrogate pair",
        })
    }
}

/// Expands payloads, and remembers their schemas.
#[derive(Clone, Debug)]
pub struct Expander {
    options: ExpandOptions,
    known: Memory<Arc<Schema>, Arc<Schema>>,
}

impl Default for Expander {
    fn default() -> Self {
        Self::new(ExpandOptions::default())
    }
}

impl Expander {
    /// An expander that has seen nothing.
    pub fn new(options: ExpandOptions) -> Self {
        Self { options, known: Memory::new(MAX_SCHEMAS, MAX_SCHEMAS_BYTES) }
    }

    pub(crate) fn on_difference(&self) -> OnDifference {
        self.options.on_difference
    }

    /// The value of a payload's text with its schema, named after `column`;
    /// `None` where Debezium leaves the text as it is: it is no JSON object or
    /// array from its first character on, or an array in it has elements of
    /// different types, or none that is not null. `[]` at the top is a text
    /// without a schema, unless empty arrays have one.
    ///
    /// Of an array of objects of different shapes the fields come in the order
    /// of the text; in Debezium, in no order that could be told.
    ///
    /// # Errors
    /// [`Difference`] under [`OnDifference::Park`].
    pub fn expand(
        &mut self,
        column: &Arc<str>,
        text: &Text,
    ) -> Result<Option<TypedValue>, Difference> {
        match self.try_expand(column, text) {
            Err(_) if self.options.on_difference == OnDifference::PassUnexpanded => Ok(None),
            result => result,
        }
    }

    fn try_expand(
        &mut self,
        column: &Arc<str>,
        text: &Text,
    ) -> Result<Option<TypedValue>, Difference> {
        if !text.starts_with(['{', '[']) {
            return Ok(None);
        }
        let node = match parse::parse(text) {
            Ok(node) => node,
            Err(Unread::NotJson) => return Ok(None),
            Err(Unread::LoneSurrogate) => return Err(Difference::LoneSurrogate),
        };
        let schema = match infer::schema(Some(column), &node, self.options) {
            Ok(Some(schema)) => schema,
            Ok(None) => {
                return Ok(Some(TypedValue { schema: None, value: Value::String(text.clone()) }));
            }
            Err(NoSchema::Unfit) => return Ok(None),
            Err(NoSchema::TooLarge) => return Err(Difference::TooLarge),
        };
        if let Node::Array(_) = node {
            return Err(Difference::TopLevelArray);
        }
        let value = value::value(&node, &schema, self.options)?;
        Ok(Some(TypedValue { schema: Some(self.remember(schema)), value }))
    }

    /// The content of a logical message, as
    /// `DecodeLogicalDecodingMessageContent` has it: a struct without a name.
    pub(crate) fn decode(&mut self, text: &Text) -> Result<(Arc<Schema>, Value), Difference> {
        let node = match parse::parse(text) {
            Ok(node @ Node::Object(_)) if text.starts_with('{') => node,
            Ok(_) | Err(Unread::NotJson) => return Err(Difference::NotAnObject),
            Err(Unread::LoneSurrogate) => return Err(Difference::LoneSurrogate),
        };
        let schema = match infer::schema(None, &node, self.options) {
            Ok(Some(schema)) => schema,
            Ok(None) | Err(NoSchema::Unfit) => return Err(Difference::MixedTypes),
            Err(NoSchema::TooLarge) => return Err(Difference::TooLarge),
        };
        let value = value::value(&node, &schema, self.options)?;
        Ok((self.remember(schema), value))
    }

    /// The same schema, that of before where there is one: converters know
    /// schemas by their addresses.
    fn remember(&mut self, schema: Arc<Schema>) -> Arc<Schema> {
        if let Some(known) = self.known.get(&*schema) {
            return Arc::clone(known);
        }
        let bytes = schema.size_bytes();
        self.known.insert(Arc::clone(&schema), Arc::clone(&schema), bytes);
        schema
    }
}

#[cfg(test)]
mod tests;
