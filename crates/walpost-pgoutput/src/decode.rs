use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use walpost_event::{Lsn, Operation, Relation, Row, RowChange};

use crate::{
    error::{DecodeError, DecodeErrorKind},
    reader::Reader,
    relation::{Domains, Relations, read_relation, read_schema},
    tuple::read_row,
    wal_message::{Begin, Commit, LogicalMessage, Origin, Truncate, TypeName, WalMessage},
};

/// PostgreSQL's epoch, 2000-01-01, in microseconds since 1970.
const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;

/// PostgreSQL builds a message in one allocation of at most 1 GiB.
const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// Decodes one session's `pgoutput` messages.
///
/// Keeps the relations that the session has described, as rows name theirs by
/// OID only. A new session describes them again: give it a new decoder.
///
/// ```
/// use walpost_event::{Operation, Value};
/// use walpost_pgoutput::{Bytes, Decoder, WalMessage};
///
/// // Table 7, public.t, with the one column `id` of type text.
/// let relation = b"R\0\0\0\x07public\0t\0d\0\x01\x01id\0\0\0\0\x19\xff\xff\xff\xff";
/// let insert = b"I\0\0\0\x07N\0\x01t\0\0\0\x02e1";
///
/// let mut decoder = Decoder::new();
/// decoder.decode(Bytes::from_static(insert)).expect_err("table 7 is not described yet");
/// decoder.decode(Bytes::from_static(relation))?;
/// let WalMessage::Row(change) = decoder.decode(Bytes::from_static(insert))? else {
///     panic!("a row");
/// };
/// assert_eq!(change.operation, Operation::Insert);
/// assert_eq!(change.row.relation().name, "t");
/// assert_eq!(change.row.value(0), Value::Text(b"e1"));
/// # Ok::<(), walpost_pgoutput::DecodeError>(())
/// ```
#[derive(Debug, Default)]
pub struct Decoder {
    relations: Relations,
    domains: Domains,
    has_base_types: bool,
    names: HashMap<u32, (String, String)>,
}

impl Decoder {
    /// A decoder that knows no relation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Columns of a domain have the type that the domain is over, if that is a built-in
    /// one: PostgreSQL describes a domain by it. Default: the domain.
    #[must_use]
    pub fn with_base_types(mut self) -> Self {
        self.has_base_types = true;
        self
    }

    /// A decoder that calls the relations with these OIDs by these schemas and
    /// names, whatever the server calls them when it decodes their rows.
    pub fn naming(names: HashMap<u32, (String, String)>) -> Self {
        Self { names, ..Self::default() }
    }

    /// Decodes one message: the data of one XLogData message, or one row of
    /// `pg_logical_slot_get_binary_changes`.
    ///
    /// A decoded row shares `data` and copies no value; up to 16 columns cost
    /// no allocation.
    ///
    /// # Errors
    /// [`DecodeError`] for anything that is not exactly one message of
    /// protocol version 1, and for a row of a relation that the session has
    /// not described. The decoder's relations are then as before.
    pub fn decode(&mut self, data: Bytes) -> Result<WalMessage, DecodeError> {
        if data.len() > MAX_MESSAGE_BYTES {
            let kind = DecodeErrorKind::TooLarge { len: data.len(), max_bytes: MAX_MESSAGE_BYTES };
            return Err(DecodeError::new(kind, 0));
        }
        let mut reader = Reader::new(&data);
        let tag = reader.u8(MESSAGE_TAG)?;
        let message = self.read_body(tag, &mut reader, &data)?;
        reader.end()?;
        match message {
            Body::Message(message) => {
                if let WalMessage::Type(described) = &message {
                    self.domains.learn(described);
                }
                Ok(message)
            }
            Body::Relation(mut relation) => {
                if self.has_base_types {
                    self.domains.replace(&mut relation);
                }
                if let Some((schema, name)) = self.names.get(&relation.oid) {
                    (relation.schema, relation.name) = (schema.clone(), name.clone());
                }
                self.relations.keep(relation, &reader).map(WalMessage::Relation)
            }
        }
    }

    fn read_body(
        &self,
        tag: u8,
        reader: &mut Reader<'_>,
        data: &Bytes,
    ) -> Result<Body, DecodeError> {
        Ok(Body::Message(match tag {
            b'I' => WalMessage::Row(self.read_insert(reader, data)?),
            b'U' => WalMessage::Row(self.read_update(reader, data)?),
            b'D' => WalMessage::Row(self.read_delete(reader, data)?),
            b'B' => WalMessage::Begin(read_begin(reader)?),
            b'C' => WalMessage::Commit(read_commit(reader)?),
            b'M' => WalMessage::Logical(read_logical(reader, data)?),
            b'R' => return read_relation(reader).map(Body::Relation),
            b'T' => WalMessage::Truncate(self.read_truncate(reader)?),
            b'Y' => WalMessage::Type(read_type(reader)?),
            b'O' => WalMessage::Origin(read_origin(reader)?),
            found => {
                let kind = DecodeErrorKind::UnknownTag { expected: MESSAGE_TAG, found };
                return Err(DecodeError::new(kind, 0));
            }
        }))
    }

