//! What came of a run: a pure function over what was read at its end.

use std::collections::{HashMap, HashSet};

const MAX_EXAMPLES: usize = 20;

/// A record of the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) key: String,
    pub(super) id: String,
}

/// A row that the handler wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) key: String,
    pub(super) seq: i64,
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The whole topic.
    pub(super) records: Vec<Record>,
    /// All effects, in the order in which they were made.
    pub(super) effects: Vec<Row>,
    /// Partition and offset of each record whose id was offered to the
    /// deduplication in a transaction that was committed.
    pub(super) offered: Vec<(i32, i64)>,
    /// Rows of the deduplication table.
    pub(super) done: u64,
}

/// What became of the events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// In the topic, each counted once.
    pub(super) events: u64,
    /// Without an effect.
    pub(super) lost: u64,
    /// Effects beyond the first of an event.
    pub(super) applied_twice: u64,
    /// Effects of keys, all of whose records are in one partition, that were
    /// made behind the effect of a later event of the key.
    pub(super) reordered: u64,
    /// Such keys.
    pub(super) ordered_keys: u64,
    /// Effects of no event.
    pub(super) unknown: u64,
    /// Records beyond the first of an event.
    pub(super) copies: u64,
    /// Committed offers to the deduplication that made no row.
    pub(super) dedup_hits: u64,
    /// Offers of a record beyond its first: it was applied, or skipped, twice.
    pub(super) offered_twice: u64,
    /// Records that were never offered.
    pub(super) not_offered: u64,
    /// The first things wrong.
    pub(super) examples: Vec<String>,
}

impl Verdict {
    pub(super) fn of(facts: &Facts) -> Self {
        let mut verdict = Self::default();
        let events = verdict.judge_effects(facts);
        verdict.judge_order(facts);
        verdict.judge_offers(facts);
        verdict.events = events;
        verdict.copies = facts.records.len() as u64 - events;
        verdict
    }

    /// How many events there are.
    fn judge_effects(&mut self, facts: &Facts) -> u64 {
        let mut times: HashMap<&str, u64> = HashMap::with_capacity(facts.records.len());
        times.extend(facts.records.iter().map(|record| (record.id.as_str(), 0)));
        for row in &facts.effects {
            match times.get_mut(row.id.as_str()) {
                None => {
                    self.unknown += 1;
                    self.wrong(|| format!("effect of no event: {row:?}"));
                }
                Some(times) => *times += 1,
            }
        }
        for (id, times) in &times {
            match times {
                0 => {
                    self.lost += 1;
                    self.wrong(|| format!("lost: event {id}"));
                }
                1 => {}
                more => {
                    self.applied_twice += more - 1;
                    self.wrong(|| format!("applied {more} times: event {id}"));
                }
            }
        }
        times.len() as u64
    }

    fn judge_order(&mut self, facts: &Facts) {
        let mut homes: HashMap<&str, Option<i32>> = HashMap::new();
        for record in &facts.records {
            let home = homes.entry(&record.key).or_insert(Some(record.partition));
            if *home != Some(record.partition) {
                *home = None;
            }
        }
        homes.retain(|_, home| home.is_some());
        self.ordered_keys = homes.len() as u64;
        let mut last: HashMap<&str, i64> = HashMap::new();
        for row in facts.effects.iter().filter(|row| homes.contains_key(row.key.as_str())) {
            let last = last.entry(&row.key).or_insert(row.seq);
            if row.seq < *last {
                self.reordered += 1;
                self.wrong(|| format!("reordered: {row:?} behind {last}"));
            }
            *last = row.seq.max(*last);
        }
    }

    fn judge_offers(&mut self, facts: &Facts) {
        let mut waiting: HashSet<(i32, i64)> =
            facts.records.iter().map(|record| (record.partition, record.offset)).collect();
        for offer in &facts.offered {
            if !waiting.remove(offer) {
                self.offered_twice += 1;
                self.wrong(|| format!("offered twice: partition and offset {offer:?}"));
            }
        }
        self.not_offered = waiting.len() as u64;
        self.dedup_hits = (facts.offered.len() as u64).saturating_sub(facts.done);
    }

    fn wrong(&mut self, what: impl FnOnce() -> String) {
        if self.examples.len() < MAX_EXAMPLES {
            self.examples.push(what());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(partition: i32, offset: i64, id: &str) -> Record {
        Record { partition, offset, key: id[..1].to_owned(), id: id.to_owned() }
    }

    fn row(id: &str) -> Row {
        Row { id: id.to_owned(), key: id[..1].to_owned(), seq: id[1..].parse().unwrap() }
    }

    /// Key a stays in partition 0, b has a copy in another one.
    fn facts() -> Facts {
        let records = vec![
            record(0, 0, "a1"),
            record(0, 1, "b1"),
            record(0, 2, "a2"),
            record(0, 3, "a1"),
            record(1, 0, "b1"),
        ];
        let offered = records.iter().map(|record| (record.partition, record.offset)).collect();
        Facts { records, effects: ["a1", "b1", "a2"].map(row).into(), offered, done: 3 }
    }

    #[test]
    fn effects_that_were_made_once_are_fine_and_copies_are_counted() {
        let expected =
            Verdict { events: 3, ordered_keys: 1, copies: 2, dedup_hits: 2, ..Verdict::default() };
        assert_eq!(Verdict::of(&facts()), expected);
    }

    #[test]
    fn each_fault_is_counted_as_what_it_is() {
        let judged = |change: fn(&mut Facts)| {
            let mut facts = facts();
            change(&mut facts);
            Verdict::of(&facts)
        };
        assert_eq!(judged(|facts| drop(facts.effects.pop())).lost, 1);
        assert_eq!(judged(|facts| facts.effects.push(row("a1"))).applied_twice, 1);
        assert_eq!(judged(|facts| facts.effects.push(row("c1"))).unknown, 1);
        assert_eq!(judged(|facts| facts.effects.swap(0, 2)).reordered, 1);
        let twice = judged(|facts| facts.offered.push((0, 2)));
        assert_eq!((twice.offered_twice, twice.dedup_hits), (1, 3));
        assert_eq!(judged(|facts| facts.offered.truncate(4)).not_offered, 1);
        assert!(!twice.examples.is_empty());
    }

    #[test]
    fn a_key_with_a_copy_elsewhere_has_no_order() {
        let mut facts = facts();
        facts.records.push(record(0, 4, "b2"));
        facts.effects.splice(1..2, ["b2", "b1"].map(row));
        assert_eq!(Verdict::of(&facts).reordered, 0);
    }
}
