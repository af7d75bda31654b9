//! Sides of which one lags, or is full.

use super::*;

/// So much may wait on each side.
const ROOM: usize = 4;

/// Both have an event, and there is room for few more.
fn narrow() -> Comparison {
    let mut comparison = begun();
    comparison.pace = Pace::new(AT(10)).bounded(ROOM);
    comparison
}

/// Events and records by their ids, from behind the first ones on.
fn events(comparison: &mut Comparison, at: u64, ids: impl IntoIterator<Item = usize>) {
    for id in ids {
        comparison.expect(AT(at), event(id as u64 + 2, &id.to_string()));
    }
}

fn records(comparison: &mut Comparison, at: u64, ids: impl IntoIterator<Item = usize>) {
    for id in ids {
        comparison.observe(AT(at), record(id as i64 + 11, &id.to_string()));
    }
}

fn takes(comparison: &Comparison) -> (bool, bool) {
    (comparison.takes_events(), comparison.takes_records())
}

#[test]
fn records_are_read_on_while_debezium_lags() {
    let mut comparison = narrow();
    for first in [0, ROOM, 2 * ROOM] {
        events(&mut comparison, 0, first..first + ROOM);
        assert_eq!(takes(&comparison), (false, true));
        comparison.settle(AT(9));
        records(&mut comparison, 9, first..first + ROOM);
        assert_eq!(takes(&comparison), (true, true));
    }
    let equal = 3 * ROOM as u64;
    assert_eq!(found(comparison), (Summary { equal, ..Summary::default() }, vec![]));
}

#[test]
fn what_debezium_has_not_within_the_grace_makes_room() {
    let mut comparison = narrow();
    events(&mut comparison, 0, 0..ROOM);
    comparison.settle(AT(9));
    assert_eq!((takes(&comparison), comparison.summary().extra), ((false, true), 0));
    comparison.settle(AT(10));
    assert_eq!((takes(&comparison), comparison.summary().extra), ((true, true), ROOM as u64));
}

#[test]
fn events_are_read_on_while_walpost_lags_and_none_waits_for_longer_meanwhile() {
    let mut comparison = narrow();
    events(&mut comparison, 0, [ROOM]);
    records(&mut comparison, 1, 0..ROOM);
    assert_eq!(takes(&comparison), (true, false));
    // Its record has not been read, nor have the events of those that have.
    comparison.settle(AT(100));
    assert_eq!(comparison.take_findings(), []);
    events(&mut comparison, 100, 0..ROOM);
    assert_eq!(takes(&comparison), (true, true));
    comparison.settle(AT(108));
    records(&mut comparison, 108, [ROOM]);
    let equal = ROOM as u64 + 1;
    assert_eq!(found(comparison), (Summary { equal, ..Summary::default() }, vec![]));
}

#[test]
fn a_record_is_missing_once_walpost_has_read_past_it_and_not_before() {
    let mut comparison = begun();
    records(&mut comparison, 1, [0]);
    comparison.has_events_until(Duration::from_millis(999));
    comparison.settle(AT(100));
    assert_eq!((comparison.summary().missing, comparison.summary().pending), (0, 1));
    comparison.has_events_until(AT(1));
    comparison.settle(AT(100));
    assert_eq!((comparison.summary().missing, comparison.summary().pending), (1, 0));
}

#[test]
fn what_no_event_can_come_for_makes_room_at_once() {
    let mut comparison = narrow();
    records(&mut comparison, 1, 0..ROOM);
    assert_eq!(takes(&comparison), (true, false));
    comparison.has_events_until(AT(1));
    comparison.settle(AT(1));
    assert_eq!(takes(&comparison), (true, true));
    assert_eq!(comparison.summary().missing, ROOM as u64 / 2 + 1);
}

/// Far behind, it writes what is older than the start while events come.
#[test]
fn what_is_older_keeps_no_partner_of_what_waits_out() {
    let mut comparison = comparison();
    comparison.pace = Pace::new(AT(10)).bounded(ROOM);
    events(&mut comparison, 0, 0..ROOM);
    records(&mut comparison, 1, 100..200);
    assert_eq!(takes(&comparison), (false, true));
    let behind = |id: usize| record(1_000 + id as i64, &id.to_string());
    (0..ROOM).for_each(|id| comparison.observe(AT(2), behind(id)));
    assert_eq!(takes(&comparison), (true, false));
    comparison.has_events_until(AT(2));
    comparison.settle(AT(2));
    assert_eq!(takes(&comparison), (true, true));
    comparison.settle(AT(20));
    let expected = Summary { equal: ROOM as u64, older: 100, ..Summary::default() };
    assert_eq!(comparison.summary(), expected);
}