    fn read_insert(&self, reader: &mut Reader<'_>, data: &Bytes) -> Result<RowChange, DecodeError> {
        let relation = self.relations.read_known(reader)?;
        read_tag(reader, "a new row (N)", |tag| (tag == b'N').then_some(()))?;
        Ok(RowChange::insert(read_row(reader, relation, data)?))
    }

    fn read_update(&self, reader: &mut Reader<'_>, data: &Bytes) -> Result<RowChange, DecodeError> {
        let relation = self.relations.read_known(reader)?;
        let is_old = read_tag(reader, "an old or new row (K, O or N)", |tag| match tag {
            b'K' | b'O' => Some(true),
            b'N' => Some(false),
            _ => None,
        })?;
        let mut old = None;
        if is_old {
            old = Some(read_row(reader, Arc::clone(&relation), data)?);
            read_tag(reader, "a new row (N)", |tag| (tag == b'N').then_some(()))?;
        }
        let row = read_row(reader, relation, data)?;
        Ok(RowChange { operation: Operation::Update, row, old })
    }

    fn read_delete(&self, reader: &mut Reader<'_>, data: &Bytes) -> Result<RowChange, DecodeError> {
        let relation = self.relations.read_known(reader)?;
        read_tag(reader, "an old row (K or O)", |tag| matches!(tag, b'K' | b'O').then_some(()))?;
        let row: Row = read_row(reader, relation, data)?;
        Ok(RowChange { operation: Operation::Delete, row, old: None })
    }

    fn read_truncate(&self, reader: &mut Reader<'_>) -> Result<Truncate, DecodeError> {
        let count = reader.count32("a relation count")?;
        let flags = read_flags(reader, "truncate options (0 to 3)", 3)?;
        reader.require(count as u64 * 4, "relation oids")?;
        let relations =
            (0..count).map(|_| self.relations.read_known(reader)).collect::<Result<_, _>>()?;
        Ok(Truncate { relations, cascade: flags & 1 != 0, restart_identity: flags & 2 != 0 })
    }
}

const MESSAGE_TAG: &str = "a message tag (B, C, O, R, Y, I, U, D, T or M)";

/// A relation is kept only once the whole message has proved well-formed.
#[expect(clippy::large_enum_variant, reason = "lives for one call")]
enum Body {
    Message(WalMessage),
    Relation(Relation),
}

fn read_begin(reader: &mut Reader<'_>) -> Result<Begin, DecodeError> {
    Ok(Begin {
        final_lsn: read_lsn(reader, "a commit position")?,
        commit_time_us: read_time(reader)?,
        xid: reader.u32("a transaction id")?,
    })
}

fn read_commit(reader: &mut Reader<'_>) -> Result<Commit, DecodeError> {
    read_flags(reader, "commit flags (0)", 0)?;
    Ok(Commit {
        commit_lsn: read_lsn(reader, "a commit position")?,
        end_lsn: read_lsn(reader, "an end position")?,
        commit_time_us: read_time(reader)?,
    })
}

fn read_logical(reader: &mut Reader<'_>, data: &Bytes) -> Result<LogicalMessage, DecodeError> {
    let flags = read_flags(reader, "message flags (0 or 1)", 1)?;
    let lsn = read_lsn(reader, "a message position")?;
    let prefix = reader.text("a message prefix")?.into_owned();
    let len = reader.count32("the length of a message")?;
    let range = reader.range(len, "a message")?;
    Ok(LogicalMessage { transactional: flags == 1, lsn, prefix, content: data.slice(range) })
}

fn read_type(reader: &mut Reader<'_>) -> Result<TypeName, DecodeError> {
    Ok(TypeName {
        oid: reader.u32("a type oid")?,
        schema: read_schema(reader)?,
        name: reader.text("a type name")?.into_owned(),
    })
}

fn read_origin(reader: &mut Reader<'_>) -> Result<Origin, DecodeError> {
    Ok(Origin {
        commit_lsn: read_lsn(reader, "an origin's commit position")?,
        name: reader.text("an origin name")?.into_owned(),
    })
}

fn read_lsn(reader: &mut Reader<'_>, expected: &'static str) -> Result<Lsn, DecodeError> {
    reader.u64(expected).map(Lsn::from)
}

fn read_time(reader: &mut Reader<'_>) -> Result<i64, DecodeError> {
    let at = reader.offset();
    let since_2000_us = reader.i64("a commit time")?;
    since_2000_us
        .checked_add(POSTGRES_EPOCH_US)
        .ok_or_else(|| DecodeError::new(DecodeErrorKind::TimeOutOfRange, at))
}

/// A byte in which only the bits of `mask` may be set.
fn read_flags(
    reader: &mut Reader<'_>,
    expected: &'static str,
    mask: u8,
) -> Result<u8, DecodeError> {
    read_tag(reader, expected, |flags| (flags & !mask == 0).then_some(flags))
}

fn read_tag<T>(
    reader: &mut Reader<'_>,
    expected: &'static str,
    choose: impl Fn(u8) -> Option<T>,
) -> Result<T, DecodeError> {
    let at = reader.offset();
    let found = reader.u8(expected)?;
    choose(found)
        .ok_or_else(|| DecodeError::new(DecodeErrorKind::UnknownTag { expected, found }, at))
}
