//! Rows leave the outbox once they are old enough and proven to be published or
//! parked: deleted, or moved to an archive first.

mod ahead;
mod failures;
mod keys;
mod leaves;
mod needs;
mod partitions;
mod readers;
mod removal;
mod rights;
mod settled;
mod told;
mod unmatched;
mod whole;

use std::{sync::Arc, time::Duration};

use tokio_postgres::types::Type;
use walpost_postgres::Database;

pub use self::{
    ahead::{Days, make_days},
    rights::check_retention,
    settled::{prunable_parked, prune_parked},
};
use self::{failures::Failures, removal::Rows};
pub(crate) use self::{
    leaves::{Leaf, Reach, leaves},
    readers::{By, Reader, ReaderFeed, proven_by_all, readers},
    removal::Removal,
};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::Sql,
    wal::{preflight, quote_identifier, snapshot::PRINTING},
};

/// Fewer days are refused: see [`RetentionConfig::validate`].
const KEEP_DAYS_MIN: u32 = 7;

/// How long rows stay, and in which steps they leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionConfig {
    /// Rows younger than this stay in the outbox, by their column `created_at`,
    /// in days. Default 14, at least 7.
    pub keep_days: u32,
    /// Rows that leave the outbox stay in the archive for so many days; 0, the
    /// default, for no archive.
    pub archive_days: u32,
    /// Parked events stay for so many days after they were sent on or discarded,
    /// and as long as their row does. Default 30, at least 7.
    pub parked_days: u32,
    /// Rows of one transaction. Default 1,000.
    pub batch_rows: u32,
    /// Between two transactions. Default 100 ms.
    pub pause_ms: u64,
    /// Between two passes of a relay that runs. Default 60 minutes.
    pub interval_minutes: u32,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            keep_days: 14,
            archive_days: 0,
            parked_days: 30,
            batch_rows: 1_000,
            pause_ms: 100,
            interval_minutes: 60,
        }
    }
}

impl RetentionConfig {
    /// Checks bounds.
    ///
    /// # Errors
    /// Text that names the setting, its value and what it may be.
    pub fn validate(&self) -> Result<(), String> {
        if self.keep_days < KEEP_DAYS_MIN {
            return Err(format!(
                "keep_days is {}; it is at least {KEEP_DAYS_MIN}: a row that is gone can neither \
                 be published again nor keep a second event of its idempotency key away",
                self.keep_days
            ));
        }
        let bounds = [
            ("keep_days", u64::from(self.keep_days), 7, 36_500),
            ("archive_days", u64::from(self.archive_days), 0, 36_500),
            ("parked_days", u64::from(self.parked_days), 7, 36_500),
            ("batch_rows", u64::from(self.batch_rows), 1, 10_000),
            ("pause_ms", self.pause_ms, 0, 60_000),
            ("interval_minutes", u64::from(self.interval_minutes), 1, 10_080),
        ];
        for (name, value, low, high) in bounds {
            if !(low..=high).contains(&value) {
                return Err(format!("{name} is {value}; it lies between {low} and {high}"));
            }
        }
        Ok(())
    }
}

/// What retention finds in a table, or has done there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// The outbox table.
    pub table: TableName,
    /// Rows that left it, or would; those of them are in the archive where there
    /// is one.
    pub rows: u64,
    /// Rows that are old enough and stay, because they are not proven to be
    /// published. Counted by [`prunable`] alone.
    pub not_proven: u64,
    /// Rows that are old enough and stay, because they are parked and nothing
    /// else keeps their contents. Counted by [`prunable`] alone.
    pub parked: u64,
    /// Rows that left the archive, or would.
    pub archived_rows: u64,
    /// Partitions that left the outbox as a whole, or would; their rows are among
    /// `rows`.
    pub partitions: u64,
    /// Partitions that are old enough and stay, because a row of them has to.
    pub held_partitions: u64,
    /// Partitions that stay until the next time, because somebody had locked
    /// them, or the table.
    pub busy_partitions: u64,
    /// Partitions that left the archive as a whole, or would.
    pub archived_partitions: u64,
    /// The table is partitioned and not the role's, so its rows leave one by one.
    pub is_not_owner: bool,
}

impl Pruned {
    fn of(table: &TableName) -> Self {
        Self {
            table: table.clone(),
            rows: 0,
            not_proven: 0,
            parked: 0,
            archived_rows: 0,
            partitions: 0,
            held_partitions: 0,
            busy_partitions: 0,
            archived_partitions: 0,
            is_not_owner: false,
        }
    }
}

