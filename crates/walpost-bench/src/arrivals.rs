//! Which rows are in a topic, how often, and in which order.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use rdkafka::Message;
use serde::Deserialize;

use crate::{
    topic::{self, Ends},
    workload,
};

const POLL: Duration = Duration::from_millis(200);
/// Without a single record.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// What a topic holds of rows that were numbered from 0 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrivals {
    pub(crate) records: u64,
    /// Rows of which there is no record.
    pub(crate) missing: u64,
    /// Records beyond the first of a row.
    pub(crate) copies: u64,
    /// Rows whose first record comes behind the first of a later row of the
    /// same key, or in another partition than the rest of the key.
    pub(crate) reordered: u64,
    /// Records of no row, or under a key that is not the row's.
    pub(crate) unknown: u64,
}

impl Arrivals {
    /// Every row, none twice and none out of order.
    pub(crate) fn is_exactly_once(&self) -> bool {
        self.missing + self.copies + self.reordered + self.unknown == 0
    }

    /// Reads a topic that nobody writes to any more.
    pub(crate) fn read(bootstrap: &str, topic: &str, rows: u64) -> Result<Self> {
        let records = Ends::open(bootstrap, topic)?.records()?;
        let consumer = topic::read_from_beginning(bootstrap, topic)?;
        let mut judge = Judge::new(rows);
        let mut last = Instant::now();
        while judge.found.records < records {
            match consumer.poll(POLL) {
                Some(message) => {
                    let message = message?;
                    let row = message.payload().and_then(row_number);
                    judge.saw(message.key().unwrap_or_default(), row, message.partition());
                    last = Instant::now();
                }
                None if last.elapsed() > SILENCE_LIMIT => {
                    let read = judge.found.records;
                    bail!("read {read} of {records} records, then none for {SILENCE_LIMIT:?}");
                }
                None => {}
            }
        }
        Ok(judge.verdict())
    }
}

/// Takes the records of each partition in their order.
struct Judge {
    seen: Vec<bool>,
    places: HashMap<Vec<u8>, Place>,
    arrived: u64,
    found: Arrivals,
}

/// Where the records of a key are, and the furthest of them.
struct Place {
    partition: i32,
    row: u64,
}

impl Judge {
    fn new(rows: u64) -> Self {
        let rows = usize::try_from(rows).expect("rows are counted in memory");
        let seen = vec![false; rows];
        Self { seen, places: HashMap::new(), arrived: 0, found: Arrivals::default() }
    }

    fn saw(&mut self, key: &[u8], row: Option<u64>, partition: i32) {
        self.found.records += 1;
        let row = row.filter(|row| workload::key(*row).as_bytes() == key);
        let place = row.and_then(|row| Some((row, self.seen.get_mut(usize::try_from(row).ok()?)?)));
        let Some((row, seen)) = place else {
            self.found.unknown += 1;
            return;
        };
        if std::mem::replace(seen, true) {
            self.found.copies += 1;
            return;
        }
        self.arrived += 1;
        match self.places.get_mut(key) {
            None => drop(self.places.insert(key.to_owned(), Place { partition, row })),
            Some(place) => {
                self.found.reordered += u64::from(place.partition != partition || row < place.row);
                place.row = place.row.max(row);
            }
        }
    }

    fn verdict(self) -> Arrivals {
        Arrivals { missing: self.seen.len() as u64 - self.arrived, ..self.found }
    }
}

fn row_number(payload: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Payload {
        order: u64,
    }
    serde_json::from_slice(payload).ok().map(|Payload { order }| order)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of one key are 1,000 apart.
    fn judged(records: &[(u64, i32)]) -> Arrivals {
        let mut judge = Judge::new(2_001);
        for (row, partition) in records {
            judge.saw(workload::key(*row).as_bytes(), Some(*row), *partition);
        }
        judge.verdict()
    }

    #[test]
    fn rows_that_came_once_and_in_order_are_fine() {
        let mut judge = Judge::new(3);
        for row in [2, 0, 1] {
            judge.saw(workload::key(row).as_bytes(), Some(row), 0);
        }
        let verdict = judge.verdict();
        assert_eq!(verdict, Arrivals { records: 3, ..Arrivals::default() });
        assert!(verdict.is_exactly_once());
    }

    #[test]
    fn each_fault_is_counted_as_what_it_is() {
        let copy = judged(&[(0, 0), (1_000, 0), (0, 0)]);
        assert_eq!((copy.copies, copy.missing, copy.reordered), (1, 1_999, 0));
        assert_eq!(judged(&[(1_000, 0), (0, 0)]).reordered, 1);
        assert_eq!(judged(&[(0, 0), (1_000, 1)]).reordered, 1);
        assert_eq!(judged(&[(1, 0), (0, 0)]).reordered, 0);
        assert_eq!(judged(&[(2_001, 0)]).unknown, 1);
    }

    #[test]
    fn a_record_under_the_key_of_another_row_is_unknown() {
        let mut judge = Judge::new(2);
        judge.saw(workload::key(1).as_bytes(), Some(0), 0);
        judge.saw(b"", None, 0);
        assert_eq!(judge.verdict().unknown, 2);
    }

    #[test]
    fn any_fault_is_not_exactly_once() {
        for fault in [
            Arrivals { missing: 1, ..Arrivals::default() },
            Arrivals { copies: 1, ..Arrivals::default() },
            Arrivals { reordered: 1, ..Arrivals::default() },
            Arrivals { unknown: 1, ..Arrivals::default() },
        ] {
            assert!(!fault.is_exactly_once(), "{fault:?}");
        }
    }

    #[test]
    fn the_number_of_a_row_is_in_its_payload() {
        assert_eq!(row_number(br#"{"note": "x", "order": 17}"#), Some(17));
        assert_eq!(row_number(b"{}"), None);
    }
}
