//! What to do about an event that cannot be delivered. Pure, and the only
//! place that decides it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use walpost_event::{Lsn, Position};

use crate::{away::AwayTopics, sink::DeliveryErrorKind};

/// Refused events that are remembered one by one.
const SUSPECTS_MAX: usize = 100_000;

/// Retries that are remembered so.
const RETRY_SUSPECTS_MAX: usize = 10_000;

/// Topics that are remembered to have refused records.
const APART_MAX: usize = 1_000;
/// Records that a topic takes in a row, one at a time, before its records go with
/// the others again. Doubled each time that one is refused then.
const RUN: u32 = 100;

/// What to do about a failed delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// Start a new session at the checkpoint.
    Retry,
    /// The same, and send this event alone then: it may have been refused for
    /// what it was sent with.
    RetryAlone,
    /// Park this event, then start a new session.
    Park,
}

/// Turns a failed delivery into a decision; `alone` says whether nothing else
/// was on its way.
///
/// Nothing is skipped: whatever is not parked comes again from the WAL.
pub(crate) fn decide(kind: DeliveryErrorKind, alone: bool) -> Disposition {
    match kind {
        DeliveryErrorKind::RefusedAlone => Disposition::Park,
        DeliveryErrorKind::Rejected if alone => Disposition::Park,
        DeliveryErrorKind::Rejected => Disposition::RetryAlone,
        DeliveryErrorKind::NotSent
        | DeliveryErrorKind::Unknown
        | DeliveryErrorKind::Unavailable
        | DeliveryErrorKind::Refused => Disposition::Retry,
    }
}

/// What a session leaves to the next one of the same relay. Losing it costs
/// repetitions, never an event.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(crate) streak: ParkStreak,
    pub(crate) suspects: Suspects,
    pub(crate) apart: ApartTopics,
    pub(crate) retries: RetrySuspects,
    pub(crate) away: AwayTopics,
}

/// The events parked since the last one that was delivered, in the order of
/// the stream.
///
/// Too many in a row are no poison but a fault, such as a wrong route: then the
/// pipeline halts instead of parking the whole outbox.
#[derive(Debug, Default)]
pub(crate) struct ParkStreak {
    parked: BTreeSet<Position>,
    /// The last one in the stream.
    delivered: Option<Position>,
}

impl ParkStreak {
    pub(crate) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// The event at `position` is durable in the sink: those parked before it
    /// count no longer.
    pub(crate) fn delivered(&mut self, position: Position) {
        self.delivered = self.delivered.max(Some(position));
        self.parked.retain(|parked| *parked > position);
    }

    /// An event is about to be parked: whether it may be, of `halt_after` in a
    /// row. One that comes again is not counted again, nor is one that was
    /// overtaken by one that is delivered.
    pub(crate) fn may_park(&mut self, position: Position, halt_after: u32) -> bool {
        if self.parked.contains(&position) || self.delivered > Some(position) {
            return true;
        }
        self.parked.len() < halt_after as usize && self.parked.insert(position)
    }
}

/// Topics that have refused a record among others, whose records go apart
/// therefore.
///
/// A refusal among others ends a session for all topics; one apart costs its own
/// topic a moment. A topic that has taken many in a row goes with the others again.
#[derive(Debug, Default)]
pub(crate) struct ApartTopics {
    topics: BTreeMap<Arc<str>, ApartTopic>,
}

#[derive(Debug, Default)]
struct ApartTopic {
    is_apart: bool,
    /// How often one was refused among others.
    refusals: u32,
    /// Taken since the last that was refused.
    taken: u32,
}

impl ApartTopics {
    /// A record of the topic was refused among others.
    pub(crate) fn refused_among_others(&mut self, topic: &Arc<str>) {
        if self.topics.len() >= APART_MAX && !self.topics.contains_key(topic) {
            return;
        }
        let of = self.topics.entry(topic.clone()).or_default();
        // The others of the same session say nothing more.
        of.refusals += u32::from(!of.is_apart);
        (of.is_apart, of.taken) = (true, 0);
    }

