use std::sync::{Arc, LazyLock};

use smallvec::SmallVec;
use walpost_event::{Field, NamedField, Record, RecordValue, Row};

use super::{
    column::Column,
    envelope::{EnvelopeNames, Envelopes},
    expand::{ExpandOptions, Expander},
    schema::{Kind, Schema, SchemaField},
    shape::RowShape,
    value::{Text, Value},
};
use crate::error::{EncodeError, EncodeErrorKind, Part};

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

/// What [`Typing`] takes of the router's configuration. The default is
/// Debezium's, but for the names of envelopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypingOptions {
    /// `table.field.event.key`
    pub key_column: Arc<str>,
    /// `table.expand.json.payload`, and how.
    pub expand: Option<ExpandOptions>,
    /// `table.field.event.schema.version`
    pub version_column: Option<Arc<str>>,
    /// `table.field.additional.missing` is `ignore`: a placed column of a type
    /// that Debezium does not know is left out, as one that is not there.
    pub ignore_missing: bool,
    /// Names of envelopes.
    pub envelope_names: EnvelopeNames,
}

impl Default for TypingOptions {
    fn default() -> Self {
        Self {
            key_column: "aggregateid".into(),
            expand: None,
            version_column: None,
            ignore_missing: false,
            envelope_names: EnvelopeNames::default(),
        }
    }
}

/// Gives routed records their types: columns, the payload's expansion, and the
/// envelope.
///
/// Remembers the schemas of earlier records, within bounds. Pure: the same
/// records after the same ones become the same.
#[derive(Clone, Debug)]
pub struct Typing {
    options: TypingOptions,
    expander: Option<Expander>,
    envelopes: Envelopes,
}

impl Typing {
    /// Has seen nothing.
    pub fn new(options: TypingOptions) -> Self {
        Self {
            expander: options.expand.map(Expander::new),
            envelopes: Envelopes::new(options.envelope_names),
            options,
        }
    }

    /// The record of `row`, which has the shape `shape`, with its types.
    ///
    /// # Errors
    /// [`EncodeError`] where Debezium fails: the event is to be parked.
    pub fn typed(
        &mut self,
        record: &Record,
        row: &Row,
        shape: &RowShape,
    ) -> Result<TypedRecord, EncodeError> {
        let of = |kind, part| EncodeError::new(kind, part, &record.topic);
        let key =
            self.key(record.key.as_ref(), shape).map_err(|kind| of(kind, Part::Key))?;
        let value = self.value(record, row, shape).map_err(|(kind, part)| of(kind, part))?;
        let mut headers = SmallVec::with_capacity(record.headers.len());
        for NamedField { name, field } in &record.headers {
            if self.is_left_out(field, shape) {
                continue;
            }
            let value =
                typed(field, shape).map_err(|kind| of(kind, Part::Header(Arc::clone(name))))?;
            headers.push(TypedHeader { name: Arc::clone(name), value });
        }
        Ok(TypedRecord {
            topic: Arc::clone(&record.topic),
            partition: record.partition,
            key,
            value,
            headers,
            timestamp_ms: record.timestamp_ms,
        })
    }

    fn key(
        &self,
        key: Option<&Field>,
        shape: &RowShape,
    ) -> Result<TypedValue, EncodeErrorKind> {
        match (key, shape.column_named(&self.options.key_column)) {
            (Some(field), _) => typed(field, shape),
            (None, Some((_, column))) => Ok(of_column(column, Value::Null)),
            (None, None) => Ok(TypedValue::NONE),
        }
    }

