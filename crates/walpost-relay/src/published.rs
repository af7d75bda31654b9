use std::{
    collections::{HashMap, HashSet},
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    str::FromStr,
    sync::Arc,
};

use bytes::Bytes;
use walpost_event::{Generation, Lsn, Message, Position};

#[cfg(test)]
use crate::simulation;
use crate::{
    config::RelayConfig,
    headers::{ID_HEADER, SOURCE_HEADER},
    id_space::{self, IdSpaces, is_unique},
};

/// The events above the checkpoint that are published already, as the sink
/// gives them back: nothing of it is sent again.
///
/// Pure. An event is dropped only if its own identity is here. Where records
/// tell generation and position, that is both of them and the id: ordinals
/// depend on which tables are configured, and a restored server may write other
/// events at the same positions. Else it is the id with its table's id space, as
/// other tables use the same ids, or a globally unique id alone. What lies between
/// two events that are here proves nothing, since a log may have gaps.
///
/// Memory is an entry of about 100 bytes for each 16 events of a transaction
/// above the checkpoint; without positions the ids, up to a bound.
#[derive(Debug)]
pub(crate) struct Published {
    wanted: Wanted,
    ours: Ours,
    /// Fingerprints of the ids of 16 ordinals each, 0 for none.
    positions: HashMap<(Lsn, u32), [u32; CHUNK]>,
    /// Further ones of a position that has one: of a server before it was
    /// restored, or of somebody who has our position from us.
    others: HashSet<(Position, u32)>,
    last: Lsn,
    /// The record that has it.
    last_at: Option<RecordPlace>,
    /// Records that an operator has found to be another program's.
    ignored: Vec<RecordPlace>,
    /// By [`key`].
    ids: HashSet<Bytes>,
    ids_max: usize,
    ids_left_out: u64,
    phantoms: Phantoms,
    /// The last event of its transaction that another program has published,
    /// which read the slot before.
    taken_over_at: Option<Position>,
}

/// Records of this pipeline from behind the point at which a timeline was left:
/// they prove nothing about the events of the timeline that came after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Phantoms {
    /// The lowest and the highest position, if any record has one.
    pub(crate) range: Option<(Position, Position)>,
    /// Records with a position.
    pub(crate) records: u64,
    /// Records without a position, of which nobody can tell where they stand.
    pub(crate) unplaced: u64,
}

impl Phantoms {
    fn note(&mut self, position: Position) {
        let (first, last) = self.range.unwrap_or((position, position));
        self.range = Some((first.min(position), last.max(position)));
        self.records += 1;
    }
}

/// Ordinals of one entry.
const CHUNK: usize = 16;

/// Which records of this pipeline matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Those of transactions that end above the confirmed position and, where
    /// the server has left a timeline there, below that point: what stands
    /// behind it may be the abandoned timeline's.
    Stream { generation: Generation, confirmed: Lsn, left_at: Option<Lsn> },
    /// Those of the initial load, by id alone: rows that are deleted meanwhile
    /// shift the ordinals of the others.
    Load { generation: Generation, commit_lsn: Lsn },
    /// Those of a slot that is lost, and of the rows that are published in its
    /// place, by id alone: rows tell no position.
    Recovery { lost: From, now: From, commit_lsn: Lsn },
}

/// How records of this pipeline are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ours {
    pub(crate) spaces: IdSpaces,
    /// They have the header of the source.
    pub(crate) has_source: bool,
    /// They have the header of the position.
    pub(crate) has_position: bool,
}

impl Ours {
    pub(crate) fn of(spaces: IdSpaces, config: &RelayConfig) -> Self {
        let RelayConfig { source_header, position_header, .. } = config;
        Self { spaces, has_source: *source_header, has_position: *position_header }
    }

    /// Whether a record with this source, and with a position of the pipeline, is the
    /// pipeline's.
    fn takes(&self, source: Option<&[u8]>) -> bool {
        match source {
            Some(source) => self.spaces.has(source),
            None => !self.has_source,
        }
    }

