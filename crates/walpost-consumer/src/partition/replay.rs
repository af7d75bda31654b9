//! Which effects are made again, and how fast: pure.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use crate::{Event, sql::Sql};

/// How a reset has the events applied that it went back over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// All of them, once more.
    Rerun,
    /// What is missing; done stays done, whatever its run.
    Fill,
    /// Those that were chosen, and no others.
    Chosen,
}

/// How far a reset has still to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) again: Again,
    /// The offset at which it began.
    pub(crate) until: i64,
    /// Most effects a second.
    pub(crate) events_per_s: Option<u32>,
}

impl Range {
    /// A row of the statement `ranges`.
    pub(super) fn parse(mode: &str, until: i64, events_per_s: Option<i32>) -> Self {
        let again = match mode {
            "fill" => Again::Fill,
            "chosen" => Again::Chosen,
            _ => Again::Rerun,
        };
        let events_per_s = events_per_s.and_then(|limit| u32::try_from(limit).ok());
        Self { again, until, events_per_s }
    }
}

/// Which effects are made again.
///
/// Resets nest: each goes back from where the one before it has got to. So an
/// offset belongs to the latest reset that has to come so far, and behind the
/// last of them everything is as the run says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    /// How many resets have run effects again.
    pub(crate) run: i32,
    /// The latest first, each farther than the one before.
    ranges: Vec<Range>,
    /// No effect of a limited range before this.
    not_before: Option<Instant>,
}

impl Replay {
    pub(crate) fn claimed(run: i32, ranges: Vec<Range>) -> Self {
        Self { run, ranges, not_before: None }
    }

    /// Whether effects of earlier runs are made again for `events`, which
    /// [`cut`](Self::cut) keeps within one range.
    pub(crate) fn reruns(&self, events: &[Event]) -> bool {
        events.first().is_some_and(|event| self.again(event.offset()) == Some(Again::Rerun))
    }

    /// Whether they may be made again of `events`, one range's, that had theirs
    /// or were parked.
    pub(super) fn repeats(&self, events: &[Event]) -> bool {
        events.first().is_some_and(|event| self.again(event.offset()).is_some())
    }

