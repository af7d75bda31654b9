//! The one transaction of a move.

use serde_json::{Map, json};
use tokio_postgres::{error::SqlState, types::Type};

use super::{
    MoveOrder, MovedTable,
    crossing::{Boundary, PREFIX},
    side::Side,
};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::Sql,
    wal::{membership, quote_identifier, row_filter},
};

/// Changes both publications, and notes the move with its boundary. Its number.
pub(super) async fn hand_over(
    sql: &Sql,
    config: &RelayConfig,
    order: &MoveOrder,
    sides: [&Side; 2],
    tables: &[MovedTable],
) -> Result<i64, RelayError> {
    let sql = sql.within_ms(config.statement_timeout_ms + order.lock_timeout_ms);
    let made = within(&sql, config, order, sides, tables).await;
    let done = match &made {
        Ok(_) => sql.batch("committing the move", "commit").await,
        Err(_) => sql.batch("giving up the move", "rollback").await,
    };
    match made {
        Ok(id) => done.map(|()| id),
        Err(error) if is_lock_timeout(&error) => {
            Err(held(&sql, order, tables).await.unwrap_or(error))
        }
        Err(error) => Err(error),
    }
}

async fn within(
    sql: &Sql,
    config: &RelayConfig,
    order: &MoveOrder,
    sides: [&Side; 2],
    tables: &[MovedTable],
) -> Result<i64, RelayError> {
    let names: Vec<String> = tables.iter().map(|moved| moved.table.quoted()).collect();
    // Whoever has written to the table has ended, and nobody writes until we
    // have: every row is committed before us or behind us.
    let lock = format!(
        "begin; set local lock_timeout = {}; lock table {} in share row exclusive mode",
        order.lock_timeout_ms,
        names.join(", ")
    );
    sql.batch("locking the outbox table", &lock).await?;
    lock_checkpoints(sql, config, order).await?;
    for side in sides {
        let now = Side::find(sql, config, &side.pipeline).await?;
        if !now.is_ok_and(|now| now.is_as(side)) {
            return Err(RelayError::prerequisite(
                format!("pipeline {:?} changed while the move was prepared", side.pipeline),
                "try again",
            ));
        }
    }
    let mut altered = tables.to_vec();
    for moved in &mut altered {
        moved.from.1 = alter(sql, sides[0], &moved.table, &moved.from.1).await?;
        moved.to.1 = alter(sql, sides[1], &moved.table, &moved.to.1).await?;
    }
    note(sql, config, order, &altered).await
}

async fn lock_checkpoints(
    sql: &Sql,
    config: &RelayConfig,
    order: &MoveOrder,
) -> Result<(), RelayError> {
    #[cfg(test)]
    if sql.simulation().is_some() {
        return Ok(());
    }
    let rows = format!(
        "select from {}.checkpoint where pipeline in ($1, $2) order by pipeline for update",
        quote_identifier(&config.schema)
    );
    let pipelines = [(&order.from as _, Type::TEXT), (&order.to as _, Type::TEXT)];
    sql.query("locking the checkpoints", &rows, &pipelines).await.map(|_| ())
}

/// Its table anew, with another filter, and how the server prints that now: a
/// list of varchar reads otherwise each time.
async fn alter(
    sql: &Sql,
    side: &Side,
    table: &TableName,
    filter: &str,
) -> Result<String, RelayError> {
    #[cfg(test)]
    if let Some(server) = sql.simulation() {
        server.alter(&side.publication, filter).await?;
        return Ok(filter.to_owned());
    }
    let (publication, quoted) = (quote_identifier(&side.publication), table.quoted());
    let attempt = "changing the publication";
    let drop = format!("alter publication {publication} drop table {quoted}");
    sql.query(attempt, &drop, &[]).await?;
    let add = format!("alter publication {publication} add table {quoted} where ({filter})");
    let added = sql.query(attempt, &add, &[]).await;
    added.map_err(|error| row_filter::unfit(error, Some(filter)))?;
    let printed = row_filter::of_publication(sql, &side.publication, table).await?;
    Ok(printed.unwrap_or_else(|| filter.to_owned()))
}

/// The entry, the new object ids in both checkpoints, and the message.
async fn note(
    sql: &Sql,
    config: &RelayConfig,
    order: &MoveOrder,
    tables: &[MovedTable],
) -> Result<i64, RelayError> {
    let (id, xid) = enter(sql, config, order, tables).await?;
    let (from, to) = (order.from.clone(), order.to.clone());
    let boundary = Boundary { schema: config.schema.clone(), id, xid, from, to };
    emit(sql, &boundary.to_json().to_string()).await?;
    Ok(id)
}

