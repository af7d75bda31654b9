//! Rows like some are handed from one pipeline to another: both publications
//! change in one transaction, while nobody writes to the outbox.
//!
//! What is committed before that transaction is decoded with the old filters,
//! for either slot and however often, and what is committed behind it with the
//! new ones. A message in it marks the boundary in both streams.

pub(crate) mod crossing;
mod handing;
pub(crate) mod history;
mod side;
mod survey;

use std::{sync::Arc, time::Duration};

use walpost_postgres::Database;

use self::side::Side;
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    recovery,
    sql::Sql,
    wal::{preflight, row_filter},
};

/// Which rows go from one pipeline to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveOrder {
    /// The pipeline that gives rows away.
    pub from: String,
    /// The pipeline that gets them.
    pub to: String,
    /// The row filter of `from` from then on.
    pub filter_from: String,
    /// The row filter of `to` from then on.
    pub filter_to: String,
    /// Bound on the wait for transactions that have written to the outbox, during
    /// which others wait to write, in milliseconds; 100 to 600,000.
    pub lock_timeout_ms: u64,
}

/// What a move does, or has done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MovePlan {
    /// By outbox table.
    pub tables: Vec<MovedTable>,
    /// What stands in the way, each with what to do.
    pub obstacles: Vec<(String, String)>,
    /// Pipelines that had no row filter, and take messages: with one they take none
    /// unless `row_filter_messages` is set.
    pub with_messages: Vec<String>,
    /// Number of the move, once it is made.
    pub id: Option<i64>,
}

/// What a move means for one table. Filters are as the server spells them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MovedTable {
    /// The outbox table.
    pub table: TableName,
    /// Row filter of the giver, before and after; `None` for all rows.
    pub from: (Option<String>, String),
    /// Row filter of the receiver, before and after; `None` for all rows.
    pub to: (Option<String>, String),
    /// Rows at the end of the table that were looked at.
    pub looked_at: u64,
    /// Those of them that would be the receiver's now.
    pub moving: u64,
}

/// Looks at what a move would do. Changes nothing.
///
/// # Errors
/// When the server cannot be asked, or a filter is no condition.
pub async fn plan_move(
    database: &Database,
    config: &RelayConfig,
    order: &MoveOrder,
    id_column: &str,
) -> Result<MovePlan, RelayError> {
    let sql = connect(database, config).await?;
    look(&sql, config, order, id_column).await.map(|found| found.plan)
}

/// Makes the move, unless something stands in the way.
///
/// # Errors
/// As [`plan_move`], and when transactions keep the outbox table for longer than
/// the order waits. Nothing has changed then.
pub async fn make_move(
    database: &Database,
    config: &RelayConfig,
    order: &MoveOrder,
    id_column: &str,
) -> Result<MovePlan, RelayError> {
    made(&connect(database, config).await?, config, order, id_column).await
}

/// The same, on a session of its own.
pub(crate) async fn made(
    sql: &Sql,
    config: &RelayConfig,
    order: &MoveOrder,
    id_column: &str,
) -> Result<MovePlan, RelayError> {
    let mut found = look(sql, config, order, id_column).await?;
    if let Some((from, to)) = found.sides.filter(|_| found.plan.obstacles.is_empty()) {
        let id = handing::hand_over(sql, config, order, [&from, &to], &found.plan.tables).await?;
        found.plan.id = Some(id);
    }
    Ok(found.plan)
}

/// What was found about a move.
struct Found {
    plan: MovePlan,
    /// Giver and receiver, where both can be told.
    sides: Option<(Side, Side)>,
}

async fn connect(database: &Database, config: &RelayConfig) -> Result<Sql, RelayError> {
    let (client, _) = database.connect_to_one().await?;
    let sql = Sql::new(Arc::new(client), Duration::from_millis(config.statement_timeout_ms));
    // Waiting for a synchronous standby could mean waiting for a pipeline.
    let settings = "set synchronous_commit = local; set statement_timeout = 0; \
                    set idle_session_timeout = 0";
    sql.batch("setting up the session", settings).await?;
    let server = preflight::server(&sql).await?;
    row_filter::known(&server)?;
    preflight::own_tables(&sql, config).await?;
    Ok(sql)
}

async fn look(
    sql: &Sql,
    config: &RelayConfig,
    order: &MoveOrder,
    id_column: &str,
) -> Result<Found, RelayError> {
    order.validate().map_err(RelayError::Config)?;
    let mut plan =
        MovePlan { tables: Vec::new(), obstacles: Vec::new(), with_messages: Vec::new(), id: None };
    let mut sides = Vec::new();
    for pipeline in [&order.from, &order.to] {
        match Side::find(sql, config, pipeline).await? {
            Ok(side) => sides.push(side),
            Err(obstacle) => plan.obstacles.push(obstacle),
        }
    }
    let (Some(to), Some(from)) = (sides.pop(), sides.pop()) else {
        return Ok(Found { plan, sides: None });
    };
    plan.obstacles.extend(side::between(sql, config, &from, &to).await?);
    for table in &from.tables {
        if !recovery::columns(sql, table).await?.has_xid {
            plan.obstacles.push((
                format!("table {table} has no column xid, which tells rows before a move from those behind"),
                format!("run `{}`, which rewrites the table", recovery::add_columns(table)),
            ));
            continue;
        }
        let (moved, obstacles) =
            survey::of_table(sql, order, [&from, &to], table, id_column).await?;
        plan.tables.push(moved);
        plan.obstacles.extend(obstacles);
    }
    for (side, had_none) in [
        (&from, plan.tables.iter().any(|moved| moved.from.0.is_none())),
        (&to, plan.tables.iter().any(|moved| moved.to.0.is_none())),
    ] {
        if had_none && side.takes_messages() {
            plan.with_messages.push(side.pipeline.clone());
        }
    }
    Ok(Found { plan, sides: Some((from, to)) })
}

impl MoveOrder {
    fn validate(&self) -> Result<(), String> {
        if self.from == self.to {
            return Err(format!("{:?} is both pipelines of the move; name two", self.from));
        }
        if !(100..=600_000).contains(&self.lock_timeout_ms) {
            return Err(format!(
                "lock_timeout_ms is {}; it lies between 100 and 600000",
                self.lock_timeout_ms
            ));
        }
        Ok(())
    }
}
