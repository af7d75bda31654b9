//! What retention needs the role to be allowed, looked at before the first row
//! goes.

use tokio_postgres::types::Type;
use walpost_postgres::Database;

use super::{RetentionConfig, archive_of, connect, prepare, takes_nulls};
use crate::{
    check::{self, CheckResult, Outcome},
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::Sql,
    wal::{
        quote_identifier,
        rights::{Of, seen_whole},
    },
};

/// Of a table, through which its partitions are reached too, the rights that are
/// missing.
const MISSING: &str = "\
    select n.nspname::text, c.relname::text, \
        string_agg(needed, ', ' order by place), current_user::text \
    from pg_class c join pg_namespace n on n.oid = c.relnamespace, \
        unnest($2::text[]) with ordinality as need (needed, place) \
    where c.oid = to_regclass($1) and not has_table_privilege(c.oid, needed) group by 1, 2";

/// Whether [`prune`](crate::prune) would do its work: the tables, the archives
/// and the rights. Changes nothing. A problem is a warning, since a relay starts
/// without.
pub async fn check_retention(
    database: &Database,
    relay: &RelayConfig,
    id_column: &str,
    retention: &RetentionConfig,
) -> CheckResult {
    let name = "retention";
    match possible(database, relay, id_column, retention).await {
        Ok(detail) => CheckResult { name, outcome: Outcome::Ok, detail, next_step: None },
        Err(error) => CheckResult { outcome: Outcome::Warn, ..check::failed(name, &error) },
    }
}

async fn possible(
    database: &Database,
    relay: &RelayConfig,
    id_column: &str,
    retention: &RetentionConfig,
) -> Result<String, RelayError> {
    let sql = connect(database, relay).await?;
    expect(&sql, relay, retention).await?;
    for table in &relay.tables {
        prepare(&sql, relay, table, id_column, retention).await?;
        if retention.archive_days > 0 {
            takes_nulls(&sql, table).await?;
        }
    }
    let RetentionConfig { keep_days, archive_days, .. } = retention;
    let behind = match archive_days {
        0 => String::new(),
        days => format!(", and the archive {days} days later"),
    };
    Ok(format!("published rows leave after {keep_days} days{behind}"))
}

/// That the role has every right.
pub(super) async fn expect(
    sql: &Sql,
    relay: &RelayConfig,
    retention: &RetentionConfig,
) -> Result<(), RelayError> {
    let parked = TableName { schema: relay.schema.clone(), name: "parked".to_owned() };
    let mut needed = vec![(parked, vec!["select", "delete"])];
    for table in &relay.tables {
        needed.push((table.clone(), vec!["select", "update", "delete"]));
        if retention.archive_days > 0 {
            needed.push((archive_of(table), vec!["select", "insert", "update", "delete"]));
        }
    }
    for (table, rights) in &needed {
        let parameters = [(&table.quoted() as _, Type::TEXT), (rights as _, Type::TEXT_ARRAY)];
        let row = sql.opt("looking at the rights", MISSING, &parameters).await?;
        if let Some(row) = row {
            let (schema, name): (&str, &str) = (row.get(0), row.get(1));
            let (missing, role): (&str, &str) = (row.get(2), row.get(3));
            let (table, grantee) = (
                format!("{}.{}", quote_identifier(schema), quote_identifier(name)),
                quote_identifier(role),
            );
            return Err(RelayError::prerequisite(
                format!("role {role:?} lacks the right to {missing} on table {schema}.{name}"),
                format!("run `grant {missing} on {table} to {grantee}`"),
            ));
        }
        seen_whole(sql, table, Of::Partitions).await?;
    }
    Ok(())
}
