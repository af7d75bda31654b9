use std::{collections::HashMap, time::Duration};

use serde_json::{Value, json};
use uuid::Uuid;
use walpost_event::{Generation, Lsn, Position};

use super::{
    schedule::Fault,
    world::{GENERATION, State, World, lsn, xid},
};
use crate::{
    checkpoint::{Checkpoint, InitialState, Note},
    error::RelayError,
    floors,
    parked::ParkedId,
    proven::{Pair, Seen, sees},
};

/// A statement's own WAL, before its commit record.
const STATEMENT_BYTES: u64 = 0x100;

/// The rows of the relay.
pub(super) struct Rows {
    checkpoint: Checkpoint,
    token: Option<Uuid>,
    parked: Vec<ParkedRow>,
}

/// A row of `parked`, as far as the relay reads it.
#[derive(Clone)]
pub(crate) struct ParkedRow {
    pub(crate) position: Position,
    pub(crate) event_id: Option<String>,
    pub(crate) aggregate_type: Option<String>,
    pub(crate) aggregate_id: Option<String>,
}

impl Rows {
    pub(super) fn new(pipeline: usize, start: Lsn) -> Self {
        let generation = Generation::from(GENERATION + pipeline as u32);
        let checkpoint = Checkpoint {
            confirmed: start,
            initial: InitialState::Done,
            proven: Some(Pair {
                snapshot: "100:100:".to_owned(),
                lsn: start,
                floors: json!({}),
                taken_at: 0,
            }),
            ..Checkpoint::new(generation, "", 1, "")
        };
        Self { checkpoint, token: None, parked: Vec::new() }
    }

    /// Whether nothing is left to do before the stream.
    pub(super) fn is_done(&self) -> bool {
        self.checkpoint.initial == InitialState::Done
    }

    pub(super) fn read(&self) -> Checkpoint {
        self.checkpoint.clone()
    }

    /// How many events are parked.
    pub(super) fn parked(&self) -> usize {
        self.parked.len()
    }

    /// The snapshot that is proven.
    pub(super) fn proven(&self) -> Option<String> {
        self.checkpoint.proven.as_ref().map(|pair| pair.snapshot.clone())
    }

    /// The one that is not yet.
    pub(super) fn pending(&self) -> Option<String> {
        self.checkpoint.pending.as_ref().map(|pair| pair.snapshot.clone())
    }

    /// Whether the committed checkpoint names the topic.
    pub(super) fn names(&self, topic: &str) -> bool {
        self.checkpoint.floors.iter().any(|floors| &*floors.name == topic)
    }
}

/// A SQL session.
#[derive(Clone)]
pub(crate) struct Server {
    pub(super) world: World,
    epoch: u32,
}

impl Server {
    pub(super) fn connect(world: &World) -> Self {
        let epoch = world.lock().epoch;
        Self { world: world.clone(), epoch }
    }

