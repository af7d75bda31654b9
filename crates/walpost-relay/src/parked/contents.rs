use bytes::Bytes;
use serde_json::{Map, Value as Json};
use walpost_event::{Header, Message, Row, Value};

use super::Texts;

/// What a parked row keeps of its event, so that it can be sent on when the WAL
/// and the outbox row are gone.
pub(crate) enum Contents {
    /// The record that it would have become.
    Record(Message),
    /// The columns of a row that becomes no record.
    Row(Row),
    /// The content of a logical message that becomes no record.
    Message(Bytes),
    /// Nothing, because it is too large.
    LeftOut,
}

impl Contents {
    /// Bytes of all values.
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Self::Record(message) => message.size_bytes(),
            Self::Row(row) => row.size_bytes(),
            Self::Message(content) => content.len(),
            Self::LeftOut => 0,
        }
    }

    pub(super) fn record(&self) -> Option<&Message> {
        match self {
            Self::Record(message) => Some(message),
            Self::Row(_) | Self::Message(_) | Self::LeftOut => None,
        }
    }

    /// The record's headers in order: `[{"name": "id", "text": "…"}]`.
    pub(super) fn record_headers(&self, texts: Texts) -> Option<Json> {
        let header = |header: &Header| {
            let mut member = named(&header.name, texts);
            if let Some(value) = &header.value {
                add_bytes(&mut member, value, texts);
            }
            Json::Object(member)
        };
        Some(Json::Array(self.record()?.headers.iter().map(header).collect()))
    }

    /// The row's columns in order:
    /// `[{"name": "id", "type_oid": 2950, "type_modifier": -1, "text": "…"}]`.
    pub(super) fn row_columns(&self, texts: Texts) -> Option<Json> {
        let Self::Row(row) = self else { return None };
        let columns = row.relation().columns.iter().enumerate().map(|(index, column)| {
            let mut member = named(&column.name, texts);
            member.insert("type_oid".to_owned(), column.type_oid.into());
            member.insert("type_modifier".to_owned(), column.type_modifier.into());
            match row.value(index) {
                Value::Null => {}
                Value::Unchanged => _ = member.insert("unchanged".to_owned(), true.into()),
                Value::Text(text) => add_bytes(&mut member, text, texts),
                Value::Binary(bytes) => {
                    member.insert("binary".to_owned(), true.into());
                    add_bytes(&mut member, bytes, texts);
                }
                Value::Undecodable { bytes, at } => {
                    member.insert("undecodable_at".to_owned(), at.into());
                    member.insert("hex".to_owned(), hex(bytes).into());
                }
            }
            Json::Object(member)
        });
        Some(Json::Array(columns.collect()))
    }

    pub(super) fn message_content(&self) -> Option<&[u8]> {
        match self {
            Self::Message(content) => Some(content),
            Self::Record(_) | Self::Row(_) | Self::LeftOut => None,
        }
    }
}

fn named(name: &str, texts: Texts) -> Map<String, Json> {
    let mut member = Map::new();
    member.insert("name".to_owned(), texts.of(name).into());
    member
}

