//! Parked events that need their row, and whose row is not found.

use tokio_postgres::types::Type;

use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    event_id::Place,
    sql::Sql,
    wal::quote_identifier,
};

/// Events that are looked at together.
const AT_ONCE: i64 = 10_000;

/// Refuses to have rows leave while an open event without its contents has no
/// row by its id: any row may be the one that nothing else keeps, as after a
/// change of router.event_id.
pub(super) async fn none(
    sql: &Sql,
    relay: &RelayConfig,
    table: &TableName,
    id_column: &str,
) -> Result<(), RelayError> {
    let Some(place) = Place::find(sql, table, id_column).await? else { return Ok(()) };
    let query = format!(
        "select id, pipeline, event_id from {}.parked where source = $1 and id > $2 \
         and state in ('open', 'sending') \
         and num_nonnulls(topic, row_columns, message_content) = 0 order by id limit {AT_ONCE}",
        quote_identifier(&relay.schema)
    );
    let (source, mut behind) = (table.to_string(), 0_i64);
    let slow = sql.within_ms(relay.slot_timeout_ms);
    loop {
        let of = [(&source as _, Type::TEXT), (&behind as _, Type::INT8)];
        let rows = slow.query("looking for parked events without contents", &query, &of).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        behind = last.get(0);
        let ids: Vec<&str> = rows.iter().filter_map(|row| row.get(2)).collect();
        let there = place.there(&slow, &ids).await?;
        let is_missing = |row: &&tokio_postgres::Row| {
            row.get::<_, Option<&str>>(2).is_none_or(|id| !there.contains(id))
        };
        if let Some(row) = rows.iter().find(is_missing) {
            let (id, pipeline): (i64, &str) = (row.get(0), row.get(1));
            return Err(RelayError::prerequisite(
                format!(
                    "parked event {id} of pipeline {pipeline:?} is open without its contents, and \
                     no row of table {table} has its id in column {id_column:?}: the row that it \
                     needs could leave"
                ),
                format!(
                    "set router.event_id back, if it was changed, until the event is settled; or \
                     publish it yourself and run `walpost parked discard {id}`"
                ),
            ));
        }
    }
}
