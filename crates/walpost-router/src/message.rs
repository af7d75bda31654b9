use std::{fmt, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;
use walpost_event::{Column, Relation, ReplicaIdentity, Row, type_oid};

use crate::error::{RouteError, RouteErrorKind};

/// Schema of the relation of a row that was a logical message.
pub const MESSAGE_SCHEMA: &str = "pg_catalog";

/// Name of the relation of a row that was a logical message.
pub const MESSAGE_RELATION: &str = "pg_logical_emit_message";

/// The member that says how the payload is encoded; no column.
const PAYLOAD_ENCODING: &str = "payload_encoding";

/// As many as a table can have columns.
const MAX_MEMBERS: usize = 1600;

/// Relations remembered, one for each set of members and their types.
const MAX_CACHED_RELATIONS: usize = 32;

/// Is `relation` one of a logical message?
pub(crate) fn is_message(relation: &Relation) -> bool {
    relation.oid == 0 && relation.schema == MESSAGE_SCHEMA && relation.name == MESSAGE_RELATION
}

/// Makes rows of logical messages.
#[derive(Clone, Debug)]
pub(crate) struct MessageRows {
    payload: Box<str>,
    relations: Vec<Arc<Relation>>,
}

impl MessageRows {
    /// `payload` is the member to which `payload_encoding` applies.
    pub(crate) fn new(payload: &str) -> Self {
        Self { payload: payload.into(), relations: Vec::new() }
    }

    pub(crate) fn row(&mut self, content: &[u8]) -> Result<Row, RouteError> {
        let object: Object<'_> = serde_json::from_slice(content)
            .map_err(|_| error(RouteErrorKind::NotAnObject { len: content.len() }, None))?;
        let mut members = object.0;
        check_members(&members)?;
        let is_base64 = take_encoding(&mut members)?;
        let cells = members
            .iter()
            .map(|(name, json)| {
                let is_bytes = is_base64 && **name == *self.payload;
                let cell = if is_bytes { read_base64(json) } else { read_text(json) };
                cell.map_err(|kind| error(kind, Some(name)))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(build_row(self.relation(&members, &cells), &cells))
    }

    fn relation(&mut self, members: &[Member<'_>], cells: &[Cell]) -> Arc<Relation> {
        let is_of_shape = |relation: &&Arc<Relation>| {
            let shape = members.iter().zip(cells).map(|((name, _), cell)| (&**name, cell.type_oid));
            shape.eq(relation.columns.iter().map(|column| (&*column.name, column.type_oid)))
        };
        if let Some(known) = self.relations.iter().find(is_of_shape) {
            return Arc::clone(known);
        }
        let columns = members.iter().zip(cells).map(|((name, _), cell)| Column {
            name: name.as_str().into(),
            type_oid: cell.type_oid,
            type_modifier: -1,
            is_key: false,
        });
        let relation = Arc::new(Relation {
            oid: 0,
            schema: MESSAGE_SCHEMA.into(),
            name: MESSAGE_RELATION.into(),
            replica_identity: ReplicaIdentity::Nothing,
            columns: columns.collect(),
        });
        if self.relations.len() >= MAX_CACHED_RELATIONS {
            self.relations.remove(0);
        }
        self.relations.push(Arc::clone(&relation));
        relation
    }
}

/// A member of a JSON object and its value, unread.
pub(crate) type Member<'a> = (String, &'a RawValue);

/// A JSON object's members in order, their values unread.
pub(crate) struct Object<'a>(pub(crate) Vec<Member<'a>>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// The value of one member.
struct Cell {
    type_oid: u32,
    content: Content,
}

enum Content {
    Null,
    Text(String),
    Bytes(Vec<u8>),
}

fn check_members(members: &[Member<'_>]) -> Result<(), RouteError> {
    if members.len() > MAX_MEMBERS {
        return Err(error(RouteErrorKind::TooManyMembers { max_members: MAX_MEMBERS }, None));
    }
    for (index, (name, _)) in members.iter().enumerate() {
        if members[..index].iter().any(|(earlier, _)| earlier == name) {
            return Err(error(RouteErrorKind::DuplicateMember, Some(name)));
        }
    }
    Ok(())
}

/// Takes the encoding out of the members: is the payload base64?
fn take_encoding(members: &mut Vec<Member<'_>>) -> Result<bool, RouteError> {
    let Some(index) = members.iter().position(|(name, _)| name == PAYLOAD_ENCODING) else {
        return Ok(false);
    };
    let (name, json) = members.remove(index);
    match json.get() {
        "null" => Ok(false),
        "\"base64\"" => Ok(true),
        _ => Err(error(RouteErrorKind::UnknownPayloadEncoding, Some(&name))),
    }
}

fn read_text(json: &RawValue) -> Result<Cell, RouteErrorKind> {
    let text = json.get();
    let type_oid = match text.as_bytes().first() {
        Some(b'n') => return Ok(Cell { type_oid: type_oid::TEXT, content: Content::Null }),
        Some(b'"') => {
            let content = Content::Text(read_string(text)?);
            return Ok(Cell { type_oid: type_oid::TEXT, content });
        }
        Some(b't' | b'f') => type_oid::BOOL,
        Some(b'{' | b'[') => type_oid::JSON,
        _ if text.parse::<i32>().is_ok() => type_oid::INT4,
        _ if text.parse::<i64>().is_ok() => type_oid::INT8,
        _ => type_oid::NUMERIC,
    };
    Ok(Cell { type_oid, content: Content::Text(text.to_owned()) })
}

fn read_base64(json: &RawValue) -> Result<Cell, RouteErrorKind> {
    let content = match json.get() {
        "null" => Content::Null,
        text if text.starts_with('"') => {
            let decoded = STANDARD.decode(read_string(text)?);
            Content::Bytes(decoded.map_err(|_| RouteErrorKind::MalformedBase64)?)
        }
        _ => return Err(RouteErrorKind::MalformedBase64),
    };
    Ok(Cell { type_oid: type_oid::BYTEA, content })
}

/// The text of a JSON string.
pub(crate) fn read_string(json: &str) -> Result<String, RouteErrorKind> {
    serde_json::from_str(json).map_err(|_| RouteErrorKind::MalformedString)
}

fn build_row(relation: Arc<Relation>, cells: &[Cell]) -> Row {
    let mut buffer = Vec::new();
    for cell in cells {
        match &cell.content {
            Content::Null => {}
            Content::Text(text) => buffer.extend_from_slice(text.as_bytes()),
            Content::Bytes(bytes) => buffer.extend_from_slice(bytes),
        }
    }
    let mut row = Row::builder(relation, buffer.into());
    let mut start = 0;
    for cell in cells {
        match &cell.content {
            Content::Null => row.push_null(),
            Content::Text(text) => {
                row.push_text(start, text.len());
                start += text.len();
            }
            Content::Bytes(bytes) => {
                row.push_binary(start, bytes.len());
                start += bytes.len();
            }
        }
    }
    row.finish()
}

fn error(kind: RouteErrorKind, member: Option<&str>) -> RouteError {
    RouteError::in_message(kind, member)
}
