//! Who reads an outbox table, and what each has proven of it.

use tokio_postgres::types::Type;

use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::Sql,
    wal::quote_identifier,
};

/// A pipeline of another cluster proves nothing here, and one that does not say
/// what it reads may read this table.
const READERS: &str = "select c.pipeline, \
        case when c.system_id = s.system_identifier::text then c.proven ->> 'snapshot' end \
    from pg_control_system() s, SCHEMA.checkpoint c \
    where c.tables is null or exists (select from unnest(c.tables) t (name) \
        where to_regclass(t.name) in (select to_regclass($1) union select relid from pg_partition_tree(to_regclass($1)) \
            union select relid from pg_partition_ancestors(to_regclass($1)))) \
    order by c.pipeline";

/// The snapshots that every pipeline of the table has proven.
pub(crate) async fn proven_by_all(
    sql: &Sql,
    relay: &RelayConfig,
    table: &TableName,
) -> Result<Vec<String>, RelayError> {
    let schema = quote_identifier(&relay.schema);
    let name = [(&table.quoted() as _, Type::TEXT)];
    let query = READERS.replace("SCHEMA", &schema);
    let rows = sql.query("reading what is proven", &query, &name).await?;
    if rows.is_empty() {
        return Err(RelayError::prerequisite(
            format!("no pipeline has read table {table} yet, so nothing of it is published"),
            "start one with `walpost run`, and see it with `walpost status`",
        ));
    }
    let snapshot = |row: &tokio_postgres::Row| {
        row.get::<_, Option<String>>(1).ok_or_else(|| {
            let pipeline: &str = row.get(0);
            RelayError::prerequisite(
                format!("pipeline {pipeline:?} has proven nothing of table {table} yet"),
                format!(
                    "start it, and try again a few seconds later; if it is gone for good, delete \
                     its row in {schema}.checkpoint"
                ),
            )
        })
    };
    rows.iter().map(snapshot).collect()
}