    /// The same of a record without a position.
    fn takes_unplaced(&self, marks: &Marks<'_>) -> bool {
        match marks.source {
            Some(source) => self.spaces.has(source),
            // Records that tell nothing else are the pipeline's by such an id alone.
            None => !self.has_source && !self.has_position && marks.id.is_some_and(is_unique),
        }
    }
}

/// Who an event is, by what its record would have.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(crate) topic: Arc<str>,
    pub(crate) source: Option<Bytes>,
    pub(crate) id: Option<Bytes>,
}

impl Named {
    /// The event of a message.
    pub(crate) fn of(message: &Message) -> Self {
        let value = |name: &str| {
            let header = message.headers.iter().find(|header| &*header.name == name);
            header.and_then(|header| header.value.clone())
        };
        Self {
            topic: Arc::clone(&message.topic),
            source: value(SOURCE_HEADER),
            id: value(ID_HEADER),
        }
    }

    fn key(&self) -> Option<Bytes> {
        Some(key(&self.topic, self.source.as_deref(), self.id.as_deref()?))
    }
}

/// Records of one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct From {
    pub(crate) generation: Generation,
    /// What stands from here on may be an abandoned timeline's.
    pub(crate) left_at: Option<Lsn>,
}

/// What a record that was read back tells about its event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks<'a> {
    /// Value of the header [`POSITION_HEADER`](crate::POSITION_HEADER).
    pub position: Option<&'a [u8]>,
    /// Value of the first header `id`, which is the router's.
    pub id: Option<&'a [u8]>,
    /// Value of the header [`SOURCE_HEADER`](crate::SOURCE_HEADER).
    pub source: Option<&'a [u8]>,
    /// Value of the header [`REPLAY_HEADER`](crate::REPLAY_HEADER), empty where it
    /// is null, and of a [dead letter](crate::DEAD_LETTER_HEADER).
    pub replay: Option<&'a [u8]>,
    /// Topic of the record.
    pub topic: &'a str,
    /// Partition of the record.
    pub partition: i32,
    /// Offset of the record.
    pub offset: i64,
}

/// Where a record is: `orders/3@1234`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
}

impl RecordPlace {
    fn of(marks: &Marks<'_>) -> Self {
        let &Marks { topic, partition, offset, .. } = marks;
        Self { topic: topic.to_owned(), partition, offset }
    }

    fn is_of(&self, marks: &Marks<'_>) -> bool {
        self.offset == marks.offset
            && self.partition == marks.partition
            && self.topic == marks.topic
    }
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.topic, self.partition, self.offset)
    }
}

impl FromStr for RecordPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (topic, place) = text.rsplit_once('/')?;
            let (partition, offset) = place.split_once('@')?;
            let (partition, offset) = (partition.parse().ok()?, offset.parse().ok()?);
            Some(Self { topic: topic.to_owned(), partition, offset })
        };
        let refused = || format!("{text:?} is not a record such as orders/3@1234");
        read().filter(|place| !place.topic.is_empty()).ok_or_else(refused)
    }
}

impl Marks<'_> {
    /// Whether it was published once more on purpose, or is a dead letter.
    pub fn is_replayed(&self) -> bool {
        self.replay.is_some()
    }
}

impl Published {
    /// Nothing yet. At most `ids_max` ids are kept.
    pub(crate) fn new(wanted: Wanted, ours: Ours, ids_max: usize) -> Self {
        Self {
            wanted,
            ours,
            positions: HashMap::new(),
            others: HashSet::new(),
            last: Lsn::ZERO,
            last_at: None,
            ignored: Vec::new(),
            ids: HashSet::new(),
            ids_max,
            ids_left_out: 0,
            phantoms: Phantoms::default(),
            taken_over_at: None,
        }
    }

    /// Without these records, whatever they say.
    pub(crate) fn ignoring(mut self, records: &[RecordPlace]) -> Self {
        self.ignored = records.to_vec();
        self
    }

