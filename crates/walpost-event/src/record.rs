use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

/// A routed event that is not yet encoded.
#[derive(Clone, Debug)]
pub struct Record {
    /// Who the event is, for parking, resuming and status.
    pub identity: Identity,
    /// Kafka topic.
    pub topic: Arc<str>,
    /// Explicit partition; `None` leaves it to the hash of the key.
    pub partition: Option<i32>,
    /// Record key; `None` for a null key.
    pub key: Option<Field>,
    /// Record value.
    pub value: RecordValue,
    /// Headers in order; a name may occur more than once.
    pub headers: SmallVec<[NamedField; 4]>,
    /// Record timestamp in milliseconds since 1970; `None` for the time of
    /// handling.
    pub timestamp_ms: Option<i64>,
}

/// The value of a [`Record`].
#[derive(Clone, Debug)]
pub enum RecordValue {
    /// No value at all: a tombstone on the wire under every converter.
    Tombstone,
    /// The payload column as it is. A NULL payload is a field without bytes,
    /// which converters write in their own ways.
    Payload(Field),
    /// An object of the payload, named `payload`, then the columns placed in
    /// the envelope.
    Envelope(Vec<NamedField>),
}

/// The value of a column and its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Index of the column in its relation; `None` for what is no column.
    pub column: Option<u16>,
    /// OID of the column's type.
    pub type_oid: u32,
    /// `atttypmod` of the column, -1 for none.
    pub type_modifier: i32,
    /// Text output of the type, except `bytea`, which is the bytes
    /// themselves; `None` for NULL.
    pub bytes: Option<Bytes>,
}

/// A [`Field`] with a name: a header, or a member of an envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedField {
    /// Name of the header or member.
    pub name: Arc<str>,
    /// Its value.
    pub field: Field,
}

/// Which event it is, as text for operators and tables.
///
/// Every part may be missing: an event that cannot be routed still has to be
/// parked under whatever identity it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The id column.
    pub event_id: Option<Bytes>,
    /// The column that routes (`aggregatetype`).
    pub aggregate_type: Option<Bytes>,
    /// The column that becomes the key (`aggregateid`).
    pub aggregate_id: Option<Bytes>,
}
