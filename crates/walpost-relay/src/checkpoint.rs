use serde_json::Value;
use tokio_postgres::types::{PgLsn, Type};
use uuid::Uuid;
use walpost_event::{Generation, Lsn};

use crate::{
    config::RelayConfig,
    error::RelayError,
    floors,
    sink::TopicFloors,
    sql::{Parameter, Sql},
    wal::quote_identifier,
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
    token: Uuid,
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
}

/// How far the first start has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InitialState {
    /// The slot is about to be created, or was and nobody noted it.
    Creating,
    /// The rows of this snapshot have to be published before the stream.
    Publish { boundary: String },
    /// Nothing is left to do.
    Done,
}

impl InitialState {
    fn columns(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Creating => ("creating", None),
            Self::Publish { boundary } => ("publish", Some(boundary)),
            Self::Done => ("done", None),
        }
    }
}

impl CheckpointStore {
    pub(crate) fn new(sql: Sql, config: &RelayConfig) -> Self {
        Self {
            sql,
            table: format!("{}.checkpoint", quote_identifier(&config.schema)),
            pipeline: config.pipeline.clone(),
            token: Uuid::new_v4(),
        }
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
            "update {} set token = $2, timeline = $3, clean = false, updated_at = clock_timestamp() \
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
                ],
            )
            .await?;
        rows.first().map(checkpoint).transpose()
    }

    /// Creates the row, owned by this run.
    pub(crate) async fn create(&self, checkpoint: &Checkpoint) -> Result<(), RelayError> {
        let sql = format!(
            "insert into {} (pipeline, token, generation, system_id, timeline, slot, \
             confirmed_lsn, initial, initial_boundary) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (pipeline) do nothing",
            self.table
        );
        let (initial, boundary) = checkpoint.initial.columns();
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
                ],
            )
            .await?;
        self.owned(inserted)
    }

    /// Notes a step of the first start, and where it leaves the sink.
    pub(crate) async fn set_initial(
        &self,
        state: &InitialState,
        confirmed: Lsn,
        floors: &Value,
    ) -> Result<(), RelayError> {
        let sql = format!(
            "update {} set initial = $3, initial_boundary = $4, \
             confirmed_lsn = greatest(confirmed_lsn, $5), floors = $6, updated_at = clock_timestamp() where pipeline = $1 and token = $2",
            self.table
        );
        let (initial, boundary) = state.columns();
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
                    (floors, Type::JSONB),
                ],
            )
            .await?;
        self.owned(updated)
    }

    /// Commits a new confirmed position, unless it is behind the one that is
    /// there, with the floors that go with it. The result is a WAL position at
    /// or behind the commit record of this very write: once the stream has
    /// passed it, the row survives whatever the slot survives.
    pub(crate) async fn write(&self, confirmed: Lsn, floors: &Value) -> Result<Lsn, RelayError> {
        #[cfg(test)]
        if let Some(server) = self.sql.simulation() {
            self.owned(server.write(self.token, confirmed, floors).await?)?;
            return self.flushed().await;
        }
        let sql = format!(
            "update {} set confirmed_lsn = greatest(confirmed_lsn, $3), floors = $4, \
             updated_at = clock_timestamp() where pipeline = $1 and token = $2",
            self.table
        );
        let updated = self
            .execute(
                "writing the checkpoint",
                &sql,
                &[
                    (&self.pipeline, Type::TEXT),
                    (&self.token, Type::UUID),
                    (&PgLsn::from(u64::from(confirmed)), Type::PG_LSN),
                    (floors, Type::JSONB),
                ],
            )
            .await?;
        self.owned(updated)?;
        self.flushed().await
    }

    /// How far the server's WAL is on its disk.
    pub(crate) async fn flushed(&self) -> Result<Lsn, RelayError> {
        #[cfg(test)]
        if let Some(server) = self.sql.simulation() {
            return server.flushed().await;
        }
        let flushed = "select pg_current_wal_flush_lsn()";
        let rows = self.sql.query("reading the WAL position", flushed, &[]).await?;
        let position = rows.first().map_or(PgLsn::from(u64::MAX), |row| row.get(0));
        Ok(Lsn::from(u64::from(position)))
    }

    /// Notes under which name the sink of this run can be fenced off, before it
    /// is given anything.
    pub(crate) async fn set_fence(&self, fence: Option<&str>) -> Result<(), RelayError> {
        let sql = format!(
            "update {} set fence = $3, updated_at = clock_timestamp() \
             where pipeline = $1 and token = $2",
            self.table
        );
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

const COLUMNS: &str = "generation, system_id, timeline, slot, confirmed_lsn, initial, initial_boundary, floors, clean, fence";

fn checkpoint(row: &tokio_postgres::Row) -> Result<Checkpoint, RelayError> {
    let corrupt = |what: &str| RelayError::Config(format!("the checkpoint row holds {what}"));
    let generation = u32::try_from(row.get::<_, i64>(0)).map_err(|_| corrupt("no generation"))?;
    let timeline = u32::try_from(row.get::<_, i64>(2)).map_err(|_| corrupt("no timeline"))?;
    let initial = match (row.get::<_, &str>(5), row.get::<_, Option<String>>(6)) {
        ("creating", _) => InitialState::Creating,
        ("publish", Some(boundary)) => InitialState::Publish { boundary },
        ("done", _) => InitialState::Done,
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
    })
}
