//! A slot that is lost takes with it what was not read from it. Where the outbox
//! is a table that tells which transaction wrote a row and in which order, the
//! rows that the proven snapshot does not see are what may be missing, and what
//! of them stands in the topics or is parked already is not.

pub(crate) mod plan;
pub(crate) mod replace;

use tokio_postgres::types::Type;

use crate::{
    checkpoint::{Checkpoint, InitialState},
    config::{LostSlot, RelayConfig, TableName},
    error::RelayError,
    sql::Sql,
    wal::{quote_literal, rights, row_filter, slot::Slot},
};

/// Whether a start replaces the slot. One that was begun is finished.
pub(crate) fn is_wanted(slot: Option<&Slot>, row: &Checkpoint, config: &RelayConfig) -> bool {
    let is_lost = slot.is_none_or(|slot| slot.lost.is_some());
    match &row.initial {
        InitialState::Recreating(_) => true,
        InitialState::Recover { .. } => is_lost,
        InitialState::Done => {
            let is_dropped = slot.is_none() && config.drop_slot_on_stop;
            is_lost
                && (config.on_lost_slot == LostSlot::Recover
                    || row.requested.is_some()
                    || is_dropped)
        }
        InitialState::Creating | InitialState::Publish { .. } => false,
    }
}

/// What stands in the way of a recovery, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub(crate) problem: String,
    pub(crate) remedy: String,
    /// Somebody may accept it.
    pub(crate) acceptable: Option<Acceptable>,
}

/// What somebody may accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acceptable {
    Messages,
    Deleted,
}

/// Refuses a recovery that could lose or repeat events without anybody having
/// accepted that.
pub(crate) async fn possible(
    sql: &Sql,
    config: &RelayConfig,
    row: &Checkpoint,
) -> Result<(), RelayError> {
    // Of one that was begun nothing has come in between.
    let is_begun = row.initial != InitialState::Done;
    let accepted = row.requested.unwrap_or_default();
    let obstacles = obstacles(sql, config, row).await?;
    let first = obstacles.into_iter().find(|obstacle| match obstacle.acceptable {
        Some(Acceptable::Messages) => !(is_begun || accepted.messages),
        Some(Acceptable::Deleted) => !(is_begun || accepted.deleted),
        None => true,
    });
    match first {
        None => Ok(()),
        Some(Obstacle { problem, remedy, .. }) => Err(RelayError::prerequisite(
            format!(
                "slot {:?} is lost and cannot be recovered from the outbox table: {problem}; \
                 published up to {}",
                config.slot, row.confirmed
            ),
            remedy,
        )),
    }
}

/// Everything that stands in the way.
pub(crate) async fn obstacles(
    sql: &Sql,
    config: &RelayConfig,
    row: &Checkpoint,
) -> Result<Vec<Obstacle>, RelayError> {
    rights::readable(sql, &config.tables).await?;
    let afresh = afresh(config);
    let obstacle = |problem: String| Obstacle { problem, remedy: afresh.clone(), acceptable: None };
    let mut found = Vec::new();
    if row.proven.is_none() {
        found.push(obstacle("no snapshot of it was proven to be published yet".to_owned()));
    }
    if config.tables.is_empty() {
        found.push(obstacle(
            "the pipeline has no table, and messages of pg_logical_emit_message are in the lost \
             WAL alone"
                .to_owned(),
        ));
    } else if row.has_messages {
        found.push(Obstacle {
            problem: "the pipeline publishes messages of pg_logical_emit_message too, which are \
                      in the lost WAL alone"
                .to_owned(),
            remedy: format!(
                "to give up the messages that were not read, run `walpost slot recover \
                 --accept-lost-messages --yes`; or {afresh}"
            ),
            acceptable: Some(Acceptable::Messages),
        });
    }
    if !config.position_header && !config.source_header {
        found.push(obstacle(
            "position_header and source_header are off, so nothing tells which records are the \
             pipeline's"
                .to_owned(),
        ));
    }
    for table in &config.tables {
        found.extend(of_table(sql, config, table, &afresh).await?);
    }
    Ok(found)
}

/// The way without the outbox table's help.
fn afresh(config: &RelayConfig) -> String {
    format!(
        "publish what is missing yourself, drop the slot if it is there (select \
         pg_drop_replication_slot('{}')), delete the pipeline's row in {}.checkpoint and start \
         with initial = \"skip\"; with initial = \"publish\" the whole table is published again",
        config.slot, config.schema
    )
}

