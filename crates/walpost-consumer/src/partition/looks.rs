//! When to look for requests about parked events, and which of them are passed
//! over meanwhile: pure.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::trials::Trials;

/// Time between two looks for requests while anything is parked, in milliseconds.
const LOOK_MS: u64 = 1_000;
/// Requests that are passed over at a time. Where more have to wait, retries
/// behind them do too.
const MAX_WAITING: usize = 500;

/// When to look: never while nothing is parked, as only the owner parks.
#[derive(Debug)]
pub(super) struct Looks {
    at: Option<Instant>,
    /// By the ids of their rows.
    waiting: HashMap<i64, Wait>,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Its next attempt.
    Until(Instant),
    /// The lane of its key, which has it, or one before it.
    Lane(usize),
}

/// Rows whose requests are passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PassedOver {
    /// Until their next attempt.
    pub(super) retries: Vec<i64>,
    /// For their lanes.
    pub(super) in_lanes: Vec<i64>,
    /// Whether all other retries are passed over too.
    pub(super) all_retries: bool,
}

impl Looks {
    /// After a claim: whether anything is parked.
    pub(super) fn claimed(any: bool, now: Instant) -> Self {
        Self { at: any.then_some(now), waiting: HashMap::new() }
    }

    /// Goes on where an earlier claim of one's own has got to.
    pub(super) fn resume(&mut self, trials: &Trials) {
        self.waiting.extend(trials.waiting().map(|(id, at)| (id, Wait::Until(at))));
    }

    /// An event was parked.
    pub(super) fn parked(&mut self, now: Instant) {
        self.at.get_or_insert(now + Duration::from_millis(LOOK_MS));
    }

    /// The time of the next look.
    pub(super) fn at(&self) -> Option<Instant> {
        let look = self.at?;
        let until = self.waiting.values().filter_map(|wait| match wait {
            Wait::Until(at) => Some(*at),
            Wait::Lane(_) => None,
        });
        Some(until.fold(look, Instant::min))
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.at().is_some_and(|at| at <= now)
    }

    /// What a look now passes over.
    pub(super) fn passed_over(&mut self, now: Instant) -> PassedOver {
        self.waiting.retain(|_, wait| !matches!(wait, Wait::Until(at) if *at <= now));
        let all_retries = self.waiting.len() >= MAX_WAITING;
        let mut over = PassedOver { all_retries, ..PassedOver::default() };
        for (id, wait) in &self.waiting {
            match wait {
                Wait::Until(_) => over.retries.push(*id),
                Wait::Lane(_) => over.in_lanes.push(*id),
            }
        }
        over
    }

    /// Looks again in a second.
    pub(super) fn later(&mut self, now: Instant) {
        self.at = Some(now + Duration::from_millis(LOOK_MS));
    }

    /// A lane has the request: its answer is the next look, or a second without.
    pub(super) fn given(&mut self, id: i64, lane: usize, now: Instant) {
        self.waiting.insert(id, Wait::Lane(lane));
        self.later(now);
    }

    /// The lane of the request has another one.
    pub(super) fn behind(&mut self, id: i64, lane: usize, now: Instant) {
        self.waiting.insert(id, Wait::Lane(lane));
        self.at = Some(now);
    }

    /// The lane has none any more.
    pub(super) fn is_free(&mut self, lane: usize) {
        self.waiting.retain(|_, wait| *wait != Wait::Lane(lane));
    }

    /// The request was served, or is tried again, not before `until`.
    pub(super) fn served(&mut self, id: i64, until: Option<Instant>, now: Instant) {
        self.waiting.remove(&id);
        if let Some(until) = until {
            self.waiting.insert(id, Wait::Until(until));
        }
        self.at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn nothing_is_looked_for_until_something_is_parked() {
        let now = Instant::now();
        let mut looks = Looks::claimed(false, now);
        assert_eq!(looks.at(), None);
        looks.parked(now);
        looks.parked(at(now, 9_000));
        assert_eq!(looks.at(), Some(at(now, 1_000)));
        assert!(Looks::claimed(true, now).is_due(now));
        looks.served(1, None, now);
        assert!(looks.is_due(now));
    }

    #[test]
    fn a_retry_that_waits_is_passed_over_until_its_time_and_others_are_not() {
        let now = Instant::now();
        let mut looks = Looks::claimed(true, now);
        looks.served(7, Some(at(now, 200)), now);
        assert!(looks.is_due(now), "others go on at once");
        assert_eq!(looks.passed_over(at(now, 199)).retries, [7]);
        looks.later(now);
        assert_eq!(looks.at(), Some(at(now, 200)), "before the usual second is over");
        assert_eq!(looks.passed_over(at(now, 200)), PassedOver::default());
        looks.served(7, None, at(now, 200));
        assert_eq!(looks.at(), Some(at(now, 200)));
    }

    #[test]
    fn a_lane_that_does_not_answer_holds_up_its_own_requests_alone() {
        let now = Instant::now();
        let mut looks = Looks::claimed(true, now);
        looks.given(7, 3, now);
        assert!(!looks.is_due(at(now, 999)) && looks.is_due(at(now, 1_000)));
        looks.behind(8, 3, at(now, 1_000));
        assert!(looks.is_due(at(now, 1_000)));
        looks.given(9, 4, at(now, 1_000));
        let mut in_lanes = looks.passed_over(at(now, 60_000)).in_lanes;
        in_lanes.sort_unstable();
        assert_eq!(in_lanes, [7, 8, 9]);
        looks.is_free(3);
        assert_eq!(looks.passed_over(now).in_lanes, [9]);
    }

    #[test]
    fn no_more_retries_are_passed_over_than_can_be_named() {
        let now = Instant::now();
        let mut looks = Looks::claimed(true, now);
        for id in 0..MAX_WAITING as i64 {
            assert!(!looks.passed_over(now).all_retries);
            looks.served(id, Some(at(now, 500 + id.unsigned_abs())), now);
        }
        assert!(looks.passed_over(now).all_retries);
        assert!(looks.is_due(now), "for discards");
        looks.later(now);
        assert_eq!(looks.at(), Some(at(now, 500)));
        let over = looks.passed_over(at(now, 500));
        assert_eq!((over.retries.len(), over.all_retries), (MAX_WAITING - 1, false));
        for id in 0..MAX_WAITING as i64 {
            looks.behind(id, 3, now);
        }
        assert!(looks.passed_over(now).all_retries);
        looks.is_free(3);
        assert_eq!(looks.passed_over(now), PassedOver::default());
    }
}
