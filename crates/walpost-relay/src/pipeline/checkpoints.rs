//! When a checkpoint is written, and when its position is confirmed.

use serde_json::Value;
use tokio::{task::JoinHandle, time::Instant};
use walpost_event::Lsn;

use super::Pipeline;
use crate::{
    checkpoint::Note, error::RelayError, floors, proven::Seen, sink::Sink, source::Source,
};

/// Checkpoints remembered while the stream lags behind them.
const UNPASSED_MAX: usize = 64;

/// A committed checkpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) confirmed: Lsn,
    /// At or behind the commit record of the write itself.
    pub(super) wal: Lsn,
    /// Places of the sink that it names.
    pub(super) places: usize,
}

/// What a task beside the loop comes back with.
#[derive(Debug)]
pub(super) struct Noted {
    /// The checkpoint, if one was due.
    written: Option<Written>,
    seen: Option<Seen>,
}

impl<S: Source, K: Sink> Pipeline<S, K> {
    /// Nothing but our own last checkpoint is in the WAL since: write none.
    pub(super) fn worth_a_checkpoint(&self) -> bool {
        if self.progress.done <= self.progress.checkpointed {
            return false;
        }
        // Whoever gets the rows of a move waits for the checkpoint behind it.
        let has_given =
            self.progress.given_at.is_some_and(|given_at| given_at >= self.progress.checkpointed);
        self.progress.events_since_checkpoint
            || has_given
            || self.progress.proofs.is_due(self.progress.done)
            || self.progress.last_written.is_none_or(|last| self.progress.done > last.wal)
    }

    /// A place is named by a committed checkpoint before anything is written
    /// there.
    pub(super) fn name_places(&mut self) {
        let named = self.progress.last_written.map_or(0, |last| last.places);
        if self.sink.places().len() > named && self.progress.writing.is_none() {
            self.start_checkpoint();
        }
    }

    /// The floors of every place that is known, at the position that is done.
    pub(super) fn floors(&mut self) -> Value {
        self.floors_at(self.progress.done)
    }

    fn floors_at(&mut self, position: Lsn) -> Value {
        let places = self.sink.places();
        let progress = &mut self.progress;
        for place in &places[progress.floors.len()..] {
            progress.floors.open(place.start, place.end);
            progress.proofs.open(place);
        }
        let floors = progress.floors.at(position, progress.tracker.first_unconfirmed());
        floors::to_json(places, &floors)
    }

    pub(super) fn start_checkpoint(&mut self) {
        // As long as the row says that rows are to be loaded, a successor looks
        // for all of them.
        let position = if self.progress.is_load { Lsn::ZERO } else { self.progress.done };
        let floors = self.floors_at(position);
        let names = self.sink.places().len();
        let checkpoints = self.checkpoints.clone();
        let progress = &mut self.progress;
        let confirmed = progress.done;
        let pairs = progress.proofs.advance(confirmed, &floors);
        let wants_snapshot = progress.proofs.wants_snapshot();
        let note = Note { confirmed, floors, pairs, has_messages: progress.has_messages };
        progress.last_checkpoint = Instant::now();
        // Those that were read and are not in this one need another.
        progress.events_since_checkpoint = progress.tracker.has_unconfirmed();
        progress.writing = Some(tokio::spawn(async move {
            let seen = if wants_snapshot { Some(checkpoints.see().await?) } else { None };
            let wal = checkpoints.write(&note).await?;
            Ok(Noted { written: Some(Written { confirmed, wal, places: names }), seen })
        }));
    }

    /// Takes another snapshot for floors that are remembered, where no
    /// checkpoint is due.
    pub(super) fn start_looking(&mut self) {
        let checkpoints = self.checkpoints.clone();
        self.progress.last_checkpoint = Instant::now();
        self.progress.writing = Some(tokio::spawn(async move {
            Ok(Noted { written: None, seen: Some(checkpoints.see().await?) })
        }));
    }

    pub(super) fn note_written(
        &mut self,
        noted: Result<Noted, RelayError>,
    ) -> Result<(), RelayError> {
        self.progress.writing = None;
        let Noted { written, seen } = noted?;
        if let Some(seen) = seen {
            self.progress.proofs.saw(seen);
        }
        let Some(written) = written else { return Ok(()) };
        self.progress.checkpointed = written.confirmed;
        self.sink.allow(written.places);
        self.carried.suspects.confirmed(written.confirmed);
        self.note_passed();
        self.progress.last_written = Some(written);
        self.progress.unpassed.push_back(written);
        if self.progress.unpassed.len() > UNPASSED_MAX {
            // Any but the first and the last can go: they only move the
            // position in smaller steps.
            self.progress.unpassed.remove(1);
        }
        Ok(())
    }

    /// Confirms what a committed checkpoint names, once the stream has passed
    /// that commit.
    pub(super) async fn confirm_passed(&mut self) -> Result<(), RelayError> {
        let mut passed = None;
        while let Some(first) = self.progress.unpassed.front()
            && first.wal <= self.progress.received
        {
            passed = Some(first.confirmed);
            self.progress.unpassed.pop_front();
        }
        if let Some(confirmed) = passed.filter(|_| self.config.confirm_slot) {
            self.source.confirm(confirmed).await?;
            self.progress.confirmed = confirmed;
        }
        Ok(())
    }
}

/// What the task beside the loop has done, once it has; for ever without one.
pub(super) async fn written(
    writing: &mut Option<JoinHandle<Result<Noted, RelayError>>>,
) -> Result<Noted, RelayError> {
    match writing {
        Some(task) => task.await.unwrap_or_else(|_| Err(interrupted())),
        None => std::future::pending().await,
    }
}

pub(super) fn interrupted() -> RelayError {
    RelayError::Sink { detail: "writing the checkpoint was interrupted".into(), transient: true }
}
