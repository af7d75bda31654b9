use std::time::{Duration, Instant};

#[cfg(test)]
use crate::simulation;

use super::{Delivery, DeliveryError, DeliveryErrorKind};

/// Records of one transaction: what it holds back until the commit is bounded.
const RECORDS_MAX: usize = 50_000;

/// What a sink that writes in transactions has written and not committed.
///
/// A record is durable for readers of committed records once its transaction
/// is. So each delivery waits here for the fate of all: the commit, or the end
/// of a transaction of which one record could not be delivered.
///
/// Pure: the sink tells the time and carries out what is [`due`](Self::due).
#[derive(Debug)]
pub struct Transaction {
    interval: Duration,
    state: State,
    /// What it holds is all that comes.
    hurried: bool,
    held: Vec<Delivery>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Takes records; the first came then.
    Open { since: Option<Instant>, records: usize },
    /// Takes none; what is on its way is waited for.
    Closing,
    /// The brokers are being told.
    Deciding,
    /// It ended in another way than by a commit, and there is no next one.
    Over(TransactionOutcome),
}

const EMPTY: State = State::Open { since: None, records: 0 };

/// How a transaction is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionDecision {
    /// Everything is there.
    Commit,
    /// Something is not.
    Abort,
}

/// How it did end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// All of it is there, and the next one is open.
    Committed,
    /// Nothing of it is there, and why.
    Aborted(String),
    /// Nobody knows; the producer is of no use any more, and why.
    Lost(String),
}

impl Transaction {
    /// At most `interval` passes from the first record to the commit, where the
    /// brokers keep up.
    pub fn new(interval: Duration) -> Self {
        Self { interval, state: EMPTY, hurried: false, held: Vec::new() }
    }

    /// Whether it takes another record.
    pub fn may_send(&self) -> bool {
        matches!(self.state, State::Open { records, .. } if records < RECORDS_MAX)
    }

    /// A record was given to the brokers; `now` is asked at the first one.
    pub fn sent(&mut self, now: impl FnOnce() -> Instant) {
        if let State::Open { since, records } = &mut self.state {
            since.get_or_insert_with(now);
            *records += 1;
        }
    }

    /// The commit waits for no further record.
    pub fn hurry(&mut self) {
        self.hurried |= matches!(self.state, State::Open { since: Some(_), .. });
    }

    /// Keeps the fate of a record until that of the transaction is known.
    pub fn take(&mut self, delivery: Delivery, deliveries: &mut Vec<Delivery>) {
        match &self.state {
            #[cfg(test)]
            _ if simulation::has(simulation::Bug::AckBeforeCommit) => deliveries.push(delivery),
            State::Over(outcome) => deliveries.push(judged(delivery, outcome)),
            _ => self.held.push(delivery),
        }
    }

    /// Deliveries that wait.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// How long until something may be [`due`](Self::due) without news.
    pub fn due_in(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Open { since: Some(_), .. } if self.hurried => Some(Duration::ZERO),
            State::Open { since: Some(since), .. } => {
                Some(self.interval.saturating_sub(now.saturating_duration_since(since)))
            }
            _ => None,
        }
    }

    /// What to tell the brokers now, told once. `on_their_way` records have no
    /// delivery yet.
    pub fn due(
        &mut self,
        now: Instant,
        on_their_way: usize,
        has_failed: bool,
    ) -> Option<TransactionDecision> {
        if matches!(self.state, State::Deciding | State::Over(_)) {
            return None;
        }
        if has_failed {
            self.state = State::Deciding;
            return Some(TransactionDecision::Abort);
        }
        let is_over = self.due_in(now) == Some(Duration::ZERO) || !self.may_send();
        if is_over {
            self.state = State::Closing;
        }
        if self.state == State::Closing && on_their_way == 0 {
            self.state = State::Deciding;
            return Some(TransactionDecision::Commit);
        }
        None
    }

    /// The transaction has ended: what was held is delivered, or is not.
    pub fn ended(&mut self, outcome: TransactionOutcome, deliveries: &mut Vec<Delivery>) {
        #[cfg(test)]
        if matches!(outcome, TransactionOutcome::Lost(_)) {
            simulation::ended_unknown();
        }
        self.hurried = false;
        let held = std::mem::take(&mut self.held);
        deliveries.extend(held.into_iter().map(|delivery| judged(delivery, &outcome)));
        let is_committed = outcome == TransactionOutcome::Committed;
        self.state = if is_committed { EMPTY } else { State::Over(outcome) };
    }
}

/// After the end of its transaction, nothing that was on its way alone decides
/// about a record. Only what a broker said about the record itself still counts.
fn judged(delivery: Delivery, outcome: &TransactionOutcome) -> Delivery {
    let Delivery { ticket, result } = delivery;
    let (kind, why) = match outcome {
        TransactionOutcome::Committed => return Delivery { ticket, result },
        TransactionOutcome::Aborted(why) => (DeliveryErrorKind::NotSent, why),
        TransactionOutcome::Lost(why) => (DeliveryErrorKind::Unknown, why),
    };
    let error = match result {
        Err(error) if is_said_of_the_record(error.kind) => error,
        Err(error) => DeliveryError { kind, ..error },
        Ok(_) => DeliveryError { kind, topic: "transaction".into(), detail: why.as_str().into() },
    };
    Delivery { ticket, result: Err(error) }
}