    fn value(
        &mut self,
        record: &Record,
        row: &Row,
        shape: &RowShape,
    ) -> Result<TypedValue, (EncodeErrorKind, Part)> {
        let of_value = |kind| (kind, Part::Value);
        let members = match &record.value {
            RecordValue::Tombstone => return Ok(TypedValue::NONE),
            RecordValue::Payload(payload) => return self.payload(payload, shape).map_err(of_value),
            RecordValue::Envelope(members) => members,
        };
        let mut fields = Vec::with_capacity(members.len());
        let mut values = Vec::with_capacity(members.len());
        for (index, NamedField { name, field }) in members.iter().enumerate() {
            if index > 0 && self.is_left_out(field, shape) {
                continue;
            }
            let typed = if index == 0 { self.payload(field, shape) } else { typed(field, shape) };
            let of_member = |kind| (kind, Part::Member(Arc::clone(name)));
            let TypedValue { schema, value } = typed.map_err(of_member)?;
            let schema = schema.ok_or_else(|| of_member(EncodeErrorKind::RequiredValue))?;
            fields.push(SchemaField { name: Arc::clone(name), schema });
            values.push(value);
        }
        let version = self.version(row, shape).map_err(of_value)?;
        let route = record.identity.aggregate_type.as_deref().unwrap_or_default();
        let route = String::from_utf8_lossy(route);
        let schema = self.envelopes.schema(fields, version, shape, &route);
        Ok(TypedValue { schema: Some(schema), value: Value::Struct(values) })
    }

    fn is_left_out(&self, field: &Field, shape: &RowShape) -> bool {
        let is_unknown = |index: u16| shape.column(index.into()).is_none();
        self.options.ignore_missing && field.column.is_some_and(is_unknown)
    }

    fn payload(&mut self, field: &Field, shape: &RowShape) -> Result<TypedValue, EncodeErrorKind> {
        let typed = typed(field, shape)?;
        let (Some(expander), Value::String(text)) = (&mut self.expander, &typed.value) else {
            return Ok(typed);
        };
        static PAYLOAD: LazyLock<Arc<str>> = LazyLock::new(|| "payload".into());
        let column = field.column.and_then(|index| shape.column(index.into()));
        let name = column.map_or(&*PAYLOAD, Column::name);
        let expanded = expander.expand(name, text).map_err(EncodeErrorKind::Expansion)?;
        Ok(match expanded {
            Some((schema, value)) => TypedValue { schema: Some(schema), value },
            None => typed,
        })
    }

    /// The version that the row gives the envelope.
    fn version(&self, row: &Row, shape: &RowShape) -> Result<Option<i32>, EncodeErrorKind> {
        let Some(name) = &self.options.version_column else {
            return Ok(None);
        };
        let (index, column) = shape.column_named(name).ok_or(EncodeErrorKind::VersionColumn)?;
        if column.schema().kind != Kind::Int32 {
            return Err(EncodeErrorKind::VersionColumn);
        }
        match row.value(index) {
            walpost_event::Value::Binary(bytes) => {
                let bytes = bytes.try_into().map_err(|_| EncodeErrorKind::VersionColumn)?;
                Ok(Some(i32::from_be_bytes(bytes)))
            }
            walpost_event::Value::Text(_) => match column.value(row.bytes(index).as_ref())? {
                Value::Int32(version) => Ok(Some(version)),
                _ => Err(EncodeErrorKind::VersionColumn),
            },
            _ => Ok(None),
        }
    }
}

/// A field that is no column is text.
fn typed(field: &Field, shape: &RowShape) -> Result<TypedValue, EncodeErrorKind> {
    let Some(index) = field.column else {
        let Some(bytes) = &field.bytes else {
            return Ok(TypedValue { value: Value::Null, ..TypedValue::text(Text::default()) });
        };
        let not_utf8 = |_| EncodeErrorKind::NotUtf8 { len: bytes.len() };
        return Text::try_from(bytes.clone()).map(TypedValue::text).map_err(not_utf8);
    };
    let unknown = || EncodeErrorKind::UnknownType { type_oid: field.type_oid };
    let column = shape.column(index.into()).ok_or_else(unknown)?;
    Ok(of_column(column, column.value(field.bytes.as_ref())?))
}

/// As Debezium reads a column: a default stands for NULL.
fn of_column(column: &Column, value: Value) -> TypedValue {
    let schema = Arc::clone(column.schema());
    let value = match &schema.default {
        Some(default) if value == Value::Null => default.clone(),
        _ => value,
    };
    TypedValue { schema: Some(schema), value }
}
