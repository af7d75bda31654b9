//! What two engines published, record by record. Nothing here reads, waits or
//! knows the time.

use std::{collections::BTreeMap, ops::RangeInclusive};

use walpost_testkit::ReadRecord;

use super::{
    diff,
    difference::Difference,
    steady::{key_is_drawn, names_java_object, steady},
};

/// How far a partner is looked for among the next records of the partition.
const LOOK_AHEAD: usize = 50;
/// In place of a partition that does not matter.
const ANYWHERE: i32 = -1;

/// What was published, by topic and partition, in order.
pub(super) type Output = BTreeMap<(String, i32), Vec<ReadRecord>>;

/// What holds for the two.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// `topic.prefix` of the connector.
    pub(super) topic_prefix: String,
    /// The topic of its heartbeats.
    pub(super) heartbeats: String,
    /// Whether columns name partitions. Otherwise a record without a key that stays the
    /// same is in any.
    pub(super) places: bool,
    /// When they ran, in milliseconds since 1970.
    pub(super) window: RangeInclusive<i64>,
    /// Whether Debezium's task failed as expected, so that records behind its last
    /// one are those of an engine that goes on.
    pub(super) goes_on: bool,
    /// Whether the other one parks what Debezium has only a Java object's name for.
    pub(super) parks: bool,
    /// Whether the other one refuses what Debezium takes, and publishes nothing.
    pub(super) refuses: bool,
    /// How else the other one may differ.
    pub(super) differs: Option<Difference>,
}

impl Terms {
    /// Whether the topic is one of records that pass the router by.
    fn is_own(&self, topic: &str) -> bool {
        let names = ["message", "transaction"];
        let is_named = |rest: &str| names.iter().any(|name| rest.strip_prefix('.') == Some(name));
        topic == self.heartbeats || topic.strip_prefix(&self.topic_prefix).is_some_and(is_named)
    }

    /// Whether the topic is that of logical messages as they are.
    fn is_of_messages(&self, topic: &str) -> bool {
        topic.strip_prefix(&self.topic_prefix) == Some(".message")
    }
}

/// What came of it. Each record of either one counts once, a pair once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pairs, and records without a partner.
    pub compared: usize,
    /// Of those, pairs that are equal by the rules.
    pub equal: usize,
    /// By difference that is documented.
    pub documented: BTreeMap<Difference, usize>,
    /// What nothing explains, readable.
    pub unexplained: Vec<String>,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.compared += other.compared;
        self.equal += other.equal;
        for (difference, count) in other.documented {
            *self.documented.entry(difference).or_default() += count;
        }
        self.unexplained.extend(other.unexplained);
    }

    /// How many documented differences there are.
    #[must_use]
    pub fn documented(&self) -> usize {
        self.documented.values().sum()
    }

    pub(super) fn explained(&mut self, difference: Difference) {
        self.compared += 1;
        *self.documented.entry(difference).or_default() += 1;
    }

    pub(super) fn same(&mut self) {
        self.compared += 1;
        self.equal += 1;
    }

    pub(super) fn unexplained(&mut self, text: String) {
        self.compared += 1;
        self.unexplained.push(text);
    }
}

/// Compares what Debezium published with what the other one did.
pub(super) fn compare(debezium: &Output, other: &Output, terms: &Terms) -> Tally {
    let mut tally = Tally::default();
    let nothing = Vec::new();
    let [debezium, other] = [debezium, other].map(|output| steady_output(output, terms));
    let mut places: Vec<&(String, i32)> = debezium.keys().chain(other.keys()).collect();
    places.sort_unstable();
    places.dedup();
    for place in places {
        let [ours, theirs] =
            [&debezium, &other].map(|output| output.get(place).unwrap_or(&nothing).as_slice());
        let mut last = 0;
        let mut held = Held::new();
        for (index, pair) in align(ours, theirs).into_iter().enumerate() {
            if matches!(pair, Pair::Both(..) | Pair::Gone(_)) {
                last += 1;
            }
            let at = format!("{} partition {} record {index}", place.0, place.1);
            judge(&mut tally, terms, (&place.0, &at), pair, last == ours.len(), &mut held);
        }
    }
    tally
}

/// The records as they are to be compared.
fn steady_output(output: &Output, terms: &Terms) -> Output {
    let mut all = Output::new();
    for ((topic, partition), records) in output {
        for record in records {
            let is_own = terms.is_own(topic);
            let mut record = steady(record, is_own, &terms.window);
            // Its partition is drawn, or follows from a number that is.
            let is_anywhere = !terms.places && key_is_drawn(&record);
            record.partition = if is_anywhere { ANYWHERE } else { *partition };
            all.entry((topic.clone(), record.partition)).or_default().push(record);
        }
    }
    for ((topic, partition), records) in &mut all {
        // How many there are is a matter of time.
        if *topic == terms.heartbeats {
            records.dedup();
        }
        if *partition == ANYWHERE {
            records.sort_by(|one, two| (&one.headers, &one.value).cmp(&(&two.headers, &two.value)));
        }
    }
    all
}