async fn of_table(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
    afresh: &str,
) -> Result<Vec<Obstacle>, RelayError> {
    let obstacle = |problem: String, remedy: String| Obstacle { problem, remedy, acceptable: None };
    let columns = columns(sql, table).await?;
    if let Some(missing) = columns.missing() {
        let remedy = format!("{afresh}; for the next time run `{}`", columns.add(table));
        let problem = format!(
            "table {table} has no {missing} that would tell which rows are missing, and their order"
        );
        return Ok(vec![obstacle(problem, remedy)]);
    }
    let mut found = Vec::new();
    let quoted = table.quoted();
    let rows = row_filter::condition(sql, config, table).await?;
    let foreign = format!(
        "select exists (select from {quoted} where xid >= pg_snapshot_xmax(pg_current_snapshot())), \
         not exists (select from {quoted} where {})",
        rows.as_deref().unwrap_or("true")
    );
    let slow = sql.within_ms(config.slot_timeout_ms);
    let row = slow.one("checking the transaction ids of the outbox table", &foreign, &[]).await?;
    if row.get(0) {
        let problem = format!("table {table} holds transaction ids of another cluster");
        found.push(obstacle(problem, afresh.to_owned()));
    }
    if row.get(1) && rows_are_deleted(sql, table).await? {
        found.push(Obstacle {
            problem: format!(
                "table {table} is empty, and rows of it were deleted: where the application \
                 deletes its rows, as in the transaction that inserts them, those that were not \
                 published are in the lost WAL alone"
            ),
            remedy: format!(
                "if nothing was deleted that was not published, run `walpost slot recover \
                 --accept-deleted-rows --yes`; or {afresh}"
            ),
            acceptable: Some(Acceptable::Deleted),
        });
    }
    Ok(found)
}

/// Columns that tell which transaction wrote a row, and in which order.
pub(crate) struct Columns {
    pub(crate) has_xid: bool,
    pub(crate) has_seq: bool,
}

impl Columns {
    /// What an outbox table lacks for a recovery.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        match (self.has_xid, self.has_seq) {
            (true, true) => None,
            (false, true) => Some("column xid"),
            (true, false) => Some("column seq"),
            (false, false) => Some("columns xid and seq"),
        }
    }

    /// The statement that adds it.
    pub(crate) fn add(&self, table: &TableName) -> String {
        let xid = "add column xid xid8 not null default pg_current_xact_id()";
        let seq = "add column seq bigint not null generated always as identity";
        let added: Vec<&str> = [(self.has_xid, xid), (self.has_seq, seq)]
            .into_iter()
            .filter_map(|(is_there, add)| (!is_there).then_some(add))
            .collect();
        format!("alter table {} {}", table.quoted(), added.join(", "))
    }
}

/// They count where the server fills them.
pub(crate) async fn columns(sql: &Sql, table: &TableName) -> Result<Columns, RelayError> {
    #[cfg(test)]
    if sql.simulation().is_some() {
        return Ok(Columns { has_xid: true, has_seq: true });
    }
    let query = "select \
            coalesce(bool_or(a.attname = 'xid' and a.atttypid = 'xid8'::regtype \
                and pg_get_expr(d.adbin, d.adrelid) like '%pg_current_xact_id()%'), false), \
            coalesce(bool_or(a.attname = 'seq' and a.atttypid = 'int8'::regtype \
                and (a.attidentity <> '' or pg_get_expr(d.adbin, d.adrelid) like 'nextval(%')), \
                false) \
        from pg_attribute a \
        left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum \
        where a.attrelid = to_regclass($1) and a.attnum > 0 and not a.attisdropped";
    let name = [(&table.quoted() as _, Type::TEXT)];
    let row = sql.one("reading the outbox table's columns", query, &name).await?;
    Ok(Columns { has_xid: row.get(0), has_seq: row.get(1) })
}

/// The statement that adds both.
pub(crate) fn add_columns(table: &TableName) -> String {
    Columns { has_xid: false, has_seq: false }.add(table)
}

async fn rows_are_deleted(sql: &Sql, table: &TableName) -> Result<bool, RelayError> {
    let query = "select coalesce(sum(pg_stat_get_tuples_deleted(oid)), 0) > 0 from pg_class \
                 where oid = to_regclass($1) \
                 or oid in (select relid from pg_partition_tree(to_regclass($1)))";
    let name = [(&table.quoted() as _, Type::TEXT)];
    Ok(sql.one("asking whether rows of the outbox table are deleted", query, &name).await?.get(0))
}

/// Rows that the snapshot, which is `proven`, does not see.
pub(crate) fn not_proven(proven: &str) -> String {
    format!("not pg_visible_in_snapshot(xid, {}::pg_snapshot)", quote_literal(proven))
}