    /// Also those that another program has published, up to this one of its
    /// transaction, if the stream brings them again.
    pub(crate) fn and_up_to(mut self, taken_over_at: Option<Position>) -> Self {
        if let Wanted::Stream { confirmed, left_at, .. } = self.wanted {
            let is_ahead = |last: &Position| {
                last.commit_lsn >= confirmed
                    && left_at.is_none_or(|left_at| last.commit_lsn < left_at)
            };
            self.taken_over_at = taken_over_at.filter(is_ahead);
        }
        self
    }

    /// Notes a record that was read back. It may be anybody's.
    pub(crate) fn note(&mut self, marks: Marks<'_>) {
        if marks.is_replayed() || self.ignored.iter().any(|place| place.is_of(&marks)) {
            return;
        }
        let position = marks.position.map(parse);
        match (self.wanted, position) {
            (Wanted::Stream { generation, confirmed, left_at }, Some(Some((found, position))))
                if found == generation && position.commit_lsn >= confirmed =>
            {
                if !self.counts(&marks, position, left_at) {
                    return;
                }
                if position.commit_lsn > self.last {
                    self.last = position.commit_lsn;
                    self.last_at = Some(RecordPlace::of(&marks));
                }
                self.note_position(position, fingerprint(marks.source, marks.id));
            }
            (Wanted::Load { generation, commit_lsn }, Some(Some((found, position))))
                if found == generation && position.commit_lsn == commit_lsn =>
            {
                if self.counts(&marks, position, None) {
                    self.note_id(&marks);
                }
            }
            (Wanted::Recovery { lost, now, .. }, Some(Some((found, position)))) => {
                let from = [lost, now].into_iter().find(|from| from.generation == found);
                let Some(From { left_at, .. }) = from else { return };
                if self.counts(&marks, position, left_at) {
                    self.note_id(&marks);
                }
            }
            (wanted, None) if self.ours.takes_unplaced(&marks) => {
                let left_at = match wanted {
                    Wanted::Stream { left_at, .. } => left_at,
                    Wanted::Recovery { lost, now, .. } => lost.left_at.or(now.left_at),
                    Wanted::Load { .. } => None,
                };
                match left_at {
                    Some(_) => self.phantoms.unplaced += 1,
                    None => self.note_id(&marks),
                }
            }
            (_, _) => {}
        }
    }

    /// Whether a record with a position of the pipeline is the pipeline's, and not
    /// of an abandoned timeline.
    fn counts(&mut self, marks: &Marks<'_>, position: Position, left_at: Option<Lsn>) -> bool {
        if !self.ours.takes(marks.source) {
            return false;
        }
        let is_left = left_at.is_some_and(|left_at| position.commit_lsn >= left_at);
        if is_left {
            self.phantoms.note(position);
        }
        !is_left
    }

    fn note_position(&mut self, position: Position, print: u32) {
        let (chunk, index) = place(position);
        let first = &mut self.positions.entry(chunk).or_default()[index];
        if *first == 0 {
            *first = print;
        } else if *first != print {
            if self.others.len() < self.ids_max {
                self.others.insert((position, print));
            } else {
                self.ids_left_out += 1;
            }
        }
    }

    fn note_id(&mut self, marks: &Marks<'_>) {
        let Some(id) = marks.id else { return };
        let key = key(marks.topic, marks.source, id);
        if self.ids.len() < self.ids_max {
            self.ids.insert(key);
        } else if !self.ids.contains(&key) {
            self.ids_left_out += 1;
        }
    }

    /// Whether this event is there. Asked once for each event, since an id
    /// stands for one.
    pub(crate) fn take(&mut self, position: Position, event: impl FnOnce() -> Named) -> bool {
        #[cfg(test)]
        if simulation::has(simulation::Bug::ResumeInsideTransaction)
            && position.commit_lsn == self.last
        {
            return self.last_ordinal() >= Some(position.ordinal);
        }
        if self.is_taken_over(position) {
            return true;
        }
        let (chunk, index) = place(position);
        let found = self.positions.get(&chunk).map_or(0, |prints| prints[index]);
        if found == 0 && self.ids.is_empty() {
            return false;
        }
        let event = event();
        let print = fingerprint(event.source.as_deref(), event.id.as_deref());
        found == print || self.others.contains(&(position, print)) || self.take_id(&event)
    }