    /// Those whose records go apart.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &Arc<str>> {
        self.topics.iter().filter(|(_, of)| of.is_apart).map(|(topic, _)| topic)
    }

    /// A record that went apart was refused.
    pub(crate) fn refused(&mut self, topic: &str) {
        if let Some(of) = self.topics.get_mut(topic) {
            of.taken = 0;
        }
    }

    /// A record that went apart is durable: whether the topic's may go with the
    /// others again.
    pub(crate) fn taken(&mut self, topic: &str) -> bool {
        let Some(of) = self.topics.get_mut(topic) else { return true };
        of.taken += 1;
        of.taken >= RUN.saturating_mul(1 << of.refusals.min(20))
    }

    /// Its records go with the others again.
    pub(crate) fn joined(&mut self, topic: &str) {
        if let Some(of) = self.topics.get_mut(topic) {
            of.is_apart = false;
        }
    }
}

/// Events that the sink has refused together with others, and that are sent
/// alone therefore.
///
/// They stay so until they are confirmed, also when they went through alone:
/// after another refusal they come again.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    refusals: BTreeMap<Position, u32>,
    /// Beyond what is remembered: everything up to here.
    all_up_to: Option<Position>,
}

impl Suspects {
    /// The event at `position` was refused in company.
    pub(crate) fn add(&mut self, position: Position) {
        if let Some(refusals) = self.refusals.get_mut(&position) {
            *refusals += 1;
        } else if self.refusals.len() < SUSPECTS_MAX {
            self.refusals.insert(position, 1);
        } else {
            self.all_up_to = self.all_up_to.max(Some(position));
        }
    }

    /// Whether the event is to be sent alone. A wrong answer costs time alone.
    pub(crate) fn contains(&self, position: Position) -> bool {
        self.refusals.contains_key(&position) || self.all_up_to >= Some(position)
    }

    /// How often the event was refused, as far as is known.
    pub(crate) fn refusals(&self, position: Position) -> u32 {
        self.refusals.get(&position).copied().unwrap_or_default()
    }

    /// Nothing below `confirmed` comes again.
    pub(crate) fn confirmed(&mut self, confirmed: Lsn) {
        let first = Position { commit_lsn: confirmed, ordinal: 0 };
        if self.refusals.first_key_value().is_some_and(|(position, _)| *position < first) {
            self.refusals = self.refusals.split_off(&first);
        }
        self.all_up_to = self.all_up_to.filter(|position| *position >= first);
    }
}

/// Parked rows whose retry was refused together with other events, and that are
/// sent alone therefore.
#[derive(Debug, Default)]
pub(crate) struct RetrySuspects {
    refusals: BTreeMap<i64, u32>,
    all: bool,
}

impl RetrySuspects {
    /// The retry of row `id` was refused in company.
    pub(crate) fn add(&mut self, id: i64) {
        if let Some(refusals) = self.refusals.get_mut(&id) {
            *refusals += 1;
        } else if self.refusals.len() < RETRY_SUSPECTS_MAX {
            self.refusals.insert(id, 1);
        } else {
            self.all = true;
        }
    }

    /// Whether the row is to be sent alone. A wrong answer costs time alone.
    pub(crate) fn contains(&self, id: i64) -> bool {
        self.all || self.refusals.contains_key(&id)
    }

