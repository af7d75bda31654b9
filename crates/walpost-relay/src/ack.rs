use std::{collections::VecDeque, ops::Range};

use walpost_event::{Lsn, Position};

/// Which position may be confirmed: the end of the last transaction of the
/// contiguous prefix in which every event is done.
///
/// Pure. Every event of the stream gets a [`Ticket`] in stream order; a ticket
/// is done when its event is durable in the sink or parked in a committed row.
/// Tickets may be done in any order. A keep-alive is an empty transaction.
///
/// Memory is a byte for each event between the oldest that is not done and the
/// newest, and an entry for each transaction that is not confirmed.
#[derive(Debug, Default)]
pub(crate) struct AckTracker {
    /// Ticket of the first bit of `done`; everything below it is done.
    prefix: u64,
    next: u64,
    done: VecDeque<bool>,
    transactions: VecDeque<Transaction>,
    open: Option<Open>,
}

/// Number of an event within one run of the relay.
pub type Ticket = u64;

#[derive(Debug)]
struct Transaction {
    tickets: Range<Ticket>,
    commit_lsn: Lsn,
    end_lsn: Lsn,
    committed_at_us: i64,
}

#[derive(Debug)]
struct Open {
    first: Ticket,
    commit_lsn: Lsn,
    committed_at_us: i64,
}

impl AckTracker {
    /// Begins a transaction whose commit record starts at `commit_lsn`,
    /// committed at `committed_at_us` microseconds since 1970.
    pub(crate) fn begin(&mut self, commit_lsn: Lsn, committed_at_us: i64) {
        self.open = Some(Open { first: self.next, commit_lsn, committed_at_us });
    }

    /// Whether a transaction has begun and not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Where the commit record of the open transaction starts.
    pub(crate) fn open_at(&self) -> Option<Lsn> {
        self.open.as_ref().map(|open| open.commit_lsn)
    }

    /// Gives the next event of the open transaction its ticket and position.
    ///
    /// # Panics
    /// Without an open transaction.
    pub(crate) fn event(&mut self) -> (Ticket, Position) {
        let open = self.open.as_ref().expect("an event belongs to a transaction");
        let ticket = self.next;
        let ordinal = u32::try_from(ticket - open.first).unwrap_or(u32::MAX);
        self.next += 1;
        self.done.push_back(false);
        (ticket, Position { commit_lsn: open.commit_lsn, ordinal })
    }

    /// Ends the open transaction; `end_lsn` is what to confirm once it is done.
    ///
    /// # Panics
    /// Without an open transaction.
    pub(crate) fn commit(&mut self, end_lsn: Lsn) {
        let open = self.open.take().expect("a commit ends a transaction");
        self.boundary(Transaction {
            tickets: open.first..self.next,
            commit_lsn: open.commit_lsn,
            end_lsn,
            committed_at_us: open.committed_at_us,
        });
    }

    /// A keep-alive that tells that the server has sent everything below
    /// `wal_end`. Within an open transaction it says nothing about it.
    pub(crate) fn keep_alive(&mut self, wal_end: Lsn) {
        let empty_from = self.open.as_ref().map_or(self.next, |open| open.first);
        self.boundary(Transaction {
            tickets: empty_from..empty_from,
            commit_lsn: wal_end,
            end_lsn: wal_end,
            committed_at_us: 0,
        });
    }

    /// Marks an event as durable or parked. Telling it twice changes nothing.
    pub(crate) fn done(&mut self, ticket: Ticket) {
        if ticket < self.prefix {
            return;
        }
        let index = (ticket - self.prefix) as usize;
        if let Some(done) = self.done.get_mut(index) {
            *done = true;
        }
        while self.done.front() == Some(&true) {
            self.done.pop_front();
            self.prefix += 1;
        }
    }

    /// Takes the highest position that may be confirmed, if it moved.
    pub(crate) fn take_confirmed(&mut self) -> Option<Lsn> {
        let mut confirmed = None;
        while let Some(first) = self.transactions.front() {
            if first.tickets.end > self.prefix {
                break;
            }
            confirmed = Some(first.end_lsn);
            self.transactions.pop_front();
        }
        confirmed
    }

    /// The position of an event that is not confirmed yet.
    pub(crate) fn position(&self, ticket: Ticket) -> Option<Position> {
        let within = |commit_lsn, first: Ticket| {
            u32::try_from(ticket - first).ok().map(|ordinal| Position { commit_lsn, ordinal })
        };
        if let Some(open) = self.open.as_ref().filter(|open| open.first <= ticket) {
            return if ticket < self.next { within(open.commit_lsn, open.first) } else { None };
        }
        let index = self.transactions.partition_point(|tx| tx.tickets.end <= ticket);
        let transaction = self.transactions.get(index)?;
        if !transaction.tickets.contains(&ticket) {
            return None;
        }
        within(transaction.commit_lsn, transaction.tickets.start)
    }

    /// The first ticket above the position that was last taken.
    pub(crate) fn first_unconfirmed(&self) -> Ticket {
        let first = self.transactions.front().map(|transaction| transaction.tickets.start);
        first.or(self.open.as_ref().map(|open| open.first)).unwrap_or(self.next)
    }

    /// The first event that is not done, if there is one, else the next.
    pub(crate) fn first_open(&self) -> Ticket {
        self.prefix
    }

    /// Whether there are events above the position that was last taken.
    pub(crate) fn has_unconfirmed(&self) -> bool {
        self.first_unconfirmed() < self.next
    }

    /// Events between the oldest that is not done and the newest.
    pub(crate) fn span_events(&self) -> usize {
        self.done.len()
    }

    /// When the oldest transaction that is not confirmed was committed, in
    /// microseconds since 1970.
    pub(crate) fn oldest_committed_at_us(&self) -> Option<i64> {
        let pending = self.transactions.iter().find(|tx| tx.tickets.end > self.prefix);
        let oldest = pending.map(|tx| tx.committed_at_us).or_else(|| {
            self.open.as_ref().filter(|open| open.first < self.next).map(|o| o.committed_at_us)
        });
        // 0 where the source does not know: rows of before the slot.
        oldest.filter(|committed_at_us| *committed_at_us > 0)
    }

    fn boundary(&mut self, transaction: Transaction) {
        // An empty transaction behind one that ends at the same ticket only
        // moves the position, so idle periods cost no memory.
        if transaction.tickets.is_empty()
            && let Some(last) = self.transactions.back_mut()
            && last.tickets.end == transaction.tickets.end
            && last.tickets.is_empty()
        {
            last.end_lsn = last.end_lsn.max(transaction.end_lsn);
            return;
        }
        self.transactions.push_back(transaction);
    }
}

#[cfg(test)]
mod tests;
