use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use bytes::Bytes;
use walpost_event::{Generation, Lsn, Position};

#[cfg(test)]
use crate::simulation;

/// The events above the checkpoint that are published already, as the sink
/// gives them back: nothing of it is sent again.
///
/// Pure. An event is dropped only if its own identity is here. Where records
/// tell generation and position, that is both of them and the id: ordinals
/// depend on which tables are configured, and a restored server may write other
/// events at the same positions. Else it is the id with the pipeline's own name
/// beside it, as others may use the same ids. What lies between two events that
/// are here proves nothing, since a log may have gaps.
///
/// Memory is an entry of about 100 bytes for each 16 events of a transaction
/// above the checkpoint; without positions the ids, up to a bound.
#[derive(Debug)]
pub(crate) struct Published {
    wanted: Wanted,
    pipeline: String,
    /// Fingerprints of the ids of 16 ordinals each, 0 for none.
    positions: HashMap<(Lsn, u32), [u32; CHUNK]>,
    /// Further ones of a position that has one: of a server before it was
    /// restored, or of somebody who has our position from us.
    others: HashSet<(Position, u32)>,
    last: Lsn,
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
}

impl Marks<'_> {
    /// Whether it was published once more on purpose, or is a dead letter.
    pub fn is_replayed(&self) -> bool {
        self.replay.is_some()
    }
}

impl Published {
    /// Nothing yet. At most `ids_max` ids are kept.
    pub(crate) fn new(wanted: Wanted, pipeline: &str, ids_max: usize) -> Self {
        Self {
            wanted,
            pipeline: pipeline.to_owned(),
            positions: HashMap::new(),
            others: HashSet::new(),
            last: Lsn::ZERO,
            ids: HashSet::new(),
            ids_max,
            ids_left_out: 0,
            phantoms: Phantoms::default(),
            taken_over_at: None,
        }
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
        if marks.is_replayed() {
            return;
        }
        let position = marks.position.map(parse);
        match (self.wanted, position) {
            (Wanted::Stream { generation, confirmed, left_at }, Some(Some((found, position))))
                if found == generation && position.commit_lsn >= confirmed =>
            {
                if left_at.is_some_and(|left_at| position.commit_lsn >= left_at) {
                    return self.phantoms.note(position);
                }
                self.last = self.last.max(position.commit_lsn);
                self.note_position(position, fingerprint(marks.id));
            }
            (Wanted::Load { generation, commit_lsn }, Some(Some((found, position))))
                if found == generation && position.commit_lsn == commit_lsn =>
            {
                self.note_id(marks.id);
            }
            (Wanted::Recovery { lost, now, .. }, Some(Some((found, position)))) => {
                let from = [lost, now].into_iter().find(|from| from.generation == found);
                let Some(From { left_at, .. }) = from else { return };
                if left_at.is_some_and(|left_at| position.commit_lsn >= left_at) {
                    return self.phantoms.note(position);
                }
                self.note_id(marks.id);
            }
            (wanted, None) if marks.source == Some(self.pipeline.as_bytes()) => {
                let left_at = match wanted {
                    Wanted::Stream { left_at, .. } => left_at,
                    Wanted::Recovery { lost, now, .. } => lost.left_at.or(now.left_at),
                    Wanted::Load { .. } => None,
                };
                match left_at {
                    Some(_) => self.phantoms.unplaced += 1,
                    None => self.note_id(marks.id),
                }
            }
            (_, _) => {}
        }
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

    fn note_id(&mut self, id: Option<&[u8]>) {
        let Some(id) = id else { return };
        if self.ids.len() < self.ids_max {
            self.ids.insert(Bytes::copy_from_slice(id));
        } else if !self.ids.contains(id) {
            self.ids_left_out += 1;
        }
    }

    /// Whether this event is there. Asked once for each event, since an id
    /// stands for one.
    pub(crate) fn take(&mut self, position: Position, id: impl FnOnce() -> Option<Bytes>) -> bool {
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
        let id = id();
        let print = fingerprint(id.as_deref());
        found == print
            || self.others.contains(&(position, print))
            || id.is_some_and(|id| self.ids.remove(&id))
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

/// Never 0.
fn fingerprint(id: Option<&[u8]>) -> u32 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
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
    fn at(commit_lsn: u64, ordinal: u32) -> Position {
        Position { commit_lsn: Lsn::from(commit_lsn), ordinal }
    }

    fn same() -> Option<Bytes> {
        Some(Bytes::from_static(b"same"))
    }

    fn stream(confirmed: u64) -> Published {
        behind_a_switch(confirmed, None)
    }

    fn behind_a_switch(confirmed: u64, left_at: Option<u64>) -> Published {
        let (generation, confirmed) = (Generation::from(GENERATION), Lsn::from(confirmed));
        let left_at = left_at.map(Lsn::from);
        Published::new(Wanted::Stream { generation, confirmed, left_at }, "shop", 3)
    }

    fn by_position(text: &str) -> Marks<'_> {
        Marks { position: Some(text.as_bytes()), id: Some(b"same"), ..Marks::default() }
    }

    fn by_id(id: &str) -> Marks<'_> {
        Marks { id: Some(id.as_bytes()), source: Some(b"shop"), ..Marks::default() }
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
        assert!(!published.take(at(0x10, 0), || Some(Bytes::from("other"))));
        assert!(!published.take(at(0x10, 0), || None));
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
        assert!(!published.take(at(0x20, 0), || Some(Bytes::from("7"))));
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
            assert!(!published.take(at(0x10, 0), || Some(Bytes::from("third"))));
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
        assert!(published.take(at(1, 0), || Some(Bytes::from("a"))));
        assert!(!published.take(at(2, 0), || Some(Bytes::from("a"))));
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
        let mut published = Published::new(recovery(None), "shop", 10);
        published.note(of("0000001f:0/10:0", "a"));
        published.note(of("00000020:0/FF:3", "b"));
        published.note(of("00000021:0/10:0", "c"));
        published.note(by_id("d"));
        published.note(Marks { replay: Some(b""), ..of("0000001f:0/10:0", "e") });
        let found = ["a", "b", "c", "d", "e"]
            .map(|id| published.take(at(0xff, 9), || Some(Bytes::from(id))));
        assert_eq!(found, [true, true, false, true, false]);
        assert_eq!(published.until(Lsn::from(0x1000)), Lsn::from(0x100));

        let mut published = Published::new(recovery(Some(0x20)), "shop", 2);
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
        let mut published = Published::new(wanted, "shop", 10);
        let load =
            |id: &'static str| Marks { id: Some(id.as_bytes()), ..by_position("0000001f:0/F:7") };
        published.note(load("a"));
        published.note(Marks { id: Some(b"b"), ..by_position("0000001f:0/10:7") });
        assert!(!published.take(at(0xf, 7), || Some(Bytes::from("b"))));
        assert!(published.take(at(0xf, 3), || Some(Bytes::from("a"))));
    }
}
