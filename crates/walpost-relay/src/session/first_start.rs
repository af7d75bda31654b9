//! What a session makes that is missing: the slot, and the row that says where
//! it begins.

use std::time::Duration;

use serde_json::{Value, json};
use walpost_event::Lsn;

use super::{Found, Session, There};
use crate::{
    check::overlap,
    checkpoint::InitialState,
    clock::now_us,
    config::Initial,
    error::{RelayError, SourceError},
    history,
    proven::Pair,
    resume,
    retention::ReaderFeed,
    sink::Sink,
    snapshot_modes::{self, FirstLoad},
    sql::Sql,
    start::SlotFate,
    status::StartStep,
    wal::{
        ReplicationClient, preflight,
        slot::{self, Slot},
        snapshot::until_visible,
    },
};

/// A pair whose snapshot sees what was there before a slot, once all of that is
/// published.
pub(super) fn all_published(snapshot: &str, lsn: Lsn, floors: Value) -> Pair {
    Pair { snapshot: snapshot.to_owned(), lsn, floors, taken_at: now_us() / 1_000_000 }
}

impl Session<'_> {
    /// The sink of a first start whose load could not go on if it were
    /// interrupted: with a sink that is away it begins later, and its slot too.
    pub(super) async fn sink_before_slot<K: Sink>(
        &self,
        found: &mut Found,
        there: &There,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<Option<K>, RelayError> {
        let is_first = found.checkpoint.initial == InitialState::Creating
            && (found.stored || there.slot.is_none());
        if !is_first || self.first_load(&found.sql).await? != FirstLoad::InOneGo {
            return Ok(None);
        }
        // Another relay that makes the first start has a sink, which ours would
        // fence off.
        self.alone(&found.sql).await?;
        self.status.step(StartStep::Sink);
        let sink = resume::connect_first(connect_sink).await?;
        self.status.step(StartStep::Database);
        // That may have taken long.
        let slot = slot::inspect(&found.sql, &self.config.slot).await?;
        if slot.is_some() != there.slot.is_some() {
            return Err(RelayError::TakenOver { pipeline: self.config.pipeline.clone() });
        }
        found.has_sink = true;
        Ok(Some(sink))
    }

    async fn first_load(&self, sql: &Sql) -> Result<FirstLoad, RelayError> {
        // Of rows that have left a table much may be left to pass by.
        let slow = sql.within_ms(self.config.slot_timeout_ms);
        snapshot_modes::first_load(&slow, self.config).await
    }

    /// Makes slot and row where they are missing or lost.
    pub(super) async fn make(
        &self,
        found: &mut Found,
        There { slot, fate }: There,
        replication: &mut ReplicationClient,
    ) -> Result<(), RelayError> {
        match fate {
            SlotFate::Replaced => self.replace_or_begin_anew(found, slot, replication).await,
            SlotFate::Fits => self.prepare(found, slot, replication).await,
        }
    }

    /// Makes what is missing, under a lock where there is no slot to hold yet.
    async fn prepare(
        &self,
        found: &mut Found,
        slot: Option<Slot>,
        replication: &mut ReplicationClient,
    ) -> Result<(), RelayError> {
        match (found.stored, slot) {
            (true, slot) if found.checkpoint.initial == InitialState::Creating => {
                // Our own slot, whose first moments nobody noted.
                self.alone(&found.sql).await?;
                self.take(found).await?;
                if slot.is_some() {
                    slot::drop(&found.sql, &self.config.slot).await?;
                }
                self.create_slot(found, replication).await
            }
            (true, Some(_)) => {
                if found.checkpoint.initial != InitialState::Done {
                    self.alone(&found.sql).await?;
                    self.take(found).await?;
                }
                Ok(())
            }
            (true, None) => Err(history::slot_gone(&found.checkpoint, self.config)),
            // Somebody may still move it: its row is made once it is held.
            (false, Some(slot)) => {
                found.checkpoint.confirmed = slot.confirmed.unwrap_or_default();
                found.checkpoint.initial = InitialState::Done;
                Ok(())
            }
            (false, None) => {
                self.alone(&found.sql).await?;
                found.checkpoints.create(&found.checkpoint).await?;
                found.stored = true;
                // Of two that start at the same time, the later one sees the other.
                overlap::none(&found.sql, self.config, &self.config.tables, ReaderFeed::Wal)
                    .await?;
                self.create_slot(found, replication).await
            }
        }
    }

    /// Before there is a slot to hold, a lock keeps a second relay from the
    /// first start. It goes with the session.
    pub(crate) async fn alone(&self, sql: &Sql) -> Result<(), RelayError> {
        if slot::lock_first_start(sql, self.config).await? {
            return Ok(());
        }
        Err(RelayError::Source(SourceError::SlotInUse {
            slot: self.config.slot.clone(),
            detail: "another relay makes the first start".to_owned(),
        }))
    }

    pub(crate) async fn create_slot(
        &self,
        found: &mut Found,
        replication: &mut ReplicationClient,
    ) -> Result<(), RelayError> {
        self.status.step(StartStep::Work);
        let version = found.server.version;
        let new = slot::create(replication, &found.sql, self.config, version).await?;
        let (reader, _) = self.connect_to(&found.database).await?;
        let boundary = preflight::adopt(&reader, &new.snapshot).await?;
        let load = match found.checkpoint.initial {
            // It goes by what is proven.
            InitialState::Recreating(_) => FirstLoad::Resumable,
            _ => {
                // What is committed in the WAL may be seen by nobody yet.
                let limit = Duration::from_millis(self.config.slot_timeout_ms);
                until_visible(&found.sql, &boundary, limit).await?;
                self.first_load(&reader).await?
            }
        };
        if load == FirstLoad::InOneGo && !found.has_sink {
            // Nobody has noted the slot, so the next session makes it again.
            let detail = "rows came while the slot was made, which are published in one go: it \
                          is made again once the sink is there";
            let pipeline = self.config.pipeline.clone();
            return Err(RelayError::Waits { pipeline, detail: detail.to_owned() });
        }
        self.note_slot(found, new.consistent, &boundary, load).await?;
        found.new_slot = Some(new);
        self.status.step(StartStep::Database);
        Ok(())
    }

    /// Notes where a new slot begins, and what was there before it.
    pub(crate) async fn note_slot(
        &self,
        found: &mut Found,
        position: Lsn,
        boundary: &str,
        load: FirstLoad,
    ) -> Result<(), RelayError> {
        let initial = match (&found.checkpoint.initial, load) {
            (InitialState::Recreating(loss), _) => {
                InitialState::Recover { loss: *loss, boundary: boundary.to_owned() }
            }
            (_, FirstLoad::Nothing) => InitialState::Done,
            // Without a choice the table was empty when we looked: what it
            // holds now was committed before the slot could see it.
            _ => InitialState::Publish { boundary: boundary.to_owned() },
        };
        let proven =
            (initial == InitialState::Done).then(|| all_published(boundary, position, json!({})));
        found.checkpoints.set_initial(&initial, position, None, proven.as_ref()).await?;
        tracing::info!(slot = self.config.slot, %position, "slot created");
        if initial == InitialState::Done && self.config.initial == Some(Initial::Publish) {
            // All of none.
            self.status.update(|status| status.has_loaded = true);
        }
        found.checkpoint.confirmed = position;
        found.checkpoint.initial = initial;
        found.checkpoint.proven = proven.or(found.checkpoint.proven.take());
        Ok(())
    }
}