/// Counts what [`prune`] would do. Changes nothing, and reads whole tables.
///
/// # Errors
/// As [`prune`].
pub async fn prunable(
    database: &Database,
    relay: &RelayConfig,
    id_column: &str,
    retention: &RetentionConfig,
) -> Result<Vec<Pruned>, RelayError> {
    let sql = connect(database, relay).await?;
    let mut found = Vec::new();
    for table in &relay.tables {
        let removal = prepare(&sql, relay, table, id_column, retention).await?;
        found.push(removal.count(&sql.within_ms(relay.slot_timeout_ms)).await?);
    }
    Ok(found)
}

/// Has rows leave the outbox tables of a pipeline, and the archives, in short
/// transactions. `tell` is told after each of them how it stands. Nothing else
/// does so for this schema meanwhile; without the right to, nothing is done.
///
/// It may be given up at any await: each transaction is whole. Where a table, a
/// partition, or a row cannot leave, the others do, and the error tells at the
/// end of all that went wrong.
///
/// # Errors
/// [`RelayError::Prerequisite`] where a table does not tell which rows are
/// published, a pipeline has proven nothing of it, or the archive does not take
/// a row.
pub async fn prune(
    database: &Database,
    relay: &RelayConfig,
    id_column: &str,
    retention: &RetentionConfig,
    mut tell: impl FnMut(&Pruned),
) -> Result<Vec<Pruned>, RelayError> {
    let sql = connect(database, relay).await?;
    rights::expect(&sql, relay, retention).await?;
    alone(&sql, relay).await?;
    let done = prune_alone(&sql, relay, id_column, retention, &mut tell).await;
    // The session's end does it too, later.
    let unlock = "select pg_advisory_unlock(hashtext('walpost retention'), hashtext($1))";
    let schema = [(&relay.schema as _, Type::TEXT)];
    drop(sql.one("unlocking the retention", unlock, &schema).await);
    done
}

async fn prune_alone(
    sql: &Sql,
    relay: &RelayConfig,
    id_column: &str,
    retention: &RetentionConfig,
    tell: &mut impl FnMut(&Pruned),
) -> Result<Vec<Pruned>, RelayError> {
    let mut failures = Failures::default();
    let done = prune_each(sql, relay, id_column, retention, tell, &mut failures).await;
    failures.end(done)
}

async fn prune_each(
    sql: &Sql,
    relay: &RelayConfig,
    id_column: &str,
    retention: &RetentionConfig,
    tell: &mut impl FnMut(&Pruned),
    failures: &mut Failures,
) -> Result<Vec<Pruned>, RelayError> {
    // All of them before the first row goes.
    let mut removals = Vec::new();
    for table in &relay.tables {
        removals.extend(failures.keep(prepare(sql, relay, table, id_column, retention).await)?);
    }
    if relay.tables.contains(&ahead::outbox(&relay.schema))
        && let Some(days) = failures.keep(ahead::make(sql, &relay.schema).await)?
    {
        days.log();
    }
    let mut done = Vec::new();
    for removal in removals {
        done.extend(failures.keep(removal.run(sql, tell).await)?);
    }
    Ok(done)
}

async fn connect(database: &Database, relay: &RelayConfig) -> Result<Sql, RelayError> {
    let (client, _) = database.connect_to_one().await?;
    let sql = Sql::new(Arc::new(client), Duration::from_millis(relay.statement_timeout_ms));
    // Whoever holds a row has it until the next pass.
    let settings = format!("{PRINTING}; set lock_timeout = '1s'; set synchronous_commit = local");
    sql.batch("setting up the session", &settings).await?;
    preflight::own_tables(&sql, relay).await?;
    Ok(sql)
}

/// A second one would only be in the way.
async fn alone(sql: &Sql, relay: &RelayConfig) -> Result<(), RelayError> {
    let lock = "select pg_try_advisory_lock(hashtext('walpost retention'), hashtext($1))";
    let schema = [(&relay.schema as _, Type::TEXT)];
    if sql.one("locking the retention", lock, &schema).await?.get(0) {
        return Ok(());
    }
    Err(RelayError::prerequisite(
        "another process prunes the outbox now",
        "wait until it has done so; it is `walpost prune` or a relay with retention.enabled",
    ))
}

