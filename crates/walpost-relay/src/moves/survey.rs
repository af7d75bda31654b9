//! What new row filters mean for the last rows of a table.

use tokio_postgres::types::Type;

use super::{
    MoveOrder, MovedTable,
    side::{Obstacle, Side},
};
use crate::{
    config::TableName,
    error::RelayError,
    retention::{Leaf, Reach, leaves},
    sql::Sql,
    wal::{quote_identifier, row_filter},
};

/// Blocks at the end of each table that are looked at, and rows at most.
const SAMPLE_BLOCKS: i64 = 256;
const SAMPLE_ROWS: i64 = 10_000;

pub(super) async fn of_table(
    sql: &Sql,
    order: &MoveOrder,
    [from, to]: [&Side; 2],
    table: &TableName,
    id_column: &str,
) -> Result<(MovedTable, Vec<Obstacle>), RelayError> {
    #[cfg(test)]
    if sql.simulation().is_some() {
        let before =
            async |side: &Side| row_filter::of_publication(sql, &side.publication, table).await;
        let moved = MovedTable {
            table: table.clone(),
            from: (before(from).await?, order.filter_from.clone()),
            to: (before(to).await?, order.filter_to.clone()),
            looked_at: 0,
            moving: 0,
        };
        return Ok((moved, Vec::new()));
    }
    let filters = [order.filter_from.as_str(), order.filter_to.as_str()];
    let [from_after, to_after]: [String; 2] = row_filter::spelled(sql, table, &filters)
        .await?
        .try_into()
        .expect("as many come back as were given");
    let from_before = row_filter::of_publication(sql, &from.publication, table).await?;
    let to_before = row_filter::of_publication(sql, &to.publication, table).await?;
    let mut moved = MovedTable {
        table: table.clone(),
        from: (from_before, from_after),
        to: (to_before, to_after),
        looked_at: 0,
        moving: 0,
    };
    let mut obstacles = Vec::new();
    for leaf in leaves(sql, table).await? {
        let found = look(sql, &moved, &leaf, id_column).await?;
        let leaf = leaf.name;
        moved.looked_at += found.rows;
        moved.moving += found.moving;
        let names = format!("{:?} and {:?}", from.pipeline, to.pipeline);
        if let Some(id) = found.lost {
            obstacles.push((
                format!("row {id} of {leaf}, which is one of {names} now, would be neither's"),
                "have one of the new filters take it".to_owned(),
            ));
        }
        if let Some(id) = found.twice {
            obstacles.push((
                format!("row {id} of {leaf} would be both of {names}'s"),
                "make the new filters exclude each other".to_owned(),
            ));
        }
    }
    Ok((moved, obstacles))
}

struct Looked {
    rows: u64,
    moving: u64,
    lost: Option<String>,
    twice: Option<String>,
}

async fn look(
    sql: &Sql,
    moved: &MovedTable,
    Leaf { blocks, reach: Reach { from, only }, .. }: &Leaf,
    id_column: &str,
) -> Result<Looked, RelayError> {
    let is = |filter: Option<&str>| format!("(({}) is true)", filter.unwrap_or("true"));
    let query = format!(
        "with sample as (select o.{}::text as id, {} as from_before, {} as from_after, \
             {} as to_before, {} as to_after from {from} o where o.ctid >= $1::text::tid{only} \
             limit {SAMPLE_ROWS}) \
         select count(*), count(*) filter (where to_after and not to_before), \
         min(id) filter (where (from_before or to_before) and not (from_after or to_after)), \
         min(id) filter (where from_after and to_after and not (from_before and to_before)) \
         from sample",
        quote_identifier(id_column),
        is(moved.from.0.as_deref()),
        is(Some(&moved.from.1)),
        is(moved.to.0.as_deref()),
        is(Some(&moved.to.1)),
    );
    let first = format!("({},0)", (blocks - SAMPLE_BLOCKS).max(0));
    let row =
        sql.one("looking which rows would move", &query, &[(&first as _, Type::TEXT)]).await?;
    let count = |index| u64::try_from(row.get::<_, i64>(index)).unwrap_or(0);
    Ok(Looked { rows: count(0), moving: count(1), lost: row.get(2), twice: row.get(3) })
}
