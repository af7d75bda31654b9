//! What retention needs of an outbox table, all of it told at once.

use super::{removal, told};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    recovery,
    sql::Sql,
};

/// Refuses a table that lacks any of it, with what to do about each.
pub(super) async fn met(
    sql: &Sql,
    relay: &RelayConfig,
    table: &TableName,
    id_column: &str,
    keep_days: u32,
    columns: &[String],
) -> Result<(), RelayError> {
    let mut lacks: Vec<(String, String)> = Vec::new();
    let has = |name: &str| columns.iter().any(|column| column == name);
    if !has("created_at") {
        lacks.push((
            format!("table {table} has no column created_at, by which rows get old"),
            format!(
                "run `alter table {} add column created_at timestamptz not null default \
                 clock_timestamp()`",
                table.quoted()
            ),
        ));
    }
    if !has(id_column) {
        lacks.push((
            format!("table {table} has no column {id_column:?}, which router.event_id names"),
            format!("name in router.event_id the column of the id; it has {}", columns.join(", ")),
        ));
    }
    let told = told::arrived(sql, relay, table, keep_days).await;
    let has_xid = recovery::columns(sql, table).await?.has_xid;
    let says_so_itself = matches!(told, Ok(Some(_))) && told::is_plain(sql, table).await?;
    if !has_xid && !says_so_itself {
        lacks.push(removal::tells_nothing(table));
    }
    match told {
        Err(RelayError::Prerequisite { problem, remedy }) => lacks.push((problem, remedy)),
        told => drop(told?),
    }
    if lacks.is_empty() {
        return Ok(());
    }
    let (problems, remedies): (Vec<String>, Vec<String>) = lacks.into_iter().unzip();
    Err(RelayError::prerequisite(problems.join("; "), remedies.join("; ")))
}
