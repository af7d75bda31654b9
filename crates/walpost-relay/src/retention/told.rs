//! Rows that are told what became of their deliveries stay until those have
//! arrived.

use tokio_postgres::types::Type;

use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    event_id::printed,
    id_space,
    sql::Sql,
    wal::{quote_identifier, quote_literal},
};

/// Whether the table of marks is there, and may be read.
const MARKS: &str = "select coalesce(has_table_privilege(to_regclass($1)::oid, 'select'), true), \
    current_user::text where to_regclass($1) is not null";

/// What a mark says of an outbox, and whether the states of deliveries may be read.
const MARK: &str = "select id_column::text, status_column::text, delivered_value, \
        delivered_at_column::text, coalesce(has_column_privilege(d, 'event_id', 'select') \
            and has_column_privilege(d, 'source', 'select') \
            and has_column_privilege(d, 'state', 'select'), false), current_user::text \
    from SCHEMA.webhook_mark, (select to_regclass($2)::oid) as deliveries (d) \
    where outbox = to_regclass($1)";

/// The condition that a row of the table, `o`, says that its event arrived everywhere so
/// many days ago, and that no delivery of it is under way, held or failed; none
/// where rows of the table are told nothing.
pub(super) async fn arrived(
    sql: &Sql,
    relay: &RelayConfig,
    table: &TableName,
    keep_days: u32,
) -> Result<Option<String>, RelayError> {
    #[cfg(test)]
    if sql.simulation().is_some() {
        return Ok(None);
    }
    let schema = quote_identifier(&relay.schema);
    let attempt = "reading what rows are told";
    let marks = format!("{schema}.webhook_mark");
    let name = [(&marks as _, Type::TEXT)];
    let Some(row) = sql.opt(attempt, MARKS, &name).await? else { return Ok(None) };
    if !row.get::<_, bool>(0) {
        return Err(lacks(&marks, row.get(1)));
    }
    let deliveries = format!("{schema}.webhook_delivery");
    let names = [(&table.quoted() as _, Type::TEXT), (&deliveries as _, Type::TEXT)];
    let query = MARK.replace("SCHEMA", &schema);
    let Some(row) = sql.opt(attempt, &query, &names).await? else { return Ok(None) };
    if !row.get::<_, bool>(4) {
        return Err(lacks(&deliveries, row.get(5)));
    }
    let column = |index| row.get::<_, Option<&str>>(index).map(quote_identifier);
    let (id, status) = (column(0).unwrap_or_default(), column(1).unwrap_or_default());
    let since = column(3).map_or(String::new(), |since| {
        format!(" and o.{since} < clock_timestamp() - interval '{keep_days} days'")
    });
    Ok(Some(format!(
        "coalesce(o.{status}::text = {}{since}, false) and not exists (select from {deliveries} d \
         where d.event_id = {} and {} and d.state <> 'delivered')",
        quote_literal(row.get(2)),
        printed(&format!("o.{id}")),
        may_be_own(relay, table)
    )))
}

/// Whether delivery `d` may be of an event of the table, not of an equal id of another one.
/// Without the header of the source, deliveries have a topic in its place.
fn may_be_own(relay: &RelayConfig, table: &TableName) -> String {
    let space = id_space::of_table(relay, table);
    let or_topic = match relay.source_header {
        true => String::new(),
        false => {
            let spaces = format!("{}.id_space", quote_identifier(&relay.schema));
            format!(" or not exists (select from {spaces} s where s.id::text = d.source)")
        }
    };
    format!("(d.source in ('', coalesce({space}::text, d.source)){or_topic})")
}

fn lacks(table: &str, role: &str) -> RelayError {
    RelayError::prerequisite(
        format!(
            "role {role:?} may not read {table}, which says of which rows deliveries are under way"
        ),
        format!("run `grant select on {table} to {}`", quote_identifier(role)),
    )
}

/// Whether rows of the table are in it and in no partition, so that each says which
/// transaction wrote it last.
pub(super) async fn is_plain(sql: &Sql, table: &TableName) -> Result<bool, RelayError> {
    let query = "select coalesce((select relkind = 'r' from pg_class \
                 where oid = to_regclass($1)), false)";
    let name = [(&table.quoted() as _, Type::TEXT)];
    Ok(sql.one("looking at the outbox table", query, &name).await?.get(0))
}
