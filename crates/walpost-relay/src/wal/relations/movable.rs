//! Rows that an update may move to another partition.
//!
//! The stream brings such an update as a delete and an insert, under the name of the
//! root too; where deletes are not published, as an insert alone, which is a new
//! event to whoever reads it. By the delete before it, in one transaction, it is told
//! from one.

use tokio_postgres::types::Type;
use walpost_router::RouterConfig;

use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::Sql,
    wal::quote_identifier,
};

/// A column that decides to which partition a row belongs, and may be updated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Movable {
    table: TableName,
    column: String,
    /// A partition whose deletes would not name the id of the row.
    without_id: Option<String>,
}

/// Columns of the keys of a table's partitions, in whatever level, and of the tables
/// that it is a partition of; whether each is one that says when its row came, by
/// its default, or cannot be updated.
const KEYS: &str = "\
    with recursive up (oid) as (select to_regclass($1)::oid \
        union select i.inhparent from up join pg_inherits i on i.inhrelid = up.oid), \
    tree (oid) as (select oid from up \
        union select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.oid) \
    select distinct a.attname::text, coalesce(a.attidentity = 'a' \
        or a.attnotnull and a.atttypid in ('timestamptz'::regtype, 'timestamp'::regtype, \
            'date'::regtype) \
        and pg_get_expr(d.adbin, d.adrelid) ~* '(now|current_|_timestamp|localtimestamp)', false) \
    from tree join pg_partitioned_table p on p.partrelid = tree.oid \
    join pg_depend k on k.classid = 'pg_class'::regclass and k.objid = p.partrelid \
        and k.refclassid = 'pg_class'::regclass and k.refobjid = p.partrelid \
    join pg_attribute a on a.attrelid = p.partrelid and a.attnum = greatest(k.objsubid, k.refobjsubid) \
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum \
    where a.attnum > 0 order by 1";

/// How many partitions there are whose rows an update may move, and one whose deletes
/// do not name that column. Without a replica identity the server refuses updates
/// that are published.
const PARTITIONS: &str = "\
    with recursive tree (oid) as (select to_regclass($1)::oid \
        union select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.oid), \
    leaf (name, identity) as (select format('%I.%I', n.nspname, c.relname), \
        case c.relreplident when 'f' then true else ( \
            select bool_or(coalesce(a.attnum = any (i.indkey), false)) from pg_index i \
            left join pg_attribute a on a.attrelid = c.oid and a.attname = $2 \
            where i.indrelid = c.oid and case c.relreplident \
                when 'd' then i.indisprimary when 'i' then i.indisreplident end) end \
        from tree join pg_class c on c.oid = tree.oid join pg_namespace n on n.oid = c.relnamespace \
        where c.relkind = 'r') \
    select count(*) filter (where identity is not null or not $3), \
        min(name) filter (where identity = false or identity is null and not $3) from leaf";

/// The first such column of the outbox tables, if there is one.
pub(crate) async fn movable(
    sql: &Sql,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Result<Option<Movable>, RelayError> {
    let attempt = "looking at the keys of partitions";
    let query = "select pubupdate from pg_publication where pubname = $1";
    let publication = [(&config.publication as _, Type::TEXT)];
    let has_updates = sql.opt(attempt, query, &publication).await?;
    let has_updates = has_updates.is_some_and(|row| row.get(0));
    for table in &config.tables {
        let name = [(&table.quoted() as _, Type::TEXT)];
        let keys = sql.query(attempt, KEYS, &name).await?;
        let stays = |column: &str| {
            column == "created_at" || column == router.event_id || column == router.event_key
        };
        let key = keys.iter().find(|row| !row.get::<_, bool>(1) && !stays(row.get(0)));
        let Some(column) = key.map(|row| row.get(0)) else { continue };
        let parameters = [
            (&table.quoted() as _, Type::TEXT),
            (&router.event_id as _, Type::TEXT),
            (&has_updates as _, Type::BOOL),
        ];
        let row = sql.one(attempt, PARTITIONS, &parameters).await?;
        if row.get::<_, i64>(0) == 0 {
            continue;
        }
        return Ok(Some(Movable { table: table.clone(), column, without_id: row.get(1) }));
    }
    Ok(None)
}

impl Movable {
    /// That an update is told from a new event, where the publication has deletes or
    /// not; one that is still to be made has them.
    pub(crate) fn told(&self, publication: &str, has_deletes: bool) -> Result<(), RelayError> {
        let Self { table, column, without_id } = self;
        let problem = format!(
            "rows of {table} move to another partition when {column:?} is updated, which the \
             stream brings as new rows"
        );
        if let Some(part) = without_id {
            return Err(RelayError::prerequisite(
                format!("{problem}, and deletes of {part} do not name the id of the row"),
                format!(
                    "run `alter table {part} replica identity full`, or partition the table by a \
                     column that is never updated, such as created_at"
                ),
            ));
        }
        if has_deletes {
            return Ok(());
        }
        Err(RelayError::prerequisite(
            format!("{problem}, unless publication {publication:?} publishes deletes"),
            format!(
                "run `alter publication {} set (publish = 'insert, delete')`, or partition the \
                 table by a column that is never updated, such as created_at",
                quote_identifier(publication)
            ),
        ))
    }
}
