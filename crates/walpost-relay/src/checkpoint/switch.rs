//! The steps of a switch of the source, as they are written to the row.

use serde_json::Value;
use tokio_postgres::types::{PgLsn, Type};

use super::{CheckpointStore, Cut, Feed, new_generation};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    proven::Pair,
    sql::{Parameter, Sql},
    wal::{ServerIdentity, quote_identifier, quote_literal},
};

/// Begins a transaction that polls: those that switch the source wait for its
/// end, and it for theirs.
pub(crate) fn begin_polling(config: &RelayConfig) -> String {
    format!(
        "begin isolation level read committed; select pg_advisory_xact_lock_shared({})",
        lock(config)
    )
}

fn lock(config: &RelayConfig) -> String {
    format!("hashtext('walpost polling'), hashtext({})", quote_literal(&config.pipeline))
}

/// What the row says of the source, `None` without a row. In a statement of its
/// own, so that it sees what was committed before a lock was had.
pub(crate) async fn read_feed(sql: &Sql, config: &RelayConfig) -> Result<Option<Feed>, RelayError> {
    let table = quote_identifier(&config.schema);
    let query = format!("select source, switch from {table}.checkpoint where pipeline = $1");
    let pipeline = [(&config.pipeline as _, Type::TEXT)];
    let row = sql.opt("reading the pipeline's source", &query, &pipeline).await?;
    row.map(|row| {
        let switch: Option<Value> = row.get(1);
        Feed::from_columns(row.get(0), switch.as_ref()).ok_or_else(|| {
            RelayError::Config("the checkpoint row holds a source of another form".to_owned())
        })
    })
    .transpose()
}

/// Creates the row of a pipeline that has none: it polls, and no relay reads the
/// WAL for it until it is switched.
pub(crate) async fn note_polling(sql: &Sql, config: &RelayConfig) -> Result<(), RelayError> {
    let insert = format!(
        "insert into {}.checkpoint (pipeline, token, generation, system_id, timeline, slot, \
         confirmed_lsn, initial, tables, source) \
         select $1, gen_random_uuid(), $2, system_identifier::text, timeline_id, $3, '0/0', \
         'creating', $4, 'polling' from pg_control_system(), pg_control_checkpoint() \
         on conflict (pipeline) do nothing",
        quote_identifier(&config.schema)
    );
    let tables: Vec<String> = config.tables.iter().map(TableName::quoted).collect();
    let parameters: [Parameter<'_>; 4] = [
        (&config.pipeline, Type::TEXT),
        (&i64::from(u32::from(new_generation())), Type::INT8),
        (&config.slot, Type::TEXT),
        (&tables, Type::TEXT_ARRAY),
    ];
    sql.query("noting that the pipeline polls", &insert, &parameters).await.map(drop)
}

impl CheckpointStore {
    /// What `cut` sees, and nothing else, is published from the WAL: from now on
    /// no relay reads it. Only if the publication has been the same all the time,
    /// also for rows that were moved.
    pub(crate) async fn leave_wal(
        &self,
        cut: &Cut,
        floors: &Value,
        proven: &Pair,
    ) -> Result<(), RelayError> {
        let sql = format!(
            "update {} set source = $3, switch = $4, confirmed_lsn = $5, floors = $6, \
             proven = $7, pending = null, recovery_requested = null, clean = true, \
             updated_at = clock_timestamp() where pipeline = $1 and token = $2 \
             and publication = $8 and {} = $8",
            self.table, self.publication
        );
        let (source, switch) = Feed::ToPolling(cut.clone()).columns();
        let parameters: [Parameter<'_>; 8] = [
            (&self.pipeline, Type::TEXT),
            (&self.token, Type::UUID),
            (&source, Type::TEXT),
            (&switch, Type::JSONB),
            (&PgLsn::from(u64::from(cut.position)), Type::PG_LSN),
            (floors, Type::JSONB),
            (&proven.to_json(), Type::JSONB),
            (&self.expected, Type::JSONB),
        ];
        if self.execute("noting that the WAL is left", &sql, &parameters).await? > 0 {
            return Ok(());
        }
        let ours =
            format!("select from {} where pipeline = $1 and token = $2 for update", self.table);
        let rows = self.sql.query("reading whose the row is", &ours, &parameters[..2]).await?;
        self.owned(rows.len() as u64)?;
        Err(self.publication_changed())
    }

