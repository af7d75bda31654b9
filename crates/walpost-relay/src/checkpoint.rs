//! The row that says how far a pipeline has come.
//!
//! Long because each statement on that row stands next to what it compares.

mod feed;
mod predecessor;
mod relations;
mod state;
mod switch;

use std::sync::Arc;

use serde_json::Value;
use tokio_postgres::types::{PgLsn, Type};
use uuid::Uuid;
use walpost_event::{Generation, Lsn, Position};

pub(crate) use self::{
    feed::{Cut, Feed},
    relations::{Watched, note_unlogged},
    state::{Accepted, InitialState, Loss, Note},
    switch::{begin_polling, note_polling, read_feed},
};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    floors,
    proven::{Pair, Seen},
    sink::TopicFloors,
    sql::{Parameter, Sql},
    wal::{membership, quote_identifier, relations::Noted},
};

/// The pipeline's row in `checkpoint`: how far everything is durable.
///
/// Every write names the token of this run and fails once another run has
/// replaced it, so a relay that was paused and wakes cannot move it.
#[derive(Clone)]
pub(crate) struct CheckpointStore {
    sql: Sql,
    table: String,
    pipeline: String,
    outboxes: Vec<String>,
    token: Uuid,
    /// An SQL expression of the publication's object ids.
    publication: String,
    /// What they are, and what the row had of them before; the row's own count
    /// from then on, as a move of rows changes both.
    expected: Option<Value>,
    noted: Option<Value>,
    /// The tables by their object ids; none in a session that only reads the row.
    relations: Option<Arc<Watched>>,
}

/// What the row says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) generation: Generation,
    pub(crate) system_id: String,
    /// Of the WAL that `confirmed` lies in.
    pub(crate) timeline: u32,
    pub(crate) slot: String,
    pub(crate) confirmed: Lsn,
    pub(crate) initial: InitialState,
    /// From where the sink is read back.
    pub(crate) floors: Vec<TopicFloors>,
    /// The last run stopped in order, with nothing on its way.
    pub(crate) clean: bool,
    /// The name under which the last run's sink can be fenced off.
    pub(crate) fence: Option<String>,
    pub(crate) proven: Option<Pair>,
    pub(crate) pending: Option<Pair>,
    /// The lower half of the id of the transaction that has made the row ours.
    pub(crate) taken_by: Option<u32>,
    /// Somebody wants a lost slot to be replaced.
    pub(crate) requested: Option<Accepted>,
    /// Messages that are in no table were published.
    pub(crate) has_messages: bool,
    /// The publication's object ids.
    pub(crate) publication: Option<Value>,
    /// The relations whose rows the stream brings.
    pub(crate) relations: Option<Noted>,
    pub(crate) feed: Feed,
    /// The last event of its transaction that is published by another program,
    /// which read the slot before.
    pub(crate) taken_over_at: Option<Position>,
}

impl Checkpoint {
    /// Of a pipeline that begins, at a server and a slot of which it has read
    /// nothing.
    pub(crate) fn new(
        generation: Generation,
        system_id: impl Into<String>,
        timeline: u32,
        slot: &str,
    ) -> Self {
        Self {
            generation,
            system_id: system_id.into(),
            timeline,
            slot: slot.to_owned(),
            confirmed: Lsn::ZERO,
            initial: InitialState::Creating,
            floors: Vec::new(),
            clean: true,
            fence: None,
            proven: None,
            pending: None,
            taken_by: None,
            requested: None,
            has_messages: false,
            publication: None,
            relations: None,
            feed: Feed::Wal,
            taken_over_at: None,
        }
    }
}

/// A generation that no other one of the pipeline has had.
pub(crate) fn new_generation() -> Generation {
    Generation::from(Uuid::new_v4().as_u64_pair().0 as u32)
}

impl CheckpointStore {
    pub(crate) fn new(sql: Sql, config: &RelayConfig) -> Self {
        Self {
            sql,
            table: format!("{}.checkpoint", quote_identifier(&config.schema)),
            pipeline: config.pipeline.clone(),
            outboxes: config.tables.iter().map(TableName::quoted).collect(),
            token: Uuid::new_v4(),
            publication: membership::expression(config, None),
            expected: None,
            noted: None,
            relations: None,
        }
    }

