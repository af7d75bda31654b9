use std::{collections::HashSet, sync::Arc, time::Duration};

use walpost_event::{Bytes, Message};

use crate::{
    difference::{self, Difference, Member, Part, Partitioner},
    documented::{Documented, is_member_order, names_java_object},
    lanes::{Aligned, Lanes},
    pace::Pace,
    partitions::Partitions,
    recent::Recent,
    record::{self, Event, Expected, Finding, Observed, Parked},
    summary::Summary,
    waiting::Waiting,
};

/// How a pair counts of which Walpost parks the event.
const PARKED: &str = "parked by Walpost";
/// How a pair counts of which nobody has registered the schema that Walpost needs.
const UNREGISTERED: &str = "schema not registered";

/// How the two are compared.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// How long one side waits for the other, while that is read. Default 30 s.
    pub grace: Duration,
    /// The partition of a key among so many, as the producer chooses it.
    pub partitioner: Partitioner,
    /// `table.expand.json.payload`: arrays are merged, and the order of the members
    /// in them is documented to differ. Default false.
    pub expands_json: bool,
}

impl Settings {
    /// The defaults.
    pub fn new(partitioner: Partitioner) -> Self {
        Self { grace: Duration::from_secs(30), partitioner, expands_json: false }
    }
}

/// A record of Debezium's that waits.
#[derive(Debug)]
struct Unpaired {
    observed: Observed,
    id: Bytes,
    /// Debezium has gone back to before the start, and come by it.
    is_rewound: bool,
}

/// Both sides, as far as they have come.
#[derive(Debug)]
pub struct Comparison {
    settings: Settings,
    events: Waiting<Event>,
    records: Waiting<Unpaired>,
    lanes: Lanes,
    partitions: Partitions,
    recent: Recent,
    /// Records that had no room to wait.
    let_go: Recent,
    /// Events that were told as extra.
    extra: Recent,
    pace: Pace,
    /// Topics of the connector: Walpost has a record for them, or both have one.
    topics: HashSet<Arc<str>>,
    /// Topics of which events have no id.
    without_ids: HashSet<Arc<str>>,
    findings: Vec<Finding>,
    summary: Summary,
    has_ended: bool,
}