    /// Relays that poll may start.
    pub(crate) async fn begin_polling(&self) -> Result<(), RelayError> {
        let sql = format!(
            "update {} set switch = null, updated_at = clock_timestamp() \
             where pipeline = $1 and token = $2 and source = 'polling'",
            self.table
        );
        let parameters: [Parameter<'_>; 2] =
            [(&self.pipeline, Type::TEXT), (&self.token, Type::UUID)];
        let updated = self.execute("noting that polling begins", &sql, &parameters).await?;
        self.owned(updated)
    }

    /// Makes the row ours, or creates it, once all claims have ended: from now on
    /// nobody polls but for the switch, which has come as far as `feed` says.
    pub(crate) async fn leave_polling(
        &self,
        config: &RelayConfig,
        identity: &ServerIdentity,
        feed: &Feed,
    ) -> Result<(), RelayError> {
        let attempt = "waiting for the claims of relays that poll";
        let begin = format!("begin; select pg_advisory_xact_lock({})", lock(config));
        self.sql.batch(attempt, &begin).await?;
        let sql = format!(
            "insert into {0} as c (pipeline, token, generation, system_id, timeline, slot, \
             confirmed_lsn, initial, tables, publication, source, switch, relations) \
             values ($1, $2, $3, $4, $5, $6, '0/0', 'creating', $7, $8, $9, $10, $11) \
             on conflict (pipeline) do update set token = $2, system_id = $4, timeline = $5, \
             slot = $6, tables = $7, publication = $8, switch = $10, relations = $11, updated_at = clock_timestamp() where c.source = $9",
            self.table
        );
        let (source, switch) = feed.columns();
        let relations = self.noted_relations();
        let parameters: [Parameter<'_>; 11] = [
            (&self.pipeline, Type::TEXT),
            (&self.token, Type::UUID),
            (&i64::from(u32::from(new_generation())), Type::INT8),
            (&identity.system_id, Type::TEXT),
            (&i64::from(identity.timeline), Type::INT8),
            (&config.slot, Type::TEXT),
            (&self.outboxes, Type::TEXT_ARRAY),
            (&self.expected, Type::JSONB),
            (&source, Type::TEXT),
            (&switch, Type::JSONB),
            (&relations, Type::JSONB),
        ];
        let written = self.execute("noting that polling ends", &sql, &parameters).await?;
        self.owned(written)?;
        self.sql.batch("noting that polling ends", "commit").await
    }

    /// What `cut` sees is to be polled; the slot brings the rest.
    pub(crate) async fn note_cut(&self, cut: &Cut) -> Result<(), RelayError> {
        let sql = format!(
            "update {} set switch = $3, updated_at = clock_timestamp() \
             where pipeline = $1 and token = $2 and source = 'polling'",
            self.table
        );
        let (_, switch) = Feed::ToWal(Some(cut.clone())).columns();
        let parameters: [Parameter<'_>; 3] =
            [(&self.pipeline, Type::TEXT), (&self.token, Type::UUID), (&switch, Type::JSONB)];
        let updated = self.execute("noting where the slot begins", &sql, &parameters).await?;
        self.owned(updated)
    }

    /// What the pair's snapshot sees is published, and the slot begins there: from
    /// now on a relay reads it, under another generation.
    pub(crate) async fn begin_wal(&self, proven: &Pair) -> Result<(), RelayError> {
        let sql = format!(
            "update {} set source = 'wal', switch = null, generation = $3, confirmed_lsn = $4, \
             initial = 'done', initial_boundary = null, floors = '{{}}', clean = true, \
             proven = $5, pending = null, recovery = null, recovery_requested = null, \
             has_messages = false, updated_at = clock_timestamp() \
             where pipeline = $1 and token = $2 and source = 'polling'",
            self.table
        );
        let parameters: [Parameter<'_>; 5] = [
            (&self.pipeline, Type::TEXT),
            (&self.token, Type::UUID),
            (&i64::from(u32::from(new_generation())), Type::INT8),
            (&PgLsn::from(u64::from(proven.lsn)), Type::PG_LSN),
            (&proven.to_json(), Type::JSONB),
        ];
        let updated = self.execute("noting that the WAL is read", &sql, &parameters).await?;
        self.owned(updated)
    }
}