async fn prepare(
    sql: &Sql,
    relay: &RelayConfig,
    table: &TableName,
    id_column: &str,
    retention: &RetentionConfig,
) -> Result<Removal, RelayError> {
    retention.validate().map_err(RelayError::Config)?;
    let columns = columns_of(sql, table).await?;
    if columns.is_empty() {
        return Err(RelayError::prerequisite(
            format!("outbox table {table} does not exist"),
            "create it with `walpost migrate`, or name your own in `tables`",
        ));
    }
    needs::met(sql, relay, table, id_column, retention.keep_days, &columns).await?;
    Rows::read(sql, relay, table, retention.keep_days).await?;
    unmatched::none(sql, relay, table, id_column).await?;
    let archive = match retention.archive_days {
        0 => None,
        _ => Some(archive(sql, table, &columns).await?),
    };
    Ok(Removal::new(relay, table, id_column, *retention, archive))
}

fn archive_of(table: &TableName) -> TableName {
    TableName { schema: table.schema.clone(), name: format!("{}_archive", table.name) }
}

/// Where rows go, and which of their columns.
async fn archive(
    sql: &Sql,
    table: &TableName,
    columns: &[String],
) -> Result<removal::Archive, RelayError> {
    let archive = archive_of(table);
    let there = columns_of(sql, &archive).await?;
    if !there.iter().any(|column| column == "archived_at") {
        let (to, from) = (archive.quoted(), table.quoted());
        return Err(RelayError::prerequisite(
            format!("there is no table {archive} with a column archived_at"),
            format!(
                "run `create table {to} (like {from}, archived_at timestamptz not null default \
                 clock_timestamp())`, or set archive_days = 0"
            ),
        ));
    }
    let missing: Vec<&str> =
        columns.iter().filter(|column| !there.contains(column)).map(String::as_str).collect();
    if !missing.is_empty() {
        return Err(RelayError::prerequisite(
            format!("table {archive} has no column {}, as {table} has", missing.join(", ")),
            format!("add it to {archive}, or set archive_days = 0"),
        ));
    }
    let columns: Vec<String> = columns.iter().map(|column| quote_identifier(column)).collect();
    Ok(removal::Archive { table: archive, columns: columns.join(", ") })
}

/// The archive takes every row that the table does, as far as nulls go.
async fn takes_nulls(sql: &Sql, table: &TableName) -> Result<(), RelayError> {
    let archive = archive_of(table);
    let query = "select a.attname::text from pg_attribute a \
                 where a.attrelid = to_regclass($1) and a.attnum > 0 and not a.attisdropped \
                 and a.attnotnull and a.attname <> 'archived_at' and not a.atthasdef \
                 and a.attidentity = '' and not exists (select from pg_attribute t \
                     where t.attrelid = to_regclass($2) and t.attname = a.attname \
                     and t.attnum > 0 and t.attnotnull) order by a.attnum";
    let names = [(&archive.quoted() as _, Type::TEXT), (&table.quoted() as _, Type::TEXT)];
    let rows = sql.query("comparing the archive's columns", query, &names).await?;
    if rows.is_empty() {
        return Ok(());
    }
    let columns: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    Err(RelayError::prerequisite(
        format!(
            "table {archive} takes no null in column {}, as {table} does: rows with one would stay",
            columns.join(", ")
        ),
        drop_not_null(&archive, &columns),
    ))
}

fn drop_not_null(archive: &TableName, columns: &[String]) -> String {
    let change =
        |column: &String| format!("alter column {} drop not null", quote_identifier(column));
    let changes: Vec<String> = columns.iter().map(change).collect();
    format!("run `alter table {} {}`", archive.quoted(), changes.join(", "))
}

async fn columns_of(sql: &Sql, table: &TableName) -> Result<Vec<String>, RelayError> {
    let query = "select attname::text from pg_attribute where attrelid = to_regclass($1) \
                 and attnum > 0 and not attisdropped order by attnum";
    let name = [(&table.quoted() as _, Type::TEXT)];
    let rows = sql.query("reading the table's columns", query, &name).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retention_that_is_not_safe_is_refused_with_the_reason() {
        assert_eq!(RetentionConfig::default().validate(), Ok(()));
        let short = RetentionConfig { keep_days: 6, ..RetentionConfig::default() };
        let text = short.validate().unwrap_err();
        assert!(text.contains("keep_days is 6; it is at least 7: a row that is gone"), "{text}");
        let wild = RetentionConfig { batch_rows: 0, ..RetentionConfig::default() };
        assert_eq!(wild.validate().unwrap_err(), "batch_rows is 0; it lies between 1 and 10000");
    }
}
