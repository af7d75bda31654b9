//! Rows that have failed are tried again, because somebody says so.

use std::{sync::Arc, time::Duration};

use tokio_postgres::types::{ToSql, Type};
use walpost_postgres::Database;

use super::{
    config::PollingConfig,
    gate::Gate,
    sight::PollingSight,
    statements::{Shape, Text, of, set},
    table::{PolledTable, describe, polled},
};
use crate::{
    config::RelayConfig,
    error::RelayError,
    sql::Sql,
    wal::{quote_literal, snapshot::SESSION_SETTINGS},
};

/// Rows of one transaction.
const BATCH_MAX_ROWS: i64 = 1_000;

/// Which failed rows are requeued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// All.
    All,
    /// Those with these ids.
    Ids(Vec<String>),
    /// Those of the aggregate with these values, one for each of
    /// [`aggregate_columns`](PollingConfig::aggregate_columns).
    Aggregate(Vec<String>),
    /// Not those that have failed, but those that wait for their next attempt.
    Waiting,
}

/// A row that was, or would be, requeued.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requeued {
    /// Its id.
    pub id: String,
    /// Why its last attempt failed, if that is known.
    pub last_error: Option<String>,
}

/// Makes rows pending again, and due, without the attempts that they had, the
/// oldest first, in transactions of at most 1,000 rows, and tells `told` of each
/// transaction's rows once it is committed. What waits behind them follows in
/// order. With `dry_run` nothing changes.
///
/// # Errors
/// [`RelayError::Config`] when the values name no aggregate; else what the server
/// said. What was told of stays requeued.
pub async fn requeue(
    database: &Database,
    config: &RelayConfig,
    polling: &PollingConfig,
    which: &Requeue,
    dry_run: bool,
    mut told: impl FnMut(Vec<Requeued>),
) -> Result<(), RelayError> {
    let columns = polling.aggregate_columns.len();
    if let Requeue::Aggregate(values) = which
        && (columns == 0 || values.len() != columns)
    {
        return Err(RelayError::Config(format!(
            "{} values for an aggregate, and polling.aggregate_columns has {columns}: {}",
            values.len(),
            polling.aggregate_columns.join(", ")
        )));
    }
    let sql = session(database, config).await?;
    let statement = statement(&sql, config, polling, which, dry_run).await?;
    let mut after = 0_i64;
    loop {
        let requeued = batch(&sql, &statement, which, after).await?;
        let count = requeued.len() as i64;
        if count > 0 {
            told(requeued);
        }
        if count < BATCH_MAX_ROWS {
            return Ok(());
        }
        // What is requeued has failed no more; what is only shown still has.
        after += if dry_run { count } else { 0 };
    }
}

/// Requeues up to 1,000 rows in a session that exists.
pub(super) async fn once(
    sql: &Sql,
    config: &RelayConfig,
    polling: &PollingConfig,
    which: &Requeue,
    dry_run: bool,
) -> Result<Vec<Requeued>, RelayError> {
    let statement = statement(sql, config, polling, which, dry_run).await?;
    batch(sql, &statement, which, 0).await
}

async fn batch(
    sql: &Sql,
    statement: &str,
    which: &Requeue,
    after: i64,
) -> Result<Vec<Requeued>, RelayError> {
    let values: &[String] = match which {
        Requeue::All | Requeue::Waiting => &[],
        Requeue::Ids(values) | Requeue::Aggregate(values) => values,
    };
    let parameters: [(&(dyn ToSql + Sync), Type); 3] =
        [(&values, Type::TEXT_ARRAY), (&BATCH_MAX_ROWS, Type::INT8), (&after, Type::INT8)];
    let rows = sql.query("requeueing failed rows", statement, &parameters).await?;
    Ok(rows.iter().map(|row| Requeued { id: row.get(0), last_error: row.get(1) }).collect())
}