/// As where one partition cannot be read, and others can.
#[test]
fn without_room_on_either_side_what_is_let_go_is_neither_missing_nor_its_event_extra() {
    let mut comparison = narrow();
    events(&mut comparison, 0, 0..ROOM);
    let others = ROOM..3 * ROOM;
    for id in others.clone() {
        let record = Observed { partition: 1, ..record(id as i64, &id.to_string()) };
        comparison.begins_at(&"t".into(), 1, 0);
        comparison.observe(AT(1), record);
    }
    assert_eq!(takes(&comparison), (false, true));
    comparison.settle(AT(9));
    records(&mut comparison, 9, 0..ROOM);
    events(&mut comparison, 9, others);
    comparison.has_events_until(AT(9));
    comparison.settle(AT(100));
    let summary = comparison.summary();
    assert_eq!((summary.missing, summary.extra, summary.pending), (0, 0, 0));
    assert_eq!(summary.uncompared, ROOM as u64);
    assert_eq!(summary.compared(), 1 + 2 * ROOM as u64);
}

#[test]
fn two_sides_that_have_nothing_in_common_go_on_and_are_told() {
    let mut comparison = narrow();
    let mut second = 0;
    for _ in 0..10 {
        events(&mut comparison, second, 0..ROOM);
        for id in 0..ROOM {
            comparison.observe(AT(second), record(100 + id as i64, &format!("other {id}")));
        }
        assert!(comparison.takes_records());
        comparison.has_events_until(AT(second));
        second += 10;
        comparison.settle(AT(second));
        assert_eq!(takes(&comparison), (true, true));
    }
    let summary = comparison.summary();
    assert_eq!((summary.extra, summary.missing), (10 * ROOM as u64, ROOM as u64));
}

#[test]
fn without_an_id_a_side_that_lags_is_waited_for_as_well() {
    let plain = |value: usize| message("t", "", &value.to_string());
    let mut comparison = narrow();
    comparison.expect(AT(0), made(9, plain(ROOM)));
    (0..ROOM).for_each(|id| comparison.observe(AT(1), observed(id as i64 + 11, plain(id))));
    assert_eq!(takes(&comparison), (true, false));
    comparison.settle(AT(100));
    assert_eq!(comparison.take_findings(), []);
    // What has no event makes room, and is no partner of an event that waits.
    comparison.has_events_until(AT(1));
    comparison.settle(AT(100));
    assert_eq!(takes(&comparison), (true, true));
    comparison.observe(AT(101), observed(90, plain(ROOM)));
    comparison.settle(AT(120));
    let summary = comparison.summary();
    assert_eq!((summary.extra, summary.different.len()), (0, 0));
    assert_eq!((summary.equal, summary.missing), (2, ROOM as u64));

    let mut comparison = narrow();
    (0..ROOM).for_each(|id| comparison.expect(AT(0), made(id as u64 + 2, plain(id))));
    let others = |id: usize| Message { key: Some("x".into()), ..plain(id) };
    (0..3 * ROOM).for_each(|id| comparison.observe(AT(1), observed(id as i64 + 11, others(id))));
    assert_eq!(takes(&comparison), (false, true));
    (0..ROOM).for_each(|id| comparison.observe(AT(2), observed(id as i64 + 90, plain(id))));
    (0..3 * ROOM).for_each(|id| comparison.expect(AT(3), made(id as u64 + 9, others(id))));
    comparison.has_events_until(AT(3));
    comparison.settle(AT(20));
    let summary = comparison.summary();
    assert_eq!((summary.extra, summary.missing, summary.uncompared), (0, 0, 2 * ROOM as u64));
    assert_eq!((comparison.lanes.observed_load().bytes, takes(&comparison)), (0, (true, true)));
}

