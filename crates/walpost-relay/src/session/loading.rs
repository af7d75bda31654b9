//! What a session publishes before the stream.

use std::time::Duration;

use tokio::sync::watch;
use walpost_event::Lsn;

use super::{Found, Session, first_start::all_published};
use crate::{
    checkpoint::InitialState,
    error::RelayError,
    moves::crossing,
    pipeline::Ended,
    sink::Sink,
    snapshot_modes,
    source::Source,
    status::{Phase, StartStep},
    wal::snapshot::{Boundary, SnapshotSource, load_position, until_visible},
};

impl Session<'_> {
    /// Publishes the rows that were there before the slot.
    pub(super) async fn load<K: Sink>(
        &mut self,
        found: &mut Found,
        boundary: &str,
        stop: watch::Receiver<bool>,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<Ended<()>, RelayError> {
        let position = found.checkpoint.confirmed;
        let what = match &found.checkpoint.initial {
            InitialState::Publish { .. } => {
                snapshot_modes::preview(&found.sql, self.config).await?
            }
            _ => "those that the lost slot has not brought".to_owned(),
        };
        self.status.step(StartStep::Work);
        tracing::info!(%position, what, "publishing the rows that were there before the slot");
        let rows = match &found.new_slot {
            Some(new) => Boundary::Exported(&new.snapshot),
            None => Boundary::Stored(boundary),
        };
        self.givers_have_passed(found, boundary).await?;
        let proven = found.recovering();
        let (config, status) = (self.config, self.status.clone());
        let source =
            SnapshotSource::open(&found.database, config, rows, proven, position, status).await?;
        self.publish_rows(found, source, boundary, stop, connect_sink).await
    }

    /// The boundaries of moves that the slot does not bring are behind their
    /// givers: what is published now may follow what these had to publish.
    pub(crate) async fn givers_have_passed(
        &self,
        found: &Found,
        boundary: &str,
    ) -> Result<(), RelayError> {
        let last = load_position(found.checkpoint.confirmed);
        let limit = Duration::from_millis(self.config.slot_timeout_ms);
        until_visible(&found.sql, boundary, limit).await?;
        for entry in crossing::uncrossed(&found.sql, self.config, boundary).await? {
            if let Some(detail) = crossing::cross(&found.sql, self.config, entry, last).await? {
                let pipeline = self.config.pipeline.clone();
                return Err(RelayError::Waits { pipeline, detail });
            }
        }
        Ok(())
    }

    /// Publishes the rows that `source` brings, which are all that there were
    /// before the slot and are not published.
    pub(crate) async fn publish_rows<S: Source, K: Sink>(
        &mut self,
        found: &mut Found,
        source: S,
        boundary: &str,
        stop: watch::Receiver<bool>,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<Ended<()>, RelayError> {
        let position = found.checkpoint.confirmed;
        let pipeline = self.pipeline(found, source, Lsn::ZERO, connect_sink).await?;
        self.working(Phase::Loading, position);
        let (ended, carried) = pipeline.run(stop, |done| (done >= position).then_some(())).await;
        *self.carried = carried;
        let ended = ended?;
        if let Ended::Reached((), floors) = &ended {
            let (done, proven) =
                (InitialState::Done, all_published(boundary, position, floors.clone()));
            found.checkpoints.set_initial(&done, position, Some(floors), Some(&proven)).await?;
            found.checkpoint.initial = done;
            found.checkpoint.proven = Some(proven);
            self.status.update(|status| status.has_loaded = true);
            self.status.starting();
        }
        Ok(ended)
    }
}