/// Adds `text`, or `hex` where `jsonb` could not hold the text.
fn add_bytes(member: &mut Map<String, Json>, bytes: &[u8], texts: Texts) {
    match std::str::from_utf8(bytes) {
        Ok(text) if texts.of(text) == text => member.insert("text".to_owned(), text.into()),
        _ => member.insert("hex".to_owned(), hex(bytes).into()),
    };
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use walpost_event::{Column, Relation, ReplicaIdentity};

    use super::*;
    use crate::parked::stored::StoredContents;

    type Cell = (String, u32, i32, Kind);

    #[derive(Clone, Debug)]
    enum Kind {
        Null,
        Text(Vec<u8>),
        Binary(Vec<u8>),
    }

    fn row(cells: &[Cell]) -> Row {
        let columns = cells.iter().map(|(name, type_oid, type_modifier, _)| Column {
            name: name.as_str().into(),
            type_oid: *type_oid,
            type_modifier: *type_modifier,
            is_key: false,
        });
        let relation = Relation {
            oid: 7,
            schema: "shop".to_owned(),
            name: "outbox".to_owned(),
            replica_identity: ReplicaIdentity::Default,
            columns: columns.collect(),
        };
        let mut buffer = Vec::new();
        for (.., kind) in cells {
            if let Kind::Text(bytes) | Kind::Binary(bytes) = kind {
                buffer.extend_from_slice(bytes);
            }
        }
        let mut builder = Row::builder(Arc::new(relation), buffer.into());
        let mut start = 0;
        for (.., kind) in cells {
            match kind {
                Kind::Null => builder.push_null(),
                Kind::Text(bytes) => builder.push_text(start, bytes.len()),
                Kind::Binary(bytes) => builder.push_binary(start, bytes.len()),
            }
            if let Kind::Text(bytes) | Kind::Binary(bytes) = kind {
                start += bytes.len();
            }
        }
        builder.finish()
    }

    fn stored(topic: Option<&str>, headers: Option<Json>, row: Option<Json>) -> StoredContents {
        StoredContents {
            topic: topic.map(Into::into),
            partition: None,
            key: None,
            value: None,
            headers,
            timestamp_ms: None,
            row,
            message: None,
        }
    }

    #[test]
    fn what_is_in_no_form_of_ours_is_not_read() {
        assert!(matches!(stored(None, None, None).read("s"), Some(Contents::LeftOut)));
        for columns in [r#"7"#, r#"[{"type_oid": 1}]"#, r#"[{"name": "a", "type_oid": 1}]"#] {
            assert!(stored(None, None, serde_json::from_str(columns).ok()).read("s").is_none());
        }
        for headers in [r#"{}"#, r#"[{"name": "a", "hex": "f"}]"#, r#"[{"name": "a", "text": 1}]"#]
        {
            let headers = serde_json::from_str(headers).ok();
            assert!(stored(Some("t"), headers, None).read("s").is_none());
        }
    }

    fn kind() -> impl Strategy<Value = Kind> {
        let bytes = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20),
            any::<String>().prop_map(String::into_bytes),
        ];
        prop_oneof![
            Just(Kind::Null),
            bytes.clone().prop_map(Kind::Text),
            bytes.prop_map(Kind::Binary)
        ]
    }

    proptest! {
        #[test]
        fn a_row_can_be_rebuilt_from_its_columns(
            cells in prop::collection::vec(("[a-z\"é]{1,8}", any::<u32>(), any::<i32>(), kind()), 0..8)
        ) {
            let before = row(&cells);
            let columns = Contents::Row(before.clone()).row_columns(Texts::Whole).unwrap();
            // `jsonb` takes no NUL.
            let texts = columns.as_array().unwrap().iter().filter_map(|column| column["text"].as_str());
            prop_assert!(texts.into_iter().all(|text| !text.contains('\0')));
            let stored = stored(None, None, serde_json::from_str(&columns.to_string()).ok());
            let Some(Contents::Row(after)) = stored.read("shop.outbox") else { panic!("no row") };
            prop_assert_eq!(&after.relation().columns, &before.relation().columns);
            prop_assert_eq!((&*after.relation().schema, &*after.relation().name), ("shop", "outbox"));
            for index in 0..cells.len() {
                prop_assert!(after.value(index) == before.value(index));
            }
        }
    }

    #[test]
    fn a_header_without_a_value_is_told_from_an_empty_one() {
        let header = |name: &str, value: Option<&'static [u8]>| Header {
            name: name.into(),
            value: value.map(Bytes::from_static),
        };
        let message = Message {
            topic: "t".into(),
            partition: None,
            key: None,
            value: None,
            headers: [header("a", None), header("b", Some(b"")), header("b", Some(b"\xff\0"))]
                .into_iter()
                .collect(),
            timestamp_ms: None,
        };
        let headers = Contents::Record(message.clone()).record_headers(Texts::Whole).unwrap();
        let stored = stored(Some("t"), Some(headers.clone()), None);
        assert!(matches!(stored.read("s"), Some(Contents::Record(read)) if read == message));
        let expected = r#"[{"name":"a"},{"name":"b","text":""},{"hex":"ff00","name":"b"}]"#;
        assert_eq!(headers, serde_json::from_str::<Json>(expected).unwrap());
    }
}