    fn take_id(&mut self, event: &Named) -> bool {
        let Some(key) = event.key() else { return false };
        if !event.topic.is_empty() {
            return self.ids.remove(&key);
        }
        // A row that is too large to be read whole: its topic may be unknown.
        let found = self.ids.iter().find(|known| known.ends_with(&key)).cloned();
        found.is_some_and(|found| self.ids.remove(&found))
    }

    /// Whether there is an event at this position, of whatever id.
    pub(crate) fn is_placed(&self, position: Position) -> bool {
        let (chunk, index) = place(position);
        self.positions.get(&chunk).is_some_and(|prints| prints[index] != 0)
    }

    /// Whether another program has published the event, which read the slot
    /// before; or has given it up, where it cannot be published.
    pub(crate) fn is_taken_over(&self, position: Position) -> bool {
        self.taken_over_at.is_some_and(|last| {
            position.commit_lsn == last.commit_lsn && position.ordinal <= last.ordinal
        })
    }

    /// Of the last transaction, the last event that is here.
    #[cfg(test)]
    fn last_ordinal(&self) -> Option<u32> {
        let of_last = self.positions.iter().filter(|((commit_lsn, _), _)| *commit_lsn == self.last);
        let ordinals = of_last.flat_map(|((_, chunk), prints)| {
            let first = chunk * CHUNK as u32;
            (first..).zip(prints).filter(|(_, print)| **print != 0).map(|(ordinal, _)| ordinal)
        });
        ordinals.max()
    }

    /// Everything that could be here has come: the confirmed position is at or
    /// above [`until`](Self::until).
    pub(crate) fn clear(&mut self) {
        self.positions = HashMap::new();
        self.others = HashSet::new();
        self.ids = HashSet::new();
        self.taken_over_at = None;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.positions.is_empty() && self.ids.is_empty() && self.taken_over_at.is_none()
    }

    /// As long as the confirmed position is below this, the stream may bring
    /// events that are here. `flushed` is how far the server's WAL went once
    /// everything was read back; only ids need it.
    pub(crate) fn until(&self, flushed: Lsn) -> Lsn {
        let behind = |lsn: Lsn| Lsn::from(u64::from(lsn) + 1);
        let behind_last = match self.positions.is_empty() {
            true => Lsn::ZERO,
            false => behind(self.last),
        };
        let behind_last =
            behind_last.max(self.taken_over_at.map_or(Lsn::ZERO, |last| behind(last.commit_lsn)));
        match self.wanted {
            // A load is one transaction, which ends behind its place.
            Wanted::Load { commit_lsn, .. } | Wanted::Recovery { commit_lsn, .. } => {
                Lsn::from(u64::from(commit_lsn) + 1)
            }
            Wanted::Stream { .. } if self.ids.is_empty() => behind_last,
            Wanted::Stream { .. } => behind_last.max(flushed),
        }
    }

    /// Events that are here.
    pub(crate) fn events(&self) -> u64 {
        let prints = self.positions.values().flatten();
        let first = prints.filter(|print| **print != 0).count() as u64;
        let taken_over = self.taken_over_at.map_or(0, |last| u64::from(last.ordinal) + 1);
        first + self.others.len() as u64 + self.ids.len() as u64 + taken_over
    }

    /// The highest position that is here; zero without one.
    pub(crate) fn last(&self) -> Lsn {
        self.last
    }

    /// The record that has it.
    pub(crate) fn last_at(&self) -> Option<&RecordPlace> {
        self.last_at.as_ref()
    }

