use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use smallvec::SmallVec;
use walpost_event::{Field, NamedField, Record, RecordValue, Row};

use super::{
    envelope::{EnvelopeNames, Envelopes},
    expand::{Difference, ExpandOptions, Expander, OnDifference},
    origin::{Message, Origin},
    schema::SchemaField,
    shape::RowShape,
    typed::{TypedHeader, TypedRecord, TypedValue},
    value::{Text, Value},
};
use crate::error::{EncodeError, EncodeErrorKind, Part};

/// What [`Typing`] takes of the router's configuration. The default is
/// Debezium's, but for the names of envelopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypingOptions {
    /// `table.field.event.key`
    pub key_column: Arc<str>,
    /// `table.field.event.payload`
    pub payload_column: Arc<str>,
    /// `route.tombstone.on.empty.payload`: a payload that is NULL, or a string
    /// that is blank as Java's `trim` sees it, gives a tombstone. What else is
    /// empty does not: Debezium looks at its Java text.
    pub tombstone_on_empty_payload: bool,
    /// `table.expand.json.payload`, and how.
    pub expand: Option<ExpandOptions>,
    /// How `DecodeLogicalDecodingMessageContent` reads logical messages:
    /// `fields.null.include` is [`NullField::OptionalBytes`](super::NullField).
    /// What cannot be read is always parked.
    pub messages: ExpandOptions,
    /// `table.field.event.schema.version`
    pub version_column: Option<Arc<str>>,
    /// `table.field.additional.missing` is `ignore`: a placed column of a type
    /// that Debezium does not know is left out, as one that is not there.
    pub ignore_missing: bool,
    /// Names of envelopes.
    pub envelope_names: EnvelopeNames,
    /// Columns of the envelope with the names of their members: what
    /// [`Router::envelope_columns`](walpost_router::Router::envelope_columns)
    /// says. By these a tombstone, which has no envelope, names that of the others
    /// where it comes first, as in Debezium.
    pub envelope: Vec<(Arc<str>, Arc<str>)>,
}

