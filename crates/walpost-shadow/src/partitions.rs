use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use walpost_event::Position;

/// Topic and partition.
pub(crate) type Place = (Arc<str>, i32);

/// What is known of the partitions: from where on Debezium's records are of events
/// that Walpost has to have, and in which order they came.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    known: HashMap<Place, Partition>,
    counts: HashMap<Arc<str>, i32>,
}

#[derive(Debug, Default)]
struct Partition {
    /// Offset of the first record that both have.
    first_common: Option<i64>,
    /// From here on every record is of an event behind the start.
    begins_at: Option<i64>,
    /// Offset and position of the last record that both have.
    last_common: Option<(i64, Position)>,
    /// By offset the numbers of records that wait, and before which Debezium may have
    /// gone back.
    undecided: BTreeMap<i64, u64>,
}

impl Partitions {
    /// Of a topic.
    pub(crate) fn set_count(&mut self, topic: &str, partitions: i32) {
        match self.counts.get_mut(topic) {
            Some(count) => *count = partitions,
            None => drop(self.counts.insert(topic.into(), partitions)),
        }
    }

    pub(crate) fn count(&self, topic: &str) -> Option<i32> {
        self.counts.get(topic).copied().filter(|count| *count > 0)
    }

    pub(crate) fn begin_at(&mut self, place: Place, offset: i64) {
        self.known.entry(place).or_default().begins_at = Some(offset);
    }

    /// Whether a record without a partner is of an event from before the start.
    pub(crate) fn is_older(&self, place: &Place, offset: i64) -> bool {
        let Some(partition) = self.known.get(place) else { return true };
        let is_behind = |from: Option<i64>| from.is_some_and(|from| from <= offset);
        !is_behind(partition.first_common) && !is_behind(partition.begins_at)
    }

    /// A record waits, under this number.
    pub(crate) fn waits(&mut self, place: Place, offset: i64, number: u64) {
        self.known.entry(place).or_default().undecided.insert(offset, number);
    }

    /// It waits no longer.
    pub(crate) fn is_judged(&mut self, place: &Place, offset: i64) {
        if let Some(partition) = self.known.get_mut(place) {
            partition.undecided.remove(&offset);
        }
    }

    /// Both have the record: what waits before it was written for the first time.
    /// Whether it came in the order of its event.
    pub(crate) fn common(&mut self, place: Place, offset: i64, position: Option<Position>) -> bool {
        let partition = self.known.entry(place).or_default();
        let first = partition.first_common.get_or_insert(offset);
        *first = (*first).min(offset);
        partition.undecided = partition.undecided.split_off(&offset.saturating_add(1));
        let Some(position) = position else { return true };
        let last = *partition.last_common.get_or_insert((offset, position));
        let in_order = (offset > last.0) == (position > last.1);
        if offset > last.0 {
            partition.last_common = Some((offset, position.max(last.1)));
        }
        in_order
    }

    /// Debezium has written a record again: what waits and came right before it was
    /// written again as well. Returns the numbers.
    pub(crate) fn again(&mut self, place: &Place, offset: i64) -> Vec<u64> {
        let Some(partition) = self.known.get_mut(place) else { return Vec::new() };
        let behind = partition.undecided.split_off(&offset);
        std::mem::replace(&mut partition.undecided, behind).into_values().collect()
    }

    /// How many records are undecided, of all partitions.
    #[cfg(test)]
    pub(crate) fn undecided(&self) -> usize {
        self.known.values().map(|partition| partition.undecided.len()).sum()
    }
}
