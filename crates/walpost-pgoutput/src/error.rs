/// A pgoutput message could not be decoded.
///
/// The bytes are not what PostgreSQL's protocol version 1 allows, or they come
/// out of order. The session that delivered them cannot be trusted further:
/// end it, and start another one with a new decoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("decoding a pgoutput message failed at byte {offset}: {kind}")]
pub struct DecodeError {
    kind: DecodeErrorKind,
    offset: usize,
}

impl DecodeError {
    pub(crate) fn new(kind: DecodeErrorKind, offset: usize) -> Self {
        Self { kind, offset }
    }

    /// What is wrong.
    pub fn kind(&self) -> &DecodeErrorKind {
        &self.kind
    }

    /// Byte offset, in the message, of the item that is wrong.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

/// What is wrong with a message. Carries names, sizes and tags, never values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The message ends too early.
    #[error("expected {expected} of {needed} bytes, but only {remaining} remain")]
    Truncated {
        /// The item that was to be read.
        expected: &'static str,
        /// Its size in bytes.
        needed: u64,
        /// Bytes left in the message.
        remaining: usize,
    },
    /// A string without its terminating zero byte.
    #[error("expected {expected} as a string that ends in a zero byte")]
    Unterminated {
        /// The item that was to be read.
        expected: &'static str,
    },
    /// A byte that is none of the protocol's choices there.
    #[error("expected {expected}, found byte 0x{found:02x}")]
    UnknownTag {
        /// The choices.
        expected: &'static str,
        /// The byte found.
        found: u8,
    },
    /// A count or length below zero.
    #[error("expected {expected} of at least 0, found {found}")]
    Negative {
        /// The item that was to be read.
        expected: &'static str,
        /// The number found.
        found: i64,
    },
    /// A commit time that does not fit into 64 bits of microseconds since 1970.
    #[error("expected a commit time, found one out of range")]
    TimeOutOfRange,
    /// Bytes after the end of the message.
    #[error("expected the end of the message, found {len} more bytes")]
    Trailing {
        /// How many.
        len: usize,
    },
    /// A row or truncate of a relation that was never described.
    #[error("relation with oid {oid} was not described in this session")]
    UnknownRelation {
        /// OID of the table.
        oid: u32,
    },
    /// A row whose number of values differs from its relation's columns.
    #[error("expected {expected} values for {schema}.{table}, found {found}")]
    ColumnCount {
        /// Schema of the table.
        schema: String,
        /// Name of the table.
        table: String,
        /// Columns of the relation.
        expected: usize,
        /// Values of the row.
        found: usize,
    },
    /// More relations in one session than the decoder keeps.
    #[error("session described more than {max_relations} relations, reconnect to start afresh")]
    TooManyRelations {
        /// The bound.
        max_relations: usize,
    },
    /// A message larger than PostgreSQL can send.
    #[error("message of {len} bytes exceeds the limit of {max_bytes}")]
    TooLarge {
        /// Size in bytes.
        len: usize,
        /// The bound.
        max_bytes: usize,
    },
}
