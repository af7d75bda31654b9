//! How far the lanes of a partition have come together: pure.

use std::collections::VecDeque;

use crate::Event;

/// Offsets that may lie between the oldest event that is not done and the
/// newest that is given out.
const AHEAD_MAX_EVENTS: usize = 100_000;

/// The events that were given to lanes, in the order of the log.
#[derive(Debug)]
pub(super) struct Progress {
    given: VecDeque<Given>,
    open_bytes: usize,
    open_max_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Given {
    offset: i64,
    leader_epoch: Option<i32>,
    timestamp_ms: Option<i64>,
    bytes: usize,
    done: bool,
}

/// Behind an event up to which all are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Watermark {
    pub(super) next_offset: i64,
    pub(super) leader_epoch: Option<i32>,
}

impl Progress {
    pub(super) fn new(open_max_bytes: usize) -> Self {
        Self { given: VecDeque::new(), open_bytes: 0, open_max_bytes }
    }

    /// Whether further events may be given out.
    pub(super) fn has_room(&self) -> bool {
        self.given.len() < AHEAD_MAX_EVENTS && self.open_bytes < self.open_max_bytes
    }

    /// Behind the newest event that was given out, while any is open.
    pub(super) fn end(&self) -> Option<i64> {
        self.given.back().map(|given| given.offset + 1)
    }

    /// What the oldest event that is open carries as its time.
    pub(super) fn oldest_ms(&self) -> Option<i64> {
        self.given.front()?.timestamp_ms
    }

    /// The next of the log goes to a lane.
    pub(super) fn give(&mut self, event: &Event) {
        let bytes = event.size_bytes();
        self.open_bytes += bytes;
        self.given.push_back(Given {
            offset: event.offset(),
            leader_epoch: event.leader_epoch(),
            timestamp_ms: event.timestamp_ms(),
            bytes,
            done: false,
        });
    }

    /// A lane has committed the event at `offset`.
    pub(super) fn done(&mut self, offset: i64) {
        if let Ok(index) = self.given.binary_search_by_key(&offset, |given| given.offset)
            && let Some(given) = self.given.get_mut(index)
            && !given.done
        {
            given.done = true;
            self.open_bytes -= given.bytes;
        }
    }

    /// Takes off what is done from the oldest on, and says where that ends.
    pub(super) fn watermark(&mut self) -> Option<Watermark> {
        let mut watermark = None;
        while let Some(&Given { offset, leader_epoch, done: true, .. }) = self.given.front() {
            watermark = Some(Watermark { next_offset: offset + 1, leader_epoch });
            self.given.pop_front();
        }
        watermark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(offset: i64) -> Event {
        Event::builder("t").position(0, offset).value(Some(b"12345")).leader_epoch(Some(7)).build()
    }

    #[test]
    fn the_watermark_follows_the_oldest_event_that_is_not_done() {
        let mut progress = Progress::new(1_000);
        for offset in [10, 11, 13, 20] {
            progress.give(&event(offset));
        }
        progress.done(11);
        progress.done(20);
        assert_eq!(progress.watermark(), None);
        progress.done(10);
        let at = |next_offset| Some(Watermark { next_offset, leader_epoch: Some(7) });
        assert_eq!(progress.watermark(), at(12));
        assert_eq!(progress.watermark(), None, "once");
        progress.done(13);
        assert_eq!(progress.watermark(), at(21));
    }

    #[test]
    fn room_is_bounded_by_the_bytes_that_are_not_done() {
        let mut progress = Progress::new(10);
        progress.give(&event(0));
        assert!(progress.has_room());
        progress.give(&event(1));
        assert!(!progress.has_room());
        progress.done(1);
        progress.done(1);
        assert!(progress.has_room(), "done events are in nobody's memory");
        progress.give(&event(2));
        assert!(!progress.has_room());
    }

    #[test]
    fn one_event_that_hangs_does_not_let_the_others_run_away() {
        let mut progress = Progress::new(usize::MAX);
        for offset in 0..AHEAD_MAX_EVENTS as i64 {
            progress.give(&event(offset));
            if offset > 0 {
                progress.done(offset);
            }
        }
        assert!(!progress.has_room());
        progress.done(0);
        assert_eq!(progress.watermark().map(|to| to.next_offset), Some(AHEAD_MAX_EVENTS as i64));
        assert!(progress.has_room());
    }
}
