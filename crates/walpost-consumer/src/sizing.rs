//! How many events the next transaction takes, after failures: pure.

/// Finds the one event that fails and leaves the others alone.
///
/// Without failures a batch is as large as allowed. A failure whose event the
/// handler named is tried alone next, after those before it; otherwise batches
/// are halved until one event is left. Successes double them again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizing {
    limit: usize,
    max: usize,
    suspect: Option<Suspect>,
}

/// An event that failed alone, or that the handler named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspect {
    offset: i64,
    attempts: u32,
}

impl Sizing {
    pub(crate) fn new(max: usize) -> Self {
        Self { limit: max, max, suspect: None }
    }

    /// How many of the events at `offsets`, ascending, to take.
    pub(crate) fn cut(&self, offsets: impl ExactSizeIterator<Item = i64>) -> usize {
        let count = offsets.len().min(self.limit);
        let Some(suspect) = self.suspect else {
            return count;
        };
        match offsets.take(count).position(|offset| offset >= suspect.offset) {
            Some(0) => count.min(1),
            Some(before) => before,
            None => count,
        }
    }

    /// The events below `end` are done. Where nothing of them was `new`, the
    /// one that failed among others may still be to come: batches stay as they
    /// are.
    pub(crate) fn succeeded(&mut self, end: i64, new: bool) {
        if new {
            self.limit = self.limit.saturating_mul(2).min(self.max);
        }
        if self.suspect.is_some_and(|suspect| suspect.offset < end) {
            self.suspect = None;
        }
    }

    /// A batch of more than one event failed; `at` is the one that the handler
    /// named.
    pub(crate) fn failed_together(&mut self, count: usize, at: Option<i64>) {
        match at {
            Some(offset) => {
                let attempts = self.attempts(offset);
                self.suspect = Some(Suspect { offset, attempts });
            }
            None => self.limit = (count / 2).max(1),
        }
    }

    /// The event at `offset` failed alone: how often it has by now.
    pub(crate) fn failed_alone(&mut self, offset: i64) -> u32 {
        let attempts = self.attempts(offset).saturating_add(1);
        self.suspect = Some(Suspect { offset, attempts });
        attempts
    }

    /// How often the event at `offset` failed alone.
    pub(crate) fn attempts(&self, offset: i64) -> u32 {
        self.suspect.filter(|suspect| suspect.offset == offset).map_or(0, |known| known.attempts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies `0..events` where `poison` always fails and is given up after
    /// three attempts; returns the handler calls and what was given up.
    fn drive(events: i64, poison: i64, named: bool) -> (usize, Vec<i64>) {
        let (mut sizing, mut next, mut calls) = (Sizing::new(500), 0, 0);
        let mut parked = Vec::new();
        while next < events {
            let pending: Vec<i64> = (next..events).collect();
            let count = sizing.cut(pending.iter().copied());
            assert!(count > 0);
            calls += 1;
            let batch = &pending[..count];
            if !batch.contains(&poison) {
                next += count as i64;
                sizing.succeeded(next, true);
            } else if count > 1 {
                sizing.failed_together(count, named.then_some(poison));
            } else if sizing.failed_alone(poison) == 3 {
                parked.push(poison);
                next += 1;
                sizing.succeeded(next, true);
            }
        }
        (calls, parked)
    }

    #[test]
    fn a_named_event_is_found_at_once() {
        for poison in [0, 1, 250, 499] {
            let (calls, parked) = drive(500, poison, true);
            assert_eq!(parked, [poison]);
            assert!(calls <= 14, "{calls} calls");
        }
    }

    #[test]
    fn an_unnamed_event_is_found_by_halving() {
        for poison in [0, 1, 250, 499] {
            let (calls, parked) = drive(500, poison, false);
            assert_eq!(parked, [poison]);
            assert!(calls <= 80, "{calls} calls");
        }
    }

    #[test]
    fn events_that_were_done_before_do_not_hide_the_one_that_fails() {
        let mut sizing = Sizing::new(8);
        for claim in 0..4 {
            // Each claim comes by seven that are done, and then to the poison.
            let (mut next, limit) = (0, sizing.cut((0i32..8).map(i64::from)));
            assert_eq!(limit, 8 >> claim);
            while next + (limit as i64) < 8 {
                next += limit as i64;
                sizing.succeeded(next, false);
            }
            if limit > 1 {
                sizing.failed_together(limit, None);
            }
        }
        assert_eq!(sizing.failed_alone(7), 1);
    }

    #[test]
    fn without_failures_batches_are_as_large_as_allowed() {
        let sizing = Sizing::new(500);
        assert_eq!(sizing.cut((0i32..700).map(i64::from)), 500);
        assert_eq!(sizing.cut((0i32..3).map(i64::from)), 3);
        assert_eq!(sizing.cut((0i32..0).map(i64::from)), 0);
    }
}
