//! Judges a run from the outside: what was committed, what was read back, what
//! was applied.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

const MAX_EXAMPLES: usize = 20;

/// An event whose transaction was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Its id, unique in the run.
    pub id: String,
    /// Its aggregate.
    pub aggregate: String,
}

/// A record as it was read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The id of its event.
    pub id: String,
    /// Its partition.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
}

/// How often the effect of an event was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The id of the event.
    pub id: String,
    /// The times.
    pub times: u64,
}

/// What became of the committed events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Events committed.
    pub committed: u64,
    /// Of these, events published at least once.
    pub published: u64,
    /// Records beyond the first of a committed event.
    pub published_twice: u64,
    /// Committed events never published.
    pub lost: u64,
    /// Events whose first record follows the first record of an event that the
    /// same aggregate committed later, or is in another partition than the
    /// aggregate's first record.
    pub reordered: u64,
    /// Committed events applied at least once.
    pub applied: u64,
    /// Applications beyond the first of a committed event.
    pub applied_twice: u64,
    /// Committed events never applied. Zero when no effects were judged.
    pub unapplied: u64,
    /// Records and applied ids that belong to no committed event.
    pub unknown: u64,
    /// The first 20 things wrong, each with its id.
    pub examples: Vec<String>,
}

impl Report {
    /// Panics unless every event was published, in order, and nothing unknown
    /// was; and applied exactly once, if effects were judged.
    ///
    /// # Panics
    ///
    /// With the report.
    #[track_caller]
    pub fn assert_at_least_once(&self) {
        let wrong = self.lost + self.reordered + self.unknown + self.applied_twice + self.unapplied;
        assert!(wrong == 0, "{self}");
    }

    /// As [`Report::assert_at_least_once`], and no event was published twice.
    ///
    /// # Panics
    ///
    /// With the report.
    #[track_caller]
    pub fn assert_exactly_once(&self) {
        self.assert_at_least_once();
        assert!(self.published_twice == 0, "{self}");
    }

    fn wrong(&mut self, what: impl FnOnce() -> String) {
        if self.examples.len() < MAX_EXAMPLES {
            self.examples.push(what());
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "committed {}, published {}, published twice {}, lost {}, reordered {}, applied {}, \
             applied twice {}, unapplied {}, unknown {}",
            self.committed,
            self.published,
            self.published_twice,
            self.lost,
            self.reordered,
            self.applied,
            self.applied_twice,
            self.unapplied,
            self.unknown
        )?;
        self.examples.iter().try_for_each(|example| write!(f, "\n  {example}"))
    }
}

/// Judges a run.
///
/// `committed` is in commit order within each aggregate. `published` is in any
/// order; an event's first appearance is its lowest offset in its partition.
/// `applied` is `None` when the run has no effects to judge.
///
/// ```
/// use walpost_testkit::{Committed, Published, judge};
///
/// let committed = [Committed { id: "a".into(), aggregate: "order-1".into() }];
/// let report = judge(&committed, &[], None);
/// assert_eq!(report.lost, 1);
/// ```
///
/// # Panics
///
/// When an id was committed twice: then the run itself is wrong.
#[must_use]
pub fn judge(
    committed: &[Committed],
    published: &[Published],
    applied: Option<&[Applied]>,
) -> Report {
    let mut report = Report { committed: count(committed.len()), ..Report::default() };
    let mut places = HashMap::with_capacity(committed.len());
    for (place, event) in committed.iter().enumerate() {
        let twice = places.insert(event.id.as_str(), place).is_some();
        assert!(!twice, "event {} was committed twice", event.id);
    }
    judge_published(&mut report, committed, &places, published);
    if let Some(applied) = applied {
        judge_applied(&mut report, committed, &places, applied);
    }
    report
}

fn judge_published(
    report: &mut Report,
    committed: &[Committed],
    places: &HashMap<&str, usize>,
    published: &[Published],
) {
    let mut records: Vec<&Published> = published.iter().collect();
    records.sort_unstable_by_key(|record| (record.partition, record.offset));
    let mut seen = HashSet::with_capacity(committed.len());
    let mut furthest: HashMap<&str, (i32, usize)> = HashMap::new();
    for record in records {
        let Published { id, partition, offset } = record;
        let at = || format!("event {id} at partition {partition} offset {offset}");
        let Some(&place) = places.get(id.as_str()) else {
            report.unknown += 1;
            report.wrong(|| format!("unknown {}", at()));
            continue;
        };
        if !seen.insert(place) {
            report.published_twice += 1;
            report.wrong(|| format!("published twice: {}", at()));
            continue;
        }
        let last = furthest.entry(&committed[place].aggregate).or_insert((*partition, place));
        if last.0 != *partition || place < last.1 {
            report.reordered += 1;
            report.wrong(|| format!("reordered: {}", at()));
        }
        last.1 = last.1.max(place);
    }
    report.published = count(seen.len());
    for (place, event) in committed.iter().enumerate() {
        if !seen.contains(&place) {
            report.lost += 1;
            report.wrong(|| format!("lost: event {} of {}", event.id, event.aggregate));
        }
    }
}