    /// Nothing is noted any more once the publication has other object ids than
    /// the row says, which has `noted` until it is ours.
    pub(crate) fn expect_publication(&mut self, ids: Option<Value>, noted: Option<Value>) {
        (self.expected, self.noted) = (ids, noted);
    }

    /// The session of the row.
    pub(crate) fn sql(&self) -> &Sql {
        &self.sql
    }

    /// The name of this run: what other writes of the pipeline are bound to.
    pub(crate) fn token(&self) -> Uuid {
        self.token
    }

    /// Reads the row without taking it.
    pub(crate) async fn read(&self) -> Result<Option<Checkpoint>, RelayError> {
        #[cfg(test)]
        if let Some(server) = self.sql.simulation() {
            return server.read().await;
        }
        let sql = format!("select {COLUMNS} from {} where pipeline = $1", self.table);
        let rows =
            self.sql.query("reading the checkpoint", &sql, &[(&self.pipeline, Type::TEXT)]).await?;
        rows.first().map(checkpoint).transpose()
    }

    /// Makes this run the owner of an existing row, and reads it afterwards.
    /// Its position, and all that follow, lie in the WAL of `timeline`.
    pub(crate) async fn take(&self, timeline: u32) -> Result<Option<Checkpoint>, RelayError> {
        #[cfg(test)]
        if let Some(server) = self.sql.simulation() {
            return server.take(self.token, timeline).await;
        }
        let sql = format!(
            "update {} set token = $2, timeline = $3, tables = $4, \
             publication = case when publication is distinct from $6 then publication else $5 end, \
             relations = coalesce($7, relations), clean = false, updated_at = clock_timestamp() \
             where pipeline = $1 returning {COLUMNS}",
            self.table
        );
        let rows = self
            .sql
            .query(
                "taking the checkpoint",
                &sql,
                &[
                    (&self.pipeline, Type::TEXT),
                    (&self.token, Type::UUID),
                    (&i64::from(timeline), Type::INT8),
                    (&self.outboxes, Type::TEXT_ARRAY),
                    (&self.expected, Type::JSONB),
                    (&self.noted, Type::JSONB),
                    (&self.noted_relations(), Type::JSONB),
                ],
            )
            .await?;
        rows.first().map(checkpoint).transpose()
    }

    /// Creates the row, owned by this run.
    pub(crate) async fn create(&self, checkpoint: &Checkpoint) -> Result<(), RelayError> {
        let sql = format!(
            "insert into {} (pipeline, token, generation, system_id, timeline, slot, \
             confirmed_lsn, initial, initial_boundary, tables, publication, relations) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) on conflict (pipeline) do nothing",
            self.table
        );
        let (initial, boundary, _) = checkpoint.initial.columns();
        let inserted = self
            .execute(
                "creating the checkpoint",
                &sql,
                &[
                    (&self.pipeline, Type::TEXT),
                    (&self.token, Type::UUID),
                    (&i64::from(u32::from(checkpoint.generation)), Type::INT8),
                    (&checkpoint.system_id, Type::TEXT),
                    (&i64::from(checkpoint.timeline), Type::INT8),
                    (&checkpoint.slot, Type::TEXT),
                    (&PgLsn::from(u64::from(checkpoint.confirmed)), Type::PG_LSN),
                    (&initial, Type::TEXT),
                    (&boundary, Type::TEXT),
                    (&self.outboxes, Type::TEXT_ARRAY),
                    (&self.expected, Type::JSONB),
                    (&self.noted_relations(), Type::JSONB),
                ],
            )
            .await?;
        self.owned(inserted)
    }

