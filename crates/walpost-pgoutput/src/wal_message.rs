use std::sync::Arc;

use bytes::Bytes;
use walpost_event::{Lsn, Relation, RowChange};

/// One message of the `pgoutput` stream.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "rows are nearly all messages, and a box would be an allocation for each"
)]
pub enum WalMessage {
    /// A transaction starts; its changes follow, then its [`Commit`].
    Begin(Begin),
    /// The transaction ends.
    Commit(Commit),
    /// The shape of a table, sent before its first row in a session and again
    /// when it may have changed.
    Relation(Arc<Relation>),
    /// An insert, update or delete of one row.
    Row(RowChange),
    /// A `TRUNCATE`.
    Truncate(Truncate),
    /// Name of a type that is not built in.
    Type(TypeName),
    /// The transaction came from another server by replication.
    Origin(Origin),
    /// What `pg_logical_emit_message` wrote.
    Logical(LogicalMessage),
}

/// Start of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Start of the commit record: equals the [`Commit::commit_lsn`] to come.
    pub final_lsn: Lsn,
    /// Commit time in microseconds since 1970.
    pub commit_time_us: i64,
    /// Transaction id.
    pub xid: u32,
}

/// End of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Start of the commit record.
    pub commit_lsn: Lsn,
    /// End of the commit record: the position to confirm once the transaction
    /// is done.
    pub end_lsn: Lsn,
    /// Commit time in microseconds since 1970.
    pub commit_time_us: i64,
}

/// A `TRUNCATE` of one or more tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncate {
    /// The tables, in the order sent.
    pub relations: Vec<Arc<Relation>>,
    /// `CASCADE` was given.
    pub cascade: bool,
    /// `RESTART IDENTITY` was given.
    pub restart_identity: bool,
}

/// Name of a type that is not built in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeName {
    /// OID of the type.
    pub oid: u32,
    /// Schema.
    pub schema: String,
    /// Name.
    pub name: String,
}

/// Where a replicated transaction came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its commit on the server it came from.
    pub commit_lsn: Lsn,
    /// Name of the replication origin.
    pub name: String,
}

/// What `pg_logical_emit_message` wrote.
#[derive(Clone, PartialEq, Eq)]
pub struct LogicalMessage {
    /// Belongs to the transaction around it; otherwise it stands alone, and is
    /// there even if the writer rolled back.
    pub transactional: bool,
    /// Where the message stands in the WAL.
    pub lsn: Lsn,
    /// Its prefix.
    pub prefix: String,
    /// Its content, sharing the bytes decoded.
    pub content: Bytes,
}

impl std::fmt::Debug for LogicalMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogicalMessage")
            .field("transactional", &self.transactional)
            .field("lsn", &self.lsn)
            .field("prefix", &self.prefix)
            .field("content_bytes", &self.content.len())
            .finish()
    }
}
