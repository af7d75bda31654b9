//! Whether the id of a polled row is of that row alone: a row is claimed, locked and
//! marked by it.

use tokio_postgres::types::Type;

use super::PollingConfig;
use crate::{config::TableName, error::RelayError, sql::Sql, wal::quote_identifier};

/// Whether a column of a table is declared not null, and unique.
pub(crate) async fn declared(
    sql: &Sql,
    table: &TableName,
    column: &str,
) -> Result<(bool, bool), RelayError> {
    let attempt = "looking for a unique index on the id of the outbox table";
    let text = "select a.attnotnull, exists (select from pg_index i \
                where i.indrelid = a.attrelid and i.indisunique and i.indisvalid \
                and i.indimmediate and i.indpred is null and i.indexprs is null \
                and exists (select from generate_series(0, i.indnkeyatts - 1) k(at) \
                where i.indkey[k.at] = a.attnum) and not exists ( \
                select from generate_series(0, i.indnkeyatts - 1) k(at) \
                where i.indkey[k.at] <> a.attnum and not coalesce(( \
                select i.indkey[k.at] = any (p.partattrs) from pg_partitioned_table p \
                where p.partrelid = a.attrelid), false))) \
                from pg_attribute a where a.attrelid = to_regclass($1) and a.attname = $2";
    let quoted = table.quoted();
    let parameters = [(&quoted as _, Type::TEXT), (&column as _, Type::TEXT)];
    let row = sql.one(attempt, text, &parameters).await?;
    Ok((row.get(0), row.get(1)))
}

/// Refuses a table in which several rows may have one id, or none: all of them would
/// be marked when one is sent. A partitioned table may have its key of partitions in
/// the index as well, as PostgreSQL asks for.
pub(super) async fn check(
    sql: &Sql,
    table: &TableName,
    polling: &PollingConfig,
) -> Result<(), RelayError> {
    let (quoted, id) = (table.quoted(), &polling.id_column);
    let (is_not_null, is_unique) = declared(sql, table, id).await?;
    if is_not_null && is_unique {
        return Ok(());
    }
    let column = quote_identifier(id);
    let (lacks, ddl) = match (is_unique, is_not_null) {
        (false, _) => ("unique", format!("alter table {quoted} add primary key ({column})")),
        (true, _) => ("not null", format!("alter table {quoted} alter {column} set not null")),
    };
    Err(RelayError::prerequisite(
        format!(
            "column {id:?} of {table} is not declared {lacks}; several rows of one id would all \
             count as published when one of them is sent"
        ),
        format!("let its owner run `{ddl}`, or name another column in polling.id_column"),
    ))
}