/// Counts what is in the outbox table of a pipeline that polls.
///
/// # Errors
/// What the server said.
pub async fn polling_sight(
    database: &Database,
    config: &RelayConfig,
    polling: &PollingConfig,
) -> Result<PollingSight, RelayError> {
    let client = Arc::new(database.connect().await?);
    let limit = Duration::from_millis(config.statement_timeout_ms);
    Sql::new(client.clone(), limit).batch("setting up the session", SESSION_SETTINGS).await?;
    PolledTable::open(database, client, config, polling, &Gate::Relays).await?.sight().await
}

async fn session(database: &Database, config: &RelayConfig) -> Result<Sql, RelayError> {
    let limit = Duration::from_millis(config.statement_timeout_ms);
    let sql = Sql::new(Arc::new(database.connect().await?), limit);
    sql.batch("setting up the session", SESSION_SETTINGS).await?;
    Ok(sql)
}

/// That the next attempt of a row, `t`, is yet to come, as its own column says or
/// our table of attempts.
fn waits(text: &Text<'_>, id: &str) -> String {
    let (attempts, pipeline) = (text.attempts(), quote_literal(&text.config.pipeline));
    let column = &text.polling.next_attempt_at_column;
    let own = match column.is_empty() {
        true => "false".to_owned(),
        false => format!("coalesce({} > clock_timestamp(), false)", of("t", column)),
    };
    format!(
        "({own} or exists (select from {attempts} a where a.pipeline = {pipeline} \
         and a.row_id = {id}::text and a.next_attempt_at > clock_timestamp()))"
    )
}

/// `$1` ids or values, `$2` how many rows, `$3` how many to pass over.
async fn statement(
    sql: &Sql,
    config: &RelayConfig,
    polling: &PollingConfig,
    which: &Requeue,
    dry_run: bool,
) -> Result<String, RelayError> {
    let table = polled(config)?;
    let (relation, types) = describe(sql, config, table).await?;
    let shape = Shape { table, relation: &relation, types: &types, seen_by: None, charset: None };
    let text = Text { config, polling, shape: &shape };
    let id = of("t", &polling.id_column);
    let selection = match which {
        Requeue::All => "true".to_owned(),
        Requeue::Waiting => waits(&text, &id),
        Requeue::Ids(_) => format!("{id}::text = any($1)"),
        Requeue::Aggregate(_) => {
            let columns = polling.aggregate_columns.iter().enumerate();
            let equal = columns.map(|(index, column)| {
                format!("{}::text = ($1::text[])[{}]", of("t", column), index + 1)
            });
            equal.collect::<Vec<_>>().join(" and ")
        }
    };
    let (quoted, order, attempts) = (table.quoted(), text.order("t"), text.attempts());
    let pipeline = quote_literal(&config.pipeline);
    let state = match which {
        Requeue::Waiting => text.is_pending("t"),
        _ => text.is_failed("t"),
    };
    let lock = if dry_run { "" } else { "for no key update of t" };
    let chosen = format!(
        "with chosen as materialized (select {id} as id, row_number() over () as n, \
         (select a.last_error from {attempts} a where a.pipeline = {pipeline} \
         and a.row_id = {id}::text) as last_error from (select * from {quoted} t \
         where {state} and {selection} order by {order} limit $2 offset $3 {lock}) t)"
    );
    let result = "select id::text, last_error from chosen order by n";
    if dry_run {
        return Ok(format!("{chosen} {result}"));
    }
    let (no_column, has_failed) = (String::new(), !polling.failed_value.is_empty());
    let status = if has_failed { &polling.status_column } else { &no_column };
    let set = set(&[
        (status, text.pending()),
        (&polling.attempts_column, "0".to_owned()),
        (&polling.next_attempt_at_column, "clock_timestamp()".to_owned()),
    ]);
    let requeued = match set.as_str() {
        "" => String::new(),
        set => {
            format!("requeued as (update {quoted} t set {set} from chosen c where {id} = c.id), ")
        }
    };
    Ok(format!(
        "{chosen}, {requeued}forgotten as (delete from {attempts} a using chosen c \
         where a.pipeline = {pipeline} and a.row_id = c.id::text) {result}"
    ))
}
