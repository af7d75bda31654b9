use std::sync::Arc;

use crate::{
    java_regex::GaveUp,
    message::{MESSAGE_RELATION, MESSAGE_SCHEMA},
    pattern::PatternError,
    placement::PlacementProblem,
    replacement::ReplacementError,
};

/// The router's configuration cannot be used. Names the Debezium key.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A key that must have a value has an empty one.
    #[error("configuring the router failed: {key} is empty, give it a value or leave it out")]
    Empty {
        /// The Debezium key.
        key: &'static str,
    },
    /// A value outside the legal ones.
    #[error("configuring the router failed: {key} is {value:?}, expected {expected}")]
    InvalidValue {
        /// The Debezium key.
        key: &'static str,
        /// Its value.
        value: String,
        /// The legal ones.
        expected: &'static str,
    },
    /// A key that the Outbox Event Router does not have.
    #[error("configuring the router failed: {key} is no key of the outbox event router")]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A key that Debezium no longer has.
    #[error("configuring the router failed: {key} was removed from debezium, use {successor}")]
    RemovedKey {
        /// The key.
        key: &'static str,
        /// What took its place.
        successor: &'static str,
    },
    /// A key whose feature Walpost does not have.
    #[error("configuring the router failed: {key} = {value:?} is not supported, remove it")]
    Unsupported {
        /// The Debezium key.
        key: &'static str,
        /// Its value.
        value: String,
    },
    /// `route.topic.regex` does not compile.
    #[error("compiling {key} = {value:?} failed, write it otherwise")]
    Regex {
        /// The Debezium key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it, and where.
        #[source]
        source: PatternError,
    },
    /// `route.topic.replacement` is no Java replacement, or names a group that
    /// the regex does not have.
    #[error("reading {key} = {value:?} failed")]
    Replacement {
        /// The Debezium key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        #[source]
        source: ReplacementError,
    },
    /// An entry of `table.fields.additional.placement`.
    #[error(
        "reading {entry:?} in {key} failed, expected column:placement[:alias] \
         with placement header, envelope or partition"
    )]
    Placement {
        /// The Debezium key.
        key: &'static str,
        /// The entry.
        entry: String,
        /// What is wrong with it.
        #[source]
        source: PlacementProblem,
    },
}

/// A row cannot be routed. Another row of the same table may well be: park this
/// one.
///
/// Names table and column, never a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("routing a row of {table} failed{}: {kind}", at_column(.column.as_deref()))]
pub struct RouteError {
    kind: RouteErrorKind,
    table: String,
    column: Option<Arc<str>>,
}

impl RouteError {
    pub(crate) fn new(
        kind: RouteErrorKind,
        relation: &walpost_event::Relation,
        column: Option<Arc<str>>,
    ) -> Self {
        Self { kind, table: format!("{}.{}", relation.schema, relation.name), column }
    }

    pub(crate) fn in_message(kind: RouteErrorKind, member: Option<&str>) -> Self {
        let table = format!("{MESSAGE_SCHEMA}.{MESSAGE_RELATION}");
        Self { kind, table, column: member.map(Into::into) }
    }

    /// Why.
    pub fn kind(&self) -> &RouteErrorKind {
        &self.kind
    }

    /// Schema and name of the table, joined by a dot.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Name of the column, where one is to blame.
    pub fn column(&self) -> Option<&str> {
        self.column.as_deref()
    }
}

fn at_column(column: Option<&str>) -> String {
    column.map(|column| format!(" at column {column}")).unwrap_or_default()
}

/// Why a row cannot be routed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteErrorKind {
    /// The table has no column of the name configured.
    #[error("there is no such column, name the right one in {key}")]
    MissingColumn {
        /// The Debezium key that names the column.
        key: &'static str,
    },
    /// The column that names the topic is NULL.
    #[error("the value that names the topic is NULL")]
    NullRouteValue,
    /// `route.topic.regex` backtracks too often at the value that names the topic.
    #[error("the value that names the topic cannot be matched with route.topic.regex: {0}")]
    TopicRegex(GaveUp),
    /// The column that names the topic is not UTF-8.
    #[error("the value that names the topic is not UTF-8")]
    RouteValueNotUtf8,
    /// An unchanged TOASTed value, which the WAL does not carry.
    #[error("the value is an unchanged TOASTed one and not in the WAL")]
    UnchangedValue,
    /// A text that has no UTF-8 form.
    #[error("{len} bytes are no text in the encoding of the database, from offset {at} on")]
    UndecodableValue {
        /// Bytes of the value.
        len: usize,
        /// Offset of the first byte that has no UTF-8 form.
        at: usize,
    },
    /// Text output of a `bytea` column that is not `\x` and hexadecimal digits.
    #[error("a bytea of {len} bytes of text is not hexadecimal, set bytea_output to hex")]
    MalformedBytea {
        /// Bytes of the text.
        len: usize,
    },
    /// Binary output of a type whose text Walpost cannot form.
    #[error("the type with oid {type_oid} came in binary, read the stream in text format")]
    BinaryNotSupported {
        /// OID of the type.
        type_oid: u32,
    },
    /// Binary output that the type cannot have.
    #[error("{len} bytes are no binary value of the type with oid {type_oid}")]
    MalformedBinary {
        /// OID of the type.
        type_oid: u32,
        /// Bytes of the value.
        len: usize,
    },
    /// A timestamp column of another type than `timestamp` and `timestamptz`.
    #[error(
        "the type with oid {type_oid} cannot be a record timestamp, \
         use a timestamp or timestamptz column"
    )]
    TimestampType {
        /// OID of the type.
        type_oid: u32,
    },
    /// A timestamp that is not in ISO format.
    #[error(
        "the timestamp cannot be read; write it in ISO 8601 with an offset, such as \
         2026-05-01T12:00:00Z"
    )]
    MalformedTimestamp,
    /// A timestamp that Kafka cannot hold: before 1970, or infinite.
    #[error("the timestamp is before 1970 or infinite, which no record can carry")]
    TimestampOutOfRange,
    /// A partition column of another type than `integer`.
    #[error("the type with oid {type_oid} cannot be a record's partition, use an integer column")]
    PartitionType {
        /// OID of the type.
        type_oid: u32,
    },
    /// A partition that is no number from 0.
    #[error("the partition is no number from 0 to 2147483647")]
    InvalidPartition,
    /// An UPDATE under `table.op.invalid.behavior = fatal`.
    #[error("the row was updated, and table.op.invalid.behavior is fatal")]
    UpdatedRow,
    /// A column of headers that holds no JSON object.
    #[error("{len} bytes of headers are no JSON object")]
    MalformedHeaders {
        /// Bytes of the value.
        len: usize,
    },
    /// Content of a logical message that is no JSON object.
    #[error("{len} bytes of a logical message are no JSON object")]
    NotAnObject {
        /// Bytes of the content.
        len: usize,
    },
    /// A member that occurs twice in a logical message.
    #[error("the member occurs more than once")]
    DuplicateMember,
    /// A string member of a logical message that is no Unicode text.
    #[error("the member is a string with an escape that is no Unicode text")]
    MalformedString,
    /// A `payload_encoding` other than `base64`.
    #[error("the payload encoding is unknown, expected \"base64\"")]
    UnknownPayloadEncoding,
    /// A payload that is announced as base64 and is not.
    #[error("the payload is no base64 string")]
    MalformedBase64,
    /// A logical message with more members than a row can have columns.
    #[error("the message has more than {max_members} members")]
    TooManyMembers {
        /// The bound.
        max_members: usize,
    },
}