fn judge_applied(
    report: &mut Report,
    committed: &[Committed],
    places: &HashMap<&str, usize>,
    applied: &[Applied],
) {
    let mut times: HashMap<&str, u64> = HashMap::with_capacity(applied.len());
    for entry in applied {
        *times.entry(&entry.id).or_default() += entry.times;
    }
    for event in committed {
        match times.get(event.id.as_str()).copied().unwrap_or_default() {
            0 => {
                report.unapplied += 1;
                report.wrong(|| format!("never applied: event {}", event.id));
            }
            once_or_more => {
                report.applied += 1;
                report.applied_twice += once_or_more - 1;
                if once_or_more > 1 {
                    report.wrong(|| format!("applied {once_or_more} times: event {}", event.id));
                }
            }
        }
    }
    for id in times.keys().filter(|id| !places.contains_key(*id)) {
        report.unknown += 1;
        report.wrong(|| format!("applied, but never committed: event {id}"));
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).expect("a length fits in a u64")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed(ids: &[&str]) -> Vec<Committed> {
        let aggregate = |id: &str| id[..1].to_owned();
        ids.iter().map(|id| Committed { id: (*id).into(), aggregate: aggregate(id) }).collect()
    }

    fn published(ids: &[&str]) -> Vec<Published> {
        (0_i64..)
            .zip(ids)
            .map(|(offset, id)| Published { id: (*id).into(), partition: 0, offset })
            .collect()
    }

    fn applied(ids: &[(&str, u64)]) -> Vec<Applied> {
        ids.iter().map(|(id, times)| Applied { id: (*id).into(), times: *times }).collect()
    }

    #[test]
    fn a_perfect_run_is_clean() {
        let run = published(&["b1", "a1", "a2"]);
        let effects = applied(&[("a1", 1), ("a2", 1), ("b1", 1)]);
        let report = judge(&committed(&["a1", "b1", "a2"]), &run, Some(&effects));
        let clean = Report { committed: 3, published: 3, applied: 3, ..Report::default() };
        assert_eq!(report, clean);
        report.assert_exactly_once();
    }

    #[test]
    fn an_event_that_is_missing_is_lost() {
        let report = judge(&committed(&["a1", "a2", "a3"]), &published(&["a1", "a3"]), None);
        assert_eq!((report.lost, report.reordered, report.published), (1, 0, 2));
        assert!(report.to_string().contains("lost: event a2"));
    }

    #[test]
    fn every_further_copy_counts() {
        let run = published(&["a1", "a2", "a1", "a2", "a2"]);
        let report = judge(&committed(&["a1", "a2"]), &run, None);
        assert_eq!((report.published, report.published_twice, report.reordered), (2, 3, 0));
        report.assert_at_least_once();
    }

    #[test]
    fn an_event_that_was_overtaken_is_reordered() {
        let report = judge(&committed(&["a1", "a2", "a3"]), &published(&["a3", "a1", "a2"]), None);
        assert_eq!((report.reordered, report.lost), (2, 0));
    }

    #[test]
    fn events_of_different_aggregates_may_overtake_each_other() {
        let report = judge(&committed(&["a1", "b1"]), &published(&["b1", "a1"]), None);
        report.assert_exactly_once();
    }

    #[test]
    fn an_aggregate_in_two_partitions_has_no_order() {
        let mut run = published(&["a1", "a2"]);
        run[1].partition = 1;
        assert_eq!(judge(&committed(&["a1", "a2"]), &run, None).reordered, 1);
    }

    #[test]
    fn the_order_of_the_offsets_counts_and_not_that_of_the_list() {
        let mut run = published(&["a1", "a2"]);
        run.reverse();
        judge(&committed(&["a1", "a2"]), &run, None).assert_exactly_once();
    }

    #[test]
    fn a_record_of_nobody_is_unknown() {
        let report = judge(&committed(&["a1"]), &published(&["a1", "x9"]), None);
        assert_eq!((report.unknown, report.published), (1, 1));
    }

    #[test]
    fn effects_are_counted_each() {
        let events = committed(&["a1", "a2", "a3"]);
        let effects = applied(&[("a1", 3), ("a2", 1), ("a2", 1), ("x9", 1), ("a3", 0)]);
        let report = judge(&events, &published(&["a1", "a2", "a3"]), Some(&effects));
        let found = (report.applied, report.applied_twice, report.unapplied, report.unknown);
        assert_eq!(found, (2, 3, 1, 1));
    }

    #[test]
    #[should_panic(expected = "published twice: event a1")]
    fn a_copy_is_not_exactly_once() {
        judge(&committed(&["a1"]), &published(&["a1", "a1"]), None).assert_exactly_once();
    }

    #[test]
    #[should_panic(expected = "committed twice")]
    fn an_id_that_was_used_twice_is_refused() {
        let _report = judge(&committed(&["a1", "a1"]), &[], None);
    }
}
