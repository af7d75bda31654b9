//! Starts that publish rows and stream nothing, and stops that drop the slot.

use std::{convert::Infallible, time::Duration};

use serde_json::json;
use tokio::time::Instant;
use walpost_event::error_chain;

use super::{Found, Session, first_start::all_published};
use crate::{
    checkpoint::{CheckpointStore, InitialState},
    error::RelayError,
    pipeline::Ended,
    recovery,
    wal::{
        ReplicationClient, preflight,
        slot::{self, Slot},
    },
};

/// Between two looks whether a slot is free.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Session<'_> {
    /// Whether there is nothing to do, as the rows were published by an earlier
    /// start and nothing is streamed.
    pub(super) async fn is_over(&self) -> Result<bool, RelayError> {
        if self.config.snapshot.stream {
            return Ok(false);
        }
        let (sql, _) = self.connect_to(self.database).await?;
        // Whoever looks next says what is wrong with it.
        let Ok(Some(row)) = CheckpointStore::new(sql.clone(), self.config).read().await else {
            return Ok(false);
        };
        if row.initial != InitialState::Done {
            return Ok(false);
        }
        tracing::info!(
            confirmed = %row.confirmed,
            "the rows were published by an earlier start, and nothing is streamed, as \
             snapshot.mode says: this start ends"
        );
        if slot::inspect(&sql, &self.config.slot).await?.is_some() {
            tracing::warn!(
                slot = self.config.slot,
                "the pipeline's slot is there and keeps WAL; stream from it with another \
                 snapshot.mode, or drop it"
            );
        }
        Ok(true)
    }

    /// Ends behind the rows. The slot that was made for their snapshot goes, so
    /// that it keeps no WAL for nobody; a start that streams later knows that it
    /// is gone.
    pub(super) async fn end_without_stream(
        &self,
        found: &Found,
        is_first: bool,
    ) -> Result<Ended<Infallible>, RelayError> {
        if is_first {
            slot::drop(&found.sql, &self.config.slot).await?;
        }
        tracing::info!(
            slot = self.config.slot,
            is_slot_dropped = is_first,
            published_up_to = %found.checkpoint.confirmed,
            "all rows are published, and nothing is streamed, as snapshot.mode says: the relay ends"
        );
        Ok(Ended::Stopped)
    }

    /// Drops the slot behind an orderly stop, once the server has noticed that
    /// nobody streams from it.
    pub(super) async fn drop_slot(&self, found: &Found) -> Result<(), RelayError> {
        let limit = Duration::from_millis(self.config.drain_timeout_ms);
        let deadline = Instant::now() + limit;
        let name = &self.config.slot;
        while let Some(slot) = slot::inspect(&found.sql, name).await? {
            if slot.active_pid.is_none() {
                slot::drop(&found.sql, name).await?;
                break;
            }
            if Instant::now() >= deadline {
                let attempt = "dropping the slot, which the server still has in use";
                return Err(RelayError::SqlTimeout { attempt, limit });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        tracing::warn!(slot = name, "the slot is dropped, as slot.drop.on.stop says");
        Ok(())
    }

    /// Another slot for one that is lost, from which what is missing comes; or,
    /// of one that a stop has dropped, nothing where no table tells it.
    pub(super) async fn replace_or_begin_anew(
        &self,
        found: &mut Found,
        slot: Option<Slot>,
        replication: &mut ReplicationClient,
    ) -> Result<(), RelayError> {
        match recovery::possible(&found.sql, self.config, &found.checkpoint).await {
            Ok(()) => self.replace_slot(found, slot, replication).await,
            Err(reason) if slot.is_none() && self.config.drop_slot_on_stop => {
                self.begin_anew(found, replication, &reason).await
            }
            Err(error) => Err(error),
        }
    }

    async fn begin_anew(
        &self,
        found: &mut Found,
        replication: &mut ReplicationClient,
        reason: &RelayError,
    ) -> Result<(), RelayError> {
        self.alone(&found.sql).await?;
        self.take(found).await?;
        let version = found.server.version;
        let new = slot::create(replication, &found.sql, self.config, version).await?;
        let (reader, _) = self.connect_to(&found.database).await?;
        let boundary = preflight::boundary(&reader, &new.snapshot).await?;
        tracing::warn!(
            slot = self.config.slot,
            published_up_to = %found.checkpoint.confirmed,
            position = %new.consistent,
            reason = error_chain(reason),
            "the slot was dropped by a stop, as slot.drop.on.stop says, and is made anew: events \
             in between are lost"
        );
        let proven = all_published(&boundary, new.consistent, json!({}));
        let done = InitialState::Done;
        found.checkpoints.set_initial(&done, new.consistent, None, Some(&proven)).await?;
        found.checkpoint.confirmed = new.consistent;
        found.checkpoint.proven = Some(proven);
        Ok(())
    }
}
