use super::command::Place;
use crate::inbox::{FetchFailure, Fetched};

/// Where the queue of a partition has got to: pure.
#[derive(Debug)]
pub(super) struct Position {
    next_offset: i64,
    before: Option<Before>,
    news: Option<News>,
}

/// What has come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Records,
    /// The word that the log ends, for now.
    End,
}

/// The record before the first one that is wanted, as it was when its effect
/// was made.
#[derive(Clone, Copy, Debug)]
struct Before {
    offset: i64,
    leader_epoch: i32,
}

impl Position {
    /// Before the first record.
    pub(super) fn at(place: Place) -> Self {
        let before = place
            .leader_epoch_before
            .map(|leader_epoch| Before { offset: place.offset - 1, leader_epoch });
        let next_offset = before.map_or(place.offset, |before| before.offset);
        Self { next_offset, before, news: None }
    }

    /// The offset to fetch from.
    pub(super) fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// What has come since the last call.
    pub(super) fn news(&mut self) -> Option<News> {
        self.news.take()
    }

    /// What to hand on of what was fetched: `None` for the record before the
    /// first one that is wanted, and for the end of the log.
    pub(super) fn take(&mut self, fetched: Fetched) -> Option<Fetched> {
        let event = match fetched {
            Fetched::Event(event) => event,
            Fetched::End => {
                self.news = Some(News::End);
                return None;
            }
            other => return Some(other),
        };
        self.news = Some(News::Records);
        if event.offset() < self.next_offset {
            let lost = FetchFailure::Lost("an offset came twice".to_owned());
            return Some(Fetched::Failed(lost));
        }
        // Where it was compacted away there is nothing to compare.
        let before = self.before.take().filter(|before| before.offset == event.offset());
        self.next_offset = event.offset() + 1;
        let Some(before) = before else {
            return Some(Fetched::Event(event));
        };
        match event.leader_epoch() {
            Some(now) if now != before.leader_epoch => {
                let (offset, then) = (before.offset, before.leader_epoch);
                Some(Fetched::Failed(FetchFailure::Replaced { offset, then, now }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    fn record(offset: i64, leader_epoch: Option<i32>) -> Fetched {
        let event = Event::builder("t").position(0, offset).leader_epoch(leader_epoch);
        Fetched::Event(event.build())
    }

    fn at(offset: i64, leader_epoch_before: Option<i32>) -> Position {
        Position::at(Place { offset, leader_epoch_before })
    }

    fn offset(taken: Option<Fetched>) -> Option<i64> {
        match taken {
            Some(Fetched::Event(event)) => Some(event.offset()),
            Some(other) => panic!("{other:?}"),
            None => None,
        }
    }

    #[test]
    fn the_record_before_is_looked_at_and_not_handed_on() {
        for now in [Some(3), None] {
            let mut position = at(10, Some(3));
            assert_eq!(position.next_offset(), 9);
            assert_eq!(offset(position.take(record(9, now))), None);
            assert_eq!(position.next_offset(), 10);
            assert_eq!(offset(position.take(record(10, Some(4)))), Some(10));
        }
    }

    #[test]
    fn another_record_in_its_place_is_a_failure() {
        for now in [2, 4] {
            let taken = at(10, Some(3)).take(record(9, Some(now)));
            let Some(Fetched::Failed(failure)) = taken else { panic!("{taken:?}") };
            assert_eq!(failure, FetchFailure::Replaced { offset: 9, then: 3, now });
        }
    }

    #[test]
    fn what_is_gone_or_unknown_is_not_looked_at() {
        let mut gone = at(10, Some(3));
        assert_eq!(offset(gone.take(record(12, Some(4)))), Some(12));
        let mut unknown = at(10, None);
        assert_eq!(unknown.next_offset(), 10);
        assert_eq!(offset(unknown.take(record(10, Some(4)))), Some(10));
    }

    #[test]
    fn the_end_is_told_until_a_record_comes() {
        let mut position = at(10, None);
        assert_eq!(position.news(), None);
        position.take(record(10, None));
        assert_eq!(offset(position.take(Fetched::End)), None);
        assert_eq!(position.news(), Some(News::End));
        assert_eq!(position.news(), None, "it is no news any more");
        position.take(Fetched::End);
        position.take(record(11, None));
        assert_eq!(position.news(), Some(News::Records));
    }

    #[test]
    fn an_offset_that_comes_twice_is_a_failure() {
        let mut position = at(10, None);
        position.take(record(10, None));
        let taken = position.take(record(10, None));
        assert!(matches!(taken, Some(Fetched::Failed(FetchFailure::Lost(_)))), "{taken:?}");
    }
}