fn is_said_of_the_record(kind: DeliveryErrorKind) -> bool {
    matches!(
        kind,
        DeliveryErrorKind::Rejected | DeliveryErrorKind::Unavailable | DeliveryErrorKind::Refused
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Landed;

    const INTERVAL: Duration = Duration::from_millis(100);

    fn ok(ticket: u64) -> Delivery {
        Delivery { ticket, result: Ok(Landed { lane: 0, offset: Some(1) }) }
    }

    fn failed(ticket: u64, kind: DeliveryErrorKind) -> Delivery {
        let (topic, detail) = ("t".into(), "x".into());
        Delivery { ticket, result: Err(DeliveryError { kind, topic, detail }) }
    }

    /// What became of each, once it ended so.
    fn fates(outcome: TransactionOutcome) -> Vec<Option<DeliveryErrorKind>> {
        use DeliveryErrorKind::{NotSent, Refused, Rejected, Unknown};
        let mut transaction = Transaction::new(INTERVAL);
        let mut deliveries = Vec::new();
        transaction.take(ok(0), &mut deliveries);
        for (ticket, kind) in [(1, Rejected), (2, NotSent), (3, Unknown), (4, Refused)] {
            transaction.take(failed(ticket, kind), &mut deliveries);
        }
        assert_eq!((transaction.held(), deliveries.len()), (5, 0));
        transaction.ended(outcome, &mut deliveries);
        assert_eq!(transaction.held(), 0);
        deliveries.iter().map(|delivery| delivery.result.as_ref().err().map(|e| e.kind)).collect()
    }

    #[test]
    fn a_commit_is_due_after_the_interval_and_waits_for_what_is_on_its_way() {
        let start = Instant::now();
        let mut transaction = Transaction::new(INTERVAL);
        assert_eq!((transaction.due_in(start), transaction.due(start, 0, false)), (None, None));
        transaction.sent(|| start);
        transaction.sent(|| start + INTERVAL);
        assert_eq!(transaction.due_in(start + INTERVAL / 4), Some(INTERVAL / 4 * 3));
        assert_eq!(transaction.due(start + INTERVAL / 2, 0, false), None);
        let late = start + INTERVAL;
        assert_eq!(transaction.due(late, 2, false), None);
        assert!(!transaction.may_send(), "what is sent now belongs to the next one");
        assert_eq!(transaction.due(late, 0, false), Some(TransactionDecision::Commit));
        assert_eq!(transaction.due(late, 0, false), None, "told once");
        transaction.ended(TransactionOutcome::Committed, &mut Vec::new());
        assert!(transaction.may_send());
        assert_eq!(transaction.due_in(late), None, "an empty one is never due");
    }

    #[test]
    fn one_that_is_hurried_is_committed_before_its_time_and_the_next_one_is_not() {
        let now = Instant::now();
        let mut transaction = Transaction::new(INTERVAL);
        transaction.hurry();
        transaction.sent(|| now);
        assert_eq!(transaction.due(now, 0, false), None, "it was empty then");
        transaction.hurry();
        assert_eq!(transaction.due_in(now), Some(Duration::ZERO));
        assert_eq!(transaction.due(now, 1, false), None, "what is on its way is waited for");
        assert_eq!(transaction.due(now, 0, false), Some(TransactionDecision::Commit));
        transaction.ended(TransactionOutcome::Committed, &mut Vec::new());
        transaction.sent(|| now);
        assert_eq!(transaction.due_in(now), Some(INTERVAL));
    }

    #[test]
    fn a_failure_aborts_at_once_whatever_is_on_its_way() {
        let now = Instant::now();
        let mut transaction = Transaction::new(INTERVAL);
        transaction.sent(|| now);
        assert_eq!(transaction.due(now, 7, true), Some(TransactionDecision::Abort));
        assert_eq!(transaction.due(now, 0, true), None);
        assert!(!transaction.may_send());
        transaction.ended(TransactionOutcome::Aborted("x".into()), &mut Vec::new());
        assert!(!transaction.may_send(), "a producer that failed takes nothing more");
    }

    #[test]
    fn a_full_one_is_committed_before_its_time() {
        let now = Instant::now();
        let mut transaction = Transaction::new(INTERVAL);
        (0..RECORDS_MAX).for_each(|_| transaction.sent(|| now));
        assert!(!transaction.may_send());
        assert_eq!(transaction.due(now, 0, false), Some(TransactionDecision::Commit));
    }

    #[test]
    fn nothing_is_delivered_before_the_commit_and_nothing_at_all_without_one() {
        use DeliveryErrorKind::{NotSent, Refused, Rejected, Unknown};
        let with = |kind| vec![Some(kind), Some(Rejected), Some(kind), Some(kind), Some(Refused)];
        assert_eq!(fates(TransactionOutcome::Aborted("x".into())), with(NotSent));
        assert_eq!(fates(TransactionOutcome::Lost("x".into())), with(Unknown));
        assert_eq!(fates(TransactionOutcome::Committed)[0], None);
    }

    #[test]
    fn what_comes_after_the_end_shares_its_fate() {
        let mut transaction = Transaction::new(INTERVAL);
        let mut deliveries = Vec::new();
        transaction.ended(TransactionOutcome::Lost("x".into()), &mut deliveries);
        transaction.take(ok(0), &mut deliveries);
        let kind = deliveries[0].result.as_ref().map_err(|error| error.kind);
        assert_eq!(kind.unwrap_err(), DeliveryErrorKind::Unknown);
        assert_eq!(transaction.due(Instant::now(), 0, true), None);
    }
}