    /// Whether events come a second time that were read back and are not known
    /// any more.
    pub(crate) fn is_recovery_with_gaps(&self) -> bool {
        matches!(self.wanted, Wanted::Recovery { .. }) && self.ids_left_out > 0
    }

    /// What was read back and does not count.
    pub(crate) fn phantoms(&self) -> Phantoms {
        self.phantoms
    }

    /// Ids beyond the bound, whose events come a second time.
    pub(crate) fn ids_left_out(&self) -> u64 {
        self.ids_left_out
    }
}

fn place(position: Position) -> ((Lsn, u32), usize) {
    let ordinal = position.ordinal as usize;
    ((position.commit_lsn, (ordinal / CHUNK) as u32), ordinal % CHUNK)
}

/// The event of a record without a place. With its topic: another pipeline may have
/// published the event elsewhere.
fn key(topic: &str, source: Option<&[u8]>, id: &[u8]) -> Bytes {
    let identity = id_space::identity(source.unwrap_or_default(), id);
    [topic.as_bytes(), b"\0", &identity].concat().into()
}

/// Never 0. The topic is no part of it, as a position is in one table.
fn fingerprint(source: Option<&[u8]>, id: Option<&[u8]>) -> u32 {
    let mut hasher = DefaultHasher::new();
    id.map(|id| id_space::identity(source.unwrap_or_default(), id)).hash(&mut hasher);
    (hasher.finish() as u32).max(1)
}

