//! Whether the columns of the insert order can be one, and whether every row has a
//! state.

use tokio_postgres::types::Type;

use super::{CheckResult, Outcome, PollingConfig};
use crate::{config::TableName, error::RelayError, sql::Sql, wal::quote_identifier};

/// Warns of a column in which a row may have NULL, on which a start or a claim fails
/// then, and of one that has the start of the transaction by default: a transaction
/// that began first may write last.
pub(super) async fn check(
    sql: &Sql,
    table: &TableName,
    polling: &PollingConfig,
) -> Result<Vec<CheckResult>, RelayError> {
    if polling.aggregate_columns.is_empty() {
        return Ok(Vec::new());
    }
    let text = "select attname::text, attnotnull, \
                coalesce(pg_get_expr(adbin, adrelid), '') ~* \
                '^\\(*(now\\(\\)|transaction_timestamp\\(\\)|current_timestamp|localtimestamp)' \
                from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum \
                where attrelid = to_regclass($1) and attname = any ($2) and not attisdropped";
    let (quoted, order) = (table.quoted(), &polling.order_columns);
    let parameters = [(&quoted as _, Type::TEXT), (order as _, Type::TEXT_ARRAY)];
    let rows = sql.query("reading the columns of the insert order", text, &parameters).await?;
    let mut results = Vec::new();
    for row in &rows {
        let (column, is_not_null, is_of_transaction): (&str, bool, bool) =
            (row.get(0), row.get(1), row.get(2));
        let alter = format!("alter table {quoted} alter {}", quote_identifier(column));
        if !is_not_null {
            results.push(warn(
                format!(
                    "column {column:?} of {table}, which polling.order_columns names, may be \
                     NULL: a pending row with NULL there ends the relay"
                ),
                format!("run `{alter} set not null`"),
            ));
        }
        if is_of_transaction {
            results.push(warn(
                format!(
                    "column {column:?} of {table}, which polling.order_columns names, has the \
                     start of the transaction by default: rows of one aggregate may be published \
                     in another order than they were inserted"
                ),
                format!(
                    "name a sequence in polling.order_columns, or run `{alter} set default \
                     clock_timestamp()`"
                ),
            ));
        }
    }
    Ok(results)
}

/// Warns of a column of states in which a row may have NULL, if that is not pending:
/// such a row is never published.
pub(super) async fn state(
    sql: &Sql,
    table: &TableName,
    polling: &PollingConfig,
) -> Result<Option<CheckResult>, RelayError> {
    let column = &polling.status_column;
    if polling.pending_value.is_empty() {
        return Ok(None);
    }
    let text = "select attnotnull from pg_attribute where attrelid = to_regclass($1) \
                and attname = $2 and not attisdropped";
    let quoted = table.quoted();
    let parameters = [(&quoted as _, Type::TEXT), (column as _, Type::TEXT)];
    let row = sql.opt("reading the column of states", text, &parameters).await?;
    let may_be_null = row.is_some_and(|row| !row.get::<_, bool>(0));
    Ok(may_be_null.then(|| CheckResult {
        name: "states",
        ..warn(
            format!(
                "column {column:?} of {table}, which polling.status_column names, may be NULL: \
                 such a row is never published"
            ),
            format!(
                "run `alter table {quoted} alter {} set not null`, or set \
                 polling.pending_value = \"\" if NULL means pending",
                quote_identifier(column)
            ),
        )
    }))
}

fn warn(detail: String, next_step: String) -> CheckResult {
    let (name, outcome) = ("insert order", Outcome::Warn);
    CheckResult { name, outcome, detail, next_step: Some(next_step) }
}
