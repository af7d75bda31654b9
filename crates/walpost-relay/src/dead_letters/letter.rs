//! What a dead letter says.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use uuid::Uuid;
use walpost_event::{Generation, Header, Headers, Message, Position, Row, Value};

use crate::{
    headers::{DEAD_LETTER_HEADER, ID_HEADER, OWN, SOURCE_HEADER, parked_replay},
    parked::Contents,
};

/// How the names of Kafka Connect's own headers of dead letters begin.
const CONNECT: &str = "__connect.errors.";
/// What is left of a longer text where the topic refuses the whole event.
const BARE_MAX_CHARS: usize = 1_000;
/// A longer key is left out there.
const BARE_KEY_MAX_BYTES: usize = 4_096;

/// A parked event whose dead letter is to be written.
pub(super) struct Letter {
    pub(super) id: i64,
    pub(super) generation: Generation,
    pub(super) position: Position,
    /// Outbox table, or prefix of the logical message.
    pub(super) source: String,
    pub(super) id_space: Option<Uuid>,
    pub(super) event_id: Option<String>,
    pub(super) aggregate_type: Option<String>,
    pub(super) aggregate_id: Option<String>,
    pub(super) reason: String,
    pub(super) detail: Option<String>,
    pub(super) attempts: i32,
    /// `None` for what is in no form that we write.
    pub(super) contents: Option<Contents>,
}

/// How much of the event its dead letter has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// All that there is.
    Whole,
    /// Neither value nor headers of its own, as the topic refuses the whole, and
    /// why.
    Bare(String),
}

/// What is the same in all dead letters of a pipeline.
#[derive(Clone)]
pub(super) struct Envelope {
    pub(super) topic: Arc<str>,
    pub(super) pipeline: String,
    /// The events' records have the header of the source.
    pub(super) has_source_header: bool,
    /// Columns of a row that becomes no record.
    pub(super) payload_column: String,
    pub(super) key_column: String,
}

impl Letter {
    pub(super) fn size_bytes(&self) -> usize {
        self.contents.as_ref().map_or(0, Contents::size_bytes)
    }

    /// Its record. The key decides the partition, whatever partition the event
    /// names: the topic may have fewer. Without a timestamp: that of the event
    /// may be why it was refused, or beyond what the topic retains.
    pub(super) fn message(&self, form: &Form, envelope: &Envelope) -> Message {
        let (key, value, mut headers) = self.body(envelope);
        let left_out = match form {
            Form::Whole => match self.contents {
                Some(Contents::LeftOut) | None => Some("the parked row does not have it".into()),
                Some(_) => None,
            },
            Form::Bare(why) => Some(format!("the topic refuses the whole event: {why}")),
        };
        let (key, value) = match form {
            Form::Whole => (key, value),
            Form::Bare(_) => {
                headers.clear();
                (key.filter(|key| key.len() <= BARE_KEY_MAX_BYTES), None)
            }
        };
        let bound = |text: &str| match form {
            Form::Whole => text.to_owned(),
            Form::Bare(_) => text.chars().take(BARE_MAX_CHARS).collect(),
        };
        if !headers.iter().any(|header| &*header.name == ID_HEADER)
            && let Some(id) = &self.event_id
        {
            headers.insert(0, header(ID_HEADER, bound(id)));
        }
        for (name, text) in self.marks(envelope) {
            headers.push(header(&name, bound(&text)));
        }
        if let Some(why) = left_out {
            headers.push(header(&own("left-out"), bound(&why)));
        }
        let topic = envelope.topic.clone();
        Message { topic, partition: None, key, value, headers, timestamp_ms: None }
    }

    /// Key, value and headers of the record that the event would have become, or
    /// else of what it was made of.
    fn body(&self, envelope: &Envelope) -> (Option<Bytes>, Option<Bytes>, Headers) {
        match &self.contents {
            Some(Contents::Record(message)) => {
                let mut headers = message.headers.clone();
                // Ours would say that this is the event's record; others', that
                // another one's error is its.
                headers.retain(|header| {
                    !header.name.starts_with(OWN) && !header.name.starts_with(CONNECT)
                });
                (message.key.clone(), message.value.clone(), headers)
            }
            Some(Contents::Row(row)) => {
                let column = |name| column(row, name);
                (column(&envelope.key_column), column(&envelope.payload_column), Headers::new())
            }
            Some(Contents::Message(content)) => (None, Some(content.clone()), Headers::new()),
            Some(Contents::LeftOut) | None => (None, None, Headers::new()),
        }
    }

