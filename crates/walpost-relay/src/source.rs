use std::sync::Arc;

use walpost_event::{Lsn, Relation, RowChange};
use walpost_pgoutput::LogicalMessage;

use crate::error::SourceError;

/// Where events come from, in commit order.
///
/// # Contract
///
/// - Items come in stream order: `Begin`, the changes of that transaction,
///   `Commit`. A transaction is never interleaved with another, and comes only
///   once it is committed.
/// - [`next`](Source::next) appends at least one item or fails. It may be
///   cancelled at any await point without losing an item. It keeps the session
///   alive while it waits; [`keep_alive`](Source::keep_alive) does so while the
///   caller does not read.
/// - [`confirm`](Source::confirm) is called with ends of transactions, in
///   rising order, and only once everything at or below is durable. A source
///   never tells its server a higher position than the last one confirmed.
/// - After an error the source is dropped; the next one starts at the
///   checkpoint and may bring transactions again, whole.
pub trait Source: Send {
    /// Waits for items and appends a bounded number of them to `items`.
    fn next(
        &mut self,
        items: &mut Vec<SourceItem>,
    ) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Everything that ends at or below `lsn` is durable.
    fn confirm(&mut self, lsn: Lsn) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Tells the server that we live, when it is due.
    fn keep_alive(&mut self) -> impl Future<Output = Result<(), SourceError>> + Send;
}

/// What a [`Source`] yields.
#[derive(Debug)]
pub enum SourceItem {
    /// A transaction begins.
    Begin {
        /// Start of its commit record.
        commit_lsn: Lsn,
        /// When it was committed, in microseconds since 1970.
        committed_at_us: i64,
        /// Its id, 32 bits as in the WAL.
        xid: u32,
        /// The source has been behind for more than a second when it sent it.
        is_late: bool,
    },
    /// The transaction at hand was replicated here from elsewhere.
    Origin,
    /// The server describes a table, before its first row and again after whatever
    /// may have changed it: what the catalog said of it may be out of date.
    Relation(Arc<Relation>),
    /// A row of a published table changed.
    Change(RowChange),
    /// A change whose rows are larger than `max_event_bytes`: their small columns,
    /// and the size they had.
    Oversize {
        /// The change; values that were left out are
        /// [`Unchanged`](walpost_event::Value::Unchanged).
        change: RowChange,
        /// Bytes of all of it in the WAL stream.
        size_bytes: u64,
    },
    /// `pg_logical_emit_message`.
    Message(LogicalMessage),
    /// A message larger than `max_event_bytes`, without its content.
    OversizeMessage {
        /// Its prefix.
        prefix: String,
        /// Bytes of the whole message in the WAL stream.
        size_bytes: u64,
    },
    /// The transaction ends.
    Commit {
        /// End of its commit record: what to confirm.
        end_lsn: Lsn,
    },
    /// The server has sent everything that was committed below `wal_end`.
    KeepAlive {
        /// The position.
        wal_end: Lsn,
    },
}
