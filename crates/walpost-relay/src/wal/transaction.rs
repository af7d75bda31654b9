use walpost_event::Lsn;
use walpost_pgoutput::{LogicalMessage, WalMessage};

use crate::{error::SourceError, source::SourceItem};

/// Checks that the stream keeps to transactions, and says it in the words of
/// a [`Source`](crate::Source).
#[derive(Debug, Default)]
pub(super) struct Transactions {
    open: bool,
}

impl Transactions {
    /// Appends what `message` means.
    pub(super) fn push(
        &mut self,
        message: WalMessage,
        items: &mut Vec<SourceItem>,
    ) -> Result<(), SourceError> {
        match message {
            WalMessage::Begin(begin) => {
                self.expect(false, "BEGIN within a transaction")?;
                self.open = true;
                items.push(SourceItem::Begin {
                    commit_lsn: begin.final_lsn,
                    committed_at_us: begin.commit_time_us,
                    xid: begin.xid,
                });
            }
            WalMessage::Commit(commit) => {
                self.expect(true, "COMMIT without BEGIN")?;
                self.open = false;
                items.push(SourceItem::Commit { end_lsn: commit.end_lsn });
            }
            WalMessage::Row(change) => {
                self.expect(true, "a row without BEGIN")?;
                items.push(SourceItem::Change(change));
            }
            WalMessage::Logical(message) if message.transactional => {
                self.expect(true, "a transactional message without BEGIN")?;
                items.push(SourceItem::Message(message));
            }
            WalMessage::Logical(message) => self.lone(message, items)?,
            WalMessage::Truncate(truncate) => {
                for relation in &truncate.relations {
                    tracing::warn!(
                        schema = relation.schema,
                        table = relation.name,
                        "TRUNCATE of an outbox table: events that were read before it stay published"
                    );
                }
            }
            WalMessage::Relation(_) | WalMessage::Type(_) | WalMessage::Origin(_) => {}
        }
        Ok(())
    }

    /// Appends a row or message whose large values were left out on the way.
    pub(super) fn push_oversize(
        &mut self,
        message: WalMessage,
        size_bytes: u64,
        items: &mut Vec<SourceItem>,
    ) -> Result<(), SourceError> {
        match message {
            WalMessage::Row(change) => {
                self.expect(true, "a row without BEGIN")?;
                items.push(SourceItem::Oversize { change, size_bytes });
            }
            WalMessage::Logical(message) if message.transactional => {
                self.expect(true, "a transactional message without BEGIN")?;
                items.push(SourceItem::OversizeMessage { prefix: message.prefix, size_bytes });
            }
            WalMessage::Logical(message) => {
                self.expect(false, "a non-transactional message within a transaction")?;
                let (commit_lsn, prefix) = (message.lsn, message.prefix);
                items.push(SourceItem::Begin { commit_lsn, committed_at_us: 0, xid: 0 });
                items.push(SourceItem::OversizeMessage { prefix, size_bytes });
                items.push(SourceItem::Commit { end_lsn: commit_lsn });
            }
            _ => {}
        }
        Ok(())
    }

    /// A message that was not part of a transaction is one by itself.
    fn lone(
        &mut self,
        message: LogicalMessage,
        items: &mut Vec<SourceItem>,
    ) -> Result<(), SourceError> {
        self.expect(false, "a non-transactional message within a transaction")?;
        let lsn: Lsn = message.lsn;
        items.push(SourceItem::Begin { commit_lsn: lsn, committed_at_us: 0, xid: 0 });
        items.push(SourceItem::Message(message));
        items.push(SourceItem::Commit { end_lsn: lsn });
        Ok(())
    }

    fn expect(&self, open: bool, what: &str) -> Result<(), SourceError> {
        if self.open == open { Ok(()) } else { Err(SourceError::Protocol(what.to_owned())) }
    }
}
