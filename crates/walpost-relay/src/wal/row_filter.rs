//! Which rows of the outbox tables are the pipeline's. The publication says so,
//! since the server decodes with it; whoever reads rows from a table asks it for
//! the same condition.

use std::{sync::Arc, time::Duration};

use tokio_postgres::{error::SqlState, types::Type};
use walpost_event::error_chain;

use walpost_postgres::Database;

use super::{preflight::Server, quote_identifier};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    moves::history,
    sql::Sql,
};

/// The oldest server whose publications have row filters.
const SERVER_VERSION_MIN: u32 = 150_000;

/// The server knows row filters, where the pipeline has one.
pub(crate) fn supported(server: &Server, config: &RelayConfig) -> Result<(), RelayError> {
    if config.row_filter.is_none() { Ok(()) } else { known(server) }
}

/// The server knows row filters.
pub(crate) fn known(server: &Server) -> Result<(), RelayError> {
    if server.version >= SERVER_VERSION_MIN {
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!("row_filter is set, and the server is {}", server.version_text()),
        "row filters need PostgreSQL 15 or newer; upgrade, or let one pipeline publish the whole \
         table",
    ))
}

/// The rows of a table that the publication is limited to, as the server
/// spells it.
pub(crate) async fn of_publication(
    sql: &Sql,
    publication: &str,
    table: &TableName,
) -> Result<Option<String>, RelayError> {
    #[cfg(test)]
    if let Some(server) = sql.simulation() {
        return server.filter(publication).await;
    }
    // PostgreSQL 14 has no such column.
    let query = "select to_jsonb(p) ->> 'rowfilter' from pg_publication_tables p \
                 where pubname = $1 and schemaname = $2 and tablename = $3";
    let names = [
        (&publication as _, Type::TEXT),
        (&table.schema as _, Type::TEXT),
        (&table.name as _, Type::TEXT),
    ];
    let row = sql.opt("reading the publication's row filter", query, &names).await?;
    Ok(row.and_then(|row| row.get(0)))
}

/// The condition of the pipeline's rows in a table; none for all rows.
pub(crate) async fn condition(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
) -> Result<Option<String>, RelayError> {
    let filter = of_publication(sql, &config.publication, table).await?;
    let past = history::of_table(sql, &config.schema, table).await?;
    Ok(history::own(filter.as_deref(), &config.pipeline, &past))
}

/// The condition of a pipeline's rows in one of its tables, as SQL over its
/// columns; `None` for all rows.
///
/// # Errors
/// When the catalogue cannot be read.
pub async fn row_condition(
    database: &Database,
    config: &RelayConfig,
    table: &TableName,
) -> Result<Option<String>, RelayError> {
    let (client, _) = database.connect_to_one().await?;
    let limit = Duration::from_millis(config.statement_timeout_ms);
    condition(&Sql::new(Arc::new(client), limit), config, table).await
}

/// The same, also before there is a publication.
pub(crate) async fn condition_to_be(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
) -> Result<String, RelayError> {
    let configured = config.row_filter.as_ref().map(|filter| format!("({filter})"));
    let found = condition(sql, config, table).await?;
    Ok(found.or(configured).unwrap_or_else(|| "true".to_owned()))
}

/// The server can read the filter, of every table.
pub(crate) async fn readable(sql: &Sql, config: &RelayConfig) -> Result<(), RelayError> {
    let Some(filter) = &config.row_filter else { return Ok(()) };
    for table in &config.tables {
        spelled(sql, table, &[filter]).await?;
    }
    Ok(())
}

/// The publication has the filter that is configured. How it reads, for a
/// report.
pub(crate) async fn agrees(sql: &Sql, config: &RelayConfig) -> Result<String, RelayError> {
    let mut told = String::new();
    for table in &config.tables {
        let found = of_publication(sql, &config.publication, table).await?;
        if let Some(wanted) = &config.row_filter
            && !is_same(sql, table, wanted, found.as_deref()).await?
            && moved_since(sql, config, table, wanted, found.as_deref()).await?.is_none()
        {
            return Err(disagreement(config, table, wanted, found.as_deref()));
        }
        if let Some(found) = &found {
            told = format!(", rows where {found}");
        }
    }
    Ok(told)
}

/// What to say of a configured filter that was right until rows were moved.
pub(crate) async fn outdated(
    sql: &Sql,
    config: &RelayConfig,
) -> Result<Option<(String, String)>, RelayError> {
    let Some(wanted) = &config.row_filter else { return Ok(None) };
    for table in &config.tables {
        let found = of_publication(sql, &config.publication, table).await?;
        let Some(now) = found.filter(|found| found != wanted) else { continue };
        if is_same(sql, table, wanted, Some(&now)).await? {
            continue;
        }
        if let Some(id) = moved_since(sql, config, table, wanted, Some(&now)).await? {
            return Ok(Some((
                format!(
                    "row_filter is {wanted:?}, which the pipeline had before move {id}; the \
                     publication has {now}, and that counts"
                ),
                format!("set row_filter = {now:?}"),
            )));
        }
    }
    Ok(None)
}