    /// The deduplication of `events`, which are not cut by a range's end.
    pub(super) fn dedup<'sql>(&self, sql: &'sql Sql, events: &[Event]) -> &'sql str {
        match events.first().and_then(|event| self.again(event.offset())) {
            None => &sql.dedup,
            Some(Again::Rerun) => &sql.dedup_rerun,
            Some(Again::Fill) => &sql.dedup_fill,
            Some(Again::Chosen) => &sql.dedup_chosen,
        }
    }

    /// How many of `events` one transaction may hold: one without identity
    /// alone, up to the end of a range, and no id twice in a rerun.
    pub(crate) fn cut(&self, events: &[Event]) -> usize {
        let Some(first) = events.first() else {
            return 0;
        };
        if first.identity().is_err() {
            return 1;
        }
        let (reruns, until) = (self.reruns(events), self.until(first.offset()));
        let mut seen = HashSet::new();
        let end = events.iter().position(|event| {
            event.identity().is_err()
                || until.is_some_and(|until| event.offset() >= until)
                || (reruns && !seen.insert((event.source(), event.id())))
        });
        end.unwrap_or(events.len())
    }

    /// For events from `offset` on: how long to wait, and how many may follow,
    /// a quarter of a second's worth. `None` for no limit.
    pub(super) fn limit(&self, offset: i64, now: Instant) -> Option<(Duration, usize)> {
        let events_per_s = self.range(offset)?.events_per_s?;
        let wait = self.not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        Some((wait, (events_per_s as usize / 4).max(1)))
    }

    /// So many effects were made from `offset` on.
    pub(super) fn made(&mut self, offset: i64, effects: u64, now: Instant) {
        let Some(events_per_s) = self.range(offset).and_then(|range| range.events_per_s) else {
            return;
        };
        let took = Duration::from_secs_f64(effects as f64 / f64::from(events_per_s.max(1)));
        self.not_before = Some(self.not_before.map_or(now, |at| at.max(now)) + took);
    }

    fn again(&self, offset: i64) -> Option<Again> {
        let of_run = (self.run > 0).then_some(Again::Rerun);
        self.range(offset).map(|range| range.again).or(of_run)
    }

    fn until(&self, offset: i64) -> Option<i64> {
        self.range(offset).map(|range| range.until)
    }

    fn range(&self, offset: i64) -> Option<&Range> {
        self.ranges.iter().find(|range| offset < range.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(ids: &[&str]) -> Vec<Event> {
        let event = |(offset, id): (usize, &&str)| {
            let event = Event::builder("t").position(0, offset as i64);
            if id.is_empty() {
                event.build()
            } else {
                event.header("id", Some(id.as_bytes())).build()
            }
        };
        ids.iter().enumerate().map(event).collect()
    }

    fn replay(run: i32, ranges: &[(Again, i64)]) -> Replay {
        let range = |(again, until): &(Again, i64)| Range {
            again: *again,
            until: *until,
            events_per_s: None,
        };
        Replay::claimed(run, ranges.iter().map(range).collect())
    }

    #[test]
    fn an_event_without_identity_goes_alone() {
        let replay = replay(0, &[]);
        assert_eq!(replay.cut(&events(&["a", "b", "", "c"])), 2);
        assert_eq!(replay.cut(&events(&["", "", "c"])), 1);
        assert_eq!(replay.cut(&[]), 0);
    }

    #[test]
    fn an_id_comes_twice_in_a_first_run_but_not_in_a_rerun() {
        let batch = events(&["a", "b", "a", "c"]);
        assert_eq!(replay(0, &[]).cut(&batch), 4);
        assert_eq!(replay(1, &[]).cut(&batch), 2);
        assert_eq!(replay(1, &[(Again::Fill, 4)]).cut(&batch), 4);
    }

    #[test]
    fn below_the_end_of_a_fill_nothing_is_made_again() {
        let batch = events(&["a", "b", "c", "d"]);
        let replay_ = replay(1, &[(Again::Fill, 3)]);
        assert_eq!(replay_.cut(&batch), 3);
        assert!(!replay_.reruns(&batch[..3]));
        assert!(replay_.reruns(&batch[3..]));
        assert!(!replay(0, &[]).reruns(&batch));
    }

    #[test]
    fn an_offset_belongs_to_the_latest_reset_that_has_to_come_so_far() {
        let sql = Sql::new(&crate::settings::Settings::new("c".into()));
        let batch = events(&["a", "b", "c", "d", "e", "f"]);
        let nested = [(Again::Chosen, 2), (Again::Fill, 3), (Again::Rerun, 5)];
        for (run, last) in [(0, &sql.dedup), (1, &sql.dedup_rerun)] {
            let replay = replay(run, &nested);
            let of = |at: usize| replay.dedup(&sql, &batch[at..]);
            assert_eq!(replay.cut(&batch), 2);
            assert_eq!([of(0), of(1)], [&*sql.dedup_chosen; 2]);
            assert_eq!(of(2), sql.dedup_fill);
            assert_eq!([of(3), of(4)], [&*sql.dedup_rerun; 2]);
            assert_eq!(of(5), last);
        }
    }

    #[test]
    fn a_limit_holds_for_effects_of_its_range_alone() {
        let limited = Range { again: Again::Rerun, until: 100, events_per_s: Some(40) };
        let mut replay = Replay::claimed(1, vec![limited]);
        let start = Instant::now();
        assert_eq!(replay.limit(100, start), None);
        assert_eq!(replay.limit(99, start), Some((Duration::ZERO, 10)));
        replay.made(0, 10, start);
        replay.made(10, 0, start);
        assert_eq!(replay.limit(10, start), Some((Duration::from_millis(250), 10)));
        replay.made(10, 10, start);
        assert_eq!(replay.limit(20, start), Some((Duration::from_millis(500), 10)));
        // Time that has passed is not made up for.
        let later = start + Duration::from_secs(9);
        replay.made(20, 10, later);
        assert_eq!(replay.limit(30, later), Some((Duration::from_millis(250), 10)));
        assert_eq!(replay.limit(100, later), None);
    }
}
