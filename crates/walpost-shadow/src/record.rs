use std::sync::Arc;

use serde_json::Value;
use walpost_event::{Bytes, Message, Position};

use crate::difference::Difference;

/// Header that the router writes the event's id to.
const ID_HEADER: &str = "id";

/// A record that Debezium has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Where it is.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// All else; a timestamp of the broker's own is none.
    pub message: Box<Message>,
}

/// A record that Walpost would write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Of its event.
    pub position: Position,
    /// The record, without headers of Walpost's own.
    pub message: Box<Message>,
}

/// An event that Walpost makes no record of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// Of the event.
    pub position: Position,
    /// Its id, where it has one.
    pub id: Option<Bytes>,
    /// The class of reason; where it is parked, as `walpost parked` names it.
    pub reason: &'static str,
    /// What was wrong; no contents.
    pub detail: String,
}

/// What becomes of an event in Walpost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A record.
    Made(Expected),
    /// It is parked.
    Parked(Parked),
    /// Its schema has no id: Debezium, which registers them, has not.
    Unregistered(Parked),
}

/// What is to be told of one record or pair of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Both have it, and not alike.
    Different {
        /// Of Walpost.
        expected: Expected,
        /// Of Debezium.
        observed: Observed,
        /// In what.
        differences: Vec<Difference>,
    },
    /// Debezium has published what Walpost would park.
    WouldPark {
        /// Of Walpost.
        parked: Parked,
        /// Of Debezium.
        observed: Observed,
    },
    /// Walpost does not find the schema that its record would have.
    Unregistered {
        /// Of Walpost.
        event: Parked,
        /// Of Debezium, where it has one.
        observed: Option<Observed>,
    },
    /// Debezium's alone.
    Missing(Observed),
    /// Walpost's alone.
    Extra(Expected),
    /// Debezium has written it before.
    Duplicate(Observed),
}

impl Event {
    pub(crate) fn topic(&self) -> Option<&Arc<str>> {
        match self {
            Self::Made(expected) => Some(&expected.message.topic),
            Self::Parked(_) | Self::Unregistered(_) => None,
        }
    }

    /// What it takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Made(expected) => expected.message.size_bytes(),
            Self::Parked(event) | Self::Unregistered(event) => event.detail.len(),
        }
    }

    pub(crate) fn id(&self) -> Option<Bytes> {
        match self {
            Self::Made(expected) => id(&expected.message),
            Self::Parked(event) | Self::Unregistered(event) => event.id.as_ref().map(plain),
        }
    }
}

/// The event's id as text, whatever the converter of headers writes around it.
pub(crate) fn id(message: &Message) -> Option<Bytes> {
    let header = message.headers.iter().find(|header| &*header.name == ID_HEADER)?;
    header.value.as_ref().filter(|value| !value.is_empty()).map(plain)
}

/// Out of quotes, or of an object of JSON with its schema.
fn plain(id: &Bytes) -> Bytes {
    if !matches!(id.first(), Some(b'"' | b'{')) {
        return id.clone();
    }
    let parsed = serde_json::from_slice::<Value>(id).unwrap_or_default();
    let inner = if parsed.is_object() { &parsed["payload"] } else { &parsed };
    match inner {
        Value::String(text) => text.clone().into(),
        Value::Number(number) => number.to_string().into(),
        _ => id.clone(),
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use walpost_event::{Header, Headers, Lsn};

    use super::*;

    pub(crate) fn message(topic: &str, id: &str, value: &str) -> Message {
        let mut headers = Headers::new();
        if !id.is_empty() {
            headers.push(Header { name: ID_HEADER.into(), value: Some(id.to_owned().into()) });
        }
        Message {
            topic: topic.into(),
            partition: None,
            key: Some("k".into()),
            value: Some(value.to_owned().into()),
            headers,
            timestamp_ms: Some(1),
        }
    }

    /// An event with its position.
    pub(crate) fn made(position: u64, message: Message) -> Event {
        let position = Position { commit_lsn: Lsn::from(position), ordinal: 0 };
        Event::Made(Expected { position, message: Box::new(message) })
    }

    pub(crate) fn observed(offset: i64, message: Message) -> Observed {
        Observed { partition: 0, offset, message: Box::new(message) }
    }

    #[test]
    fn an_id_is_the_same_whatever_is_written_around_it() {
        for text in [
            "7",
            "\"7\"",
            r#"{"schema":{"type":"string","optional":false},"payload":"7"}"#,
            r#"{"schema":{"type":"int64","optional":false},"payload":7}"#,
        ] {
            assert_eq!(id(&message("t", text, "")).as_deref(), Some(&b"7"[..]), "{text}");
        }
        for text in ["\"7", "{7}", "{}"] {
            assert_eq!(id(&message("t", text, "")).as_deref(), Some(text.as_bytes()), "{text}");
        }
        assert_eq!(id(&message("t", "", "")), None);
    }
}
