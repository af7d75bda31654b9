use std::collections::{HashMap, HashSet};

/// An event that the shop committed, as the outbox has it.
#[derive(Clone, Debug)]
pub(super) struct Committed {
    pub(super) id: String,
}

/// A record as it was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: String,
    pub(super) order: String,
    /// The shop's own count of the changes to that order, from 1.
    pub(super) sequence: i64,
    pub(super) partition: i32,
    pub(super) offset: i64,
}

/// An effect, in the order in which they were made.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    pub(super) id: String,
    pub(super) order: String,
    pub(super) sequence: i64,
}

/// What became of the committed events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) committed: u64,
    /// Distinct committed events in the topic.
    pub(super) published: u64,
    /// Further copies.
    pub(super) published_twice: u64,
    /// Distinct committed events with an effect.
    pub(super) applied: u64,
    /// Further effects.
    pub(super) applied_twice: u64,
    /// Committed events that are not in the topic, or have no effect.
    pub(super) lost: u64,
    /// Events whose first record, or first effect, comes after that of a later
    /// event of the same order; and records in another partition than the rest.
    pub(super) reordered: u64,
    /// Records and effects of events that were never committed.
    pub(super) unknown: u64,
}

/// Judges the run. `records` are sorted by partition and offset, `effects` by
/// the order in which they were made.
pub(super) fn judge(committed: &[Committed], records: &[Record], effects: &[Effect]) -> Verdict {
    let ids: HashSet<&str> = committed.iter().map(|event| event.id.as_str()).collect();
    let mut verdict = Verdict { committed: count(ids.len()), ..Verdict::default() };
    let mut published = Appearances::default();
    for record in records {
        let lane = record.partition;
        published.saw(&ids, (&record.id, &record.order), record.sequence, lane);
    }
    let mut applied = Appearances::default();
    for effect in effects {
        applied.saw(&ids, (&effect.id, &effect.order), effect.sequence, 0);
    }
    let arrived = published.seen.intersection(&applied.seen).count();
    verdict.lost = verdict.committed - count(arrived);
    verdict.published = count(published.seen.len());
    verdict.published_twice = published.further;
    verdict.applied = count(applied.seen.len());
    verdict.applied_twice = applied.further;
    verdict.reordered = published.reordered + applied.reordered;
    verdict.unknown = published.unknown + applied.unknown;
    verdict
}

/// Events whose effect was made exactly once more between two counts, and
/// those for which that is not so.
pub(super) fn replayed(before: &[Effect], after: &[Effect]) -> (u64, u64) {
    let mut times: HashMap<&str, i64> = HashMap::new();
    for effect in after {
        *times.entry(&effect.id).or_default() += 1;
    }
    for effect in before {
        *times.entry(&effect.id).or_default() -= 1;
    }
    let once = times.values().filter(|times| **times == 1).count();
    (count(once), count(times.len() - once))
}

/// Events of one place in the order of their first appearance.
#[derive(Default)]
struct Appearances<'a> {
    seen: HashSet<&'a str>,
    furthest: HashMap<&'a str, (i32, i64)>,
    further: u64,
    reordered: u64,
    unknown: u64,
}

impl<'a> Appearances<'a> {
    fn saw(
        &mut self,
        committed: &HashSet<&str>,
        (id, order): (&'a str, &'a str),
        sequence: i64,
        lane: i32,
    ) {
        if !committed.contains(id) {
            self.unknown += 1;
            return;
        }
        if !self.seen.insert(id) {
            self.further += 1;
            return;
        }
        let (home, furthest) = self.furthest.entry(order).or_insert((lane, sequence));
        if *home != lane || sequence < *furthest {
            self.reordered += 1;
        }
        *furthest = sequence.max(*furthest);
    }
}

fn count(number: usize) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed(ids: &[&str]) -> Vec<Committed> {
        ids.iter().map(|id| Committed { id: (*id).to_owned() }).collect()
    }

    fn records(all: &[(&str, i64, i32)]) -> Vec<Record> {
        let record = |(offset, (id, sequence, partition)): (usize, &(&str, i64, i32))| Record {
            id: (*id).to_owned(),
            order: "order".to_owned(),
            sequence: *sequence,
            partition: *partition,
            offset: offset as i64,
        };
        all.iter().enumerate().map(record).collect()
    }

    fn effects(all: &[(&str, i64)]) -> Vec<Effect> {
        let effect = |(id, sequence): &(&str, i64)| Effect {
            id: (*id).to_owned(),
            order: "order".to_owned(),
            sequence: *sequence,
        };
        all.iter().map(effect).collect()
    }

    #[test]
    fn a_clean_run_is_clean() {
        let verdict = judge(
            &committed(&["a", "b"]),
            &records(&[("a", 1, 0), ("b", 2, 0)]),
            &effects(&[("a", 1), ("b", 2)]),
        );
        let expected = Verdict { committed: 2, published: 2, applied: 2, ..Verdict::default() };
        assert_eq!(verdict, expected);
    }

    #[test]
    fn what_is_missing_on_either_side_is_lost_once() {
        let all = committed(&["a", "b", "c"]);
        let verdict = judge(&all, &records(&[("a", 1, 0), ("b", 2, 0)]), &effects(&[("a", 1)]));
        assert_eq!((verdict.published, verdict.applied, verdict.lost), (2, 1, 2));
    }

    #[test]
    fn copies_and_second_effects_are_counted_and_not_out_of_order() {
        let verdict = judge(
            &committed(&["a", "b"]),
            &records(&[("a", 1, 0), ("b", 2, 0), ("a", 1, 0), ("b", 2, 0)]),
            &effects(&[("a", 1), ("b", 2), ("a", 1)]),
        );
        assert_eq!((verdict.published_twice, verdict.applied_twice), (2, 1));
        assert_eq!((verdict.reordered, verdict.lost), (0, 0));
    }

    #[test]
    fn order_is_judged_for_records_and_for_effects() {
        let all = committed(&["a", "b"]);
        let verdict =
            judge(&all, &records(&[("b", 2, 0), ("a", 1, 0)]), &effects(&[("b", 2), ("a", 1)]));
        assert_eq!(verdict.reordered, 2);
        let verdict =
            judge(&all, &records(&[("a", 1, 0), ("b", 2, 1)]), &effects(&[("a", 1), ("b", 2)]));
        assert_eq!(verdict.reordered, 1);
    }

    #[test]
    fn what_was_never_committed_is_unknown() {
        let verdict = judge(&committed(&[]), &records(&[("x", 1, 0)]), &effects(&[("x", 1)]));
        assert_eq!((verdict.unknown, verdict.published, verdict.applied), (2, 0, 0));
    }

    #[test]
    fn a_replay_is_exactly_one_more() {
        let before = effects(&[("a", 1), ("b", 2), ("c", 3)]);
        let after = effects(&[("a", 1), ("b", 2), ("c", 3), ("a", 1), ("b", 2), ("b", 2)]);
        assert_eq!(replayed(&before, &after), (1, 2));
    }
}
