//! Runs the statements of a poller on one row, and undoes them: whatever they cannot
//! do is known before an event is sent that could not be marked as published.

use std::{collections::HashMap, time::Duration};

use tokio_postgres::{error::SqlState, types::Type};
use walpost_event::error_chain;
use walpost_postgres::Database;

use super::PollingConfig;
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    polling::{
        gate::Gate,
        requeue::{self, Requeue},
        table::{Noted, PolledTable, polled},
        verdict::Verdict,
    },
    sql::Sql,
    wal::{quote_identifier, quote_literal, snapshot::SESSION_SETTINGS},
};

/// Has the columns of an outbox table, their types and its constraints of rows.
const CLONE: &str = "pg_temp.walpost_trial";

/// Refuses a table on which a statement of a poller fails.
///
/// # Errors
/// [`RelayError::Prerequisite`] with the column or the statement.
pub(super) async fn run(
    sql: &Sql,
    database: &Database,
    config: &RelayConfig,
    polling: &PollingConfig,
    types: &HashMap<String, String>,
) -> Result<(), RelayError> {
    let begin = format!("begin isolation level read committed; {SESSION_SETTINGS}");
    sql.batch("beginning a trial of the statements", &begin).await?;
    let tried = attempts(sql, database, config, polling, types).await;
    let undone = sql.batch("undoing the trial of the statements", "rollback").await;
    tried.and(undone)
}

async fn attempts(
    sql: &Sql,
    database: &Database,
    config: &RelayConfig,
    polling: &PollingConfig,
    types: &HashMap<String, String>,
) -> Result<(), RelayError> {
    let table = polled(config)?;
    not_null(sql, table, polling).await?;
    values(sql, table, polling, types).await?;
    let statements = Box::pin(statements(sql, database, config, polling));
    statements.await.map_err(|error| unfit(table, error))
}

/// What is written as NULL may be NULL.
async fn not_null(sql: &Sql, table: &TableName, polling: &PollingConfig) -> Result<(), RelayError> {
    let mut nulls = vec![("polling.last_error_column", &polling.last_error_column)];
    if polling.pending_value.is_empty() {
        nulls.push(("polling.status_column", &polling.status_column));
    }
    let attempt = "reading the outbox table's columns";
    let text = "select attnotnull from pg_attribute where attrelid = to_regclass($1) \
                and attname = $2 and not attisdropped";
    for (key, column) in nulls {
        let parameters = [(&table.quoted() as _, Type::TEXT), (column as _, Type::TEXT)];
        let row = sql.opt(attempt, text, &parameters).await?;
        if row.is_some_and(|row| row.get(0)) {
            return Err(RelayError::prerequisite(
                format!("column {column:?} of {table}, which {key} names, does not take NULL"),
                format!(
                    "run `alter table {} alter {} drop not null`, or name another column",
                    table.quoted(),
                    quote_identifier(column)
                ),
            ));
        }
    }
    Ok(())
}

/// The column of states takes its values: their type, length and constraints.
async fn values(
    sql: &Sql,
    table: &TableName,
    polling: &PollingConfig,
    types: &HashMap<String, String>,
) -> Result<(), RelayError> {
    let kind = types.get(&polling.status_column).map_or("text", String::as_str);
    let has_clone = clone(sql, table).await?;
    let status = quote_identifier(&polling.status_column);
    for (key, value) in [
        ("pending_value", &polling.pending_value),
        ("published_value", &polling.published_value),
        ("failed_value", &polling.failed_value),
    ] {
        if value.is_empty() {
            continue;
        }
        let literal = quote_literal(value);
        let text = match has_clone {
            true => format!("insert into {CLONE} ({status}) values ({literal})"),
            false => format!("select {literal}::{kind}"),
        };
        let attempt = "looking whether the column of states takes a value";
        let Err(error) = undone(sql, attempt, sql.query(attempt, &text, &[])).await else {
            continue;
        };
        let is_of_data = |code: &SqlState| matches!(code.code().get(..2), Some("22" | "23"));
        if !matches!(&error, RelayError::Sql { source, .. } if source.code().is_some_and(is_of_data))
        {
            return Err(error);
        }
        return Err(RelayError::prerequisite(
            format!(
                "column {:?} of {table} has type {kind} and does not take polling.{key}, \
                 {value:?}: {}",
                polling.status_column,
                error_chain(&error)
            ),
            format!("set polling.{key} to a value of the column; {}", forms(kind)),
        ));
    }
    Ok(())
}