/// `1f3a9c2e:16/B374D848:7`; somebody else's record may hold anything.
fn parse(text: &[u8]) -> Option<(Generation, Position)> {
    let (generation, position) = std::str::from_utf8(text).ok()?.split_once(':')?;
    Some((generation.parse().ok()?, position.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATION: u32 = 0x1f;
    /// That of [`IdSpaces::simulated`].
    const SPACE: &str = "00000000-0000-0000-0000-000000000000";
    const UNIQUE: &str = "5f0c3b0e-9d1a-4c55-8a57-0f2f6f1f7b11";

    fn at(commit_lsn: u64, ordinal: u32) -> Position {
        Position { commit_lsn: Lsn::from(commit_lsn), ordinal }
    }

    fn ours() -> Ours {
        Ours { spaces: IdSpaces::simulated(0), has_source: true, has_position: true }
    }

    fn named(id: &'static str) -> Named {
        let (source, id) = (Some(Bytes::from(SPACE)), Some(Bytes::from(id)));
        Named { topic: "orders".into(), source, id }
    }

    fn same() -> Named {
        named("same")
    }

    fn stream(confirmed: u64) -> Published {
        behind_a_switch(confirmed, None)
    }

    fn behind_a_switch(confirmed: u64, left_at: Option<u64>) -> Published {
        let (generation, confirmed) = (Generation::from(GENERATION), Lsn::from(confirmed));
        let left_at = left_at.map(Lsn::from);
        Published::new(Wanted::Stream { generation, confirmed, left_at }, ours(), 3)
    }

    fn by_position(text: &str) -> Marks<'_> {
        Marks { position: Some(text.as_bytes()), ..by_id("same") }
    }

    fn by_id(id: &str) -> Marks<'_> {
        let (id, source) = (Some(id.as_bytes()), Some(SPACE.as_bytes()));
        Marks { id, source, topic: "orders", ..Marks::default() }
    }

    #[test]
    fn only_what_was_read_back_is_there_and_not_what_lies_between() {
        let mut published = stream(5);
        published.note(by_position("0000001f:0/10:0"));
        published.note(by_position("0000001f:0/10:2"));
        published.note(by_position("0000001f:0/10:70"));
        assert!(published.take(at(0x10, 0), same));
        assert!(!published.take(at(0x10, 1), same));
        assert!(published.take(at(0x10, 2), same));
        assert!(published.take(at(0x10, 70), same));
        assert!(!published.take(at(0x10, 6), same) && !published.take(at(0x11, 0), same));
        assert_eq!(published.until(Lsn::from(0x1000)), Lsn::from(0x11));
        assert_eq!(published.events(), 3);
    }

    #[test]
    fn what_another_program_has_published_of_one_transaction_is_there_by_its_place() {
        let mut published = stream(0x10).and_up_to(Some(at(0x20, 2)));
        let none = || unreachable!("its id is not asked for");
        assert!(published.take(at(0x20, 0), none) && published.take(at(0x20, 2), none));
        assert!(!published.take(at(0x20, 3), same) && !published.take(at(0x1f, 0), same));
        assert!(!published.is_empty());
        assert_eq!((published.events(), published.until(Lsn::ZERO)), (3, Lsn::from(0x21)));
        published.clear();
        assert!(published.is_empty() && !published.take(at(0x20, 0), same));
    }

    #[test]
    fn what_another_program_has_published_counts_no_more_behind_it_or_on_another_timeline() {
        assert!(stream(0x21).and_up_to(Some(at(0x20, 2))).is_empty());
        assert!(behind_a_switch(0x10, Some(0x20)).and_up_to(Some(at(0x20, 2))).is_empty());
        assert!(!behind_a_switch(0x10, Some(0x21)).and_up_to(Some(at(0x20, 2))).is_empty());
    }

    #[test]
    fn another_event_at_the_same_position_is_not_there() {
        let mut published = stream(5);
        published.note(by_position("0000001f:0/10:0"));
        assert!(!published.take(at(0x10, 0), || named("other")));
        assert!(!published.take(at(0x10, 0), Named::default));
        assert!(published.is_placed(at(0x10, 0)) && !published.is_placed(at(0x10, 1)));
        assert!(published.take(at(0x10, 0), same));
    }

    #[test]
    fn what_an_abandoned_timeline_left_hides_nothing_and_is_told() {
        let mut published = behind_a_switch(0x10, Some(0x20));
        for text in [
            "0000001f:0/F:0",
            "0000001f:0/1F:0",
            "0000001f:0/30:2",
            "0000001f:0/20:1",
            "0000001e:0/40:0",
        ] {
            published.note(by_position(text));
        }
        assert!(published.take(at(0x1f, 0), same));
        assert!(!published.take(at(0x20, 1), same) && !published.take(at(0x30, 2), same));
        let range = Some((at(0x20, 1), at(0x30, 2)));
        assert_eq!(published.phantoms(), Phantoms { range, records: 2, unplaced: 0 });
        // Nothing is waited for that will not come.
        assert_eq!(published.until(Lsn::from(0x1000)), Lsn::from(0x20));
    }

    #[test]
    fn an_id_without_a_position_proves_nothing_behind_a_switch() {
        let mut published = behind_a_switch(0x10, Some(0x20));
        published.note(by_id("7"));
        assert!(!published.take(at(0x20, 0), || named("7")));
        assert!(published.is_empty());
        assert_eq!(published.phantoms(), Phantoms { unplaced: 1, ..Phantoms::default() });
        // So the floors go behind it at once, and no successor reads it.
        assert_eq!(published.until(Lsn::from(0x1000)), Lsn::ZERO);
    }

    #[test]
    fn an_event_is_there_also_where_another_has_its_position() {
        for ids in [["same", "other"], ["other", "same"]] {
            let mut published = stream(5);
            for id in ids {
                published.note(Marks { id: Some(id.as_bytes()), ..by_position("0000001f:0/10:0") });
            }
            assert_eq!(published.events(), 2);
            assert!(published.take(at(0x10, 0), same), "{ids:?}");
            assert!(!published.take(at(0x10, 0), || named("third")));
        }
    }

    #[test]
    fn records_of_others_say_nothing() {
        let mut published = stream(0x10);
        for text in [
            "0000001e:0/10:0",
            "0000001f:0/F:0",
            "0000001f:0/10",
            "",
            "0000001f:0/10:99999999999",
            "\u{fffd}",
        ] {
            published.note(by_position(text));
        }
        let replayed = Marks { replay: Some(b""), ..by_position("0000001f:0/10:0") };
        published.note(replayed);
        published.note(Marks { position: Some(b"\xff\xfe"), ..Marks::default() });
        for source in [None, Some(b"other".as_slice())] {
            published.note(Marks { source, ..by_position("0000001f:0/10:0") });
        }
        published.note(Marks::default());
        for source in [None, Some(b"other".as_slice())] {
            published.note(Marks { source, ..by_id("7") });
        }
        assert!(published.is_empty());
    }

    #[test]
    fn an_id_stands_for_one_event() {
        let mut published = stream(0);
        published.note(by_id("a"));
        assert!(published.take(at(1, 0), || named("a")));
        assert!(!published.take(at(2, 0), || named("a")));
        published.note(by_id("b"));
        assert_eq!(published.until(Lsn::from(0x1000)), Lsn::from(0x1000));
    }

    #[test]
    fn a_recovery_knows_events_by_the_ids_of_both_generations() {
        let from = |generation: u32, left_at: Option<u64>| From {
            generation: Generation::from(generation),
            left_at: left_at.map(Lsn::from),
        };
        let recovery = |left_at| Wanted::Recovery {
            lost: from(GENERATION, left_at),
            now: from(0x20, None),
            commit_lsn: Lsn::from(0xff),
        };
        let of = |text: &'static str, id: &'static str| Marks {
            id: Some(id.as_bytes()),
            ..by_position(text)
        };
        let mut published = Published::new(recovery(None), ours(), 10);
        published.note(of("0000001f:0/10:0", "a"));
        published.note(of("00000020:0/FF:3", "b"));
        published.note(of("00000021:0/10:0", "c"));
        published.note(by_id("d"));
        published.note(Marks { replay: Some(b""), ..of("0000001f:0/10:0", "e") });
        let found = ["a", "b", "c", "d", "e"].map(|id| published.take(at(0xff, 9), || named(id)));
        assert_eq!(found, [true, true, false, true, false]);
        assert_eq!(published.until(Lsn::from(0x1000)), Lsn::from(0x100));

        let mut published = Published::new(recovery(Some(0x20)), ours(), 2);
        published.note(of("0000001f:0/20:0", "phantom"));
        published.note(by_id("unplaced"));
        assert!(published.is_empty());
        assert_eq!((published.phantoms().records, published.phantoms().unplaced), (1, 1));
        for id in ["a", "b"] {
            published.note(of("0000001f:0/1F:0", id));
        }
        assert!(!published.is_recovery_with_gaps());
        published.note(of("0000001f:0/1F:0", "c"));
        assert!(published.is_recovery_with_gaps());
    }

    #[test]
    fn ids_are_bounded_and_what_is_left_out_is_counted() {
        let mut published = stream(0);
        for id in ["a", "b", "c", "d", "a", "e"] {
            published.note(by_id(id));
        }
        assert_eq!((published.events(), published.ids_left_out()), (3, 2));
    }

    #[test]
    fn rows_of_the_initial_load_are_known_by_id_since_ordinals_shift() {
        let generation = Generation::from(GENERATION);
        let wanted = Wanted::Load { generation, commit_lsn: Lsn::from(0xf) };
        let mut published = Published::new(wanted, ours(), 10);
        let load =
            |id: &'static str| Marks { id: Some(id.as_bytes()), ..by_position("0000001f:0/F:7") };
        published.note(load("a"));
        published.note(Marks { id: Some(b"b"), ..by_position("0000001f:0/10:7") });
        assert!(!published.take(at(0xf, 7), || named("b")));
        assert!(published.take(at(0xf, 3), || named("a")));
    }

    #[test]
    fn equal_ids_of_two_tables_are_two_events() {
        let other = "11111111-1111-4111-8111-111111111111";
        for wanted in [
            Wanted::Stream {
                generation: Generation::from(GENERATION),
                confirmed: Lsn::ZERO,
                left_at: None,
            },
            Wanted::Load { generation: Generation::from(GENERATION), commit_lsn: Lsn::from(0x10) },
        ] {
            let mut ours = ours();
            let relation = walpost_event::Relation {
                oid: 2,
                schema: String::new(),
                name: String::new(),
                replica_identity: walpost_event::ReplicaIdentity::Default,
                columns: Vec::new(),
            };
            ours.spaces.learn(&relation, other.parse().unwrap());
            let mut published = Published::new(wanted, ours, 10);
            published.note(by_position("0000001f:0/10:0"));
            published.note(by_id("7"));
            let of_other = |id| Named { source: Some(Bytes::from(other)), ..named(id) };
            assert!(!published.take(at(0x10, 0), || of_other("same")));
            assert!(!published.take(at(0x10, 1), || of_other("7")));
            assert!(
                published.take(at(0x10, 0), same) && published.take(at(0x10, 1), || named("7"))
            );
        }
    }

    #[test]
    fn a_globally_unique_id_is_known_alone_where_records_tell_nothing_else() {
        let wanted = stream(0).wanted;
        let bare = |id: &'static str| Marks { source: None, ..by_id(id) };
        for (has_source, has_position, expected) in
            [(false, false, true), (true, false, false), (false, true, false)]
        {
            let ours = Ours { has_source, has_position, ..ours() };
            let mut published = Published::new(wanted, ours, 10);
            published.note(bare(UNIQUE));
            published.note(bare("7"));
            assert!(!published.take(at(0x10, 1), || named("7")));
            assert_eq!(published.take(at(0x10, 0), || named(UNIQUE)), expected, "{has_source}");
        }
        // Whatever source it has: that of a table that was restored, for one.
        let mut published = stream(0);
        published.note(by_id(UNIQUE));
        let other = || Named { source: Some("another".into()), ..named(UNIQUE) };
        assert!(published.take(at(0x10, 0), other));
    }

    #[test]
    fn a_position_of_this_pipeline_in_a_record_of_no_table_of_it_says_nothing() {
        for source in [None, Some(b"main".as_slice())] {
            let mut published = stream(0);
            let position = "0000001f:FFFFFFFF/FFFFFFF0:0";
            published.note(Marks { source, ..by_position(position) });
            assert!(published.last() == Lsn::ZERO && published.is_empty(), "{source:?}");
        }
    }

    #[test]
    fn a_record_that_an_operator_names_says_nothing() {
        let mut far = by_position("0000001f:FFFFFFFF/FFFFFFF0:0");
        (far.topic, far.partition, far.offset) = ("orders.v1", 3, 1_234);
        let mut published = stream(0);
        published.note(far);
        let place = published.last_at().expect("a record").to_string();
        assert_eq!(place, "orders.v1/3@1234");
        let mut published = stream(0).ignoring(&[place.parse().unwrap()]);
        published.note(far);
        published.note(Marks { offset: 1_235, ..by_position("0000001f:0/10:0") });
        assert_eq!(published.last(), Lsn::from(0x10));
        for text in ["", "orders", "orders/3", "/3@1", "orders/x@1", "orders/3@x"] {
            assert!(text.parse::<RecordPlace>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn without_a_source_the_topic_tells_equal_ids_apart() {
        let wanted =
            Wanted::Load { generation: Generation::from(GENERATION), commit_lsn: Lsn::from(0x10) };
        let ours = Ours { has_source: false, ..ours() };
        let mut published = Published::new(wanted, ours, 10);
        let marks = by_position("0000001f:0/10:0");
        published.note(Marks { source: None, topic: "bills", ..marks });
        let of = |topic: &str| Named { topic: topic.into(), source: None, ..same() };
        assert!(!published.take(at(0x10, 0), || of("orders")));
        assert!(published.take(at(0x10, 0), || of("bills")));
        published.note(Marks { source: None, topic: "bills", ..by_position("0000001f:0/10:0") });
        assert!(published.take(at(0x10, 0), || of("")), "of a row that is too large");
    }
}
