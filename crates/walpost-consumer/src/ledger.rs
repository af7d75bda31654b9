//! Which numbers Kafka may hold as ours: the rules of the column `known`.

/// Numbers that may be listed before commits wait for an acknowledgement.
const MAX_KNOWN: usize = 64;

/// The offsets of one claimed partition that were sent to Kafka.
///
/// A number enters no later than the transaction that moves the stored offset
/// off it, and leaves when a later commit was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ledger {
    may_hold: Vec<i64>,
    stored: Vec<i64>,
    in_flight: Option<i64>,
    acknowledged: Option<i64>,
}

impl Ledger {
    /// After a claim: what the row lists, the claimed offset and the group's.
    pub(crate) fn claimed(row: Vec<i64>, next_offset: i64, group: Option<i64>) -> Self {
        let mut ledger =
            Self { may_hold: row.clone(), stored: row, in_flight: None, acknowledged: None };
        ledger.enter(next_offset);
        if let Some(group) = group {
            ledger.enter(group);
        }
        ledger
    }

    /// The list that the next batch stores.
    pub(crate) fn known(&self) -> &[i64] {
        &self.may_hold
    }

    /// A transaction that stored [`known`](Self::known) was committed.
    pub(crate) fn stored(&mut self) {
        self.stored.clone_from(&self.may_hold);
    }

    /// The offset to commit to Kafka now, if any: `next_offset`, unless one is
    /// in flight, it was acknowledged, or too many are unacknowledged (then the
    /// last one again).
    pub(crate) fn to_commit(&self, next_offset: i64) -> Option<i64> {
        if self.in_flight.is_some() || self.acknowledged == Some(next_offset) {
            return None;
        }
        if self.may_hold.len() >= MAX_KNOWN && !self.may_hold.contains(&next_offset) {
            return self.may_hold.last().copied();
        }
        Some(next_offset)
    }

    /// `offset` is on its way to Kafka.
    pub(crate) fn sent(&mut self, offset: i64) {
        self.enter(offset);
        self.in_flight = Some(offset);
    }

    /// Kafka holds the offset in flight, and so none of the earlier ones.
    pub(crate) fn acknowledged(&mut self) {
        if let Some(offset) = self.in_flight.take() {
            self.may_hold = vec![offset];
            self.acknowledged = Some(offset);
        }
    }

    /// Nobody knows whether Kafka holds the offset in flight.
    pub(crate) fn failed(&mut self) {
        self.in_flight = None;
        self.acknowledged = None;
    }

    /// Whether the stored list names offsets that Kafka no longer holds.
    pub(crate) fn is_stale(&self) -> bool {
        self.in_flight.is_none() && self.acknowledged.is_some() && self.stored != self.may_hold
    }

    /// The last offset that Kafka confirmed.
    pub(crate) fn confirmed(&self) -> Option<i64> {
        self.acknowledged
    }

    fn enter(&mut self, offset: i64) {
        self.may_hold.retain(|held| *held != offset);
        self.may_hold.push(offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_with_the_row_the_claimed_offset_and_the_groups() {
        let ledger = Ledger::claimed(vec![1, 2], 3, Some(2));
        assert_eq!(ledger.known(), [1, 3, 2]);
        assert!(!ledger.is_stale());
    }

    #[test]
    fn a_number_enters_when_it_is_sent_and_leaves_with_a_later_acknowledgement() {
        let mut ledger = Ledger::claimed(vec![], 10, None);
        assert_eq!(ledger.to_commit(20), Some(20));
        ledger.sent(20);
        assert_eq!(ledger.known(), [10, 20]);
        assert_eq!(ledger.to_commit(30), None, "one in flight");
        ledger.stored();
        ledger.acknowledged();
        assert_eq!(ledger.known(), [20]);
        assert!(ledger.is_stale());
        ledger.stored();
        assert!(!ledger.is_stale());
        assert_eq!(ledger.to_commit(20), None, "Kafka has it");
        assert_eq!(ledger.to_commit(30), Some(30));
    }

    #[test]
    fn a_failed_commit_stays_known() {
        let mut ledger = Ledger::claimed(vec![], 10, None);
        ledger.sent(20);
        ledger.failed();
        assert_eq!(ledger.known(), [10, 20]);
        assert_eq!(ledger.to_commit(20), Some(20));
        assert!(!ledger.is_stale());
    }

    #[test]
    fn the_list_is_bounded_while_kafka_does_not_answer() {
        let mut ledger = Ledger::claimed(vec![], 0, None);
        for offset in 1..1000 {
            let commit = ledger.to_commit(offset).unwrap();
            ledger.sent(commit);
            ledger.failed();
        }
        assert_eq!(ledger.known().len(), MAX_KNOWN);
    }
}