/// The last move, if what is found is its doing, and what is wanted was right
/// before one.
async fn moved_since(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
    wanted: &str,
    found: Option<&str>,
) -> Result<Option<i64>, RelayError> {
    let mut past = history::of_table(sql, &config.schema, table).await?;
    past.retain(|past| past.pipeline == config.pipeline);
    let Some(last) = past.last().filter(|last| last.after.as_deref() == found) else {
        return Ok(None);
    };
    for past in &past {
        if is_same(sql, table, wanted, past.before.as_deref()).await? {
            return Ok(Some(last.id));
        }
    }
    Ok(None)
}

/// Whether both are the same condition for the server.
async fn is_same(
    sql: &Sql,
    table: &TableName,
    wanted: &str,
    found: Option<&str>,
) -> Result<bool, RelayError> {
    let Some(found) = found else { return Ok(false) };
    if wanted == found || format!("({wanted})") == found {
        return Ok(true);
    }
    let once = spelled(sql, table, &[wanted]).await?;
    if once[0] == found {
        return Ok(true);
    }
    // What the server prints it may print otherwise when it has read it again,
    // as lists of varchar.
    let again = spelled(sql, table, &[&once[0], found]).await?;
    Ok(again[0] == again[1])
}

/// Conditions over a table's columns as the server prints them: those of a
/// table that is made and given up at once, as the outbox may not be altered,
/// nor read.
pub(crate) async fn spelled(
    sql: &Sql,
    table: &TableName,
    conditions: &[&str],
) -> Result<Vec<String>, RelayError> {
    let columns = "select string_agg(format('%I %s', attname, format_type(atttypid, atttypmod)), \
                   ', ' order by attnum) from pg_attribute \
                   where attrelid = to_regclass($1) and attnum > 0 and not attisdropped";
    let name = [(&table.quoted() as _, Type::TEXT)];
    let row = sql.one("reading the outbox table's columns", columns, &name).await?;
    let columns: Option<String> = row.get(0);
    let attempt = "reading the row filter";
    sql.batch(attempt, "begin").await?;
    let spelled = spell(sql, attempt, &columns.unwrap_or_default(), conditions).await;
    sql.batch(attempt, "rollback").await?;
    spelled.map_err(|error| refused(error, table, conditions))
}

async fn spell(
    sql: &Sql,
    attempt: &'static str,
    columns: &str,
    conditions: &[&str],
) -> Result<Vec<String>, RelayError> {
    let make = format!("create temporary table walpost_row_filter ({columns})");
    sql.batch(attempt, &make).await?;
    let mut spelled = Vec::new();
    for (index, condition) in conditions.iter().enumerate() {
        // One statement each, so that the text can be nothing but a condition.
        let add = format!(
            "alter table pg_temp.walpost_row_filter add constraint c{index} check ({condition})"
        );
        sql.query(attempt, &add, &[]).await?;
        let read = format!(
            "select pg_get_expr(conbin, conrelid) from pg_constraint \
             where conrelid = 'pg_temp.walpost_row_filter'::regclass and conname = 'c{index}'"
        );
        spelled.push(sql.one(attempt, &read, &[]).await?.get(0));
    }
    Ok(spelled)
}

fn refused(error: RelayError, table: &TableName, conditions: &[&str]) -> RelayError {
    let RelayError::Sql { source, .. } = &error else { return error };
    let condition = conditions.first().copied().unwrap_or_default();
    match source.code() {
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => RelayError::prerequisite(
            format!(
                "row_filter {condition:?} is spelled otherwise than in the publication, and the \
                 role may not make a temporary table, by which the server would compare them"
            ),
            "grant it `temporary` on the database, or spell row_filter as \
             pg_publication_tables.rowfilter does",
        ),
        Some(code) if code.code().starts_with("42") || code.code().starts_with("22") => {
            RelayError::prerequisite(
                format!(
                    "row_filter {condition:?} is no condition over the columns of {table}: {}",
                    error_chain(&error)
                ),
                "mend row_filter; it is one such as tenant = 'a'",
            )
        }
        _ => error,
    }
}

/// A publication takes fewer conditions than a table does.
pub(crate) fn unfit(error: RelayError, filter: Option<&str>) -> RelayError {
    let (RelayError::Sql { source, .. }, Some(filter)) = (&error, filter) else { return error };
    // Defining a publication reads no row, so that what the server says is about the filter.
    let told = source.as_db_error().filter(|told| *told.code() == SqlState::FEATURE_NOT_SUPPORTED);
    let Some(told) = told else { return error };
    RelayError::prerequisite(
        format!(
            "no publication takes row_filter {filter:?}: {}",
            told.detail().unwrap_or_else(|| told.message())
        ),
        "compare columns with constants, by built-in operators and immutable functions; a varchar \
         column in a list as tenant::text in ('a', 'b')",
    )
}

fn disagreement(
    config: &RelayConfig,
    table: &TableName,
    wanted: &str,
    found: Option<&str>,
) -> RelayError {
    let name = &config.publication;
    let has = found.map_or("no row filter".to_owned(), |found| format!("the row filter {found}"));
    let (publication, quoted) = (quote_identifier(name), table.quoted());
    RelayError::prerequisite(
        format!("publication {name:?} has {has} for table {table}, and row_filter is {wanted:?}"),
        format!(
            "set row_filter to what the publication has; or, where the publication is another \
             pipeline's, name one of this pipeline's own, which walpost creates; or, before the \
             first start of the pipeline, run `alter publication {publication} drop table \
             {quoted}` and `alter publication {publication} add table {quoted} where ({wanted})`"
        ),
    )
}