    /// What became of the row is known: how often it was refused before.
    pub(crate) fn settled(&mut self, id: i64) -> u32 {
        self.refusals.remove(&id).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(commit_lsn: u64, ordinal: u32) -> Position {
        Position { commit_lsn: Lsn::from(commit_lsn), ordinal }
    }

    #[test]
    fn only_a_message_that_was_refused_alone_is_parked() {
        assert_eq!(decide(DeliveryErrorKind::Rejected, true), Disposition::Park);
        assert_eq!(decide(DeliveryErrorKind::Rejected, false), Disposition::RetryAlone);
        assert_eq!(decide(DeliveryErrorKind::RefusedAlone, false), Disposition::Park);
        for kind in [
            DeliveryErrorKind::NotSent,
            DeliveryErrorKind::Unknown,
            DeliveryErrorKind::Unavailable,
            DeliveryErrorKind::Refused,
        ] {
            for alone in [false, true] {
                assert_eq!(decide(kind, alone), Disposition::Retry, "{kind:?}");
            }
        }
    }

    #[test]
    fn a_run_of_parked_events_ends_at_its_bound() {
        let mut streak = ParkStreak::default();
        assert!(streak.may_park(at(1, 0), 2));
        assert!(streak.may_park(at(1, 1), 2));
        assert!(streak.may_park(at(1, 1), 2), "the same one, come again");
        assert!(!streak.may_park(at(1, 2), 2));
        streak.delivered(at(2, 0));
        assert!(streak.is_empty());
        assert!(streak.may_park(at(3, 0), 2));
    }

    #[test]
    fn a_delivery_counts_where_it_stands_in_the_stream_not_when_it_is_told() {
        let mut streak = ParkStreak::default();
        for ordinal in [1, 2, 5] {
            assert!(streak.may_park(at(7, ordinal), 3));
        }
        streak.delivered(at(7, 0));
        assert!(!streak.may_park(at(7, 6), 3), "three are parked behind what was delivered");
        streak.delivered(at(7, 3));
        assert!(streak.may_park(at(7, 6), 3));
        assert!(streak.may_park(at(7, 7), 3));
        assert!(!streak.may_park(at(7, 8), 3), "the fifth, the sixth and the seventh");
    }

    #[test]
    fn what_comes_late_behind_a_delivery_is_no_run() {
        let mut streak = ParkStreak::default();
        streak.delivered(at(9, 0));
        streak.delivered(at(8, 0));
        for ordinal in 0..10 {
            assert!(streak.may_park(at(8, ordinal), 2), "overtaken by one that is delivered");
        }
        assert!(streak.is_empty());
        assert!(streak.may_park(at(9, 1), 1) && !streak.may_park(at(9, 2), 1));
    }

    #[test]
    fn a_topic_goes_apart_until_it_takes_many_in_a_row_and_longer_each_time() {
        let mut apart = ApartTopics::default();
        let topic: Arc<str> = "t".into();
        for run in [2 * RUN, 4 * RUN] {
            for _ in 0..3 {
                apart.refused_among_others(&topic);
            }
            assert_eq!(apart.topics().collect::<Vec<_>>(), [&topic]);
            assert!(!apart.taken("t"));
            apart.refused("t");
            for _ in 1..run {
                assert!(!apart.taken("t"), "of {run}");
            }
            assert!(apart.taken("t"));
            apart.joined("t");
            assert_eq!(apart.topics().next(), None);
        }
        (0..APART_MAX + 1).for_each(|n| apart.refused_among_others(&n.to_string().into()));
        assert_eq!(apart.topics.len(), APART_MAX);
    }

    #[test]
    fn a_suspect_stays_one_until_it_is_confirmed() {
        let mut suspects = Suspects::default();
        suspects.add(at(10, 3));
        suspects.add(at(10, 3));
        suspects.add(at(20, 0));
        assert_eq!((suspects.refusals(at(10, 3)), suspects.refusals(at(10, 4))), (2, 0));
        suspects.confirmed(Lsn::from(10));
        assert!(suspects.contains(at(10, 3)) && !suspects.contains(at(10, 4)));
        suspects.confirmed(Lsn::from(11));
        assert!(!suspects.contains(at(10, 3)) && suspects.contains(at(20, 0)));
    }

    #[test]
    fn a_retry_is_suspected_until_its_fate_is_known() {
        let mut suspects = RetrySuspects::default();
        assert!(!suspects.contains(7));
        suspects.add(7);
        suspects.add(7);
        assert!(suspects.contains(7) && !suspects.contains(8));
        assert_eq!((suspects.settled(7), suspects.settled(7)), (2, 0));
        assert!(!suspects.contains(7));
        (0..=RETRY_SUSPECTS_MAX as i64).for_each(|id| suspects.add(id));
        assert!(suspects.contains(i64::MAX) && suspects.refusals.len() == RETRY_SUSPECTS_MAX);
    }

    #[test]
    fn more_suspects_than_are_remembered_make_suspects_of_all_before_them() {
        let mut suspects = Suspects::default();
        let count = SUSPECTS_MAX as u32 + 2;
        for ordinal in 0..count {
            suspects.add(at(10, 2 * ordinal));
        }
        assert_eq!(suspects.refusals.len(), SUSPECTS_MAX);
        let last = 2 * (count - 1);
        assert!(suspects.contains(at(10, last)) && suspects.contains(at(10, last - 1)));
        assert!(!suspects.contains(at(10, last + 1)));
        suspects.confirmed(Lsn::from(11));
        assert!(!suspects.contains(at(10, last)) && suspects.refusals.is_empty());
    }
}