    /// Names and values of the headers that tell what happened.
    fn marks<'a>(&'a self, envelope: &'a Envelope) -> Vec<(String, Cow<'a, str>)> {
        let row = parked_replay(self.id, self.generation, self.position);
        let space = self.id_space.filter(|_| envelope.has_source_header);
        let source = space.map(|id| (SOURCE_HEADER.to_owned(), id.to_string().into()));
        let mut marks: Vec<(String, Cow<'a, str>)> =
            vec![(DEAD_LETTER_HEADER.to_owned(), row.into())];
        marks.extend(source);
        marks.extend([
            (own("source"), self.source.as_str().into()),
            (own("reason"), self.reason.as_str().into()),
            (own("attempts"), self.attempts.to_string().into()),
        ]);
        let mut add = |name: String, value: Option<Cow<'a, str>>| {
            marks.extend(value.map(|value| (name, value)));
        };
        add(own("aggregate-type"), self.aggregate_type.as_deref().map(Cow::from));
        add(own("aggregate-id"), self.aggregate_id.as_deref().map(Cow::from));
        if let Some(Contents::Record(message)) = &self.contents {
            add(connect("topic"), Some((&*message.topic).into()));
            let partition = message.partition.map(|partition| partition.to_string().into());
            add(connect("partition"), partition);
        }
        add(connect("connector.name"), Some(envelope.pipeline.as_str().into()));
        add(connect("stage"), stage(&self.reason).map(Cow::from));
        add(connect("exception.message"), self.detail.as_deref().map(Cow::from));
        marks
    }
}

fn own(name: &str) -> String {
    format!("{DEAD_LETTER_HEADER}-{name}")
}

fn connect(name: &str) -> String {
    format!("{CONNECT}{name}")
}

fn header(name: &str, value: String) -> Header {
    Header { name: name.into(), value: Some(value.into()) }
}

/// What Kafka Connect calls the step at which the event was stopped. One that
/// waits behind another was stopped at none.
fn stage(reason: &str) -> Option<&'static str> {
    match reason {
        "unroutable" => Some("TRANSFORMATION"),
        "undecodable" => Some("VALUE_CONVERTER"),
        "oversize" => Some("TASK_POLL"),
        "rejected" | "no_topic" => Some("KAFKA_PRODUCE"),
        _ => None,
    }
}

/// A column as PostgreSQL gives it.
fn column(row: &Row, name: &str) -> Option<Bytes> {
    match row.value(row.relation().column_index(name)?) {
        Value::Text(bytes) | Value::Binary(bytes) => Some(Bytes::copy_from_slice(bytes)),
        Value::Undecodable { bytes, .. } => Some(Bytes::copy_from_slice(bytes)),
        Value::Null | Value::Unchanged => None,
    }
}

#[cfg(test)]
mod tests {
    use walpost_event::{Column, Lsn, Relation, ReplicaIdentity, type_oid};

    use super::*;

    fn envelope() -> Envelope {
        Envelope {
            topic: "dead".into(),
            pipeline: "shop".to_owned(),
            has_source_header: true,
            payload_column: "payload".to_owned(),
            key_column: "aggregateid".to_owned(),
        }
    }

    fn letter(reason: &str, contents: Option<Contents>) -> Letter {
        Letter {
            id: 7,
            generation: Generation::from(0x1f),
            position: Position { commit_lsn: Lsn::from(0x10), ordinal: 3 },
            source: "walpost.outbox".to_owned(),
            id_space: Some(Uuid::nil()),
            event_id: Some("e1".to_owned()),
            aggregate_type: Some("order".to_owned()),
            aggregate_id: Some("a".to_owned()),
            reason: reason.to_owned(),
            detail: Some("as it is".to_owned()),
            attempts: 2,
            contents,
        }
    }

    fn record(headers: &[(&str, &str)]) -> Contents {
        Contents::Record(Message {
            topic: "orders".into(),
            partition: Some(4),
            key: Some("k".into()),
            value: Some("v".into()),
            headers: headers
                .iter()
                .map(|(name, value)| header(name, (*value).to_owned()))
                .collect(),
            timestamp_ms: Some(5),
        })
    }

    fn row() -> Contents {
        let columns = ["payload", "aggregateid", "aggregatetype"].map(|name| Column {
            name: name.into(),
            type_oid: type_oid::TEXT,
            type_modifier: -1,
            is_key: false,
        });
        let relation = Relation {
            oid: 0,
            schema: "walpost".to_owned(),
            name: "outbox".to_owned(),
            replica_identity: ReplicaIdentity::Default,
            columns: columns.into(),
        };
        Contents::Row(Row::from_text(relation.into(), [Some("{}"), Some("a"), None]))
    }

