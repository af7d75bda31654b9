//! Arrays and maps in a literal, as Kafka Connect reads them.

use std::sync::Arc;

use super::{java_trim, number, of_length, string, tokens, typed};
use crate::connect::{
    schema::{Kind, Schema},
    typed::TypedValue,
    value::Value,
};

/// Arrays and maps within one another; of more Kafka Connect might run out of
/// its stack.
const MAX_DEPTH: usize = 64;
/// Entries of one map.
const MAX_ENTRIES: usize = 1_000;

/// Why a text is no array or map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is malformed, and so a text.
    Malformed,
    /// It is one that has no schema here: its elements, keys or values have no
    /// type in common, or there are none, or too many.
    NoSchema,
}

/// The array or the map that a text begins with; what follows is passed over, as
/// in Kafka Connect.
pub(super) fn collection(text: &str) -> Result<TypedValue, Unread> {
    let mut reader = Reader { text, at: 0 };
    reader.opened(0)?.ok_or(Unread::Malformed)
}

/// A text and how far it is read.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn has_next(&self) -> bool {
        self.at < self.text.len()
    }

    /// The next token, as it is.
    fn next(&mut self) -> &'a str {
        let token = tokens(&self.text[self.at..], 1).unwrap_or_default();
        self.at += token.len();
        token
    }

    /// Whether the next token is this one, which is then behind; blank ones are in
    /// any case, unless nothing follows them.
    fn takes(&mut self, expected: &str) -> bool {
        while self.has_next() {
            let start = self.at;
            let token = java_trim(self.next());
            if token == expected {
                return true;
            }
            if !token.is_empty() || !self.has_next() {
                self.at = start;
                return false;
            }
        }
        false
    }

    /// What stands in an array or a map; `None` for null.
    fn value(&mut self, depth: usize) -> Result<Option<TypedValue>, Unread> {
        if !self.has_next() {
            return Ok(None);
        }
        if self.takes("\"") {
            return Ok(Some(self.quoted()));
        }
        if self.takes("null") {
            return Ok(None);
        }
        for (text, is_true) in [("true", true), ("false", false)] {
            if self.takes(text) {
                return Ok(Some(typed(Schema::new(Kind::Boolean), Value::Boolean(is_true))));
            }
        }
        if let Some(collection) = self.opened(depth)? {
            return Ok(Some(collection));
        }
        let token = java_trim(self.next());
        self.temporal(token).or_else(|| number(token)).map(Some).ok_or(Unread::Malformed)
    }

    /// An array or a map, if one begins here.
    fn opened(&mut self, depth: usize) -> Result<Option<TypedValue>, Unread> {
        let is_array = self.takes("[");
        if !is_array && !self.takes("{") {
            return Ok(None);
        }
        if depth == MAX_DEPTH {
            return Err(Unread::NoSchema);
        }
        let read = if is_array { self.array(depth + 1) } else { self.map(depth + 1) };
        read.map(Some)
    }

    fn quoted(&mut self) -> TypedValue {
        let mut content = String::new();
        while self.has_next() && !self.takes("\"") {
            content.push_str(self.next());
        }
        of_length(&content.replace("\\:", ":")).unwrap_or_else(|| string(&content))
    }

    /// A date, a time or a timestamp, of five tokens or of this one.
    fn temporal(&mut self, token: &str) -> Option<TypedValue> {
        let of = |text: &str| of_length(&text.replace("\\:", ":"));
        if !token.starts_with(|first: char| first.is_ascii_digit()) {
            return None;
        }
        let more = tokens(&self.text[self.at..], 4);
        if let Some(more) = more
            && let Some(found) = of(&format!("{token}{more}"))
        {
            self.at += more.len();
            return Some(found);
        }
        of(token)
    }

    fn array(&mut self, depth: usize) -> Result<TypedValue, Unread> {
        let (mut elements, mut element) = (Vec::new(), Common::default());
        while self.has_next() {
            if self.takes("]") {
                let schema = element.schema.clone();
                let aligned = element.align(elements)?;
                return of_kind(schema.map(Kind::Array), Value::Array(aligned));
            }
            if self.takes(",") {
                return Err(Unread::Malformed);
            }
            elements.push(element.merged(self.value(depth)?));
            let behind = self.at;
            if self.takes("]") {
                self.at = behind;
            } else if !self.takes(",") {
                return Err(Unread::Malformed);
            }
        }
        Err(Unread::Malformed)
    }

    fn map(&mut self, depth: usize) -> Result<TypedValue, Unread> {
        let mut entries = Vec::new();
        let (mut key, mut value) = (Common::default(), Common::default());
        while self.has_next() {
            if self.takes("}") {
                let kind = key.schema.clone().zip(value.schema.clone());
                let kind = kind.map(|(key, value)| Kind::Map(key, value));
                let (keys, values) = entries.into_iter().unzip();
                let mut aligned = Vec::new();
                for (key, value) in key.align(keys)?.into_iter().zip(value.align(values)?) {
                    put(&mut aligned, key, value);
                }
                return of_kind(kind, Value::Map(aligned));
            }
            if self.takes(",") {
                return Err(Unread::Malformed);
            }
            let found = self.value(depth)?;
            if found.is_none() || !self.takes(":") {
                return Err(Unread::Malformed);
            }
            if entries.len() == MAX_ENTRIES {
                return Err(Unread::NoSchema);
            }
            let found = key.merged(found);
            put(&mut entries, found, value.merged(self.value(depth)?));
            // Without one between two of them it goes on as well.
            self.takes(",");
        }
        Err(Unread::Malformed)
    }
}

