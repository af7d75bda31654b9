//! The rows and functions of the migration, and transactions that stay open.

use uuid::Uuid;

use super::{
    Bug,
    oracle::{Id, Oracle},
};
use crate::decide::Mode;

pub(super) const PARTITIONS: usize = 2;

/// A connection.
pub(super) type Connection = u64;

/// What a statement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer<T = ()> {
    Ok(T),
    /// Not yet: somebody holds a lock.
    Waits,
    /// WP001.
    Missed,
    /// The connection is gone, and what was open on it.
    Gone,
}

/// A row of `position`.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) epoch: i64,
    pub(super) next: Option<i64>,
    pub(super) run: i32,
    pub(super) reset: Option<Uuid>,
    pub(super) known: Vec<i64>,
}

/// What a copy of the database holds.
#[derive(Clone, Debug)]
pub(super) struct Copied {
    rows: [Row; PARTITIONS],
    done: Vec<Option<Done>>,
    resets: Vec<Reset>,
    oracle: Oracle,
}

/// A row of `done`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) part: usize,
    pub(super) off: i64,
    run: i32,
}

/// A row of `consumer_reset`.
#[derive(Clone, Copy, Debug)]
struct Reset {
    id: Uuid,
    part: usize,
    run: i32,
    fill_until: Option<i64>,
}

/// What a batch is about to do.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) part: usize,
    pub(super) epoch: i64,
    /// Offsets of its first record and behind its last.
    pub(super) ends: (i64, i64),
    pub(super) known: Vec<i64>,
    pub(super) run: i32,
    /// By the statement that makes effects of earlier runs again.
    pub(super) reruns: bool,
    /// Its events.
    pub(super) ids: Vec<Id>,
}

/// A transaction that holds the row of its partition.
#[derive(Debug)]
struct Open {
    connection: Connection,
    batch: Batch,
    /// Events that the deduplication has returned, once it has.
    new: Option<Vec<(Id, i64)>>,
}

#[derive(Debug)]
pub(super) struct Database {
    bug: Option<Bug>,
    rows: [Row; PARTITIONS],
    /// By event.
    done: Vec<Option<Done>>,
    resets: Vec<Reset>,
    open: Vec<Open>,
    pub(super) oracle: Oracle,
}

impl Database {
    pub(super) fn new(bug: Option<Bug>) -> Self {
        let (rows, oracle) = (Default::default(), Oracle::default());
        Self { bug, rows, done: Vec::new(), resets: Vec::new(), open: Vec::new(), oracle }
    }

    /// What is committed, as a dump or a standby has it.
    pub(super) fn copy(&mut self) -> Copied {
        self.oracle.copied();
        let Self { rows, done, resets, oracle, .. } = self;
        Copied {
            rows: rows.clone(),
            done: done.clone(),
            resets: resets.clone(),
            oracle: oracle.clone(),
        }
    }

    /// Another server takes over with an earlier state: sessions end, and so does
    /// what was committed since.
    pub(super) fn go_back(&mut self, copied: Copied) {
        let Copied { rows, mut done, resets, oracle } = copied;
        done.resize(self.done.len(), None);
        (self.rows, self.done, self.resets) = (rows, done, resets);
        self.open.clear();
        self.oracle.go_back(oracle);
    }

    pub(super) fn event(&mut self) -> Id {
        self.done.push(None);
        self.oracle.event()
    }

    pub(super) fn row(&self, part: usize) -> &Row {
        &self.rows[part]
    }

    /// Ends whoever blocks it.
    pub(super) fn claim(&mut self, part: usize) -> Row {
        self.open.retain(|open| open.batch.part != part);
        self.rows[part].epoch += 1;
        let row = self.rows[part].clone();
        self.oracle.note(|| format!("claim of {part}: {row:?}"));
        row
    }

    pub(super) fn is_locked(&self, part: usize) -> bool {
        self.open.iter().any(|open| open.batch.part == part)
    }

    pub(super) fn begin(&mut self, connection: Connection, mut batch: Batch) -> Answer {
        let (part, row) = (batch.part, &self.rows[batch.part]);
        if self.is_locked(part) {
            return Answer::Waits;
        }
        let matches = row.epoch == batch.epoch && row.next == Some(batch.ends.0);
        if !matches && self.bug != Some(Bug::NoCompareAndSet) {
            return Answer::Missed;
        }
        if self.bug == Some(Bug::KnownForgotten) {
            batch.known.clear();
        }
        self.open.push(Open { connection, batch, new: None });
        Answer::Ok(())
    }