impl Default for TypingOptions {
    fn default() -> Self {
        Self {
            key_column: "aggregateid".into(),
            payload_column: "payload".into(),
            tombstone_on_empty_payload: false,
            expand: None,
            messages: ExpandOptions::default(),
            version_column: None,
            ignore_missing: false,
            envelope_names: EnvelopeNames::default(),
            envelope: Vec::new(),
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
    decoder: Expander,
    envelopes: Envelopes,
}

impl Typing {
    /// Has seen nothing.
    pub fn new(options: TypingOptions) -> Self {
        Self {
            expander: options.expand.map(Expander::new),
            decoder: Expander::new(options.messages),
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
        self.of_origin(record, row, &Origin::Table(shape))
    }

    /// The record of a logical message with its types, as under Debezium's
    /// `DecodeLogicalDecodingMessageContent`: those of its JSON, nested objects
    /// being structs. `row` is what the router has made of `content`.
    ///
    /// # Errors
    /// [`EncodeError`] where Debezium fails: the event is to be parked.
    pub fn typed_message(
        &mut self,
        record: &Record,
        row: &Row,
        content: &Text,
    ) -> Result<TypedRecord, EncodeError> {
        let decoded = self.decoder.decode(content).map_err(|difference| {
            EncodeError::new(EncodeErrorKind::Content(difference), Part::Value, &record.topic)
        })?;
        self.of_origin(record, row, &Origin::Message(Message::new(row.relation(), decoded)))
    }

    fn of_origin(
        &mut self,
        record: &Record,
        row: &Row,
        origin: &Origin<'_>,
    ) -> Result<TypedRecord, EncodeError> {
        let of = |kind, part| EncodeError::new(kind, part, &record.topic);
        let key = self.key(record.key.as_ref(), origin).map_err(|kind| of(kind, Part::Key))?;
        let value = self.value(record, row, origin).map_err(|(kind, part)| of(kind, part))?;
        let mut headers = SmallVec::with_capacity(record.headers.len());
        for NamedField { name, field } in &record.headers {
            if self.is_left_out(field, origin) {
                continue;
            }
            let value =
                origin.typed(field).map_err(|kind| of(kind, Part::Header(Arc::clone(name))))?;
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

    fn key(&self, key: Option<&Field>, origin: &Origin<'_>) -> Result<TypedValue, EncodeErrorKind> {
        match key {
            Some(field) => origin.typed(field),
            None => origin.null_of(&self.options.key_column),
        }
    }

    fn value(
        &mut self,
        record: &Record,
        row: &Row,
        origin: &Origin<'_>,
    ) -> Result<TypedValue, (EncodeErrorKind, Part)> {
        let of_value = |kind| (kind, Part::Value);
        let is_full = |payload: &Field| !self.is_empty(payload, origin);
        let members = match &record.value {
            RecordValue::Payload(payload) if is_full(payload) => {
                return self.payload(payload, origin, false).map_err(of_value);
            }
            RecordValue::Envelope(members) if is_full(&members[0].field) => members,
            RecordValue::Tombstone | RecordValue::Payload(_) | RecordValue::Envelope(_) => {
                origin.has(&self.options.payload_column).map_err(of_value)?;
                self.name_envelope(record, row, origin).map_err(of_value)?;
                return Ok(TypedValue::NONE);
            }
        };
        let mut fields = Vec::with_capacity(members.len());
        let mut values = Vec::with_capacity(members.len());
        for (index, NamedField { name, field }) in members.iter().enumerate() {
            if index > 0 && self.is_left_out(field, origin) {
                continue;
            }
            let typed = match index {
                0 => self.payload(field, origin, true),
                _ => origin.typed(field),
            };
            let of_member = |kind| (kind, Part::Member(Arc::clone(name)));
            let TypedValue { schema, value } = typed.map_err(of_member)?;
            let schema = schema.ok_or_else(|| of_member(EncodeErrorKind::RequiredValue))?;
            fields.push(SchemaField { name: Arc::clone(name), schema });
            values.push(value);
        }
        let version = self.version(row, origin).map_err(of_value)?;
        let schema = self.envelopes.schema(fields, version, origin, &route(record));
        Ok(TypedValue { schema: Some(schema), value: Value::Struct(values) })
    }

    /// Whether there is a tombstone in the place of this payload. What cannot be
    /// typed is not empty, and fails as a payload.
    fn is_empty(&self, payload: &Field, origin: &Origin<'_>) -> bool {
        if !self.options.tombstone_on_empty_payload {
            return false;
        }
        match origin.typed(payload).map(|typed| typed.value) {
            Ok(Value::Null) => true,
            Ok(Value::String(text)) => text.bytes().all(|byte| byte <= b' '),
            _ => false,
        }
    }

    /// Has a tombstone name the envelopes of what comes behind it.
    fn name_envelope(
        &mut self,
        record: &Record,
        row: &Row,
        origin: &Origin<'_>,
    ) -> Result<(), EncodeErrorKind> {
        static PAYLOAD: LazyLock<Arc<str>> = LazyLock::new(|| "payload".into());
        if self.options.envelope.is_empty()
            || self.options.envelope_names != EnvelopeNames::FirstRouted
        {
            return Ok(());
        }
        let payload = (&self.options.payload_column, &*PAYLOAD);
        let members = self.options.envelope.iter().map(|(column, name)| (column, name));
        let field = |(column, name): (&Arc<str>, &Arc<str>)| {
            let schema = origin.null_of(column).ok()?.schema?;
            Some(SchemaField { name: Arc::clone(name), schema })
        };
        let fields = std::iter::once(payload).chain(members).filter_map(field).collect();
        let version = self.version(row, origin)?;
        self.envelopes.schema(fields, version, origin, &route(record));
        Ok(())
    }

    fn is_left_out(&self, field: &Field, origin: &Origin<'_>) -> bool {
        self.options.ignore_missing && origin.is_missing(field)
    }

    fn payload(
        &mut self,
        field: &Field,
        origin: &Origin<'_>,
        in_envelope: bool,
    ) -> Result<TypedValue, EncodeErrorKind> {
        let typed = origin.typed(field)?;
        let (Some(expander), Value::String(text)) = (&mut self.expander, &typed.value) else {
            return Ok(typed);
        };
        let expanded =
            expander.expand(origin.name(field), text).map_err(EncodeErrorKind::Expansion)?;
        match expanded {
            Some(TypedValue { schema: None, .. }) if in_envelope => {
                match expander.on_difference() {
                    OnDifference::Park => {
                        Err(EncodeErrorKind::Expansion(Difference::TopLevelEmptyArray))
                    }
                    OnDifference::PassUnexpanded => Ok(typed),
                }
            }
            Some(expanded) => Ok(expanded),
            None => Ok(typed),
        }
    }

    /// The version that the row gives the envelope.
    fn version(&self, row: &Row, origin: &Origin<'_>) -> Result<Option<i32>, EncodeErrorKind> {
        let Some(name) = &self.options.version_column else {
            return Ok(None);
        };
        match origin.integer(row, name)? {
            Value::Int32(version) => Ok(Some(version)),
            Value::Null => Ok(None),
            _ => Err(EncodeErrorKind::VersionColumn),
        }
    }
}

/// What the row of a record is routed by.
fn route(record: &Record) -> Cow<'_, str> {
    String::from_utf8_lossy(record.identity.aggregate_type.as_deref().unwrap_or_default())
}