fn of_kind(kind: Option<Kind>, value: Value) -> Result<TypedValue, Unread> {
    Ok(typed(Schema::new(kind.ok_or(Unread::NoSchema)?), value))
}

/// As a `LinkedHashMap` does it: the last value of a key is in its first place.
fn put(entries: &mut Vec<(Value, Value)>, key: Value, value: Value) {
    match entries.iter_mut().find(|(known, _)| *known == key) {
        Some((_, before)) => *before = value,
        None => entries.push((key, value)),
    }
}

/// The type that values have in common.
#[derive(Default)]
struct Common {
    schema: Option<Arc<Schema>>,
    is_incompatible: bool,
}

impl Common {
    fn merged(&mut self, found: Option<TypedValue>) -> Value {
        let Some(TypedValue { schema, value }) = found else { return Value::Null };
        self.schema = match (self.schema.take(), schema) {
            _ if self.is_incompatible => None,
            (None, schema) => schema,
            (Some(one), Some(other)) => {
                let wider = wider(&one, &other).map(Arc::clone);
                self.is_incompatible = wider.is_none();
                wider
            }
            (Some(one), None) => Some(one),
        };
        value
    }

    /// The values as of that type.
    fn align(self, values: Vec<Value>) -> Result<Vec<Value>, Unread> {
        let Some(schema) = self.schema else { return Err(Unread::NoSchema) };
        values.into_iter().map(|value| aligned(&schema.kind, value)).collect()
    }
}

/// The one of two schemas that has the values of both.
fn wider<'a>(one: &'a Arc<Schema>, other: &'a Arc<Schema>) -> Option<&'a Arc<Schema>> {
    if one == other {
        return Some(one);
    }
    let width = |schema: &Schema| match schema.kind {
        _ if schema.name.is_some() => None,
        Kind::Int8 => Some(0),
        Kind::Int16 => Some(1),
        Kind::Int32 => Some(2),
        Kind::Int64 => Some(3),
        Kind::Float32 => Some(4),
        Kind::Float64 => Some(5),
        _ => None,
    };
    let (width, other_width) = (width(one)?, width(other)?);
    Some(if width > other_width { one } else { other })
}

/// A number as of a wider type. Kafka Connect takes no null for a required value,
/// and then the whole is a text.
#[expect(clippy::cast_precision_loss, reason = "Java loses the same")]
#[expect(clippy::cast_possible_truncation, reason = "no type is narrower than the value")]
fn aligned(kind: &Kind, value: Value) -> Result<Value, Unread> {
    let integer = match value {
        Value::Null => return Err(Unread::Malformed),
        Value::Int8(number) => i64::from(number),
        Value::Int16(number) => i64::from(number),
        Value::Int32(number) => i64::from(number),
        Value::Int64(number) => number,
        Value::Float32(number) if *kind == Kind::Float64 => {
            return Ok(Value::Float64(number.into()));
        }
        value => return Ok(value),
    };
    Ok(match kind {
        Kind::Int16 => Value::Int16(integer as i16),
        Kind::Int32 => Value::Int32(integer as i32),
        Kind::Int64 => Value::Int64(integer),
        Kind::Float32 => Value::Float32(integer as f32),
        Kind::Float64 => Value::Float64(integer as f64),
        _ => value,
    })
}
