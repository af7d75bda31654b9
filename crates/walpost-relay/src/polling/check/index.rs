//! The partial indexes that keep a claim from reading what is published.

use tokio_postgres::types::Type;

use super::{CheckResult, Outcome, PollingConfig, ok};
use crate::{
    config::TableName, error::RelayError, polling::statements::is_unpublished, sql::Sql,
    wal::quote_identifier,
};

/// An index that a claim needs, on the rows that are not published.
struct Needed {
    suffix: &'static str,
    columns: Vec<String>,
}

fn needed(polling: &PollingConfig) -> Vec<Needed> {
    let id = &polling.id_column;
    let rest = (!polling.order_columns.contains(id)).then(|| id.clone());
    let order: Vec<String> = polling.order_columns.iter().cloned().chain(rest).collect();
    let mut needed = vec![Needed { suffix: "unpublished", columns: order.clone() }];
    if !polling.aggregate_columns.is_empty() {
        let columns = polling.aggregate_columns.iter().cloned().chain(order).collect();
        needed.push(Needed { suffix: "unpublished_aggregate", columns });
    }
    needed
}

/// A partitioned table takes no index concurrently.
fn ddl(
    table: &TableName,
    polling: &PollingConfig,
    needed: &Needed,
    is_partitioned: bool,
) -> String {
    let how = if is_partitioned { "create index" } else { "create index concurrently" };
    let columns: Vec<String> = needed.columns.iter().map(|name| quote_identifier(name)).collect();
    format!(
        "{how} {} on {} ({}) where {}",
        quote_identifier(&format!("{}_{}", table.name, needed.suffix)),
        table.quoted(),
        columns.join(", "),
        is_unpublished(&quote_identifier(&polling.status_column), polling)
    )
}

/// Whether each is there: a valid partial index that has the column of states in
/// its condition and begins with the column that the needed one begins with, or
/// has it behind the column of states.
pub(super) async fn check(
    sql: &Sql,
    table: &TableName,
    polling: &PollingConfig,
) -> Result<CheckResult, RelayError> {
    let attempt = "looking for partial indexes of the outbox table";
    let text = "select distinct a.attname::text from pg_index i join pg_attribute a \
                on a.attrelid = i.indrelid join pg_attribute s on s.attrelid = i.indrelid \
                and s.attname = $2 and a.attnum = case when i.indkey[0] = s.attnum \
                then i.indkey[1] else i.indkey[0] end \
                where i.indrelid = to_regclass($1) and i.indisvalid and i.indpred is not null \
                and position(quote_ident(s.attname) in pg_get_expr(i.indpred, i.indrelid)) > 0";
    let (quoted, status) = (table.quoted(), &polling.status_column);
    let parameters = [(&quoted as _, Type::TEXT), (status as _, Type::TEXT)];
    let rows = sql.query(attempt, text, &parameters).await?;
    let present: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let kind = "select coalesce((select relkind = 'p' from pg_class \
                where oid = to_regclass($1)), false)";
    let kind = sql.one(attempt, kind, &[(&quoted as _, Type::TEXT)]).await?;
    let is_partitioned: bool = kind.get(0);
    let missing: Vec<String> = needed(polling)
        .iter()
        .filter(|needed| !needed.columns.first().is_some_and(|first| present.contains(first)))
        .map(|needed| ddl(table, polling, needed, is_partitioned))
        .collect();
    if missing.is_empty() {
        return Ok(ok("partial index", "on rows that are not published".to_owned()));
    }
    Ok(CheckResult {
        name: "partial index",
        outcome: Outcome::Warn,
        detail: format!("{table} has none on its unpublished rows; claims read the whole table"),
        next_step: Some(format!("run `{}`", missing.join("; "))),
    })
}