    fn told(message: &Message) -> Vec<(String, String)> {
        let text = |value: &Option<Bytes>| {
            String::from_utf8_lossy(value.as_deref().unwrap_or(b"<null>")).into_owned()
        };
        let header = |header: &Header| (header.name.to_string(), text(&header.value));
        message.headers.iter().map(header).collect()
    }

    fn header_of(message: &Message, name: &str) -> Option<String> {
        told(message).into_iter().find(|(found, _)| found == name).map(|(_, value)| value)
    }

    #[test]
    fn a_record_keeps_what_it_had_and_says_what_happened_to_it() {
        let before = [
            ("id", "e1"),
            ("eventType", "Placed"),
            ("walpost-position", "0000001f:0/10:3"),
            ("walpost-replay", "parked:6:0000001f:0/10:3"),
            ("__connect.errors.topic", "another"),
        ];
        let message = letter("rejected", Some(record(&before))).message(&Form::Whole, &envelope());
        assert_eq!(
            (&*message.topic, message.partition, message.timestamp_ms),
            ("dead", None, None)
        );
        assert_eq!(message.key.as_deref(), Some(&b"k"[..]));
        assert_eq!(message.value.as_deref(), Some(&b"v"[..]));
        let expected = [
            ("id", "e1"),
            ("eventType", "Placed"),
            ("walpost-dead-letter", "parked:7:0000001f:0/10:3"),
            ("walpost-source", "00000000-0000-0000-0000-000000000000"),
            ("walpost-dead-letter-source", "walpost.outbox"),
            ("walpost-dead-letter-reason", "rejected"),
            ("walpost-dead-letter-attempts", "2"),
            ("walpost-dead-letter-aggregate-type", "order"),
            ("walpost-dead-letter-aggregate-id", "a"),
            ("__connect.errors.topic", "orders"),
            ("__connect.errors.partition", "4"),
            ("__connect.errors.connector.name", "shop"),
            ("__connect.errors.stage", "KAFKA_PRODUCE"),
            ("__connect.errors.exception.message", "as it is"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(told(&message), expected);

        let without = Envelope { has_source_header: false, ..envelope() };
        let message = letter("rejected", Some(record(&before))).message(&Form::Whole, &without);
        assert_eq!(header_of(&message, "walpost-source"), None);
    }

    #[test]
    fn what_becomes_no_record_has_its_payload_as_it_is() {
        let message = letter("unroutable", Some(row())).message(&Form::Whole, &envelope());
        assert_eq!(message.key.as_deref(), Some(&b"a"[..]));
        assert_eq!(message.value.as_deref(), Some(&b"{}"[..]));
        assert_eq!(header_of(&message, "id").as_deref(), Some("e1"));
        assert_eq!(header_of(&message, "__connect.errors.topic"), None);
        assert_eq!(header_of(&message, "walpost-dead-letter-left-out"), None);

        let emitted = Contents::Message(Bytes::from_static(b"no json"));
        let message = letter("undecodable", Some(emitted)).message(&Form::Whole, &envelope());
        assert_eq!((message.key, message.value.as_deref()), (None, Some(&b"no json"[..])));

        for contents in [Some(Contents::LeftOut), None] {
            let message = letter("oversize", contents).message(&Form::Whole, &envelope());
            assert_eq!((&message.key, &message.value), (&None, &None));
            assert_eq!(header_of(&message, "id").as_deref(), Some("e1"));
            let left_out = header_of(&message, "walpost-dead-letter-left-out").unwrap();
            assert_eq!(left_out, "the parked row does not have it");
        }
    }

    #[test]
    fn where_the_topic_refuses_the_whole_what_is_left_is_bounded() {
        let mut letter = letter("behind", Some(record(&[("id", "e1"), ("big", "x")])));
        letter.event_id = Some("é".repeat(5_000));
        let bare = Form::Bare("y".repeat(5_000));
        let message = letter.message(&bare, &envelope());
        assert_eq!((message.key.as_deref(), message.value.as_deref()), (Some(&b"k"[..]), None));
        assert_eq!(header_of(&message, "id"), Some("é".repeat(BARE_MAX_CHARS)));
        assert_eq!(header_of(&message, "big"), None);
        assert_eq!(header_of(&message, "__connect.errors.stage"), None);
        let left_out = header_of(&message, "walpost-dead-letter-left-out").unwrap();
        assert!(left_out.starts_with("the topic refuses the whole event: yyy"), "{left_out}");
        assert!(message.size_bytes() < 20_000);

        let Some(Contents::Record(record)) = &mut letter.contents else { panic!("a record") };
        record.key = Some(vec![b'k'; BARE_KEY_MAX_BYTES + 1].into());
        assert_eq!(letter.message(&bare, &envelope()).key, None);
    }
}
