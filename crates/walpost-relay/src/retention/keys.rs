//! Idempotency keys of a partitioned outbox stand in a table of their own, and
//! leave after their events.

use tokio_postgres::types::Type;

use super::{leaves::leaves, removal::BLOCKS};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::Sql,
    wal::quote_identifier,
};

/// Deletes the keys that are old and whose events are no longer in the outbox,
/// where this is `walpost.outbox` with such a table and the role may.
pub(super) async fn leave(
    sql: &Sql,
    relay: &RelayConfig,
    table: &TableName,
    old: &str,
) -> Result<(), RelayError> {
    let keys = TableName { schema: relay.schema.clone(), name: "outbox_key".to_owned() };
    if *table != (TableName { schema: relay.schema.clone(), name: "outbox".to_owned() })
        || !may_leave(sql, &keys).await?
    {
        return Ok(());
    }
    let statement = statement(&relay.schema, old);
    for leaf in leaves(sql, &keys).await? {
        for first in (0..leaf.blocks).step_by(BLOCKS as usize) {
            let range = [format!("({first},0)"), format!("({},0)", first + BLOCKS)];
            let parameters = [(&range[0] as _, Type::TEXT), (&range[1] as _, Type::TEXT)];
            sql.query("pruning idempotency keys", &statement, &parameters).await?;
        }
    }
    Ok(())
}

async fn may_leave(sql: &Sql, keys: &TableName) -> Result<bool, RelayError> {
    #[cfg(test)]
    if sql.simulation().is_some() {
        return Ok(false);
    }
    let query = "select coalesce(has_table_privilege(c, 'select') and \
                 has_table_privilege(c, 'update') and has_table_privilege(c, 'delete'), false) \
                 from (select to_regclass($1)::oid) k (c)";
    let name = [(&keys.quoted() as _, Type::TEXT)];
    Ok(sql.one("looking at the rights on a table", query, &name).await?.get(0))
}

/// An event is looked for by its primary key, one at a time: a join would read
/// the whole outbox.
fn statement(schema: &str, old: &str) -> String {
    let schema = quote_identifier(schema);
    format!(
        "with due as materialized (select o.ctid as place from {schema}.outbox_key o \
             where o.ctid >= $1::text::tid and o.ctid < $2::text::tid and {old} \
             and (select true from {schema}.outbox e \
                 where e.id = o.id and e.created_at = o.created_at limit 1) is null \
             for update of o skip locked) \
         delete from {schema}.outbox_key where ctid = any (array(select place from due))"
    )
}
