//! Waiting at the boundary of a move, for the pipeline that gave the rows.

use tokio::{task::JoinHandle, time::Instant};
use walpost_event::Lsn;

use super::{Pipeline, TICK, checkpoints::interrupted};
use crate::{
    error::RelayError,
    moves::crossing::{Boundary, Entry, Sighting, cross, sight},
    sink::Sink,
    source::Source,
};

/// A boundary that is not crossed yet. Nothing is read behind it.
pub(super) struct Crossing {
    boundary: Boundary,
    /// Of the transaction that it came in.
    xid: u32,
    commit_lsn: Lsn,
    looking: Option<JoinHandle<Result<Crossed, RelayError>>>,
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
        let boundary =
            Boundary::read(content).filter(|boundary| boundary.schema == self.config.schema);
        let (Some(boundary), Some(commit_lsn)) = (boundary, self.progress.tracker.open_at()) else {
            return;
        };
        if boundary.from == self.config.pipeline {
            self.progress.given_at = Some(commit_lsn);
        }
        if boundary.to != self.config.pipeline {
            return;
        }
        let xid = self.progress.xid;
        let (looking, looked_at, waits) = (None, None, None);
        self.progress.crossing =
            Some(Crossing { boundary, xid, commit_lsn, looking, looked_at, waits });
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
        let (boundary, xid) = (crossing.boundary.clone(), crossing.xid);
        let commit_lsn = crossing.commit_lsn;
        crossing.looking = Some(tokio::spawn(async move {
            let sighting = sight(&sql, &config, &boundary, xid).await?;
            if sighting == Sighting::Boundary {
                let entry = Entry { id: boundary.id, xid: boundary.xid };
                return cross(&sql, &config, entry, commit_lsn).await.map(Crossed::from);
            }
            tracing::warn!(
                id = boundary.id,
                position = %commit_lsn,
                "a message says to be the boundary of a move and is passed over: {}",
                match sighting {
                    Sighting::OfAnother => "it names another transaction than its own",
                    _ => "its transaction has made no such entry, or the entry is gone",
                }
            );
            Ok(Crossed::PassedOver)
        }));
    }

    pub(super) fn note_crossing(&mut self, crossed: Crossed) {
        let Some(crossing) = &mut self.progress.crossing else { return };
        crossing.looking = None;
        let (id, from) = (crossing.boundary.id, &crossing.boundary.from);
        match crossed {
            Crossed::PassedOver => self.progress.crossing = None,
            Crossed::Behind => {
                let position = crossing.commit_lsn;
                tracing::info!(id, from, %position, "the boundary of a move to this pipeline is crossed");
                self.progress.crossing = None;
            }
            Crossed::Waits(waits) => {
                if crossing.waits.is_none() {
                    tracing::info!(id, from, "reading waits: {waits}");
                }
                crossing.waits = Some(waits);
            }
        }
    }
}

/// What a look has found.
#[derive(Debug)]
pub(super) enum Crossed {
    /// It is no boundary.
    PassedOver,
    /// Reading goes on behind it.
    Behind,
    /// What for.
    Waits(String),
}

impl From<Option<String>> for Crossed {
    fn from(waits: Option<String>) -> Self {
        waits.map_or(Self::Behind, Self::Waits)
    }
}

/// What a look has found, once it has; for ever without one.
pub(super) async fn looked(crossing: &mut Option<Crossing>) -> Result<Crossed, RelayError> {
    match crossing.as_mut().and_then(|crossing| crossing.looking.as_mut()) {
        Some(task) => task.await.unwrap_or_else(|_| Err(interrupted())),
        None => std::future::pending().await,
    }
}
