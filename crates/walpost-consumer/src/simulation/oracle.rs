//! What the promise allows, from outside: which events have an effect, which one
//! more is owed of, and where each partition is.

use std::collections::BTreeSet;

use super::database::{Done, PARTITIONS};
use crate::decide::Mode;

/// Number of an event.
pub(super) type Id = usize;

#[derive(Clone, Debug, Default)]
pub(super) struct Oracle {
    /// How often each event took effect.
    made: Vec<u32>,
    /// Have an effect, and are to have one more: a replay was asked for.
    owed: BTreeSet<Id>,
    /// Effects that were lost on purpose and not made since.
    missing: BTreeSet<Id>,
    /// Those of them that nobody has asked for.
    given_up: BTreeSet<Id>,
    /// Where effects end.
    next: [i64; PARTITIONS],
    /// Offsets that were skipped by a wish.
    skipped: [Vec<(i64, i64)>; PARTITIONS],
    /// Offsets that somebody set and that were not honoured yet, oldest first.
    wishes: [Vec<i64>; PARTITIONS],
    /// The same since the last copy of the database, honoured or not: a database
    /// that goes back may meet them again.
    asked: [Vec<i64>; PARTITIONS],
    /// The database has gone back, and the group may know more than it does.
    pub(super) is_older: bool,
    /// The first thing wrong.
    pub(super) wrong: Option<String>,
    /// What happened, where somebody wants to read it.
    pub(super) history: Option<Vec<String>>,
}

impl Oracle {
    pub(super) fn event(&mut self) -> Id {
        self.made.push(0);
        self.made.len() - 1
    }

    pub(super) fn events(&self) -> usize {
        self.made.len()
    }

    /// A batch was committed: records from `from` to before `next`, whose events
    /// are `all`; of these `new` were given to the handler.
    pub(super) fn batch(&mut self, part: usize, ends: (i64, i64), all: &[Id], new: &[Id]) {
        let (from, next) = ends;
        self.note(|| format!("batch of {part} from {from} to {next}: {all:?}, new {new:?}"));
        let stood = std::mem::replace(&mut self.next[part], next);
        if stood != from {
            self.wrong(|| {
                format!("partition {part}: a batch from {from} on, but effects end before {stood}")
            });
        }
        for &id in new {
            self.effect(part, id);
        }
        for &id in all {
            if self.made[id] == 0 {
                self.wrong(|| format!("partition {part}: event {id} was passed without an effect"));
            }
        }
    }

    fn effect(&mut self, part: usize, id: Id) {
        let is_owed = self.owed.remove(&id);
        self.given_up.remove(&id);
        self.missing.remove(&id);
        if self.made[id] > 0 && !is_owed {
            self.wrong(|| format!("partition {part}: event {id} took effect once too often"));
        }
        self.made[id] += 1;
    }

    /// Somebody sets the offset of a partition.
    pub(super) fn wish(&mut self, part: usize, to: i64) {
        self.note(|| format!("a tool sets {part} to {to}"));
        self.wishes[part].push(to);
        self.asked[part].push(to);
    }

    /// The database is copied.
    pub(super) fn copied(&mut self) {
        self.note(|| "the database is copied".to_owned());
        self.asked = self.wishes.clone();
    }

    /// The database goes back to a copy, of which `copied` judged.
    pub(super) fn go_back(&mut self, copied: Self) {
        self.note(|| "the database goes back to its copy".to_owned());
        let events = self.made.len();
        let now = std::mem::replace(self, copied);
        self.made.resize(events, 0);
        self.wishes.clone_from(&now.asked);
        self.asked = now.asked;
        self.is_older = true;
        (self.wrong, self.history) = (now.wrong, now.history);
    }

    /// A claimed partition goes on where it was, beside a newer commit.
    pub(super) fn resumed_older(&mut self, part: usize, group: i64) {
        if !self.is_older {
            self.wrong(|| format!("partition {part}: {group} is known, and counts as newer"));
        }
        self.resumed(part);
    }

    /// A claimed partition goes on where it was: nothing is asked for any more.
    pub(super) fn resumed(&mut self, part: usize) {
        self.note(|| format!("{part} goes on where it was"));
        self.wishes[part].clear();
    }

    /// A partition begins for the first time.
    pub(super) fn began(&mut self, part: usize, at: i64) {
        self.note(|| format!("{part} begins at {at}"));
        self.wishes[part].clear();
        self.next[part] = at;
        self.skipped[part].push((0, at));
    }

    /// A reset was carried out. `records` are the events of the partition, by
    /// offset.
    pub(super) fn reset(
        &mut self,
        part: usize,
        to: i64,
        how: (Mode, Option<i64>),
        done: &[Option<Done>],
        records: &[Id],
    ) {
        let from = std::mem::replace(&mut self.next[part], to);
        self.note(|| format!("reset of {part} from {from} to {to}: {how:?}"));
        match self.wishes[part].iter().rposition(|wish| *wish == to) {
            // An earlier one may still stand in Kafka, where this one came by SQL.
            Some(index) => drop(self.wishes[part].remove(index)),
            None => self.wrong(|| format!("partition {part}: nobody asked for a reset to {to}")),
        }
        if to < from {
            self.skipped[part].retain(|(begin, _)| *begin < to);
            for range in &mut self.skipped[part] {
                range.1 = range.1.min(to);
            }
        }
        let home = |id: &Id| done[*id].filter(|done| done.part == part).map(|done| done.off);
        match how {
            (Mode::Rerun, _) if to < from => {
                let again = (0..done.len()).filter(|id| home(id).is_some_and(|off| off >= to));
                self.owed.extend(again);
            }
            (Mode::Rerun, _) => {}
            (Mode::Fill, until) => {
                let until = until.unwrap_or(from);
                self.owed.retain(|id| home(id).is_none_or(|off| off >= until));
                for id in &records[index(to)..] {
                    self.given_up.remove(id);
                }
            }
            (Mode::Skip, _) => {
                self.skipped[part].push((from, to));
                let passed = &records[index(from)..index(to)];
                self.given_up.extend(passed.iter().filter(|id| self.missing.contains(id)));
                self.owed.retain(|id| home(id).is_none_or(|off| !(from..to).contains(&off)));
            }
        }
    }

    /// The effect of an event is lost, by whatever else there is.
    pub(super) fn lose(&mut self, id: Id) {
        self.made[id] = 0;
        self.owed.remove(&id);
        self.missing.insert(id);
        self.given_up.insert(id);
    }

    /// Everything has come to rest at the end of the logs.
    pub(super) fn end(&mut self, logs: [&[Id]; PARTITIONS]) {
        for (part, records) in logs.into_iter().enumerate() {
            for (off, &id) in (0..).zip(records) {
                let skipped =
                    self.skipped[part].iter().any(|(begin, end)| (*begin..*end).contains(&off));
                if self.made[id] == 0 && !skipped && !self.given_up.contains(&id) {
                    self.wrong(|| format!("event {id}, at {off} of partition {part}, is lost"));
                }
            }
        }
        if let Some(id) = self.owed.first().copied() {
            self.wrong(|| format!("event {id} was to take effect again and did not"));
        }
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            history.push(what());
        }
    }

    pub(super) fn wrong(&mut self, what: impl FnOnce() -> String) {
        if self.wrong.is_none() {
            self.wrong = Some(what());
        }
    }
}

fn index(offset: i64) -> usize {
    usize::try_from(offset).expect("an offset")
}
