//! The steps of a recovery. Each leaves a row behind that says what is next:
//!
//! 1. the row has a new generation, and says that its slot is replaced;
//! 2. the lost slot is dropped, and another one created under its name;
//! 3. the row has the snapshot at which the new slot begins;
//! 4. the rows that this snapshot sees and the proven one does not are published
//!    but for those that stand in the topics or are parked;
//! 5. the row says that nothing is left, and that snapshot is proven.
//!
//! Before 3 a slot is nobody's, and is made again.

#[cfg(test)]
use crate::simulation;
use crate::{
    checkpoint::{Checkpoint, InitialState, Loss, new_generation},
    error::RelayError,
    floors,
    published::{From, Wanted},
    session::{Found, Session},
    wal::{
        ReplicationClient,
        slot::{self, Slot},
        snapshot::load_position,
    },
};

impl Session<'_> {
    /// Replaces the slot, which is lost, as far as step 3.
    pub(crate) async fn replace_slot(
        &self,
        found: &mut Found,
        slot: Option<Slot>,
        replication: &mut ReplicationClient,
    ) -> Result<(), RelayError> {
        self.alone(&found.sql).await?;
        self.note_loss(found).await?;
        if slot.is_some() {
            slot::drop(&found.sql, &self.config.slot).await?;
        }
        self.create_slot(found, replication).await
    }

    /// Step 1.
    pub(crate) async fn note_loss(&self, found: &mut Found) -> Result<(), RelayError> {
        let before = &found.checkpoint;
        // Nothing has come from the slot of one that was begun before, so what
        // it has published of the rows is still told by the generation.
        let (loss, generation) = match &before.initial {
            InitialState::Recreating(loss) | InitialState::Recover { loss, .. } => {
                (*loss, before.generation)
            }
            _ => {
                let loss = Loss { generation: before.generation, left_at: found.left_at };
                (loss, new_generation())
            }
        };
        let known = &before.floors;
        let floors =
            before.proven.as_ref().map(|pair| floors::with_all_topics(&pair.floors, known));
        let floors = floors.unwrap_or_else(|| serde_json::json!({}));
        #[cfg(test)]
        let floors = match simulation::has(simulation::Bug::FloorsOfNow) {
            true => floors::stored_json(known),
            false => floors,
        };
        let (state, timeline) = (InitialState::Recreating(loss), found.identity.timeline);
        let replaced =
            found.checkpoints.replace(before, timeline, generation, &state, &floors).await?;
        let Some(replaced) = replaced else {
            return Err(RelayError::TakenOver { pipeline: self.config.pipeline.clone() });
        };
        tracing::warn!(
            slot = self.config.slot,
            confirmed = %before.confirmed,
            proven_at = before.proven.as_ref().map(|pair| pair.taken_at),
            "the slot is lost; another one takes its place, and the rows that are neither in the \
             topics nor parked are published from the outbox table; rows that were deleted before \
             they were published are lost"
        );
        found.checkpoint = Checkpoint { clean: before.clean, ..replaced };
        Ok(())
    }
}

/// What is looked for in the topics during step 4: whatever the pipeline has
/// published from the lost slot, or of these rows by now.
pub(crate) fn wanted(row: &Checkpoint, loss: Loss, left_at: Option<walpost_event::Lsn>) -> Wanted {
    Wanted::Recovery {
        lost: From { generation: loss.generation, left_at: loss.left_at },
        now: From { generation: row.generation, left_at },
        commit_lsn: load_position(row.confirmed),
    }
}