/// The entry and the object ids: number and transaction of the move.
async fn enter(
    sql: &Sql,
    config: &RelayConfig,
    order: &MoveOrder,
    tables: &[MovedTable],
) -> Result<(i64, u64), RelayError> {
    #[cfg(test)]
    if let Some(server) = sql.simulation() {
        return server.note_move(&order.from, &order.to).await;
    }
    let schema = quote_identifier(&config.schema);
    let filters: Map<String, serde_json::Value> = tables
        .iter()
        .map(|moved| {
            let sides = json!({ "from": moved.from, "to": moved.to });
            (moved.table.quoted(), sides)
        })
        .collect();
    // A statement of its own behind the lock: its snapshot sees all before us.
    let insert = format!(
        "insert into {schema}.move (from_pipeline, to_pipeline, tables, boundary) \
         values ($1, $2, $3, pg_current_snapshot()) returning id, xid::text"
    );
    let filters = serde_json::Value::Object(filters);
    let parameters = [
        (&order.from as _, Type::TEXT),
        (&order.to as _, Type::TEXT),
        (&filters as _, Type::JSONB),
    ];
    let row = sql.one("noting the move", &insert, &parameters).await?;
    let id: i64 = row.get(0);
    let xid = row.get::<_, &str>(1).parse().expect("the server has made it");
    let ids = format!(
        "update {schema}.checkpoint c set publication = c.publication || \
         jsonb_build_object('tables', {}) from pg_publication p \
         where p.oid::int8 = (c.publication ->> 'oid')::int8 and c.pipeline in ($1, $2)",
        membership::tables("c.tables", "p.oid", "(c.relations -> 'tables')")
    );
    sql.query("noting the publications' object ids", &ids, &parameters[..2]).await?;
    Ok((id, xid))
}

async fn emit(sql: &Sql, boundary: &str) -> Result<(), RelayError> {
    #[cfg(test)]
    if let Some(server) = sql.simulation() {
        return server.emit(boundary).await;
    }
    let emit = "select pg_logical_emit_message(true, $1, $2)";
    let message = [(&PREFIX as _, Type::TEXT), (&boundary as _, Type::TEXT)];
    sql.query("writing the boundary", emit, &message).await.map(|_| ())
}

fn is_lock_timeout(error: &RelayError) -> bool {
    matches!(
        error,
        RelayError::Sql { source, .. } if source.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
    )
}

/// Who has written to the tables and has not ended.
async fn held(sql: &Sql, order: &MoveOrder, tables: &[MovedTable]) -> Option<RelayError> {
    let names: Vec<String> = tables.iter().map(|moved| moved.table.quoted()).collect();
    let query = "select a.pid, coalesce(a.application_name, ''), coalesce(a.state, ''), \
                 extract(epoch from clock_timestamp() - a.xact_start)::int8 \
                 from pg_stat_activity a where a.pid <> pg_backend_pid() and a.pid in \
                 (select l.pid from pg_locks l, unnest($1::text[]) t (name) where l.granted \
                 and l.mode <> 'AccessShareLock' and (l.relation = to_regclass(t.name) or l.relation in \
                 (select relid from pg_partition_tree(to_regclass(t.name))))) \
                 order by a.xact_start limit 3";
    let parameters = [(&names as _, Type::TEXT_ARRAY)];
    let rows = sql.query("looking who holds the table", query, &parameters).await.ok()?;
    let holders: Vec<String> = rows
        .iter()
        .map(|row| {
            let (pid, application, state): (i32, &str, &str) = (row.get(0), row.get(1), row.get(2));
            let seconds = row.get::<_, Option<i64>>(3).unwrap_or_default();
            format!("process {pid} ({application}, {state}) for {seconds} s")
        })
        .collect();
    let who = match holders.is_empty() {
        true => "they have ended since".to_owned(),
        false => holders.join(", "),
    };
    Some(RelayError::prerequisite(
        format!(
            "transactions that have written to the outbox table did not end within {} ms: {who}; \
             nothing was changed",
            order.lock_timeout_ms
        ),
        "try again, end them, or wait longer with --lock-timeout-ms; others wait to write meanwhile",
    ))
}