impl Comparison {
    /// Nothing has come yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            events: Waiting::default(),
            records: Waiting::default(),
            lanes: Lanes::default(),
            partitions: Partitions::default(),
            recent: Recent::default(),
            let_go: Recent::default(),
            extra: Recent::default(),
            pace: Pace::new(settings.grace),
            topics: HashSet::new(),
            without_ids: HashSet::new(),
            findings: Vec::new(),
            summary: Summary::default(),
            has_ended: false,
        }
    }

    /// How many partitions a topic has. While that is not known, they are not
    /// compared.
    pub fn set_partitions(&mut self, topic: &str, partitions: i32) {
        self.partitions.set_count(topic, partitions);
    }

    /// Every record of a partition from this offset on is of an event behind the
    /// start.
    ///
    /// Where that was not told, a record without a partner counts as one of an event
    /// from before the start (it is [older](Summary::older)) if it comes before the
    /// first record of its partition that both have: Debezium writes in commit order.
    /// So does one that comes right before a duplicate: Debezium has begun anew
    /// before the start.
    pub fn begins_at(&mut self, topic: &Arc<str>, partition: i32, offset: i64) {
        self.partitions.begin_at((topic.clone(), partition), offset);
    }

    /// A topic is the connector's: what Debezium alone has there is missing, and not
    /// somebody else's.
    pub fn owns(&mut self, topic: &Arc<str>) {
        if !self.topics.contains(topic) {
            self.topics.insert(topic.clone());
        }
    }

    /// Every event was told that was committed before this moment, and so the event
    /// of each record that came until then. No record is missing before that is
    /// known.
    pub fn has_events_until(&mut self, until: Duration) {
        self.pace.set_events_until(until);
    }

    /// An event, in commit order.
    pub fn expect(&mut self, now: Duration, event: Event) {
        if let Event::Made(Expected { message, .. }) = &event {
            self.owns(&message.topic);
            if self.let_go.contains(hash(message)) {
                return;
            }
        }
        match (event.id(), event) {
            (Some(id), event) => self.expect_with_id(now, id, event),
            (None, Event::Made(expected)) => self.expect_without_id(now, expected),
            (None, _) if self.has_ended => {}
            (None, event) => self.keep_event(now, None, event),
        }
        self.keep_pace(now);
    }

    fn expect_with_id(&mut self, now: Duration, id: Bytes, event: Event) {
        let topic = event.topic().cloned();
        let of_topic = |record: &Unpaired| {
            topic.as_ref().is_none_or(|topic| *topic == record.observed.message.topic)
        };
        match self.records.take_by_id(&id, of_topic) {
            Some(record) => self.pair(event, record.observed),
            None if self.has_ended => {}
            None => self.keep_event(now, Some(id), event),
        }
    }

    fn keep_event(&mut self, now: Duration, id: Option<Bytes>, event: Event) {
        self.events.add(self.pace.read_for(now), id, event.bytes(), event);
    }

    fn expect_without_id(&mut self, now: Duration, expected: Expected) {
        if !self.without_ids.contains(&expected.message.topic) {
            self.without_ids.insert(expected.message.topic.clone());
        }
        let (partitions, partitioner) = (&self.partitions, self.settings.partitioner);
        let since = self.pace.read_for(now);
        let aligned = self.lanes.expect(since, expected, alike(partitions, partitioner));
        self.take(aligned);
    }

    /// A record of Debezium's, in the order of its partition.
    pub fn observe(&mut self, now: Duration, observed: Observed) {
        match record::id(&observed.message) {
            Some(id) => self.observe_with_id(now, id, observed),
            None => self.observe_without_id(now, observed),
        }
        self.keep_pace(now);
    }

    fn observe_with_id(&mut self, now: Duration, id: Bytes, observed: Observed) {
        let topic = observed.message.topic.clone();
        let of_topic = |event: &Event| event.topic().is_none_or(|other| *other == topic);
        if let Some(event) = self.events.take_by_id(&id, of_topic) {
            return self.pair(event, observed);
        }
        if self.has_ended {
            return;
        }
        let (place, offset) = (place(&observed), observed.offset);
        if self.recent.contains(hash(&observed.message)) {
            for number in self.partitions.again(&place, offset) {
                if let Some(record) = self.records.get_mut(number) {
                    record.is_rewound = true;
                }
            }
        }
        if self.pace.is_crowded() {
            return self.let_go(observed);
        }
        let bytes = observed.message.size_bytes();
        let record = Unpaired { observed, id: id.clone(), is_rewound: false };
        let number = self.records.add(now, Some(id), bytes, record);
        self.partitions.waits(place, offset, number);
    }

    fn observe_without_id(&mut self, now: Duration, observed: Observed) {
        let (topic, key) = (observed.message.topic.clone(), observed.message.key.clone());
        let (partitions, partitioner) = (&self.partitions, self.settings.partitioner);
        let aligned = self.lanes.observe(now, observed, alike(partitions, partitioner));
        self.take(aligned);
        if self.pace.is_crowded()
            && let Some(observed) = self.lanes.take_last(&topic, &key)
        {
            self.let_go(observed);
        }
    }

    /// There is no room on either side, and the partners of the events stand behind
    /// this record: its own event will not be compared.
    fn let_go(&mut self, observed: Observed) {
        let hash = hash(&observed.message);
        self.let_go.add(hash);
        if self.verdict(&observed, false) == Verdict::Missing {
            self.recent.add(hash);
            self.summary.uncompared += 1;
        } else {
            self.unmatched(observed, false);
        }
    }

    /// Judges what has waited for its partner for as long as it may.
    pub fn settle(&mut self, now: Duration) {
        while let Some(event) = self.events.take_oldest(|since| self.pace.is_event_due(since, now))
        {
            let recent = &self.recent;
            let is_first = |record: &Unpaired| !recent.contains(hash(&record.observed.message));
            let other = event.id().and_then(|id| self.records.take_by_id(&id, is_first));
            match (event, other) {
                (event, Some(record)) => self.pair(event, record.observed),
                (Event::Made(expected), None) => self.extra(Finding::Extra(expected)),
                (Event::Parked(_), None) => self.documented(Documented::TaskFails),
                (Event::Unregistered(event), None) => {
                    self.extra(Finding::Unregistered { event, observed: None });
                }
            }
            self.keep_pace(now);
        }
        while let Some(record) =
            self.records.take_oldest(|since| self.pace.is_record_due(since, now))
        {
            self.partitions.is_judged(&place(&record.observed), record.observed.offset);
            let is_new = self.is_new(&record);
            let other = if is_new { self.events.take_by_id(&record.id, |_| true) } else { None };
            match other {
                Some(event) => self.pair(event, record.observed),
                None => self.unmatched(record.observed, record.is_rewound),
            }
            self.keep_pace(now);
        }
        let (partitions, partitioner) = (&self.partitions, self.settings.partitioner);
        let is_known = |observed: &Observed| self.recent.contains(hash(&observed.message));
        let alike = alike(partitions, partitioner);
        let aligned = self.lanes.settle(now, &self.pace, alike, is_known);
        self.take(aligned);
        self.keep_pace(now);
    }

    fn keep_pace(&mut self, now: Duration) {
        let events = self.events.load().and(self.lanes.expected());
        let records = self.records.load().and(self.lanes.observed_load());
        self.pace.set(now, events, records);
    }

    /// No more is compared than what waits now: what comes from here on may be its
    /// partner, and is passed over otherwise.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Whether nothing waits any more that a partner could come for.
    pub fn is_settled(&self) -> bool {
        let is_new = |observed: &Observed| self.verdict(observed, false) == Verdict::Missing;
        self.events.load().count == 0
            && self.lanes.expected().count == 0
            && self.records.iter().all(|record| !self.is_new(record))
            && !self.lanes.observed().any(is_new)
    }

    /// Whether there is room for events. Where there is none, the records that they
    /// wait for are to be read first.
    pub fn takes_events(&self) -> bool {
        self.pace.reads_events()
    }

    /// Whether there is room for records. Where there is none, the events that they
    /// wait for are to be read first; meanwhile no event waits for longer.
    pub fn takes_records(&self) -> bool {
        self.pace.reads_records()
    }

    /// What was found since the last time.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// Pairs so far.
    pub fn compared(&self) -> u64 {
        self.summary.compared()
    }

    /// How many there are of each so far. What still waits is
    /// [pending](Summary::pending), unless it is known to be a duplicate, older or
    /// late.
    pub fn summary(&self) -> Summary {
        let mut summary = self.summary.clone();
        let waiting = self.events.load().and(self.lanes.expected());
        summary.pending = waiting.count as u64;
        let records = self.records.iter().map(|record| (&record.observed, record.is_rewound));
        let lanes = self.lanes.observed().map(|observed| (observed, false));
        for (observed, is_rewound) in records.chain(lanes) {
            match self.verdict(observed, is_rewound) {
                Verdict::Duplicate => summary.duplicates += 1,
                Verdict::Older => summary.older += 1,
                Verdict::Late => summary.late += 1,
                Verdict::Foreign | Verdict::Missing => summary.pending += 1,
            }
        }
        summary
    }

    fn is_new(&self, record: &Unpaired) -> bool {
        self.verdict(&record.observed, record.is_rewound) == Verdict::Missing
    }

    /// What a record is that has no partner.
    fn verdict(&self, observed: &Observed, is_rewound: bool) -> Verdict {
        let topic = &observed.message.topic;
        let has_id = record::id(&observed.message).is_some();
        if self.recent.contains(hash(&observed.message)) {
            Verdict::Duplicate
        } else if !has_id && !self.without_ids.contains(topic) {
            Verdict::Foreign
        } else if is_rewound || self.partitions.is_older(&place(observed), observed.offset) {
            Verdict::Older
        } else if self.extra.contains(hash(&observed.message)) {
            Verdict::Late
        } else if self.topics.contains(topic) {
            Verdict::Missing
        } else {
            Verdict::Foreign
        }
    }

    fn unmatched(&mut self, observed: Observed, is_rewound: bool) {
        let verdict = self.verdict(&observed, is_rewound);
        if matches!(verdict, Verdict::Older | Verdict::Late | Verdict::Missing) {
            self.recent.add(hash(&observed.message));
        }
        match verdict {
            Verdict::Duplicate => {
                self.summary.duplicates += 1;
                self.findings.push(Finding::Duplicate(observed));
            }
            Verdict::Foreign => {
                let topic = &observed.message.topic;
                self.summary.add_foreign((!self.topics.contains(topic)).then_some(topic));
            }
            Verdict::Older => self.summary.older += 1,
            Verdict::Late => self.summary.late += 1,
            Verdict::Missing => {
                self.summary.missing += 1;
                self.findings.push(Finding::Missing(observed));
            }
        }
    }

    fn extra(&mut self, finding: Finding) {
        if let Finding::Extra(Expected { message, .. }) = &finding {
            self.extra.add(hash(message));
        }
        self.summary.extra += 1;
        self.findings.push(finding);
    }

    fn different(&mut self, kind: &str, finding: Finding) {
        *self.summary.different.entry(kind.to_owned()).or_default() += 1;
        self.findings.push(finding);
    }

    fn documented(&mut self, documented: Documented) {
        *self.summary.documented.entry(documented).or_default() += 1;
    }

    fn take(&mut self, aligned: Vec<Aligned>) {
        for one in aligned {
            match one {
                Aligned::Pair(expected, observed) => self.pair(Event::Made(expected), observed),
                Aligned::Extra(expected) => self.extra(Finding::Extra(expected)),
                Aligned::Unmatched(observed) => self.unmatched(observed, false),
            }
        }
    }

    fn pair(&mut self, event: Event, observed: Observed) {
        self.recent.add(hash(&observed.message));
        self.owns(&observed.message.topic);
        match event {
            Event::Made(expected) => self.compare(expected, observed),
            Event::Parked(parked) => self.compare_parked(parked, observed),
            Event::Unregistered(event) => {
                self.partitions.common(place(&observed), observed.offset, None);
                let observed = Some(observed);
                self.different(UNREGISTERED, Finding::Unregistered { event, observed });
            }
        }
    }

    fn compare_parked(&mut self, parked: Parked, observed: Observed) {
        self.partitions.common(place(&observed), observed.offset, None);
        if names_java_object(&observed) {
            return self.documented(Documented::JavaObject);
        }
        self.different(PARKED, Finding::WouldPark { parked, observed });
    }

    fn compare(&mut self, expected: Expected, observed: Observed) {
        let (partitions, partitioner) = (&self.partitions, self.settings.partitioner);
        let mut differences =
            difference::differences(&expected, &observed, partitions, partitioner);
        // In another partition it has the order of that one.
        let is_moved =
            differences.iter().any(|one| matches!(one.member, Member::Topic | Member::Partition));
        let position = (!is_moved).then_some(expected.position);
        if !self.partitions.common(place(&observed), observed.offset, position) {
            differences.push(out_of_order(&expected, &observed));
        }
        if differences.is_empty() {
            self.summary.equal += 1;
        } else if self.settings.expands_json && is_member_order(&differences) {
            self.documented(Documented::MemberOrder);
        } else {
            let members: Vec<String> =
                differences.iter().map(|one| one.member.to_string()).collect();
            let finding = Finding::Different { expected, observed, differences };
            self.different(&members.join(", "), finding);
        }
    }
}

/// What a record without a partner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Duplicate,
    Foreign,
    Older,
    /// Its event was told as extra before.
    Late,
    Missing,
}

fn out_of_order(expected: &Expected, observed: &Observed) -> Difference {
    Difference {
        member: Member::Order,
        debezium: Part::Plain(format!("offset {}", observed.offset)),
        walpost: Part::Plain(format!("position {}", expected.position)),
    }
}

fn place(observed: &Observed) -> (Arc<str>, i32) {
    (observed.message.topic.clone(), observed.partition)
}

/// By which a second one is known: topic and id, or all of it.
fn hash(message: &Message) -> u64 {
    match record::id(message) {
        Some(id) => Recent::hash_of(&(&message.topic, id)),
        None => {
            let headers = message.headers.iter().map(|header| (&header.name, &header.value));
            let headers: Vec<_> = headers.collect();
            Recent::hash_of(&(&message.topic, &message.key, &message.value, headers))
        }
    }
}

fn alike(
    partitions: &Partitions,
    partitioner: Partitioner,
) -> impl Fn(&Expected, &Observed) -> bool {
    move |expected, observed| {
        difference::differences(expected, observed, partitions, partitioner).is_empty()
    }
}

#[cfg(test)]
mod tests;
