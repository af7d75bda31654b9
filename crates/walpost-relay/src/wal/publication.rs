//! The publication: found as it has to be, or created where that is allowed.

use std::{sync::Arc, time::Duration};

use tokio_postgres::{error::SqlState, types::Type};
use walpost_postgres::Database;
use walpost_router::RouterConfig;

use super::{quote_identifier, relations, rights, row_filter};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::Sql,
};

/// Finds the publication, or creates it where that is allowed.
pub(crate) async fn ensure(
    sql: &Sql,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Result<(), RelayError> {
    if !exists(sql, config).await? {
        let has_moves = relations::movable(sql, config, router).await?.is_some();
        return create(sql, config, has_moves).await;
    }
    found(sql, config, router).await.map(drop)
}

/// Whether it is there.
pub(crate) async fn exists(sql: &Sql, config: &RelayConfig) -> Result<bool, RelayError> {
    let row = sql
        .one(
            "looking for the publication",
            "select exists (select from pg_publication where pubname = $1)",
            &[(&config.publication, Type::TEXT)],
        )
        .await?;
    Ok(row.get(0))
}

/// Rows that move to another partition are told from new ones, also by a publication
/// that is still to be made.
pub(crate) async fn tells_moves(
    sql: &Sql,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Result<(), RelayError> {
    let Some(movable) = relations::movable(sql, config, router).await? else { return Ok(()) };
    let has_deletes = has_deletes(sql, config).await?;
    movable.told(&config.publication, has_deletes.unwrap_or(true))
}

/// Whether it publishes deletes, if it is there.
pub(crate) async fn has_deletes(
    sql: &Sql,
    config: &RelayConfig,
) -> Result<Option<bool>, RelayError> {
    let query = "select pubdelete from pg_publication where pubname = $1";
    let name = [(&config.publication as _, Type::TEXT)];
    let found = sql.opt("reading the publication", query, &name).await?;
    Ok(found.map(|row| row.get(0)))
}

/// Checks the publication and creates nothing.
pub(crate) async fn found(
    sql: &Sql,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Result<String, RelayError> {
    let name = &config.publication;
    let row = sql
        .opt(
            "reading the publication",
            "select puballtables, pubinsert, pubviaroot from pg_publication where pubname = $1",
            &[(name, Type::TEXT)],
        )
        .await?;
    let Some(row) = row else {
        let has_moves = relations::movable(sql, config, router).await?.is_some();
        may_create(sql, config, has_moves).await?;
        row_filter::readable(sql, config).await?;
        creatable(sql, config, has_moves).await?;
        return Ok(format!("{name:?} will be created"));
    };
    if !row.get::<_, bool>(1) {
        return Err(RelayError::prerequisite(
            format!("publication {name:?} does not publish inserts"),
            format!("run `alter publication {} set (publish = 'insert')`", quote_identifier(name)),
        ));
    }
    for table in &config.tables {
        named_as_published(sql, name, row.get(2), table).await?;
    }
    if row.get(0) {
        row_filter::agrees(sql, config).await?;
        return Ok(format!("{name:?}, for all tables"));
    }
    for table in &config.tables {
        published(sql, name, table).await?;
    }
    let rows = row_filter::agrees(sql, config).await?;
    let signals = match &config.signal_table {
        Some(table) if published(sql, name, table).await.is_err() => {
            format!("; it does not contain {table}, so that a signal there is seen by nobody")
        }
        _ => String::new(),
    };
    Ok(format!("{name:?}{rows}{signals}"))
}

/// Rows of a partitioned table come under the name of the root or of the
/// partition, as the publication has it: only the one that is listed in
/// `tables` would be an event.
async fn named_as_published(
    sql: &Sql,
    name: &str,
    via_root: bool,
    table: &TableName,
) -> Result<(), RelayError> {
    let row = sql
        .opt(
            "reading the outbox table's kind",
            "select relkind = 'p', relispartition from pg_class where oid = to_regclass($1)",
            &[(&table.quoted(), Type::TEXT)],
        )
        .await?;
    let Some(row) = row else { return Ok(()) };
    let (partitioned, partition): (bool, bool) = (row.get(0), row.get(1));
    if partitioned && !via_root {
        return Err(RelayError::prerequisite(
            format!(
                "table {table} is partitioned, and publication {name:?} publishes its rows under \
                 the names of the partitions"
            ),
            format!(
                "run `alter publication {} set (publish_via_partition_root = true)`",
                quote_identifier(name)
            ),
        ));
    }
    if partition && via_root {
        return Err(RelayError::prerequisite(
            format!(
                "table {table} is a partition, and publication {name:?} publishes its rows under \
                 the name of the root"
            ),
            "name the root in `tables`",
        ));
    }
    Ok(())
}

async fn published(sql: &Sql, name: &str, table: &TableName) -> Result<(), RelayError> {
    // A partition is published through its root. A root is not by its partitions:
    // their rows come under their own names, and those of others not at all.
    let row = sql
        .one(
            "reading the publication's tables",
            "with tree as (select to_regclass($2)::oid as oid \
             union select relid from pg_partition_ancestors(to_regclass($2))) \
             select exists (select from pg_publication_rel r join pg_publication p \
             on p.oid = r.prpubid where p.pubname = $1 and r.prrelid in (select oid from tree)), \
             exists (select from pg_publication_tables p join pg_namespace n \
             on n.nspname = p.schemaname join pg_class c on c.relnamespace = n.oid \
             and c.relname = p.tablename where p.pubname = $1 and c.oid in (select oid from tree))",
            &[(&name, Type::TEXT), (&table.quoted(), Type::TEXT)],
        )
        .await?;
    if row.get(0) {
        return Ok(());
    }
    if row.get(1) {
        // Nothing tells afterwards whether the schema was in it all the time.
        return Err(RelayError::prerequisite(
            format!("publication {name:?} contains outbox table {table} by its schema alone"),
            format!("run `{}`", addition(name, table)),
        ));
    }
    Err(RelayError::prerequisite(
        format!("publication {name:?} does not contain outbox table {table} itself"),
        format!("run `{}`", addition(name, table)),
    ))
}

/// A table that was in no publication of the pipeline, and what was done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublishedTable {
    /// Its name.
    pub table: TableName,
    /// Adds it to the publication.
    pub statement: String,
    /// Why it is not in the publication yet; none if it was added.
    pub problem: Option<String>,
}

/// Adds the pipeline's tables to its publication, if that exists and is not for all
/// tables. Those that it already has are not returned.
///
/// # Errors
/// [`RelayError`] for a statement that fails, except for a missing right.
pub async fn publish_tables(
    database: &Database,
    config: &RelayConfig,
) -> Result<Vec<PublishedTable>, RelayError> {
    let (client, _) = database.connect_to_one().await?;
    let sql = Sql::new(Arc::new(client), Duration::from_millis(config.statement_timeout_ms));
    let name = &config.publication;
    let query = "select puballtables from pg_publication where pubname = $1";
    let row = sql.opt("looking for the publication", query, &[(name, Type::TEXT)]).await?;
    if row.is_none_or(|row| row.get(0)) {
        return Ok(Vec::new());
    }
    let mut done = Vec::new();
    for table in &config.tables {
        let exists = rights::reach(&sql, table).await?.is_some();
        if exists && published(&sql, name, table).await.is_ok() {
            continue;
        }
        let statement = addition(name, table);
        let problem = match exists {
            false => Some("it does not exist".to_owned()),
            true => refused(sql.query("adding to the publication", &statement, &[]).await)?,
        };
        done.push(PublishedTable { table: table.clone(), statement, problem });
    }
    Ok(done)
}

/// What an owner has to do instead.
fn refused<T>(added: Result<T, RelayError>) -> Result<Option<String>, RelayError> {
    match added {
        Ok(_) => Ok(None),
        Err(RelayError::Sql { source, .. })
            if source.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) =>
        {
            Ok(Some("that takes the owner of the table and of the publication".to_owned()))
        }
        Err(error) => Err(error),
    }
}

fn addition(publication: &str, table: &TableName) -> String {
    format!("alter publication {} add table {}", quote_identifier(publication), table.quoted())
}

async fn create(sql: &Sql, config: &RelayConfig, has_moves: bool) -> Result<(), RelayError> {
    may_create(sql, config, has_moves).await?;
    row_filter::readable(sql, config).await?;
    create_now(sql, config, has_moves).await?;
    tracing::info!(publication = config.publication, "publication created");
    Ok(())
}

async fn create_now(sql: &Sql, config: &RelayConfig, has_moves: bool) -> Result<(), RelayError> {
    // One statement, whatever the filter holds.
    let creation = creation(config, has_moves);
    let created = sql.query("creating the publication", &creation, &[]).await;
    created.map(drop).map_err(|error| row_filter::unfit(error, config.row_filter.as_deref()))
}

/// The server takes the statement that creates it, which is rolled back. Of a table
/// that does not exist others tell.
async fn creatable(sql: &Sql, config: &RelayConfig, has_moves: bool) -> Result<(), RelayError> {
    for table in &config.tables {
        if rights::reach(sql, table).await?.is_none() {
            return Ok(());
        }
    }
    let attempt = "trying to create the publication";
    sql.batch(attempt, "begin").await?;
    let created = create_now(sql, config, has_moves).await;
    created.and(sql.batch(attempt, "rollback").await)
}

/// It takes the right to create in the database, and the tables themselves.
async fn may_create(sql: &Sql, config: &RelayConfig, has_moves: bool) -> Result<(), RelayError> {
    let (name, statement) = (&config.publication, creation(config, has_moves));
    if !config.create_publication {
        return Err(RelayError::prerequisite(
            format!("publication {name:?} does not exist"),
            format!("run `{statement}`, or set create_publication = true"),
        ));
    }
    let query = "select current_user::text, has_database_privilege(current_database(), 'create')";
    let row = sql.one("reading the rights on the database", query, &[]).await?;
    let role = quote_identifier(row.get(0));
    let mut missing = Vec::new();
    if !row.get::<_, bool>(1) {
        missing.push("may not create in this database".to_owned());
    }
    for table in &config.tables {
        if rights::reach(sql, table).await?.is_some_and(|reach| !reach.owns) {
            missing.push(format!("does not own {table}"));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!(
            "publication {name:?} does not exist, and role {role} cannot create it: it {}",
            missing.join(", and ")
        ),
        format!("let the owner of the tables, or a superuser, run `{statement}`"),
    ))
}

/// With deletes where these tell rows that are moved from new ones.
fn creation(config: &RelayConfig, has_moves: bool) -> String {
    let name = quote_identifier(&config.publication);
    let rows = config.row_filter.as_ref().map(|filter| format!(" where ({filter})"));
    let rows = rows.unwrap_or_default();
    let tables = config.tables.iter().map(|table| format!("{}{rows}", table.quoted()));
    // Signals have no rows of an outbox.
    let tables: Vec<String> =
        tables.chain(config.signal_table.as_ref().map(TableName::quoted)).collect();
    let of_tables =
        if tables.is_empty() { String::new() } else { format!(" for table {}", tables.join(", ")) };
    format!(
        "create publication {name}{of_tables} with (publish = '{}', \
         publish_via_partition_root = {})",
        if has_moves { "insert, delete" } else { "insert" },
        config.publish_via_partition_root
    )
}
