//! What failed attempts have taught about the next events: pure.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::sizing::Sizing;

/// Parked events of which failed retries are remembered; beyond that all are
/// forgotten, and attempts are counted anew.
const MAX_REFUSED: usize = 1_000;

/// How often the partition may stand still for an event that another one may cure.
const WAIT_EVERY: Duration = Duration::from_secs(10);

/// Suspicions, and the counts that lead to parking and halting.
///
/// They are about the events that come next, and hold as long as nobody else
/// claims the partition and nothing moves its offset: another owner may have
/// applied or parked them, or have been told to start elsewhere.
#[derive(Clone, Debug)]
pub(super) struct Trials {
    pub(super) sizing: Sizing,
    pub(super) condemned: Option<Condemned>,
    /// By the ids of their rows.
    pub(super) refused: HashMap<i64, Refused>,
    /// Offset of an event whose effect may be there: it goes alone.
    pub(super) done_before: Option<i64>,
    pub(super) transient_failures: u32,
    pub(super) parked_in_row: u32,
    /// When the partition last stood still for an event that another one may cure.
    waited_at: Option<Instant>,
    max_batch_events: usize,
    standing: Option<Standing>,
}

/// An event that is parked next, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condemned {
    pub(super) offset: i64,
    pub(super) attempts: u32,
    pub(super) reason: String,
}

/// A parked event that failed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) offset: i64,
    pub(super) key: Option<Box<[u8]>>,
    pub(super) attempts: u32,
    pub(super) transient_failures: u32,
    pub(super) reason: String,
    /// It stays parked now.
    pub(super) is_last: bool,
    /// No attempt before this.
    pub(super) not_before: Option<Instant>,
}

/// Under which claim it was learnt, and where that has got to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    epoch: i64,
    next_offset: i64,
    run: i32,
}

impl Trials {
    pub(super) fn new(max_batch_events: usize) -> Self {
        Self {
            sizing: Sizing::new(max_batch_events),
            condemned: None,
            refused: HashMap::new(),
            done_before: None,
            transient_failures: 0,
            parked_in_row: 0,
            waited_at: None,
            max_batch_events,
            standing: None,
        }
    }

    /// A claim begins. Forgets everything unless it follows the last one
    /// directly, at the same offset.
    pub(super) fn claimed(&mut self, epoch: i64, next_offset: i64, run: i32) {
        let now = Standing { epoch, next_offset, run };
        if self.standing.map(|last| Standing { epoch: last.epoch + 1, ..last }) != Some(now) {
            *self = Self::new(self.max_batch_events);
        }
        self.standing = Some(now);
    }

    /// The events below `end` are committed, `new` ones among them or not.
    pub(super) fn advanced(&mut self, end: i64, new: bool) {
        self.sizing.succeeded(end, new);
        self.done_before.take_if(|offset| *offset < end);
        if let Some(standing) = &mut self.standing {
            standing.next_offset = end;
        }
    }

    /// Whether the partition may stand still for an event that another one may cure: many such
    /// events must not cost a wait each. Then that counts as done.
    pub(super) fn may_wait(&mut self, now: Instant) -> bool {
        let may = self.waited_at.is_none_or(|at| now.duration_since(at) >= WAIT_EVERY);
        if may {
            self.waited_at = Some(now);
        }
        may
    }

    /// A retry of the parked event of the row `id` has failed.
    pub(super) fn refuse(&mut self, id: i64, refused: Refused) {
        if self.refused.len() >= MAX_REFUSED {
            self.refused.clear();
        }
        self.refused.insert(id, refused);
    }

    /// Rows whose next attempt has a time.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (i64, Instant)> {
        self.refused.iter().filter_map(|(id, refused)| Some((*id, refused.not_before?)))
    }

    /// The reason to park the event at `offset`, once.
    pub(super) fn take_condemned(&mut self, offset: i64) -> Option<Condemned> {
        self.condemned.take_if(|condemned| condemned.offset == offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claimed under epoch 3, applied up to before 20; the event there has
    /// failed twice and is to be parked.
    fn tried() -> Trials {
        let mut trials = Trials::new(500);
        trials.claimed(3, 10, 1);
        trials.advanced(20, true);
        trials.sizing.failed_alone(20);
        trials.sizing.failed_alone(20);
        trials.condemned = Some(Condemned { offset: 20, attempts: 2, reason: "no".into() });
        trials.transient_failures = 4;
        trials.parked_in_row = 5;
        trials
    }

    #[test]
    fn a_claim_of_ones_own_right_after_keeps_what_was_learnt() {
        let mut trials = tried();
        trials.claimed(4, 20, 1);
        trials.claimed(5, 20, 1);
        assert_eq!(trials.sizing.attempts(20), 2);
        assert_eq!(trials.take_condemned(19), None);
        assert_eq!(trials.take_condemned(20).map(|condemned| condemned.attempts), Some(2));
        assert_eq!(trials.take_condemned(20), None);
        assert_eq!((trials.transient_failures, trials.parked_in_row), (4, 5));
    }

    #[test]
    fn retries_are_known_by_their_rows_and_bounded() {
        let refused = |not_before: Option<Instant>| Refused {
            offset: 1,
            key: None,
            attempts: 1,
            transient_failures: 0,
            reason: "no".into(),
            is_last: not_before.is_none(),
            not_before,
        };
        let (mut trials, now) = (tried(), Instant::now());
        trials.refuse(7, refused(Some(now)));
        trials.refuse(8, refused(None));
        trials.claimed(4, 20, 1);
        assert_eq!(trials.waiting().collect::<Vec<_>>(), [(7, now)]);
        assert!(trials.refused[&8].is_last);
        for id in 0..2 * MAX_REFUSED as i64 {
            trials.refuse(id, refused(None));
            assert!(trials.refused.len() <= MAX_REFUSED && trials.refused.contains_key(&id));
        }
    }

    #[test]
    fn waits_for_a_cure_are_rare() {
        let (mut trials, now) = (tried(), Instant::now());
        assert!(trials.may_wait(now));
        assert!(!trials.may_wait(now + WAIT_EVERY / 2));
        assert!(trials.may_wait(now + WAIT_EVERY));
        assert!(!trials.may_wait(now + WAIT_EVERY));
    }

    #[test]
    fn another_owner_another_offset_and_another_run_clear_it() {
        for (epoch, next_offset, run) in [(5, 20, 1), (4, 21, 1), (4, 19, 1), (4, 20, 2)] {
            let mut trials = tried();
            trials.claimed(epoch, next_offset, run);
            assert_eq!(trials.sizing, Sizing::new(500));
            assert_eq!(trials.condemned, None);
            assert_eq!((trials.transient_failures, trials.parked_in_row), (0, 0));
        }
    }
}