    /// Notes a step of the first start, or of the replacement of a slot. Floors
    /// and what is proven stay as they are where nothing is said of them.
    pub(crate) async fn set_initial(
        &self,
        state: &InitialState,
        confirmed: Lsn,
        floors: Option<&Value>,
        proven: Option<&Pair>,
    ) -> Result<(), RelayError> {
        let sql = format!(
            "update {} set initial = $3, initial_boundary = $4, \
             confirmed_lsn = greatest(confirmed_lsn, $5), floors = coalesce($6, floors), \
             recovery = $7, proven = coalesce($8, proven), updated_at = clock_timestamp() \
             where pipeline = $1 and token = $2",
            self.table
        );
        #[cfg(test)]
        if let Some(server) = self.sql.simulation() {
            let set = server.set_initial(self.token, state, confirmed, floors, proven).await?;
            return self.owned(set);
        }
        let (initial, boundary, recovery) = state.columns();
        let updated = self
            .execute(
                "noting the first start",
                &sql,
                &[
                    (&self.pipeline, Type::TEXT),
                    (&self.token, Type::UUID),
                    (&initial, Type::TEXT),
                    (&boundary, Type::TEXT),
                    (&PgLsn::from(u64::from(confirmed)), Type::PG_LSN),
                    (&floors, Type::JSONB),
                    (&recovery, Type::JSONB),
                    (&proven.map(Pair::to_json), Type::JSONB),
                ],
            )
            .await?;
        self.owned(updated)
    }

    /// Makes the row ours and gives it another generation, in one write: its
    /// slot, which is lost, is replaced from now on. `None` if the row is not
    /// what it was, or names a topic that it did not: `floors` are of those.
    pub(crate) async fn replace(
        &self,
        before: &Checkpoint,
        timeline: u32,
        generation: Generation,
        state: &InitialState,
        floors: &Value,
    ) -> Result<Option<Checkpoint>, RelayError> {
        let sql = format!(
            "update {} set token = $2, timeline = $3, tables = $4, generation = $5, floors = $6, \
             recovery = $7, pending = null, recovery_requested = null, publication = $10, \
             relations = coalesce($13, relations), clean = false, updated_at = clock_timestamp() \
             where pipeline = $1 and generation = $8 and confirmed_lsn = $9 \
             and publication is not distinct from $11 \
             and not exists (select from jsonb_object_keys(floors) topic where topic <> all ($12)) \
             returning {COLUMNS}",
            self.table
        );
        #[cfg(test)]
        if let Some(server) = self.sql.simulation() {
            return server.replace(self.token, before, generation, state, floors).await;
        }
        let (_, _, recovery) = state.columns();
        let topics: Vec<&str> = before.floors.iter().map(|topic| &*topic.name).collect();
        let relations = self.noted_relations();
        let parameters: [Parameter<'_>; 13] = [
            (&self.pipeline, Type::TEXT),
            (&self.token, Type::UUID),
            (&i64::from(timeline), Type::INT8),
            (&self.outboxes, Type::TEXT_ARRAY),
            (&i64::from(u32::from(generation)), Type::INT8),
            (floors, Type::JSONB),
            (&recovery, Type::JSONB),
            (&i64::from(u32::from(before.generation)), Type::INT8),
            (&PgLsn::from(u64::from(before.confirmed)), Type::PG_LSN),
            (&self.expected, Type::JSONB),
            (&before.publication, Type::JSONB),
            (&topics, Type::TEXT_ARRAY),
            (&relations, Type::JSONB),
        ];
        let rows =
            self.sql.query("replacing the slot in the checkpoint", &sql, &parameters).await?;
        rows.first().map(checkpoint).transpose()
    }

