use std::{collections::HashMap, sync::Arc};

use walpost_event::{Bytes, Field, Header, Headers, Message, NamedField, Record, RecordValue, Row};

use super::{
    column::Column,
    converter::{Converter, HeaderConverter},
    expand::Expander,
    schema::{Kind, Schema, SchemaField},
    shape::RowShape,
    value::Value,
};
use crate::error::{EncodeError, EncodeErrorKind, Part};

/// Envelopes remembered, as many as Debezium remembers.
const MAX_ENVELOPES: usize = 10_000;

/// How routed records become messages in Kafka Connect under Debezium's Outbox
/// Event Router.
#[derive(Clone, Debug)]
pub struct ConnectEncoding {
    /// `key.converter`
    pub key: Converter,
    /// `value.converter`
    pub value: Converter,
    /// `header.converter`
    pub header: HeaderConverter,
    /// `table.expand.json.payload`
    pub expand: Option<Expander>,
    /// `table.field.event.key`
    pub key_column: Arc<str>,
    /// `table.field.event.schema.version`
    pub version_column: Option<Arc<str>>,
    /// `table.field.additional.missing` is `ignore`: a placed column of a type
    /// that Debezium does not know is left out, as one that is not there.
    pub ignore_missing: bool,
    /// Names of envelopes.
    pub envelope_names: EnvelopeNames,
    /// What is remembered of earlier records.
    pub memory: EnvelopeMemory,
}

/// Which routed value names the schema of an envelope,
/// `<prefix>.<schema>.<table>.<routed value>.Value`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnvelopeNames {
    /// That of the first record with a payload of its schema since the start,
    /// as in Debezium: with several aggregate types the name depends on which
    /// came first, and may change with a restart.
    #[default]
    FirstRouted,
    /// That of the record itself.
    OwnRoute,
}

