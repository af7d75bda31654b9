//! What a recovery would do, and asking for one.

use std::{sync::Arc, time::Duration};

use walpost_event::Lsn;
use walpost_postgres::Database;

use super::{Acceptable, not_proven, obstacles};
use crate::{
    checkpoint::{Accepted, Checkpoint, CheckpointStore, InitialState},
    config::{RelayConfig, TableName},
    error::RelayError,
    history,
    sql::Sql,
    wal::{membership, preflight, row_filter, slot},
};

/// What the recovery of a lost slot would do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryPlan {
    /// Why the slot is lost: `missing`, or the server's reason. `None` for a slot
    /// that is there: nothing is to be recovered.
    pub lost: Option<String>,
    /// Everything that ends here or before is published or parked.
    pub confirmed: Lsn,
    /// When the proven snapshot was taken, in seconds since 1970.
    pub proven_at: Option<i64>,
    /// By table the rows that this snapshot does not see: those that are not in
    /// the topics and not parked are published.
    pub rows: Vec<(TableName, u64)>,
    /// What stands in the way, each with what to do.
    pub obstacles: Vec<(String, String)>,
    /// Somebody has asked for it, or it has begun.
    pub is_requested: bool,
}

/// Looks at what a recovery would do, where it is accepted that messages which
/// were in the lost WAL alone are lost, and rows that were deleted before they
/// were published. Changes nothing.
///
/// # Errors
/// When the server cannot be asked, or has no checkpoint of the pipeline.
pub async fn plan_recovery(
    database: &Database,
    config: &RelayConfig,
    accept_lost_messages: bool,
    accept_deleted_rows: bool,
) -> Result<RecoveryPlan, RelayError> {
    let accepted = Accepted { messages: accept_lost_messages, deleted: accept_deleted_rows };
    let (sql, row) = find(database, config).await?;
    plan(&sql, config, &row, accepted).await
}

/// Asks the next start of the pipeline to recover its slot, unless something
/// stands in the way that is not accepted.
///
/// # Errors
/// As [`plan_recovery`].
pub async fn request_recovery(
    database: &Database,
    config: &RelayConfig,
    accept_lost_messages: bool,
    accept_deleted_rows: bool,
) -> Result<RecoveryPlan, RelayError> {
    let accepted = Accepted { messages: accept_lost_messages, deleted: accept_deleted_rows };
    let (sql, row) = find(database, config).await?;
    let mut plan = plan(&sql, config, &row, accepted).await?;
    if plan.lost.is_some() && plan.obstacles.is_empty() {
        plan.is_requested = CheckpointStore::new(sql, config).request_recovery(accepted).await?;
    }
    Ok(plan)
}

async fn find(database: &Database, config: &RelayConfig) -> Result<(Sql, Checkpoint), RelayError> {
    let limit = Duration::from_millis(config.statement_timeout_ms);
    let (client, _) = database.connect_to_one().await?;
    let sql = Sql::new(Arc::new(client), limit);
    let server = preflight::server(&sql).await?;
    preflight::own_tables(&sql, config).await?;
    let row = CheckpointStore::new(sql.clone(), config).read().await?;
    let row = row.ok_or_else(|| {
        RelayError::prerequisite(
            format!("pipeline {:?} has no checkpoint", config.pipeline),
            "start it with `walpost run`; `initial` decides about rows that are there",
        )
    })?;
    row.feed.expect_wal(config)?;
    history::same_cluster(&row, config, &server)?;
    Ok((sql, row))
}

async fn plan(
    sql: &Sql,
    config: &RelayConfig,
    row: &Checkpoint,
    accepted: Accepted,
) -> Result<RecoveryPlan, RelayError> {
    let lost = match slot::inspect(sql, &config.slot).await? {
        None => Some("missing".to_owned()),
        Some(mut slot) => {
            slot.note_gap(Some(row), membership::read(sql, config).await?.as_ref());
            slot.lost
        }
    };
    let is_begun =
        matches!(row.initial, InitialState::Recreating(_) | InitialState::Recover { .. });
    let mut plan = RecoveryPlan {
        lost,
        confirmed: row.confirmed,
        proven_at: row.proven.as_ref().map(|pair| pair.taken_at),
        rows: Vec::new(),
        obstacles: Vec::new(),
        is_requested: row.requested.is_some() || is_begun,
    };
    if plan.lost.is_none() {
        return Ok(plan);
    }
    let found = obstacles(sql, config, row).await?;
    let is_in_the_way = |acceptable: Option<Acceptable>| match acceptable {
        Some(Acceptable::Messages) => !accepted.messages,
        Some(Acceptable::Deleted) => !accepted.deleted,
        None => true,
    };
    let is_sound = found.iter().all(|obstacle| obstacle.acceptable.is_some());
    let in_the_way = found.into_iter().filter(|obstacle| is_in_the_way(obstacle.acceptable));
    plan.obstacles = in_the_way.map(|obstacle| (obstacle.problem, obstacle.remedy)).collect();
    if let Some(proven) = row.proven.as_ref().filter(|_| is_sound) {
        let slow = sql.within_ms(config.slot_timeout_ms);
        for table in &config.tables {
            let filter = row_filter::condition(sql, config, table).await?;
            let query = format!(
                "select count(*) from {} where {} and {}",
                table.quoted(),
                not_proven(&proven.snapshot),
                filter.as_deref().unwrap_or("true")
            );
            let count = slow.one("counting the rows that are not proven", &query, &[]).await?;
            let count = u64::try_from(count.get::<_, i64>(0)).unwrap_or(0);
            plan.rows.push((table.clone(), count));
        }
    }
    Ok(plan)
}
