use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
};

use walpost_event::{Identity, Position};

use super::{Texts, column_text};
use crate::error::RelayError;

/// Aggregates that wait at a time.
pub(super) const WAITING_MAX: usize = 200_000;
/// Bytes of their names.
const WAITING_MAX_BYTES: usize = 64 << 20;

/// What keeps its order: as the table gives it back, in text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Aggregate {
    pub(super) kind: Option<String>,
    pub(super) id: Option<String>,
}

impl Aggregate {
    pub(crate) fn new(identity: &Identity) -> Self {
        Self {
            kind: column_text(identity.aggregate_type.as_ref()),
            id: column_text(identity.aggregate_id.as_ref()),
        }
    }

    /// As the table may have it.
    pub(super) fn with(&self, texts: Texts) -> Self {
        let of = |text: &Option<String>| text.as_ref().map(|text| texts.of(text));
        Self { kind: of(&self.kind), id: of(&self.id) }
    }

    fn size_bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        text(&self.kind) + text(&self.id)
    }
}

/// The aggregates whose later events wait behind a parked one.
///
/// Pure. One is free again when the table has no open row of it and none is on
/// its way there: rows are counted, so that a look at the table says nothing of
/// those that were added behind it.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    aggregates: BTreeMap<Aggregate, Entry>,
    names_bytes: usize,
    /// Events that were to have a row, and those of them that have one.
    added: u64,
    written: u64,
    /// To be looked at soon.
    suspected: VecDeque<Aggregate>,
    /// To be looked at once what was added is written.
    unwritten: Vec<Aggregate>,
    /// Where the round of all of them is.
    round: Option<Aggregate>,
}

#[derive(Debug)]
struct Entry {
    /// The first parked event.
    first: Position,
    /// Count of the last event that was added.
    last_added: u64,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.aggregates.is_empty()
    }

    /// Whether an event has to wait behind one of its aggregate. What stands
    /// before that one, and comes again, has not.
    pub(super) fn holds_back(&self, position: Position, aggregate: &Aggregate) -> bool {
        self.aggregates.get(aggregate).is_some_and(|entry| entry.first <= position)
    }

    /// One that has open rows since an earlier session.
    pub(super) fn load(&mut self, aggregate: Aggregate, first: Position) -> Result<(), RelayError> {
        self.wait_behind(aggregate, first, 0)
    }

    /// An event is to have a row; later ones of its aggregate wait, if it has
    /// one that keeps its order.
    pub(super) fn add(
        &mut self,
        position: Position,
        aggregate: Option<Aggregate>,
    ) -> Result<(), RelayError> {
        self.added += 1;
        match aggregate {
            Some(aggregate) => self.wait_behind(aggregate, position, self.added),
            None => Ok(()),
        }
    }

    fn wait_behind(
        &mut self,
        aggregate: Aggregate,
        position: Position,
        added: u64,
    ) -> Result<(), RelayError> {
        if let Some(entry) = self.aggregates.get_mut(&aggregate) {
            entry.first = entry.first.min(position);
            entry.last_added = entry.last_added.max(added);
            return Ok(());
        }
        let names_bytes = self.names_bytes + aggregate.size_bytes();
        if self.aggregates.len() >= WAITING_MAX || names_bytes > WAITING_MAX_BYTES {
            return Err(too_many(self.aggregates.len()));
        }
        self.names_bytes = names_bytes;
        self.aggregates.insert(aggregate, Entry { first: position, last_added: added });
        Ok(())
    }

    /// So many events have got their rows, in the order in which they were
    /// added.
    pub(super) fn written(&mut self, events: usize) {
        self.written += events as u64;
        for aggregate in std::mem::take(&mut self.unwritten) {
            self.suspect(aggregate);
        }
    }

    /// What a look at the table that begins now knows of.
    pub(super) fn written_now(&self) -> u64 {
        self.written
    }

    /// Something has happened to a row of this one.
    pub(super) fn suspect(&mut self, aggregate: Aggregate) {
        if !self.suspected.contains(&aggregate) {
            self.suspected.push_back(aggregate);
        }
    }

    /// Whether one is to be looked at without delay.
    pub(super) fn is_suspecting(&self) -> bool {
        !self.suspected.is_empty()
    }

    /// Those to look at now: where something has happened, and the next of a
    /// round of all.
    pub(super) fn next_look(&mut self, suspects_max: usize, others_max: usize) -> Vec<Aggregate> {
        let count = self.suspected.len().min(suspects_max);
        let mut chosen: Vec<Aggregate> = self.suspected.drain(..count).collect();
        let from = self.round.take().map_or(Bound::Unbounded, Bound::Excluded);
        let others = self.aggregates.range((from, Bound::Unbounded)).take(others_max);
        let others: Vec<Aggregate> = others.map(|(aggregate, _)| aggregate.clone()).collect();
        if others.len() == others_max {
            self.round = others.last().cloned();
        }
        chosen.extend(others);
        chosen.sort();
        chosen.dedup();
        chosen
    }

    /// The table has no open row of this one, as of a look that knew of
    /// `written` events. Whether it is free now; if not, it is looked at again.
    pub(super) fn has_no_row(&mut self, aggregate: Aggregate, written: u64) -> bool {
        let Some(entry) = self.aggregates.get(&aggregate) else { return false };
        if entry.last_added > self.written {
            self.unwritten.push(aggregate);
            return false;
        }
        if entry.last_added > written {
            self.suspect(aggregate);
            return false;
        }
        self.names_bytes -= aggregate.size_bytes();
        self.aggregates.remove(&aggregate);
        true
    }
}