    pub(super) fn deduplicate(&mut self, connection: Connection) -> Answer {
        let Some(index) = self.open.iter().position(|open| open.connection == connection) else {
            return Answer::Gone;
        };
        let Batch { part, ends, run, reruns, ref ids, .. } = self.open[index].batch;
        let pending = |id: &Id| {
            let others = self.open.iter().filter(|open| open.connection != connection);
            others.flat_map(|open| open.new.iter().flatten()).any(|(other, _)| other == id)
        };
        if ids.iter().any(pending) {
            return Answer::Waits;
        }
        let reruns = reruns && self.bug != Some(Bug::RunIgnored);
        let mut new: Vec<(Id, i64)> = Vec::new();
        for (off, &id) in (ends.0..).zip(ids) {
            let again =
                |done: Done| reruns && done.part == part && done.off == off && done.run < run;
            let is_new = self.done[id].is_none_or(again);
            if is_new && new.iter().all(|(other, _)| *other != id) {
                new.push((id, off));
            }
        }
        self.open[index].new = Some(new);
        Answer::Ok(())
    }

    pub(super) fn commit(&mut self, connection: Connection) -> Answer {
        let Some(index) = self.open.iter().position(|open| open.connection == connection) else {
            return Answer::Gone;
        };
        let Open { batch, new, .. } = self.open.swap_remove(index);
        let Batch { part, ends, known, run, ids, .. } = batch;
        let new = new.unwrap_or_default();
        for &(id, off) in &new {
            self.done[id] = Some(Done { part, off, run });
        }
        let new: Vec<Id> = new.into_iter().map(|(id, _)| id).collect();
        self.oracle.batch(part, ends, &ids, &new);
        (self.rows[part].next, self.rows[part].known) = (Some(ends.1), known);
        Answer::Ok(())
    }

    /// The mistake of a transaction that moves the offset alone.
    pub(super) fn move_alone(&mut self, batch: &Batch) {
        self.rows[batch.part].next = Some(batch.ends.1);
        self.oracle.batch(batch.part, batch.ends, &batch.ids, &[]);
    }

    pub(super) fn roll_back(&mut self, connection: Connection) {
        self.open.retain(|open| open.connection != connection);
    }

    /// The server notices whose clients are gone, at the latest by
    /// `idle_in_transaction_session_timeout`.
    pub(super) fn keep_only(&mut self, lives: impl Fn(Connection) -> bool) {
        self.open.retain(|open| lives(open.connection));
    }

    pub(super) fn store_known(&mut self, part: usize, key: (i64, i64), known: &[i64]) -> Answer {
        if self.is_locked(part) {
            return Answer::Waits;
        }
        let row = &mut self.rows[part];
        if (row.epoch, row.next) != (key.0, Some(key.1)) {
            return Answer::Missed;
        }
        row.known = match self.bug {
            Some(Bug::KnownForgotten) => Vec::new(),
            _ => known.to_vec(),
        };
        Answer::Ok(())
    }

    pub(super) fn start_at(&mut self, part: usize, epoch: i64, at: i64, known: &[i64]) -> Answer {
        let row = &mut self.rows[part];
        if row.epoch != epoch || row.next.is_some() {
            return Answer::Missed;
        }
        (row.next, row.known) = (Some(at), known.to_vec());
        self.oracle.began(part, at);
        Answer::Ok(())
    }

    /// Carries out a reset; in which run the partition is then.
    pub(super) fn reset_to(
        &mut self,
        part: usize,
        (epoch, old): (i64, i64),
        (to, mode, id): (i64, Mode, Uuid),
        records: &[Id],
    ) -> Answer<i32> {
        if self.is_locked(part) {
            return Answer::Waits;
        }
        let row = &mut self.rows[part];
        if row.epoch != epoch || row.next != Some(old) {
            return Answer::Missed;
        }
        row.run += i32::from(mode == Mode::Rerun && to < old);
        (row.next, row.reset, row.known) = (Some(to), Some(id), vec![to]);
        let run = row.run;
        let earlier = self.fill_until(part, run);
        let fill_until = (mode == Mode::Fill).then(|| earlier.map_or(old, |until| until.max(old)));
        self.resets.push(Reset { id, part, run, fill_until });
        self.oracle.reset(part, to, (mode, fill_until), &self.done, records);
        Answer::Ok(run)
    }

    /// `reset_partition`: claim and reset in one transaction, on a group that may
    /// be at work, so that Kafka still holds what it did.
    pub(super) fn reset_partition(
        &mut self,
        part: usize,
        (to, mode, id): (i64, Mode, Uuid),
        records: &[Id],
    ) {
        let Row { epoch, next, known, .. } = self.claim(part);
        let old = next.expect("nothing is reset that has not begun");
        self.oracle.wish(part, to);
        self.reset_to(part, (epoch, old), (to, mode, id), records);
        if self.bug != Some(Bug::KnownDropped) {
            self.rows[part].known.extend(known.into_iter().chain([old]));
        }
    }

    pub(super) fn fill_until(&self, part: usize, run: i32) -> Option<i64> {
        let of = |reset: &&Reset| reset.part == part && reset.run == run;
        self.resets.iter().filter(of).filter_map(|reset| reset.fill_until).max()
    }

    pub(super) fn has_reset(&self, part: usize, id: Uuid) -> bool {
        self.resets.iter().any(|reset| reset.part == part && reset.id == id)
    }

    /// An effect goes, with the row that knows of it.
    pub(super) fn lose(&mut self, id: Id) {
        if self.done[id].take().is_some() {
            self.oracle.lose(id);
        }
    }
}
