use tokio_postgres::types::{PgLsn, Type};
use uuid::Uuid;
use walpost_event::{Generation, Lsn};

use crate::{
    config::RelayConfig,
    error::RelayError,
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
    pub(crate) slot: String,
    pub(crate) confirmed: Lsn,
    pub(crate) initial: InitialState,
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

    /// Reads the row without taking it.
    pub(crate) async fn read(&self) -> Result<Option<Checkpoint>, RelayError> {
        let sql = format!(
            "select generation, system_id, slot, confirmed_lsn, initial, initial_boundary \
             from {} where pipeline = $1",
            self.table
        );
        let rows =
            self.sql.query("reading the checkpoint", &sql, &[(&self.pipeline, Type::TEXT)]).await?;
        rows.first().map(checkpoint).transpose()
    }

    /// Makes this run the owner of an existing row, and reads it afterwards.
    pub(crate) async fn take(&self) -> Result<Option<Checkpoint>, RelayError> {
        let sql = format!(
            "update {} set token = $2, updated_at = clock_timestamp() where pipeline = $1 \
             returning generation, system_id, slot, confirmed_lsn, initial, initial_boundary",
            self.table
        );
        let rows = self
            .sql
            .query(
                "taking the checkpoint",
                &sql,
                &[(&self.pipeline, Type::TEXT), (&self.token, Type::UUID)],
            )
            .await?;
        rows.first().map(checkpoint).transpose()
    }

    /// Creates the row, owned by this run.
    pub(crate) async fn create(&self, checkpoint: &Checkpoint) -> Result<(), RelayError> {
        let sql = format!(
            "insert into {} (pipeline, token, generation, system_id, slot, mode, confirmed_lsn, \
             initial, initial_boundary) values ($1, $2, $3, $4, $5, 'idempotent', $6, $7, $8) \
             on conflict (pipeline) do nothing",
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
                    (&checkpoint.slot, Type::TEXT),
                    (&PgLsn::from(u64::from(checkpoint.confirmed)), Type::PG_LSN),
                    (&initial, Type::TEXT),
                    (&boundary, Type::TEXT),
                ],
            )
            .await?;
        self.owned(inserted)
    }

    /// Notes a step of the first start.
    pub(crate) async fn set_initial(
        &self,
        state: &InitialState,
        confirmed: Lsn,
    ) -> Result<(), RelayError> {
        let sql = format!(
            "update {} set initial = $3, initial_boundary = $4, confirmed_lsn = $5, \
             updated_at = clock_timestamp() where pipeline = $1 and token = $2",
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
                ],
            )
            .await?;
        self.owned(updated)
    }

    /// Commits a new confirmed position. The result is a WAL position at or
    /// behind the commit record of this very write: once the stream has passed
    /// it, the row survives whatever the slot survives.
    pub(crate) async fn write(&self, confirmed: Lsn) -> Result<Lsn, RelayError> {
        let sql = format!(
            "update {} set confirmed_lsn = $3, updated_at = clock_timestamp() \
             where pipeline = $1 and token = $2",
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
                ],
            )
            .await?;
        self.owned(updated)?;
        let flushed = "select pg_current_wal_flush_lsn()";
        let rows = self.sql.query("reading the WAL position", flushed, &[]).await?;
        let position = rows.first().map_or(PgLsn::from(u64::MAX), |row| row.get(0));
        Ok(Lsn::from(u64::from(position)))
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

fn checkpoint(row: &tokio_postgres::Row) -> Result<Checkpoint, RelayError> {
    let corrupt = |what: &str| RelayError::Config(format!("the checkpoint row holds {what}"));
    let generation = u32::try_from(row.get::<_, i64>(0)).map_err(|_| corrupt("no generation"))?;
    let initial = match (row.get::<_, &str>(4), row.get::<_, Option<String>>(5)) {
        ("creating", _) => InitialState::Creating,
        ("publish", Some(boundary)) => InitialState::Publish { boundary },
        ("done", _) => InitialState::Done,
        (other, _) => return Err(corrupt(&format!("initial {other:?}"))),
    };
    Ok(Checkpoint {
        generation: Generation::from(generation),
        system_id: row.get::<_, Option<_>>(1).unwrap_or_default(),
        slot: row.get::<_, Option<_>>(2).unwrap_or_default(),
        confirmed: row.get::<_, Option<PgLsn>>(3).map(u64::from).unwrap_or_default().into(),
        initial,
    })
}
