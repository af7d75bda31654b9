use std::sync::Arc;

use walpost_event::{Header, Headers, Message, Record, Row};

use super::{
    converter::{Converter, HeaderConverter, Unconverted},
    shape::RowShape,
    typed::{TypedHeader, TypedRecord, TypedValue},
    typing::Typing,
};
use crate::error::{EncodeError, Part, Unencoded, UnknownSchema};

/// How routed records become messages in Kafka Connect under Debezium's Outbox
/// Event Router, where nothing lies between router and converters.
#[derive(Clone, Debug)]
pub struct ConnectEncoding {
    /// The router's part.
    pub typing: Typing,
    /// The converters.
    pub converters: Converters,
}

impl ConnectEncoding {
    /// Encodes the record of `row`, which has the shape `shape`.
    ///
    /// # Errors
    /// [`Unencoded`]: the event is to be parked, or, once the registry has
    /// answered, to be encoded again.
    pub fn encode(
        &mut self,
        record: &Record,
        row: &Row,
        shape: &RowShape,
    ) -> Result<Message, Unencoded> {
        let typed = self.typing.typed(record, row, shape).map_err(Unencoded::Park)?;
        self.converters.convert(&typed)
    }
}

/// The converters of a connector.
#[derive(Clone, Debug)]
pub struct Converters {
    /// `key.converter`
    pub key: Converter,
    /// `value.converter`
    pub value: Converter,
    /// `header.converter`
    pub header: HeaderConverter,
}

impl Converters {
    /// The message of a record. Text and bytes that a converter does not change
    /// stay shared.
    ///
    /// # Errors
    /// [`Unencoded`], as [`ConnectEncoding::encode`].
    pub fn convert(&mut self, record: &TypedRecord) -> Result<Message, Unencoded> {
        let TypedRecord { topic, partition, key, value, headers, timestamp_ms } = record;
        let fail = |unconverted, part| match unconverted {
            Unconverted::Ask(schema) => Unencoded::Ask { part, schema },
            Unconverted::Failed(kind) => Unencoded::Park(EncodeError::new(kind, part, topic)),
        };
        let TypedValue { schema, value: of_key } = key;
        let key = self.key.convert(topic, schema.as_ref(), of_key);
        let key = key.map_err(|error| fail(error, Part::Key))?;
        let TypedValue { schema, value: of_value } = value;
        let value = self.value.convert(topic, schema.as_ref(), of_value);
        let value = value.map_err(|error| fail(error, Part::Value))?;
        let mut converted = Headers::with_capacity(headers.len());
        for TypedHeader { name, value: TypedValue { schema, value } } in headers {
            let value = self.header.convert(topic, schema.as_ref(), value);
            let value = value.map_err(|error| fail(error, Part::Header(Arc::clone(name))))?;
            converted.push(Header { name: Arc::clone(name), value });
        }
        Ok(Message {
            topic: Arc::clone(topic),
            partition: *partition,
            key,
            value,
            headers: converted,
            timestamp_ms: *timestamp_ms,
        })
    }

    /// The id that the registry has given the schema that was asked for, to the
    /// converter of this part.
    pub fn learn(&mut self, part: &Part, schema: &UnknownSchema, id: u32) {
        match (part, &mut self.header) {
            (Part::Key, _) => self.key.learn(schema, id),
            (Part::Value | Part::Member(_), _) => self.value.learn(schema, id),
            (Part::Header(_), HeaderConverter::Of(header)) => header.learn(schema, id),
            (Part::Header(_), HeaderConverter::Simple) => {}
        }
    }
}