/// How states of a type are configured.
fn forms(kind: &str) -> &'static str {
    match kind {
        "boolean" => {
            "for a boolean that is true once a row is published: pending_value = \"false\", \
             published_value = \"true\", failed_value = \"\""
        }
        kind if kind.starts_with("timestamp") || kind == "date" => {
            "for a time that is NULL until a row is published: pending_value = \"\", \
             published_value = \"\", failed_value = \"\""
        }
        _ => "failed_value = \"\" if it has none for rows that were given up",
    }
}

/// Makes an empty table like the outbox table, in which a row may have its state
/// alone; false if the role may not.
async fn clone(sql: &Sql, table: &TableName) -> Result<bool, RelayError> {
    let attempt = "looking at the constraints of the outbox table";
    let right = "select has_database_privilege(current_database(), 'temporary')";
    if !sql.one(attempt, right, &[]).await?.get::<_, bool>(0) {
        return Ok(false);
    }
    let like = format!(
        "create temporary table walpost_trial (like {} including constraints)",
        table.quoted()
    );
    sql.batch(attempt, &like).await?;
    let columns = "select attname::text from pg_attribute where attrelid = to_regclass($1) \
                   and attnum > 0 and attnotnull and not attisdropped";
    let rows = sql.query(attempt, columns, &[(&CLONE, Type::TEXT)]).await?;
    let drops: Vec<String> = rows
        .iter()
        .map(|row| format!("alter {} drop not null", quote_identifier(row.get(0))))
        .collect();
    if !drops.is_empty() {
        sql.batch(attempt, &format!("alter table {CLONE} {}", drops.join(", "))).await?;
    }
    Ok(true)
}

/// Claims a row if one is pending, and runs on it everything that could follow.
async fn statements(
    sql: &Sql,
    database: &Database,
    config: &RelayConfig,
    polling: &PollingConfig,
) -> Result<(), RelayError> {
    let attempt = "trying the statements of a claim";
    let mut table =
        PolledTable::open(database, sql.session(), config, polling, &Gate::Relays).await?;
    let heads = table.heads(None, 1).await?;
    let after = table.window_end(None).await?;
    if let Some(after) = &after {
        table.heads(Some(after), 1).await?;
        table.window_end(Some(after)).await?;
    }
    table.rows(&heads).await?;
    let ids: Vec<&str> = heads.iter().map(String::as_str).collect();
    undone(sql, attempt, async {
        table.publish(&ids).await?;
        table.forget(&ids).await?;
        // Constraints and triggers that wait for the end of the transaction.
        sql.batch("marking a row as published", "set constraints all immediate").await
    })
    .await?;
    for failed in [false, true] {
        let noted: Vec<Noted> = heads.iter().map(|id| note(id, failed)).collect();
        undone(sql, attempt, async {
            table.fail(&noted).await?;
            let which = Requeue::Ids(heads.clone());
            requeue::once(sql, config, polling, &which, false).await?;
            sql.batch("noting failed attempts", "set constraints all immediate").await
        })
        .await?;
    }
    table.sight().await.map(drop)
}

fn note(id: &str, failed: bool) -> Noted {
    let verdict = Verdict { attempts: 1, refused: 1, wait: Duration::from_secs(1), failed };
    Noted { id: id.to_owned(), verdict, error: "a trial of `walpost check`".to_owned() }
}

/// Runs statements and undoes them, whether they fail or not.
async fn undone<T>(
    sql: &Sql,
    attempt: &'static str,
    statements: impl Future<Output = Result<T, RelayError>>,
) -> Result<(), RelayError> {
    sql.batch(attempt, "savepoint walpost_trial").await?;
    let outcome = statements.await;
    sql.batch(attempt, "rollback to savepoint walpost_trial").await?;
    outcome.map(drop)
}

/// What fails by itself will fail again.
fn unfit(table: &TableName, error: RelayError) -> RelayError {
    if error.is_transient() || !matches!(error, RelayError::Sql { .. }) {
        return error;
    }
    RelayError::prerequisite(
        format!("table {table} cannot be polled as [polling] has it: {}", error_chain(&error)),
        "correct the columns and values of [polling], or the constraint, trigger or right that \
         the server names; `walpost check` tries the same",
    )
}