    fn rows<'s>(&self, state: &'s mut State) -> &'s mut Rows {
        &mut state.rows[self.world.pipeline]
    }

    pub(crate) async fn read(&self) -> Result<Option<Checkpoint>, RelayError> {
        let read = |state: &mut State| Some(self.rows(state).checkpoint.clone());
        self.statement("reading the checkpoint", read).await
    }

    pub(crate) async fn take(
        &self,
        token: Uuid,
        timeline: u32,
    ) -> Result<Option<Checkpoint>, RelayError> {
        let take = |state: &mut State| {
            state.append(STATEMENT_BYTES, None);
            let taken_by = state.next_xid();
            let rows = self.rows(state);
            rows.token = Some(token);
            rows.checkpoint.taken_by = Some(taken_by);
            rows.checkpoint.clean = false;
            rows.checkpoint.timeline = timeline;
            Some(rows.checkpoint.clone())
        };
        self.statement("taking the checkpoint", take).await
    }

    /// How many rows were written.
    pub(crate) async fn write(&self, token: Uuid, note: &Note) -> Result<u64, RelayError> {
        let write = |state: &mut State| {
            if self.rows(state).token != Some(token) {
                return 0;
            }
            let end = state.append(STATEMENT_BYTES, None);
            let checkpoint = &mut self.rows(state).checkpoint;
            checkpoint.confirmed = checkpoint.confirmed.max(note.confirmed);
            checkpoint.floors =
                floors::from_json(&note.floors).expect("floors as they are written");
            let pair = |value| Pair::from_json(value);
            checkpoint.proven = note.pairs.proven.as_ref().map_or(checkpoint.proven.clone(), pair);
            checkpoint.pending =
                note.pairs.pending.as_ref().map_or(checkpoint.pending.clone(), pair);
            let (confirmed, proven) = (checkpoint.confirmed, checkpoint.proven.clone());
            // Before that the position is only where the new slot begins.
            if checkpoint.initial == InitialState::Done {
                state.oracle.checkpointed(self.world.pipeline, confirmed.into(), end);
            }
            if let Some(proven) = proven {
                state.oracle.proven(self.world.pipeline, &proven);
            }
            1
        };
        self.statement("writing the checkpoint", write).await
    }

    pub(crate) async fn flushed(&self) -> Result<Lsn, RelayError> {
        let flushed = |state: &mut State| lsn(state.wal_end());
        self.statement("reading the WAL position", flushed).await
    }

    /// How many rows were written.
    pub(crate) async fn set_initial(
        &self,
        token: Uuid,
        initial: &InitialState,
        confirmed: Lsn,
        floors: Option<&Value>,
        proven: Option<&Pair>,
    ) -> Result<u64, RelayError> {
        let set = |state: &mut State| {
            if self.rows(state).token != Some(token) {
                return 0;
            }
            let end = state.append(STATEMENT_BYTES, None);
            let checkpoint = &mut self.rows(state).checkpoint;
            checkpoint.initial = initial.clone();
            checkpoint.confirmed = checkpoint.confirmed.max(confirmed);
            if let Some(floors) = floors {
                checkpoint.floors = floors::from_json(floors).expect("floors as they are written");
            }
            if let Some(proven) = proven {
                checkpoint.proven = Some(proven.clone());
                state.oracle.proven(self.world.pipeline, proven);
            }
            if *initial == InitialState::Done {
                state.oracle.recovered(self.world.pipeline, confirmed.into(), end);
            }
            1
        };
        self.statement("noting the first start", set).await
    }

    pub(crate) async fn replace(
        &self,
        token: Uuid,
        before: &Checkpoint,
        generation: Generation,
        initial: &InitialState,
        floors: &Value,
    ) -> Result<Option<Checkpoint>, RelayError> {
        let replace = |state: &mut State| {
            let now = &self.rows(state).checkpoint;
            let is_known = |name: &str| before.floors.iter().any(|topic| *topic.name == *name);
            if (now.generation, now.confirmed) != (before.generation, before.confirmed)
                || !now.floors.iter().all(|topic| is_known(&topic.name))
            {
                return None;
            }
            state.append(STATEMENT_BYTES, None);
            let taken_by = state.next_xid();
            let rows = self.rows(state);
            rows.token = Some(token);
            let checkpoint = &mut rows.checkpoint;
            checkpoint.taken_by = Some(taken_by);
            checkpoint.generation = generation;
            checkpoint.initial = initial.clone();
            checkpoint.floors = floors::from_json(floors).expect("floors as they are written");
            checkpoint.pending = None;
            checkpoint.clean = false;
            Some(rows.checkpoint.clone())
        };
        self.statement("replacing the slot in the checkpoint", replace).await
    }

    /// Parked rows, and whether their events are rows that a snapshot does not
    /// see.
    pub(crate) async fn gap(&self, proven: &str) -> Result<Vec<(ParkedRow, bool)>, RelayError> {
        let read = |state: &mut State| {
            let parked = self.rows(state).parked.clone();
            let comes_again = |row: &ParkedRow| {
                let number = row.event_id.as_deref().and_then(|id| id[1..].parse().ok());
                let index = number.and_then(|number| state.oracle.transaction_of(number));
                index.is_some_and(|index| !sees(proven, xid(index)))
            };
            parked.into_iter().map(|row| (row.clone(), comes_again(&row))).collect()
        };
        self.statement("reading which missing events are parked", read).await
    }

    pub(crate) async fn see(&self) -> Result<Seen, RelayError> {
        let see = |state: &mut State| Seen {
            snapshot: state.snapshot(),
            lsn: lsn(state.wal_end()),
            at: state.now_ms as i64,
        };
        self.statement("taking a snapshot", see).await
    }

    /// How many rows were written.
    pub(crate) async fn set_fence(
        &self,
        token: Uuid,
        fence: Option<&str>,
    ) -> Result<u64, RelayError> {
        let note = |state: &mut State| {
            if self.rows(state).token != Some(token) {
                return 0;
            }
            state.append(STATEMENT_BYTES, None);
            self.rows(state).checkpoint.fence = fence.map(str::to_owned);
            1
        };
        self.statement("noting who writes to the sink", note).await
    }

    /// How many rows were written.
    pub(crate) async fn set_clean(&self, token: Uuid) -> Result<u64, RelayError> {
        let note = |state: &mut State| {
            if self.rows(state).token != Some(token) {
                return 0;
            }
            state.append(STATEMENT_BYTES, None);
            self.rows(state).checkpoint.clean = true;
            1
        };
        self.statement("noting the orderly stop", note).await
    }

    /// Whether the run still owns the pipeline; only then there are rows.
    pub(crate) async fn park(&self, token: Uuid, rows: Vec<ParkedRow>) -> Result<bool, RelayError> {
        let park = |state: &mut State| {
            if self.rows(state).token != Some(token) {
                return false;
            }
            state.append(STATEMENT_BYTES, None);
            for row in rows {
                let is_same = |there: &ParkedRow| {
                    (there.position, &there.event_id) == (row.position, &row.event_id)
                };
                if !self.rows(state).parked.iter().any(is_same) {
                    let (pipeline, id) = (self.world.pipeline, row.event_id.as_deref());
                    state.oracle.parked(pipeline, row.position, id);
                    self.rows(state).parked.push(row);
                }
            }
            true
        };
        self.statement("parking events", park).await
    }

    /// The ids of those at or above `from`, by position.
    pub(crate) async fn parked_events(
        &self,
        from: Lsn,
    ) -> Result<HashMap<Position, Vec<ParkedId>>, RelayError> {
        let read = |state: &mut State| {
            let mut events: HashMap<_, Vec<_>> = HashMap::new();
            for row in self.rows(state).parked.iter().filter(|row| row.position.commit_lsn >= from)
            {
                let id = ParkedId { space: None, id: row.event_id.clone() };
                events.entry(row.position).or_default().push(id);
            }
            events
        };
        self.statement("reading the parked events", read).await
    }

    /// The first of each aggregate.
    pub(crate) async fn parked_aggregates(&self) -> Result<Vec<ParkedRow>, RelayError> {
        let read = |state: &mut State| {
            let mut first: Vec<ParkedRow> = Vec::new();
            let mut rows = self.rows(state).parked.clone();
            rows.sort_by_key(|row| row.position);
            for row in rows.into_iter().filter(|row| row.aggregate_id.is_some()) {
                let of = |row: &ParkedRow| (row.aggregate_type.clone(), row.aggregate_id.clone());
                if !first.iter().any(|other| of(other) == of(&row)) {
                    first.push(row);
                }
            }
            first
        };
        self.statement("reading the parked aggregates", read).await
    }

    /// Runs one statement, at a moment between question and answer. Without an
    /// answer it has happened or has not.
    pub(super) async fn statement<T>(
        &self,
        attempt: &'static str,
        run: impl FnOnce(&mut State) -> T,
    ) -> Result<T, RelayError> {
        let failed = || RelayError::SqlTimeout { attempt, limit: Duration::ZERO };
        let (before_ms, after_ms, fault) = self.ask();
        self.world.pass(before_ms).await;
        if fault == Some(false) || self.world.lock().epoch != self.epoch {
            return Err(failed());
        }
        let done = run(&mut self.world.lock());
        self.world.written();
        self.world.pass(after_ms).await;
        if fault.is_some() || self.world.lock().epoch != self.epoch {
            return Err(failed());
        }
        Ok(done)
    }

    fn ask(&self) -> (u64, u64, Option<bool>) {
        let mut state = self.world.lock();
        let max_ms = state.schedule.settings.server_max_ms as usize;
        let number = state.statements;
        state.statements += 1;
        let mut delay_ms = || state.chance.below(max_ms + 1) as u64;
        let (before_ms, after_ms) = (delay_ms(), delay_ms());
        let fault = state.schedule.faults.iter().find_map(|fault| match fault {
            Fault::Statement { number: of, happens } if *of == number => Some(*happens),
            _ => None,
        });
        (before_ms, after_ms, fault)
    }
}
