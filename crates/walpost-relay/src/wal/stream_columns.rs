//! Which columns of an outbox table the stream brings: those of the publication's column list, or
//! all but the generated ones.

use tokio_postgres::types::Type;
use walpost_router::{MissingColumn, RouterConfig};

use super::quote_identifier;
use crate::{
    columns,
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::Sql,
};

/// Selects from `pg_attribute a` and what of the publication `$1` concerns its table; `listed` is
/// null without a column list. Column lists came with PostgreSQL 15, published generated columns
/// with 18.
pub(super) const OF_PUBLICATION: &str = "pg_attribute a \
    left join pg_publication p on p.pubname = $1 \
    left join lateral (select a.attnum = any (string_to_array(btrim(regexp_replace( \
        to_jsonb(r) ->> 'prattrs', '[^0-9]+', ' ', 'g')), ' ')::int2[]) as listed \
        from pg_publication_rel r where r.prpubid = p.oid and r.prrelid = a.attrelid) l on true";

/// Whether the stream brings such a column. It computes no virtual one.
pub(super) const IS_BROUGHT: &str = "coalesce(l.listed, a.attgenerated = '' \
    or a.attgenerated = 's' and to_jsonb(p) ->> 'pubgencols' = 's', false)";

/// A column that the configuration names and the stream does not bring.
struct LeftOut {
    column: String,
    key: String,
    generated: String,
    is_listed_out: bool,
}

/// The stream brings all columns that the configuration names.
pub(crate) async fn suffice(
    sql: &Sql,
    server_version: u32,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Result<(), RelayError> {
    for table in &config.tables {
        if let Some(left_out) = left_out(sql, config, router, table).await? {
            return Err(refused(config, table, &left_out, server_version));
        }
    }
    Ok(())
}

async fn left_out(
    sql: &Sql,
    config: &RelayConfig,
    router: &RouterConfig,
    table: &TableName,
) -> Result<Option<LeftOut>, RelayError> {
    let query = format!(
        "select a.attname::text, {IS_BROUGHT}, a.attgenerated::text, l.listed is false \
         from {OF_PUBLICATION} \
         where a.attrelid = to_regclass($2) and a.attnum > 0 and not a.attisdropped"
    );
    let names = [(&config.publication as _, Type::TEXT), (&table.quoted() as _, Type::TEXT)];
    let rows = sql.query("reading the columns of the stream", &query, &names).await?;
    let brought = rows.iter().filter(|row| row.get(1)).map(|row| row.get(0));
    let brought: Vec<&str> = brought.collect();
    // A column that may be missing, and is there, would be missing in the stream alone.
    let router = RouterConfig { additional_missing: MissingColumn::Error, ..router.clone() };
    let missing = columns::missing(config, &router, &brought);
    let left_out = missing.into_iter().find_map(|(column, key)| {
        let row = rows.iter().find(|row| row.get::<_, &str>(0) == column && !row.get::<_, bool>(1));
        let row = row?;
        let (generated, is_listed_out) = (row.get(2), row.get(3));
        Some(LeftOut { key: key.to_owned(), column, generated, is_listed_out })
    });
    Ok(left_out)
}

fn refused(
    config: &RelayConfig,
    table: &TableName,
    left_out: &LeftOut,
    server_version: u32,
) -> RelayError {
    let LeftOut { column, key, generated, is_listed_out } = left_out;
    let (name, publication) = (&config.publication, quote_identifier(&config.publication));
    if *is_listed_out {
        let rows = config.row_filter.as_ref().map(|filter| format!(" where ({filter})"));
        return RelayError::prerequisite(
            format!(
                "publication {name:?} has a column list for outbox table {table} without column \
                 {column:?}, which {key} names"
            ),
            format!(
                "run `alter publication {publication} drop table {table}` and `alter publication \
                 {publication} add table {table}{}`, or give it a list that has the column; for a \
                 pipeline that has run, then run `walpost slot recover`, and `walpost parked retry \
                 --from-table` for events that were parked meanwhile",
                rows.unwrap_or_default(),
                table = table.quoted()
            ),
        );
    }
    let problem = format!(
        "outbox table {table} generates column {column:?}, which {key} names, and the stream does \
         not bring it"
    );
    let ordinary = format!("name an ordinary column in {key}, or make this one ordinary");
    match generated == "s" && server_version >= 180_000 {
        true => RelayError::prerequisite(
            problem,
            format!(
                "run `alter publication {publication} set (publish_generated_columns = stored)` \
                 before the first start of the pipeline; or {ordinary}"
            ),
        ),
        false => RelayError::prerequisite(problem, ordinary),
    }
}
