use std::time::Duration;

/// Bounds on what waits on each side.
const MOST: Load = Load { count: 100_000, bytes: 128 * 1024 * 1024 };

/// What waits on one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

impl Load {
    /// One more, of so many bytes.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes;
    }

    pub(crate) fn remove(&mut self, bytes: usize) {
        self.count -= 1;
        self.bytes -= bytes;
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, bytes: self.bytes + other.bytes }
    }

    fn reaches(self, bound: Self) -> bool {
        self.count >= bound.count || self.bytes >= bound.bytes
    }

    fn half(self) -> Self {
        Self { count: self.count.div_ceil(2), bytes: self.bytes.div_ceil(2) }
    }
}

/// What waits on a side, which is full from its bound on until half of it has gone:
/// the other side could not come up record by record.
#[derive(Debug)]
struct Side {
    most: Load,
    is_full: bool,
    has_room: bool,
}

impl Side {
    fn new(most: Load) -> Self {
        Self { most, is_full: false, has_room: true }
    }

    fn set(&mut self, load: Load) {
        self.has_room = !load.reaches(self.most);
        self.is_full = !self.has_room || (self.is_full && load.reaches(self.most.half()));
    }
}

/// Which side is read, so that the one that lags comes up, and what may be judged
/// meanwhile: nothing whose partner stands where nobody reads.
#[derive(Debug)]
pub(crate) struct Pace {
    grace: Duration,
    events: Side,
    records: Side,
    /// Since when records are not read.
    stopped_at: Option<Duration>,
    /// For how long they were not read before that.
    stopped: Duration,
    /// Every event was told that a record of then can be of.
    events_until: Option<Duration>,
}

impl Pace {
    pub(crate) fn new(grace: Duration) -> Self {
        Self {
            grace,
            events: Side::new(MOST),
            records: Side::new(MOST),
            stopped_at: None,
            stopped: Duration::ZERO,
            events_until: None,
        }
    }

    /// With other bounds.
    #[cfg(test)]
    pub(crate) fn bounded(self, count: usize) -> Self {
        let side = || Side::new(Load { count, ..MOST });
        Self { events: side(), records: side(), ..self }
    }

    /// So much waits now.
    pub(crate) fn set(&mut self, now: Duration, events: Load, records: Load) {
        self.events.set(events);
        self.records.set(records);
        match (self.reads_records(), self.stopped_at) {
            (false, None) => self.stopped_at = Some(now),
            (true, Some(at)) => {
                self.stopped += now.saturating_sub(at);
                self.stopped_at = None;
            }
            (true, None) | (false, Some(_)) => {}
        }
    }

    pub(crate) fn reads_events(&self) -> bool {
        !self.events.is_full
    }

    /// Not while many wait for events that are being read. Where the events wait as
    /// well, their records stand behind these.
    pub(crate) fn reads_records(&self) -> bool {
        !self.records.is_full || self.events.is_full
    }

    /// Whether records are read for which there is no room.
    pub(crate) fn is_crowded(&self) -> bool {
        self.events.is_full && !self.records.has_room
    }

    pub(crate) fn set_events_until(&mut self, until: Duration) {
        self.events_until = self.events_until.max(Some(until));
    }

    /// For how long records were read, which is the time by which events wait.
    pub(crate) fn read_for(&self, now: Duration) -> Duration {
        self.stopped_at.unwrap_or(now).saturating_sub(self.stopped)
    }

    /// Whether an event has waited for long enough, since this time of
    /// [`read_for`](Self::read_for).
    pub(crate) fn is_event_due(&self, since: Duration, now: Duration) -> bool {
        self.read_for(now).saturating_sub(since) >= self.grace
    }

    /// Whether a record has waited for long enough: no event can come for it, and
    /// what comes behind it can say no more of it, or there is no room to wait.
    pub(crate) fn is_record_due(&self, since: Duration, now: Duration) -> bool {
        let has_events = self.events_until.is_some_and(|until| since <= until);
        has_events && (self.records.is_full || now.saturating_sub(since) >= self.grace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Duration = Duration::from_secs;
    const EMPTY: Load = Load { count: 0, bytes: 0 };
    const FULL: Load = Load { count: 1, bytes: 0 };

    fn pace() -> Pace {
        Pace::new(AT(10)).bounded(1)
    }

    #[test]
    fn the_side_that_lags_is_read() {
        let mut pace = pace();
        for (events, records, reads) in [
            (EMPTY, EMPTY, (true, true)),
            (FULL, EMPTY, (false, true)),
            (EMPTY, FULL, (true, false)),
            (FULL, FULL, (false, true)),
        ] {
            pace.set(AT(0), events, records);
            assert_eq!((pace.reads_events(), pace.reads_records()), reads);
        }
    }

    #[test]
    fn a_side_is_full_until_half_of_it_has_gone() {
        let mut side = Side::new(Load { count: 4, bytes: 10 });
        for (count, bytes, expected) in [
            (3, 9, (false, true)),
            (4, 0, (true, false)),
            (3, 0, (true, true)),
            (2, 0, (true, true)),
            (1, 0, (false, true)),
            (3, 0, (false, true)),
            (0, 10, (true, false)),
            (0, 5, (true, true)),
            (0, 4, (false, true)),
        ] {
            side.set(Load { count, bytes });
            assert_eq!((side.is_full, side.has_room), expected, "{count}, {bytes} bytes");
        }
    }

    #[test]
    fn an_event_waits_only_while_records_are_read() {
        let mut pace = pace();
        for (at, records, read_for) in [
            (1, EMPTY, 1),
            (2, FULL, 2),
            (5, FULL, 2),
            (9, EMPTY, 2),
            (10, EMPTY, 3),
            (11, FULL, 4),
            (20, EMPTY, 4),
        ] {
            pace.set(AT(at), EMPTY, records);
            assert_eq!(pace.read_for(AT(at)), AT(read_for), "{at} s");
        }
        assert!(!pace.is_event_due(AT(4), AT(29)) && pace.is_event_due(AT(4), AT(30)));
    }

    #[test]
    fn a_record_waits_until_its_event_would_have_come() {
        let mut pace = pace();
        assert!(!pace.is_record_due(AT(1), AT(20)));
        pace.set_events_until(AT(1));
        assert!(!pace.is_record_due(AT(1), AT(10)) && pace.is_record_due(AT(1), AT(11)));
        pace.set(AT(2), EMPTY, FULL);
        assert!(pace.is_record_due(AT(1), AT(2)) && !pace.is_record_due(AT(2), AT(20)));
    }
}
