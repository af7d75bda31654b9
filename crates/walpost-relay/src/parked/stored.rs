use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value as Json;
use uuid::Uuid;
use walpost_event::{
    Column, Generation, Header, Headers, Message, Position, Relation, ReplicaIdentity, Row,
};

use super::{Aggregate, Contents, ParkReason, Parking};

/// A row of the table, with what it keeps of its event.
pub(crate) struct StoredEvent {
    pub(crate) id: i64,
    pub(crate) generation: Generation,
    pub(crate) position: Position,
    /// Of those that keep an order.
    pub(crate) aggregate: Option<Aggregate>,
    /// Outbox table, or prefix of the logical message.
    pub(crate) source: String,
    pub(crate) id_space: Option<Uuid>,
    pub(crate) event_id: Option<String>,
    /// Why it is parked.
    pub(crate) reason: ParkReason,
    /// The operator wants its row to be read from the outbox table.
    pub(crate) from_table: bool,
    /// The outbox row, where it was read, or why there is none to be sent.
    pub(crate) row: Option<Result<Row, Parking>>,
    /// `None` for what is in no form that we write.
    pub(crate) contents: Option<Contents>,
}

/// The columns that hold an event.
pub(crate) struct StoredContents {
    pub(crate) topic: Option<String>,
    pub(crate) partition: Option<i32>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Option<Json>,
    pub(crate) timestamp_ms: Option<i64>,
    pub(crate) row: Option<Json>,
    pub(crate) message: Option<Vec<u8>>,
}

impl StoredContents {
    /// What they hold; a row is one of `source`.
    pub(crate) fn read(self, source: &str) -> Option<Contents> {
        match self {
            Self { topic: Some(topic), partition, key, value, headers, timestamp_ms, .. } => {
                Some(Contents::Record(Message {
                    topic: topic.into(),
                    partition,
                    key: key.map(Bytes::from),
                    value: value.map(Bytes::from),
                    headers: read_headers(&headers?)?,
                    timestamp_ms,
                }))
            }
            Self { row: Some(columns), .. } => Some(Contents::Row(read_row(&columns, source)?)),
            Self { message: Some(content), .. } => Some(Contents::Message(content.into())),
            _ => Some(Contents::LeftOut),
        }
    }
}

fn read_headers(headers: &Json) -> Option<Headers> {
    let header = |member: &Json| {
        Some(Header { name: member["name"].as_str()?.into(), value: read_bytes(member).ok()? })
    };
    headers.as_array()?.iter().map(header).collect()
}

/// What [`Contents::row_columns`] wrote.
fn read_row(columns: &Json, source: &str) -> Option<Row> {
    let columns = columns.as_array()?;
    let column = |member: &Json| {
        Some(Column {
            name: member["name"].as_str()?.into(),
            type_oid: member["type_oid"].as_u64()?.try_into().ok()?,
            type_modifier: member["type_modifier"].as_i64()?.try_into().ok()?,
            is_key: false,
        })
    };
    let (schema, name) = source.split_once('.').unwrap_or(("", source));
    let relation = Relation {
        // Not of the table as it is now.
        oid: 0,
        schema: schema.to_owned(),
        name: name.to_owned(),
        replica_identity: ReplicaIdentity::Default,
        columns: columns.iter().map(column).collect::<Option<_>>()?,
    };
    let values = columns.iter().map(read_bytes).collect::<Result<Vec<_>, NotOurs>>().ok()?;
    let buffer: Vec<u8> = values.iter().flatten().flat_map(|value| value.iter().copied()).collect();
    let mut builder = Row::builder(Arc::new(relation), buffer.into());
    let mut start = 0;
    for (member, value) in columns.iter().zip(values) {
        let len = value.as_ref().map_or(0, Bytes::len);
        let undecodable_at = member["undecodable_at"].as_u64().and_then(|at| at.try_into().ok());
        match (value, undecodable_at) {
            (Some(_), Some(at)) => builder.push_undecodable(start, len, at),
            (Some(_), None) if member["binary"] == true => builder.push_binary(start, len),
            (Some(_), None) => builder.push_text(start, len),
            (None, _) if member["unchanged"] == true => builder.push_unchanged(),
            (None, _) => builder.push_null(),
        }
        start += len;
    }
    Some(builder.finish())
}

/// Of a form that nothing here writes.
struct NotOurs;

/// `text`, or `hex`, or neither for a null.
fn read_bytes(member: &Json) -> Result<Option<Bytes>, NotOurs> {
    match (&member["text"], &member["hex"]) {
        (Json::String(text), _) => Ok(Some(Bytes::copy_from_slice(text.as_bytes()))),
        (_, Json::String(hex)) => Ok(Some(from_hex(hex).ok_or(NotOurs)?.into())),
        (Json::Null, Json::Null) => Ok(None),
        _ => Err(NotOurs),
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
            _ => None,
        })
        .collect()
}
