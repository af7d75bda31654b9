//! Rows say themselves that they are published, for those who look at the table.

use std::{sync::Arc, time::Duration};

use tokio_postgres::{error::SqlState, types::Type};
use walpost_event::error_chain;
use walpost_postgres::Database;

use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    event_id::printed,
    recovery,
    retention::{By, Reach, leaves, proven_by_all},
    sql::Sql,
    status::{Phase, StatusReporter},
    wal::{
        quote_identifier,
        rights::{self, Of, Right},
        row_filter,
        snapshot::PRINTING,
    },
};

/// What marking sets.
const MARK: &str = "status = 'published', published_at = clock_timestamp()";
/// Rows of one transaction.
const BATCH_ROWS: u64 = 1_000;
/// Between two looks for rows to mark, and after one that went wrong.
const INTERVAL: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(10);

/// Marks the rows that every pipeline has proven to be published, for ever,
/// while this one streams.
pub(crate) async fn run(
    database: Database,
    config: RelayConfig,
    id_column: String,
    status: StatusReporter,
) {
    loop {
        let mut wait = INTERVAL;
        if status.current().phase == Phase::Streaming
            && let Err(error) = session(&database, &config, &id_column, &status).await
        {
            tracing::warn!(
                error = error_chain(&error),
                "published rows are not marked for the moment"
            );
            wait = RETRY;
        }
        tokio::time::sleep(wait).await;
    }
}

/// Marks as long as the pipeline streams, on a session of its own.
async fn session(
    database: &Database,
    config: &RelayConfig,
    id_column: &str,
    status: &StatusReporter,
) -> Result<(), RelayError> {
    let (client, _) = database.connect_to_one().await?;
    let sql = Sql::new(Arc::new(client), Duration::from_millis(config.statement_timeout_ms));
    let settings = format!("{PRINTING}; set lock_timeout = '1s'; set synchronous_commit = off");
    sql.batch("setting up the session", &settings).await?;
    while status.current().phase == Phase::Streaming {
        for table in &config.tables {
            for leaf in leaves(&sql, table).await? {
                while mark_if_there(&sql, config, table, &leaf.reach, id_column).await?
                    == BATCH_ROWS
                {}
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(())
}

/// A partition may have left since it was found.
async fn mark_if_there(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
    reach: &Reach,
    id_column: &str,
) -> Result<u64, RelayError> {
    match mark(sql, config, table, reach, id_column).await {
        Err(RelayError::Sql { source, .. })
            if source.code() == Some(&SqlState::UNDEFINED_TABLE) =>
        {
            Ok(0)
        }
        marked => marked,
    }
}

/// One transaction; how many rows it has marked of one of the tables that hold
/// those of `table`.
async fn mark(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
    reach: &Reach,
    id_column: &str,
) -> Result<u64, RelayError> {
    let proven = proven_by_all(sql, config, table, By::Xid).await?;
    let own = row_filter::condition(sql, config, table).await?;
    let own = own.map(|own| format!(" and {own}")).unwrap_or_default();
    let Reach { from, only } = reach;
    let id = printed(&format!("o.{}", quote_identifier(id_column)));
    let of_those = format!(
        "from {from} o where o.published_at is null and {proven}{own}{only} \
         and not exists (select from {}.parked p \
             where p.event_id = {id} and p.state <> 'done')",
        quote_identifier(&config.schema),
    );
    // Without a lock on partitions that have none, which may be about to leave.
    let any = format!("select exists (select {of_those})");
    if !sql.one("looking for published rows", &any, &[]).await?.get::<_, bool>(0) {
        return Ok(0);
    }
    let statement = format!(
        "with due as materialized (select o.ctid as place {of_those} \
             order by o.seq limit {BATCH_ROWS} for update of o skip locked), \
         marked as (update {from} o set {MARK} \
             where o.ctid = any (array(select place from due)){only} returning 1) \
         select count(*) from marked"
    );
    let row = sql.one("marking published rows", &statement, &[]).await?;
    Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or(0))
}

/// What marking needs of a table, and of the publication.
pub(crate) async fn possible(sql: &Sql, config: &RelayConfig) -> Result<(), RelayError> {
    for table in &config.tables {
        of_table(sql, table).await?;
        rights::seen_whole(sql, table, Of::Partitions).await?;
        tried(sql, table).await?;
    }
    let query = "select coalesce(bool_or(pubupdate), false) from pg_publication where pubname = $1";
    let name = [(&config.publication as _, Type::TEXT)];
    if !sql.one("reading the publication", query, &name).await?.get::<_, bool>(0) {
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!(
            "publication {:?} publishes updates, and mark_published updates every row",
            config.publication
        ),
        format!(
            "set mark_published = false, or run `alter publication {} set (publish = 'insert')`; \
             the start behind that asks for `walpost slot recover`, which repeats nothing",
            quote_identifier(&config.publication)
        ),
    ))
}

/// The server takes the update, which is run on no row and rolled back: the role has
/// the right, and the columns take the values.
async fn tried(sql: &Sql, table: &TableName) -> Result<(), RelayError> {
    let quoted = table.quoted();
    let reach = rights::reach(sql, table).await?;
    if let Some(grant) = reach.and_then(|reach| reach.grant(&[Right::Update])) {
        return Err(RelayError::prerequisite(
            format!("the role may not update table {table}, which mark_published does"),
            format!("let its owner run `{grant}`, or set mark_published = false"),
        ));
    }
    let attempt = "trying to mark published rows";
    let update = format!("begin; update {quoted} set {MARK} where false");
    let updated = sql.batch(attempt, &update).await;
    sql.batch(attempt, "rollback").await?;
    match updated {
        Err(error) if !error.is_transient() => Err(RelayError::prerequisite(
            format!("rows of table {table} cannot be marked: {}", error_chain(&error)),
            "give status and published_at types that take 'published' and a time, or set \
             mark_published = false",
        )),
        updated => updated,
    }
}

async fn of_table(sql: &Sql, table: &TableName) -> Result<(), RelayError> {
    let columns = recovery::columns(sql, table).await?;
    let query = "select \
            count(*) filter (where attname in ('status', 'published_at')) = 2, \
            exists (select from pg_index where indrelid = to_regclass($1) \
                and pg_get_expr(indpred, indrelid) = '(published_at IS NULL)') \
        from pg_attribute where attrelid = to_regclass($1) and attnum > 0 and not attisdropped";
    let quoted = table.quoted();
    let name = [(&quoted as _, Type::TEXT)];
    let row = sql.one("reading the outbox table's columns", query, &name).await?;
    let mut steps = Vec::new();
    if !columns.has_xid || !columns.has_seq {
        steps.push(recovery::add_columns(table));
    }
    if !row.get::<_, bool>(0) {
        steps.push(format!(
            "alter table {quoted} add column status text, add column published_at timestamptz"
        ));
    }
    if !row.get::<_, bool>(1) {
        steps.push(format!("create index on {quoted} (seq) where published_at is null"));
    }
    if steps.is_empty() {
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!(
            "table {table} has not all that mark_published needs: columns xid, seq, status and \
             published_at, and an index of the rows where published_at is null"
        ),
        format!("run `{}`, or set mark_published = false", steps.join("; ")),
    ))
}