    /// Asks the next start to replace a lost slot. Whether there is a row.
    pub(crate) async fn request_recovery(&self, accepted: Accepted) -> Result<bool, RelayError> {
        let sql = format!(
            "update {} set recovery_requested = $2, updated_at = clock_timestamp() \
             where pipeline = $1",
            self.table
        );
        let accepted = accepted.to_json();
        let parameters: [Parameter<'_>; 2] =
            [(&self.pipeline, Type::TEXT), (&accepted, Type::JSONB)];
        Ok(self.execute("asking for the slot to be replaced", &sql, &parameters).await? == 1)
    }

    /// Commits a new confirmed position, unless it is behind the one that is
    /// there, with what goes with it. The result is a WAL position at or behind
    /// the commit record of this very write: once the stream has passed it, the
    /// row survives whatever the slot survives.
    pub(crate) async fn write(&self, note: &Note) -> Result<Lsn, RelayError> {
        #[cfg(test)]
        if let Some(server) = self.sql.simulation() {
            self.owned(server.write(self.token, note).await?)?;
            return self.flushed().await;
        }
        // What stays as it is is not written anew, however long.
        let sql = format!(
            "update {} set confirmed_lsn = greatest(confirmed_lsn, $3), floors = $4, \
             proven = coalesce($5, proven), \
             pending = case when $6::jsonb is null then pending \
                 when jsonb_typeof($6) = 'object' then $6 end, \
             has_messages = has_messages or $7, updated_at = clock_timestamp() \
             where pipeline = $1 and token = $2 and ($8::jsonb is null or {} = publication) \
             and ($9::int8 is null or {} = $9)",
            self.table,
            self.publication,
            self.digest()
        );
        let confirmed = PgLsn::from(u64::from(note.confirmed));
        let relations = self.settled().await?;
        let parameters: [Parameter<'_>; 9] = [
            (&self.pipeline, Type::TEXT),
            (&self.token, Type::UUID),
            (&confirmed, Type::PG_LSN),
            (&note.floors, Type::JSONB),
            (&note.pairs.proven, Type::JSONB),
            (&note.pairs.pending, Type::JSONB),
            (&note.has_messages, Type::BOOL),
            (&self.expected, Type::JSONB),
            (&relations, Type::INT8),
        ];
        let mut updated = self.execute("writing the checkpoint", &sql, &parameters).await?;
        if updated == 0 {
            // One of three conditions; this tells which. Or it has waited for a move,
            // whose row it saw beside the publication of before.
            self.see().await?;
            let relations = self.settled().await?;
            let mut parameters = parameters;
            parameters[8] = (&relations, Type::INT8);
            updated = self.execute("writing the checkpoint", &sql, &parameters).await?;
        }
        self.owned(updated)?;
        self.flushed().await
    }

    /// A snapshot of now, and then where WAL is inserted: of one statement the
    /// snapshot comes first.
    pub(crate) async fn see(&self) -> Result<Seen, RelayError> {
        #[cfg(test)]
        if let Some(server) = self.sql.simulation() {
            return server.see().await;
        }
        let see = format!(
            "select pg_current_snapshot()::text, pg_current_wal_insert_lsn(), \
             extract(epoch from clock_timestamp())::int8, $1::jsonb is null or {} = \
             coalesce((select publication from {} where pipeline = $2), $1), \
             $3::int8 is null or {} = $3",
            self.publication,
            self.table,
            self.digest()
        );
        for _ in 0..SETTLES_MAX {
            let relations = self.settled().await?;
            let expected: [Parameter<'_>; 3] = [
                (&self.expected, Type::JSONB),
                (&self.pipeline, Type::TEXT),
                (&relations, Type::INT8),
            ];
            let row = self.sql.one("taking a snapshot", &see, &expected).await?;
            if row.get::<_, Option<bool>>(3) != Some(true) {
                return Err(self.publication_changed());
            }
            if row.get::<_, Option<bool>>(4) == Some(true) {
                let lsn = Lsn::from(u64::from(row.get::<_, PgLsn>(1)));
                return Ok(Seen { snapshot: row.get(0), lsn, at: row.get(2) });
            }
            self.unsettle();
        }
        Err(self.table_changed("the outbox tables change all the time"))
    }

    /// How far the server's WAL is on its disk.
    pub(crate) async fn flushed(&self) -> Result<Lsn, RelayError> {
        self.sql.flushed().await
    }

    /// Notes under which name the sink of this run can be fenced off, before it
    /// is given anything.
    pub(crate) async fn set_fence(&self, fence: Option<&str>) -> Result<(), RelayError> {
        let sql = format!(
            "update {} set fence = $3, updated_at = clock_timestamp() \
             where pipeline = $1 and token = $2",
            self.table
        );
        #[cfg(test)]
        if let Some(server) = self.sql.simulation() {
            return self.owned(server.set_fence(self.token, fence).await?);
        }
        let parameters: [Parameter<'_>; 3] =
            [(&self.pipeline, Type::TEXT), (&self.token, Type::UUID), (&fence, Type::TEXT)];
        let updated = self.execute("noting who writes to the sink", &sql, &parameters).await?;
        self.owned(updated)
    }

    /// Notes that this run ends with nothing on its way.
    pub(crate) async fn set_clean(&self) -> Result<(), RelayError> {
        #[cfg(test)]
        if let Some(server) = self.sql.simulation() {
            return self.owned(server.set_clean(self.token).await?);
        }
        let sql = format!(
            "update {} set clean = true, updated_at = clock_timestamp() \
             where pipeline = $1 and token = $2",
            self.table
        );
        let parameters: [Parameter<'_>; 2] =
            [(&self.pipeline, Type::TEXT), (&self.token, Type::UUID)];
        let updated = self.execute("noting the orderly stop", &sql, &parameters).await?;
        self.owned(updated)
    }

    fn table_changed(&self, detail: impl Into<String>) -> RelayError {
        RelayError::TableChanged { pipeline: self.pipeline.clone(), detail: detail.into() }
    }

    fn publication_changed(&self) -> RelayError {
        RelayError::PublicationChanged { pipeline: self.pipeline.clone() }
    }

    async fn execute(
        &self,
        attempt: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<u64, RelayError> {
        // One row comes back for each that was written, without a prepared
        // statement.
        let sql = format!("{sql} returning 1");
        Ok(self.sql.query(attempt, &sql, parameters).await?.len() as u64)
    }

    fn owned(&self, rows: u64) -> Result<(), RelayError> {
        if rows == 1 {
            return Ok(());
        }
        Err(RelayError::TakenOver { pipeline: self.pipeline.clone() })
    }
}

/// Looks at tables that change, until a snapshot of them is settled.
const SETTLES_MAX: usize = 5;

const COLUMNS: &str = "generation, system_id, timeline, slot, confirmed_lsn, initial, initial_boundary, floors, clean, fence, \
     proven, pending, (pg_current_xact_id_if_assigned()::text::numeric % 4294967296)::int8, \
     recovery, recovery_requested, has_messages, publication, source, switch, taken_over_at, relations";

fn checkpoint(row: &tokio_postgres::Row) -> Result<Checkpoint, RelayError> {
    let corrupt = |what: &str| RelayError::Config(format!("the checkpoint row holds {what}"));
    let generation = u32::try_from(row.get::<_, i64>(0)).map_err(|_| corrupt("no generation"))?;
    let timeline = u32::try_from(row.get::<_, i64>(2)).map_err(|_| corrupt("no timeline"))?;
    let recovery = row.get::<_, Option<Value>>(13);
    let relations = row.get::<_, Option<Value>>(20);
    let relations = relations
        .map(|value| Noted::from_json(&value).ok_or_else(|| corrupt("relations of another form")));
    let recovery = recovery.map(|value| {
        Loss::state_from_json(&value).ok_or_else(|| corrupt("a recovery of another form"))
    });
    let initial = match (row.get::<_, &str>(5), row.get::<_, Option<String>>(6)) {
        ("creating", _) => InitialState::Creating,
        ("publish", Some(boundary)) => InitialState::Publish { boundary },
        ("done", _) => recovery.transpose()?.unwrap_or(InitialState::Done),
        (other, _) => return Err(corrupt(&format!("initial {other:?}"))),
    };
    Ok(Checkpoint {
        generation: Generation::from(generation),
        system_id: row.get(1),
        timeline,
        slot: row.get(3),
        confirmed: u64::from(row.get::<_, PgLsn>(4)).into(),
        initial,
        floors: floors::from_json(&row.get(7)).ok_or_else(|| corrupt("floors of another form"))?,
        clean: row.get(8),
        fence: row.get(9),
        proven: pair(row, 10)?,
        pending: pair(row, 11)?,
        taken_by: row.get::<_, Option<i64>>(12).and_then(|xid| u32::try_from(xid).ok()),
        requested: row.get::<_, Option<Value>>(14).as_ref().map(Accepted::from_json),
        has_messages: row.get(15),
        publication: row.get(16),
        feed: Feed::from_columns(row.get(17), row.get::<_, Option<Value>>(18).as_ref())
            .ok_or_else(|| corrupt("a source of another form"))?,
        taken_over_at: row
            .get::<_, Option<&str>>(19)
            .map(str::parse)
            .transpose()
            .map_err(|_| corrupt("a take-over of another form"))?,
        relations: relations.transpose()?,
    })
}

fn pair(row: &tokio_postgres::Row, index: usize) -> Result<Option<Pair>, RelayError> {
    let pair = row.get::<_, Option<Value>>(index).map(|value| Pair::from_json(&value));
    let corrupt = "the checkpoint row holds a proven snapshot of another form";
    pair.map(|pair| pair.ok_or_else(|| RelayError::Config(corrupt.to_owned()))).transpose()
}
