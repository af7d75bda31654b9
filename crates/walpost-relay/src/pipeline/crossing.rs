//! Waiting at the boundary of a move, for the pipeline that gave the rows.

use tokio::{task::JoinHandle, time::Instant};
use walpost_event::Lsn;

use super::{Pipeline, TICK, checkpoints::interrupted};
use crate::{
    error::RelayError,
    moves::crossing::{Boundary, cross, is_forgotten},
    sink::Sink,
    source::Source,
};

/// A boundary that is not crossed yet. Nothing is read behind it.
pub(super) struct Crossing {
    boundary: Boundary,
    commit_lsn: Lsn,
    looking: Option<JoinHandle<Result<Option<String>, RelayError>>>,
    looked_at: Option<Instant>,
    waits: Option<String>,
}

impl Crossing {
    /// What is waited for, and what to do.
    pub(super) fn waits(&self) -> Option<String> {
        self.waits.clone()
    }

    pub(super) fn give_up(self) {
        if let Some(looking) = self.looking {
            looking.abort();
        }
    }
}

impl<S: Source, K: Sink> Pipeline<S, K> {
    /// A message of a move has come.
    pub(super) fn meet_boundary(&mut self, content: &[u8]) {
        let boundary = Boundary::read(content)
            .filter(|boundary| boundary.is_of(&self.config, self.progress.xid));
        let (Some(boundary), Some(commit_lsn)) = (boundary, self.progress.tracker.open_at()) else {
            return;
        };
        if boundary.from == self.config.pipeline {
            self.progress.given_at = Some(commit_lsn);
        }
        if boundary.to != self.config.pipeline {
            return;
        }
        let (id, from) = (boundary.id, &boundary.from);
        tracing::info!(id, from, position = %commit_lsn, "rows were moved to this pipeline here");
        self.progress.crossing =
            Some(Crossing { boundary, commit_lsn, looking: None, looked_at: None, waits: None });
        self.look_across();
    }

    /// Looks whether the giver has passed the boundary, now and then.
    pub(super) fn look_across(&mut self) {
        let Some(crossing) = &mut self.progress.crossing else { return };
        let is_due = crossing.looked_at.is_none_or(|at| at.elapsed() >= TICK);
        if crossing.looking.is_some() || !is_due {
            return;
        }
        crossing.looked_at = Some(Instant::now());
        let (sql, config) = (self.checkpoints.sql().clone(), self.config.clone());
        let (boundary, commit_lsn) = (crossing.boundary.clone(), crossing.commit_lsn);
        crossing.looking = Some(tokio::spawn(async move {
            if is_forgotten(&sql, &config, &boundary).await? {
                tracing::warn!(id = boundary.id, "the entry of this move is gone: nothing waits");
                return Ok(None);
            }
            cross(&sql, &config, boundary.id, commit_lsn).await
        }));
    }

    pub(super) fn note_crossing(&mut self, waits: Option<String>) {
        let Some(crossing) = &mut self.progress.crossing else { return };
        crossing.looking = None;
        let (id, from) = (crossing.boundary.id, &crossing.boundary.from);
        match waits {
            None => {
                tracing::info!(id, from, "the boundary is crossed");
                self.progress.crossing = None;
            }
            Some(waits) => {
                if crossing.waits.is_none() {
                    tracing::info!(id, from, "reading waits: {waits}");
                }
                crossing.waits = Some(waits);
            }
        }
    }
}

/// What a look has found, once it has; for ever without one.
pub(super) async fn looked(crossing: &mut Option<Crossing>) -> Result<Option<String>, RelayError> {
    match crossing.as_mut().and_then(|crossing| crossing.looking.as_mut()) {
        Some(task) => task.await.unwrap_or_else(|_| Err(interrupted())),
        None => std::future::pending().await,
    }
}