/// The schemas of envelopes, by what they depend on.
#[derive(Clone, Debug, Default)]
pub struct EnvelopeMemory(HashMap<EnvelopeKey, Arc<Schema>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EnvelopeKey {
    members: Vec<(Arc<str>, Arc<Schema>)>,
    version: Option<i32>,
    /// Where the name is the record's own.
    route: Option<Bytes>,
}

/// A part of a record with its schema.
struct Typed {
    schema: Option<Arc<Schema>>,
    value: Value,
}

impl ConnectEncoding {
    /// Encodes the record of `row`, which has the shape `shape`.
    ///
    /// # Errors
    /// [`EncodeError`] where Debezium or the converter fails: the event is to be
    /// parked.
    pub fn encode(
        &mut self,
        record: Record,
        row: &Row,
        shape: &RowShape,
    ) -> Result<Message, EncodeError> {
        let Record { topic, partition, key, value, headers, timestamp_ms, identity } = record;
        let route = identity.aggregate_type;
        let of = |part: Part| {
            let topic = Arc::clone(&topic);
            move |kind| EncodeError::new(kind, part, &topic)
        };
        let key = self.encode_key(&topic, key.as_ref(), shape).map_err(of(Part::Key))?;
        let value = match value {
            RecordValue::Tombstone => None,
            value => {
                let Typed { schema, value } = self
                    .typed_value(&value, row, shape, route)
                    .map_err(|(kind, part)| EncodeError::new(kind, part, &topic))?;
                self.value.convert(&topic, schema.as_ref(), &value).map_err(of(Part::Value))?
            }
        };
        let mut encoded = Headers::with_capacity(headers.len());
        for NamedField { name, field } in headers {
            if self.is_left_out(&field, shape) {
                continue;
            }
            let bytes = typed(&field, shape)
                .and_then(|Typed { schema, value }| {
                    self.header.convert(&topic, schema.as_ref(), &value)
                })
                .map_err(|kind| EncodeError::new(kind, Part::Header(Arc::clone(&name)), &topic))?;
            encoded.push(Header { name, value: bytes });
        }
        Ok(Message { topic, partition, key, value, headers: encoded, timestamp_ms })
    }

    fn encode_key(
        &mut self,
        topic: &str,
        key: Option<&Field>,
        shape: &RowShape,
    ) -> Result<Option<Bytes>, EncodeErrorKind> {
        let Typed { schema, value } = match key {
            Some(field) => typed(field, shape)?,
            None => match shape.column_named(&self.key_column) {
                Some((_, column)) => of_column(column, Value::Null),
                None => Typed { schema: None, value: Value::Null },
            },
        };
        self.key.convert(topic, schema.as_ref(), &value)
    }

    fn typed_value(
        &mut self,
        value: &RecordValue,
        row: &Row,
        shape: &RowShape,
        route: Option<Bytes>,
    ) -> Result<Typed, (EncodeErrorKind, Part)> {
        let of_value = |kind| (kind, Part::Value);
        match value {
            RecordValue::Tombstone => Ok(Typed { schema: None, value: Value::Null }),
            RecordValue::Payload(payload) => self.payload(payload, shape).map_err(of_value),
            RecordValue::Envelope(members) => {
                let mut names = Vec::with_capacity(members.len());
                let mut values = Vec::with_capacity(members.len());
                for (index, NamedField { name, field }) in members.iter().enumerate() {
                    if index > 0 && self.is_left_out(field, shape) {
                        continue;
                    }
                    let typed =
                        if index == 0 { self.payload(field, shape) } else { typed(field, shape) };
                    let of_member = |kind| (kind, Part::Member(Arc::clone(name)));
                    let Typed { schema, value } = typed.map_err(of_member)?;
                    let schema = schema.ok_or(of_member(EncodeErrorKind::RequiredValue))?;
                    names.push((Arc::clone(name), schema));
                    values.push(value);
                }
                let version = self.version(row, shape).map_err(of_value)?;
                let schema = self.envelope(names, version, shape, route);
                Ok(Typed { schema: Some(schema), value: Value::Struct(values) })
            }
        }
    }

    fn is_left_out(&self, field: &Field, shape: &RowShape) -> bool {
        let is_unknown = |index: u16| shape.column(index.into()).is_none();
        self.ignore_missing && field.column.is_some_and(is_unknown)
    }

    fn payload(&mut self, field: &Field, shape: &RowShape) -> Result<Typed, EncodeErrorKind> {
        let typed = typed(field, shape)?;
        let (Some(expander), Value::String(text)) = (&mut self.expand, &typed.value) else {
            return Ok(typed);
        };
        let column = field.column.and_then(|index| shape.column(index.into()));
        let name = column.map_or("payload", |column| column.name());
        let expanded = expander.expand(name, text).map_err(EncodeErrorKind::Expansion)?;
        Ok(match expanded {
            Some((schema, value)) => Typed { schema: Some(schema), value },
            None => typed,
        })
    }

    /// The version that the row gives the envelope.
    fn version(&self, row: &Row, shape: &RowShape) -> Result<Option<i32>, EncodeErrorKind> {
        let Some(name) = &self.version_column else {
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
            walpost_event::Value::Text(text) => match column.value(Some(text))? {
                Value::Int32(version) => Ok(Some(version)),
                _ => Err(EncodeErrorKind::VersionColumn),
            },
            _ => Ok(None),
        }
    }

    fn envelope(
        &mut self,
        members: Vec<(Arc<str>, Arc<Schema>)>,
        version: Option<i32>,
        shape: &RowShape,
        route: Option<Bytes>,
    ) -> Arc<Schema> {
        let route = route.unwrap_or_default();
        let own = (self.envelope_names == EnvelopeNames::OwnRoute).then(|| route.clone());
        let key = EnvelopeKey { members, version, route: own };
        let EnvelopeMemory(known) = &mut self.memory;
        if let Some(schema) = known.get(&key) {
            return Arc::clone(schema);
        }
        let field = |(name, schema): &(Arc<str>, Arc<Schema>)| SchemaField {
            name: Arc::clone(name),
            schema: Arc::clone(schema),
        };
        let name = shape.envelope_name(&String::from_utf8_lossy(&route));
        let kind = Kind::Struct(key.members.iter().map(field).collect());
        let schema = Schema { name: Some(name.into()), version, ..Schema::new(kind) };
        if known.len() >= MAX_ENVELOPES {
            known.clear();
        }
        let schema = Arc::new(schema);
        known.insert(key, Arc::clone(&schema));
        schema
    }
}

/// A field that is no column is text.
fn typed(field: &Field, shape: &RowShape) -> Result<Typed, EncodeErrorKind> {
    let Some(index) = field.column else {
        let text = field.bytes.as_deref().map(std::str::from_utf8).transpose();
        let value = match text {
            Ok(text) => text.map_or(Value::Null, |text| Value::String(text.to_owned())),
            Err(_) => {
                let len = field.bytes.as_ref().map_or(0, Bytes::len);
                return Err(EncodeErrorKind::NotUtf8 { len });
            }
        };
        return Ok(Typed { schema: Some(Schema::new(Kind::String).into()), value });
    };
    let unknown = || EncodeErrorKind::UnknownType { type_oid: field.type_oid };
    let column = shape.column(index.into()).ok_or_else(unknown)?;
    Ok(of_column(column, column.value(field.bytes.as_deref())?))
}

/// As Debezium reads a column: a default stands for NULL.
fn of_column(column: &Column, value: Value) -> Typed {
    let schema = Arc::clone(column.schema());
    let value = match &schema.default {
        Some(default) if value == Value::Null => default.clone(),
        _ => value,
    };
    Typed { schema: Some(schema), value }
}