#[test]
fn what_is_judged_is_remembered_by_no_partition() {
    let mut comparison = comparison();
    records(&mut comparison, 0, 0..100);
    assert_eq!(comparison.partitions.undecided(), 100);
    comparison.has_events_until(AT(0));
    comparison.settle(AT(20));
    assert_eq!(comparison.partitions.undecided(), 0);
    records(&mut comparison, 20, 200..300);
    events(&mut comparison, 20, [299]);
    assert_eq!(comparison.partitions.undecided(), 0);
}

/// Two sides that are alike, each of which stands still at times.
struct Paces {
    random: u64,
    comparison: Comparison,
    /// Numbers of events that were read.
    events: usize,
    /// Ids in each partition, and how many of them were read.
    partitions: [(Vec<usize>, usize); 3],
}

impl Paces {
    const EVENTS: usize = 300;
    const OLDER: usize = 40;

    fn new(seed: u64) -> Self {
        let mut comparison = Comparison::new(Settings::new(|_, _| 0));
        comparison.pace = Pace::new(AT(30)).bounded(12 * ROOM);
        let mut paces = Self {
            random: seed.wrapping_mul(2) + 1,
            comparison,
            events: 0,
            partitions: Default::default(),
        };
        let older = Self::EVENTS..Self::EVENTS + Self::OLDER;
        for id in older.chain(0..Self::EVENTS) {
            let partition = paces.below(3);
            paces.partitions[partition].0.push(id);
        }
        paces
    }

    fn below(&mut self, most: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as usize % most
    }

    fn is_done(&self) -> bool {
        let are_read = self.partitions.iter().all(|(ids, read)| *read == ids.len());
        self.events == Self::EVENTS && are_read
    }

    /// Events of one second.
    fn read_events(&mut self, second: u64) {
        for _ in 0..self.below(ROOM) {
            if self.events < Self::EVENTS && self.comparison.takes_events() {
                events(&mut self.comparison, second, [self.events]);
                self.events += 1;
            }
        }
    }

    /// Records of one second, some of which Debezium writes again.
    fn read_records(&mut self, second: u64) {
        for _ in 0..3 * ROOM {
            let place = self.below(3);
            let (ids, read) = &mut self.partitions[place];
            if *read < ids.len() && self.comparison.takes_records() {
                let id = ids[*read];
                *read += 1;
                let record =
                    Observed { partition: place as i32, ..record(*read as i64, &id.to_string()) };
                self.comparison.observe(AT(second), record);
                let (ids, read) = &mut self.partitions[place];
                if id < Self::EVENTS && *read % 16 == 0 {
                    ids.insert(*read, id);
                }
            }
        }
    }
}

#[test]
fn sides_that_stand_still_at_times_are_alike_all_the_same() {
    for seed in 0..200 {
        let mut paces = Paces::new(seed);
        let (mut second, mut still) = (0, [0_usize; 2]);
        while !paces.is_done() {
            second += 1;
            assert!(second < 5_000, "seed {seed}: nobody goes on");
            // Walpost for as long as it likes, Debezium for less than the grace.
            for (side, most) in [60, 6].into_iter().enumerate() {
                still[side] = match still[side] {
                    0 if paces.below(20) == 0 => paces.below(most),
                    left => left.saturating_sub(1),
                };
            }
            if still[0] == 0 {
                paces.read_events(second);
            }
            if still[1] == 0 {
                paces.read_records(second);
            }
            // All that was committed is read where there is no event left, or as
            // many as there are records of.
            let read = paces.partitions.iter().flat_map(|(ids, read)| &ids[..*read]);
            let is_read = |id: &usize| *id < paces.events || *id >= Paces::EVENTS;
            if read.into_iter().all(is_read) {
                paces.comparison.has_events_until(AT(second));
            }
            paces.comparison.settle(AT(second));
        }
        paces.comparison.has_events_until(AT(second + 60));
        paces.comparison.settle(AT(second + 60));
        let summary = paces.comparison.summary();
        assert!(!summary.differs() && summary.pending == 0, "seed {seed}: {summary:?}");
        let told = summary.equal + summary.older + summary.uncompared;
        assert_eq!(told as usize, Paces::EVENTS + Paces::OLDER, "seed {seed}: {summary:?}");
        assert!(summary.equal as usize > Paces::EVENTS * 9 / 10, "seed {seed}: {summary:?}");
    }
}