/// Records of the same place in the two sequences; one of them alone is one that
/// the other has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pair<'a> {
    Both(&'a ReadRecord, &'a ReadRecord),
    /// Debezium's alone.
    Gone(&'a ReadRecord),
    /// The other one's alone.
    Extra(&'a ReadRecord),
}

/// Keys of events that are parked, and why: those of the same key behind them wait.
type Held = BTreeMap<Option<Vec<u8>>, Difference>;

fn judge(
    tally: &mut Tally,
    terms: &Terms,
    (topic, at): (&str, &str),
    pair: Pair<'_>,
    behind_last: bool,
    held: &mut Held,
) {
    match pair {
        Pair::Both(one, other) if one == other => tally.same(),
        Pair::Both(one, other) => match terms.differs {
            Some(difference) if difference.explains(one, other) => tally.explained(difference),
            _ => match always(terms, one, other) {
                Some(difference) => tally.explained(difference),
                None => tally.unexplained(format!("{at} differs\n{}", diff::records(one, other))),
            },
        },
        Pair::Extra(_) if terms.goes_on && behind_last => tally.explained(Difference::TaskFails),
        Pair::Extra(record) => {
            tally.unexplained(format!("{at} is not Debezium's\n{}", diff::record(record)));
        }
        Pair::Gone(_) if terms.refuses => tally.explained(Difference::Refused),
        Pair::Gone(_) if terms.parks && terms.is_of_messages(topic) => {
            tally.explained(Difference::PlainMessages);
        }
        Pair::Gone(record) => match why_gone(terms, record, held) {
            Some(difference) => {
                held.insert(record.key.clone(), difference);
                tally.explained(difference);
            }
            None => {
                tally.unexplained(format!("{at} is Debezium's alone\n{}", diff::record(record)));
            }
        },
    }
}

/// A difference that any case may have.
fn always(terms: &Terms, debezium: &ReadRecord, other: &ReadRecord) -> Option<Difference> {
    let all = [Difference::FirstMillisecond, Difference::LongerNumbers];
    all.into_iter().find(|difference| terms.parks && difference.explains(debezium, other))
}

/// Why the other one has parked what Debezium wrote.
fn why_gone(terms: &Terms, record: &ReadRecord, held: &Held) -> Option<Difference> {
    if !terms.parks {
        return None;
    }
    if names_java_object(record) {
        return Some(Difference::JavaObject);
    }
    let loses = terms.differs.filter(|difference| *difference == Difference::Loses);
    loses.or_else(|| held.get(&record.key).copied())
}

/// Pairs up two sequences in order. Where they differ, the nearest place at which
/// one of them goes on like the other decides who has more.
fn align<'a>(ours: &'a [ReadRecord], theirs: &'a [ReadRecord]) -> Vec<Pair<'a>> {
    let (mut one, mut other) = (0, 0);
    let mut pairs = Vec::new();
    while let (Some(left), Some(right)) = (ours.get(one), theirs.get(other)) {
        let reach = |all: &[ReadRecord], from: usize, wanted: &ReadRecord| {
            all[from..].iter().take(LOOK_AHEAD).position(|record| record == wanted)
        };
        if left != right {
            let extra = reach(theirs, other, left);
            let gone = reach(ours, one, right);
            if extra.is_some_and(|extra| gone.is_none_or(|gone| extra <= gone)) {
                pairs.push(Pair::Extra(right));
                other += 1;
                continue;
            }
            if gone.is_some() {
                pairs.push(Pair::Gone(left));
                one += 1;
                continue;
            }
        }
        pairs.push(Pair::Both(left, right));
        (one, other) = (one + 1, other + 1);
    }
    pairs.extend(ours[one..].iter().map(Pair::Gone));
    pairs.extend(theirs[other..].iter().map(Pair::Extra));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        let (topic_prefix, heartbeats) = ("p".to_owned(), "beats.p".to_owned());
        let (places, goes_on, parks, refuses, differs) = (false, false, false, false, None);
        let window = 1_000..=2_000;
        Terms { topic_prefix, heartbeats, places, window, goes_on, parks, refuses, differs }
    }

    fn record(key: &str, value: &str) -> ReadRecord {
        ReadRecord {
            partition: 0,
            offset: 0,
            key: Some(key.into()),
            value: Some(value.into()),
            headers: vec![("id".to_owned(), Some(key.into()))],
            timestamp_ms: Some(1_500),
        }
    }

    fn output(records: Vec<ReadRecord>) -> Output {
        let mut output = Output::new();
        for record in records {
            output.entry(("t".to_owned(), record.partition)).or_default().push(record);
        }
        output
    }

    fn tally(one: Vec<ReadRecord>, other: Vec<ReadRecord>, terms: &Terms) -> [usize; 4] {
        let tally = compare(&output(one), &output(other), terms);
        [tally.compared, tally.equal, tally.documented(), tally.unexplained.len()]
    }

    fn few(values: &[&str]) -> Vec<ReadRecord> {
        values.iter().map(|value| record("k", value)).collect()
    }

    #[test]
    fn equal_records_are_equal() {
        assert_eq!(tally(few(&["1", "2"]), few(&["1", "2"]), &terms()), [2, 2, 0, 0]);
        assert_eq!(tally(vec![], vec![], &terms()), [0, 0, 0, 0]);
    }

    #[test]
    fn whatever_part_of_a_record_differs_is_seen() {
        let changes: [fn(&mut ReadRecord); 8] = [
            |record| record.key = Some(b"x".to_vec()),
            |record| record.value = Some(b"1 ".to_vec()),
            |record| record.value = None,
            |record| record.partition = 1,
            |record| record.timestamp_ms = Some(10),
            |record| record.headers[0].1 = None,
            |record| record.headers[0].0 = "ID".to_owned(),
            |record| record.headers.push(("id".to_owned(), Some(b"k".to_vec()))),
        ];
        for change in changes {
            let mut other = few(&["1"]);
            change(&mut other[0]);
            let unexplained = tally(few(&["1"]), other.clone(), &terms())[3];
            assert!(unexplained > 0, "{other:?}");
        }
    }

    #[test]
    fn headers_in_another_order_differ() {
        let mut one = few(&["1"]);
        one[0].headers.push(("b".to_owned(), None));
        let mut other = one.clone();
        other[0].headers.reverse();
        assert_eq!(tally(one, other, &terms()), [1, 0, 0, 1]);
    }

    #[test]
    fn a_record_too_few_or_too_many_costs_one() {
        let (short, long) = (few(&["1", "3", "4"]), few(&["1", "2", "3", "4"]));
        assert_eq!(tally(short.clone(), long.clone(), &terms()), [4, 3, 0, 1]);
        assert_eq!(tally(long.clone(), short, &terms()), [4, 3, 0, 1]);
        assert_eq!(tally(long.clone(), few(&["1", "2", "x", "4"]), &terms()), [4, 3, 0, 1]);
        assert_eq!(tally(long, vec![], &terms()), [4, 0, 0, 4]);
    }

    #[test]
    fn without_a_key_the_partition_matters_only_if_a_column_names_it() {
        let at = |partitions: [i32; 2]| -> Vec<ReadRecord> {
            let records = few(&["1", "2"]).into_iter().zip(partitions);
            records
                .map(|(record, partition)| ReadRecord { key: None, partition, ..record })
                .collect()
        };
        assert_eq!(tally(at([0, 0]), at([2, 1]), &terms()), [2, 2, 0, 0]);
        let placed = Terms { places: true, ..terms() };
        assert_eq!(tally(at([0, 1]), at([0, 1]), &placed), [2, 2, 0, 0]);
        assert_eq!(tally(at([0, 0]), at([0, 1]), &placed)[3], 2);
    }

    #[test]
    fn records_that_pass_the_router_by_have_topics_of_the_prefix() {
        let own = ["beats.p", "p.message", "p.transaction"];
        assert!(own.iter().all(|topic| terms().is_own(topic)));
        let others =
            ["outbox.event.p.message", "x.p", "p", "xp", "p.messages", "pmessage", "p.x.message"];
        assert!(!others.iter().any(|topic| terms().is_own(topic)));
    }

    #[test]
    fn messages_as_they_are_may_be_missing_and_nothing_else_may() {
        let of = |topic: &str, parks: bool| {
            let one = [((topic.to_owned(), 0), few(&["1"]))].into();
            compare(&one, &Output::new(), &Terms { parks, ..terms() })
        };
        let missing = of("p.message", true);
        assert_eq!((missing.documented(), missing.unexplained.len()), (1, 0));
        assert_eq!(of("p.message", false).unexplained.len(), 1, "Debezium beside itself");
        assert_eq!(of("p.messages", true).unexplained.len(), 1);
        let extra: Output = [(("p.message".to_owned(), 0), few(&["1"]))].into();
        let terms = Terms { parks: true, ..terms() };
        assert_eq!(compare(&Output::new(), &extra, &terms).unexplained.len(), 1);
    }

    #[test]
    fn heartbeats_are_not_counted_but_compared() {
        let beats = |topic: &str, values: &[&str]| -> Output {
            [((topic.to_owned(), 0), few(values))].into()
        };
        let of = |topic: &str, one: &[&str], other: &[&str]| {
            compare(&beats(topic, one), &beats(topic, other), &terms()).unexplained.len()
        };
        assert_eq!(of("beats.p", &["1"], &["1", "1", "1"]), 0);
        assert_eq!(of("beats.p", &["1"], &["2", "2"]), 1);
        assert_eq!(of("beats.p", &["1"], &[]), 1);
        assert_eq!(of("xp", &["1"], &["1", "1"]), 1);
    }

    #[test]
    fn another_order_in_a_partition_is_unexplained() {
        let unexplained = tally(few(&["1", "2"]), few(&["2", "1"]), &terms())[3];
        assert!(unexplained > 0);
    }

    #[test]
    fn behind_a_failure_of_debezium_the_other_may_go_on_and_nothing_else() {
        let terms = Terms { goes_on: true, ..terms() };
        let died = few(&["1", "2"]);
        assert_eq!(tally(died.clone(), few(&["1", "2", "3", "4"]), &terms), [4, 2, 2, 0]);
        assert_eq!(tally(died.clone(), few(&["1", "0", "2"]), &terms), [3, 2, 0, 1]);
        assert_eq!(tally(died.clone(), few(&["1"]), &terms), [2, 1, 0, 1]);
        assert_eq!(tally(died, few(&["1", "x"]), &terms), [2, 1, 0, 1]);
        assert_eq!(tally(vec![], few(&["1"]), &terms), [1, 0, 1, 0]);
    }

    #[test]
    fn what_debezium_has_only_an_objects_name_for_may_be_parked() {
        let all =
            few(&["1", "Struct{a=[B@7fa1bc67}", "java.nio.HeapByteBuffer[pos=0 lim=4 cap=4]"]);
        let terms = Terms { parks: true, ..terms() };
        assert_eq!(tally(all.clone(), few(&["1"]), &terms), [3, 1, 2, 0]);
        assert_eq!(tally(all.clone(), few(&[]), &terms), [3, 0, 2, 1]);
        let mut behind = all.clone();
        behind.extend([record("k", "2"), record("other", "3")]);
        let kept = [few(&["1"]), vec![record("other", "3")]].concat();
        assert_eq!(tally(behind.clone(), kept, &terms), [5, 2, 3, 0]);
        assert_eq!(tally(behind, few(&["1"]), &terms), [5, 1, 3, 1]);
        assert_eq!(tally(all.clone(), few(&["1"]), &self::terms()), [3, 1, 0, 2]);
        assert_eq!(tally(all, few(&["1", "Struct{a=[B@1}"]), &terms), [3, 2, 1, 0]);
    }

    #[test]
    fn what_a_case_says_that_debezium_loses_may_be_parked_and_nothing_else() {
        let terms = Terms { parks: true, differs: Some(Difference::Loses), ..terms() };
        assert_eq!(tally(few(&["1", "2"]), few(&["1"]), &terms), [2, 1, 1, 0]);
        assert_eq!(tally(few(&["1"]), few(&["2"]), &terms), [1, 0, 0, 1]);
        assert_eq!(tally(few(&["1"]), few(&["1", "2"]), &terms), [2, 1, 0, 1]);
        let strict = Terms { parks: false, ..terms };
        assert_eq!(tally(few(&["1", "2"]), few(&["1"]), &strict), [2, 1, 0, 1]);
    }

    #[test]
    fn who_refuses_the_configuration_publishes_nothing() {
        let terms = Terms { refuses: true, ..terms() };
        assert_eq!(tally(few(&["1", "2"]), vec![], &terms), [2, 0, 2, 0]);
        assert_eq!(tally(few(&["1"]), few(&["x"]), &terms), [1, 0, 0, 1]);
    }

    #[test]
    fn a_case_names_the_only_other_difference_it_may_have() {
        let (one, other) = (few(&[r#"{"a":1,"b":2}"#]), few(&[r#"{"b":2,"a":1}"#]));
        assert_eq!(tally(one.clone(), other.clone(), &terms()), [1, 0, 0, 1]);
        let terms = Terms { differs: Some(Difference::MemberOrder), ..terms() };
        assert_eq!(tally(one, other, &terms), [1, 0, 1, 0]);
    }
}
