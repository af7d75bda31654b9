use walpost_event::Lsn;
use walpost_pgoutput::{LogicalMessage, WalMessage};

use crate::{error::SourceError, source::SourceItem};

/// Checks that the stream keeps to transactions, and says it in the words of
/// a [`Source`](crate::Source).
#[derive(Debug, Default)]
pub(super) struct Transactions {
    open: bool,
    /// When the server sent what comes next, where it says so.
    sent_us: Option<i64>,
}

/// Between commit and sending, both by the server's clock.
const LATE_AFTER_US: i64 = 1_000_000;

impl Transactions {
    /// Tells when the server sent what comes next, in microseconds since 1970.
    pub(super) fn sent_at(&mut self, sent_us: i64) {
        self.sent_us = Some(sent_us);
    }

    fn is_late(&self, committed_us: i64) -> bool {
        self.sent_us.is_some_and(|sent_us| sent_us.saturating_sub(committed_us) > LATE_AFTER_US)
    }

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
                    is_late: self.is_late(begin.commit_time_us),
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
            WalMessage::Relation(relation) => items.push(SourceItem::Relation(relation)),
            WalMessage::Origin(_) => items.push(SourceItem::Origin),
            WalMessage::Type(_) => {}
        }
        Ok(())
    }

    /// Appends a row or message whose large values were left out on the way, or what
    /// is as long and came whole.
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
                items.push(begin_lone(commit_lsn));
                items.push(SourceItem::OversizeMessage { prefix, size_bytes });
                items.push(SourceItem::Commit { end_lsn: commit_lsn });
            }
            whole => self.push(whole, items)?,
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
        items.push(begin_lone(lsn));
        items.push(SourceItem::Message(message));
        items.push(SourceItem::Commit { end_lsn: lsn });
        Ok(())
    }

    fn expect(&self, open: bool, what: &str) -> Result<(), SourceError> {
        if self.open == open { Ok(()) } else { Err(SourceError::Protocol(what.to_owned())) }
    }
}

/// Nobody says when it was written.
fn begin_lone(commit_lsn: Lsn) -> SourceItem {
    SourceItem::Begin { commit_lsn, committed_at_us: 0, xid: 0, is_late: false }
}

#[cfg(test)]
mod tests {
    use walpost_pgoutput::{Begin, Commit};

    use super::*;

    /// Whether a transaction of that moment is late.
    fn is_late(transactions: &mut Transactions, commit_time_us: i64) -> bool {
        let (final_lsn, end_lsn) = (Lsn::from(1), Lsn::from(2));
        let mut items = Vec::new();
        let begin = WalMessage::Begin(Begin { final_lsn, commit_time_us, xid: 1 });
        let commit = Commit { commit_lsn: final_lsn, end_lsn, commit_time_us };
        transactions.push(begin, &mut items).unwrap();
        transactions.push(WalMessage::Commit(commit), &mut items).unwrap();
        matches!(items[0], SourceItem::Begin { is_late: true, .. })
    }

    #[test]
    fn a_transaction_is_late_by_the_servers_own_clock() {
        let mut transactions = Transactions::default();
        assert!(!is_late(&mut transactions, 0), "nobody said when it was sent");
        transactions.sent_at(5_000_000);
        assert!(is_late(&mut transactions, 5_000_000 - LATE_AFTER_US - 1));
        assert!(!is_late(&mut transactions, 5_000_000 - LATE_AFTER_US));
        assert!(!is_late(&mut transactions, 9_000_000), "a clock that was set back");
        transactions.sent_at(i64::MIN);
        assert!(!is_late(&mut transactions, i64::MAX));
    }
}