fn too_many(count: usize) -> RelayError {
    RelayError::prerequisite(
        format!(
            "{count} aggregates wait behind parked events, and the relay remembers no more than \
             {WAITING_MAX}, or {WAITING_MAX_BYTES} bytes of names"
        ),
        "discard events with `walpost parked discard`, which the next start does first, or start \
         with park = \"event\", which gives up their order, and send them on with `walpost parked \
         retry`",
    )
}

#[cfg(test)]
mod tests {
    use walpost_event::Lsn;

    use super::*;

    fn at(ordinal: u32) -> Position {
        Position { commit_lsn: Lsn::from(10), ordinal }
    }

    fn named(id: &str) -> Aggregate {
        Aggregate { kind: Some("order".to_owned()), id: Some(id.to_owned()) }
    }

    #[test]
    fn an_aggregate_is_free_only_when_all_its_rows_were_there_to_be_seen() {
        let mut waiting = Waiting::default();
        waiting.add(at(1), Some(named("a"))).unwrap();
        assert!(waiting.holds_back(at(2), &named("a")) && !waiting.holds_back(at(2), &named("b")));
        assert!(!waiting.holds_back(at(0), &named("a")), "what stands before it has not to wait");
        assert!(!waiting.has_no_row(named("a"), waiting.written_now()), "its row is not written");
        assert!(!waiting.is_suspecting());
        waiting.written(1);
        assert!(waiting.is_suspecting(), "there is news now");
        let look = waiting.written_now();
        waiting.add(at(2), Some(named("a"))).unwrap();
        assert!(!waiting.has_no_row(named("a"), look), "one was added behind the look");
        waiting.written(1);
        assert!(waiting.has_no_row(named("a"), waiting.written_now()));
        assert!(waiting.is_empty() && waiting.names_bytes == 0);
        assert!(!waiting.has_no_row(named("a"), u64::MAX), "free already");
    }

    #[test]
    fn each_comes_in_its_turn_and_those_with_news_at_once() {
        let mut waiting = Waiting::default();
        for id in ["a", "b", "c", "d", "e"] {
            waiting.load(named(id), at(0)).unwrap();
        }
        waiting.suspect(named("e"));
        waiting.suspect(named("e"));
        let ids = |chosen: Vec<Aggregate>| -> String {
            chosen.into_iter().filter_map(|aggregate| aggregate.id).collect()
        };
        assert_eq!(ids(waiting.next_look(9, 2)), "abe");
        assert_eq!(ids(waiting.next_look(9, 2)), "cd");
        assert_eq!(ids(waiting.next_look(9, 2)), "e");
        assert_eq!(ids(waiting.next_look(9, 2)), "ab");
    }

    #[test]
    fn names_are_bounded_and_what_goes_beyond_is_an_error() {
        let mut waiting = Waiting::default();
        let large = "x".repeat(WAITING_MAX_BYTES / 2);
        waiting.load(named(&large), at(0)).unwrap();
        waiting.load(named(&large), at(1)).unwrap();
        let error = waiting.add(at(2), Some(named(&format!("{large}y")))).unwrap_err();
        assert!(error.to_string().contains("1 aggregates wait"), "{error}");
        assert!(!error.is_transient());
    }
}
