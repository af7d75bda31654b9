//! The statements by which rows leave a table.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::{Pruned, RetentionConfig, readers::proven_by_all};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::Sql,
    wal::{quote_identifier, row_filter},
};

/// Blocks that one statement looks at, so that its time is bounded whatever the
/// size of the table, and no index is needed.
const BLOCKS: i64 = 256;

/// Where rows go.
pub(crate) struct Archive {
    pub(super) table: TableName,
    /// Of both tables, quoted.
    pub(super) columns: String,
}

/// What rows leave.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// For the archive, where there is one.
    Outbox(Option<&'a Archive>),
    Archive(&'a Archive),
}

/// Conditions of the rows that may leave. Another pipeline may begin to read the
/// table, or rows be moved, at any time: so they hold for one statement.
pub(super) struct Rows {
    /// Every pipeline that takes the row has proven it.
    proven: String,
    /// The row is the pipeline's; empty where all are.
    own: String,
}

impl Rows {
    /// Those of now.
    pub(super) async fn read(
        sql: &Sql,
        relay: &RelayConfig,
        table: &TableName,
    ) -> Result<Self, RelayError> {
        let proven = proven_by_all(sql, relay, table).await?;
        let own = row_filter::condition(sql, relay, table).await?;
        Ok(Self { proven, own: own.map(|own| format!(" and {own}")).unwrap_or_default() })
    }
}

/// Has rows leave one outbox table.
pub(crate) struct Removal {
    relay: RelayConfig,
    table: TableName,
    retention: RetentionConfig,
    archive: Option<Archive>,
    old: String,
    parked: String,
}

impl Removal {
    /// Of these rows.
    pub(crate) fn new(
        relay: &RelayConfig,
        table: &TableName,
        id_column: &str,
        retention: RetentionConfig,
        archive: Option<Archive>,
    ) -> Self {
        let keep = retention.keep_days;
        let (schema, id) = (quote_identifier(&relay.schema), quote_identifier(id_column));
        Self {
            relay: relay.clone(),
            table: table.clone(),
            retention,
            archive,
            old: format!("o.created_at < clock_timestamp() - interval '{keep} days'"),
            parked: format!(
                "exists (select from {schema}.parked p where p.event_id = o.{id}::text \
                 and p.state in ('open', 'sending') \
                 and num_nonnulls(p.topic, p.row_columns, p.message_content) = 0)"
            ),
        }
    }

    fn nothing(&self) -> Pruned {
        let table = self.table.clone();
        Pruned { table, rows: 0, not_proven: 0, parked: 0, archived_rows: 0 }
    }

    /// What would leave.
    pub(super) async fn count(&self, sql: &Sql) -> Result<Pruned, RelayError> {
        let Rows { proven, own } = Rows::read(sql, &self.relay, &self.table).await?;
        let Self { old, parked, .. } = self;
        let query = format!(
            "select count(*) filter (where {proven} and not {parked}), \
             count(*) filter (where not ({proven})), \
             count(*) filter (where {proven} and {parked}) from {} o where {old}{own}",
            self.table.quoted()
        );
        let row = sql.one("counting the rows that may leave", &query, &[]).await?;
        let count = |index| u64::try_from(row.get::<_, i64>(index)).unwrap_or(0);
        let (rows, not_proven, parked) = (count(0), count(1), count(2));
        let mut found = Pruned { rows, not_proven, parked, ..self.nothing() };
        if let Some(archive) = &self.archive {
            let query =
                format!("select count(*) from {} o where {}", archive.table.quoted(), self.past());
            let row = sql.one("counting the rows of the archive", &query, &[]).await?;
            found.archived_rows = u64::try_from(row.get::<_, i64>(0)).unwrap_or(0);
        }
        Ok(found)
    }

    /// Has them leave.
    pub(crate) async fn run(
        &self,
        sql: &Sql,
        tell: &mut impl FnMut(&Pruned),
    ) -> Result<Pruned, RelayError> {
        let mut done = self.nothing();
        self.leave(sql, Place::Outbox(self.archive.as_ref()), |rows| {
            done.rows += rows;
            tell(&done);
        })
        .await?;
        if let Some(archive) = &self.archive {
            self.leave(sql, Place::Archive(archive), |rows| {
                done.archived_rows += rows;
                tell(&done);
            })
            .await?;
        }
        Ok(done)
    }

    fn past(&self) -> String {
        let days = self.retention.archive_days;
        format!("o.archived_at < clock_timestamp() - interval '{days} days'")
    }

    /// Goes through a table block by block. Rows that somebody has locked stay.
    async fn leave(
        &self,
        sql: &Sql,
        place: Place<'_>,
        mut left: impl FnMut(u64),
    ) -> Result<(), RelayError> {
        let (table, archive) = match place {
            Place::Outbox(archive) => (&self.table, archive),
            Place::Archive(archive) => (&archive.table, None),
        };
        for (leaf, blocks) in leaves(sql, table).await? {
            let mut first = 0;
            while first < blocks {
                let condition = self.condition(sql, place).await?;
                let rows = self.step(sql, &leaf, first, &condition, archive).await?;
                if rows > 0 {
                    left(rows);
                    tokio::time::sleep(Duration::from_millis(self.retention.pause_ms)).await;
                }
                if rows < u64::from(self.retention.batch_rows) {
                    first += BLOCKS;
                }
            }
        }
        Ok(())
    }

    /// One transaction; how many rows have left.
    async fn step(
        &self,
        sql: &Sql,
        leaf: &str,
        first: i64,
        condition: &str,
        archive: Option<&Archive>,
    ) -> Result<u64, RelayError> {
        #[cfg(test)]
        if let Some(server) = sql.simulation() {
            return server.remove(condition, self.retention.batch_rows as usize).await;
        }
        let statement = self.statement(leaf, condition, archive);
        let range = [format!("({first},0)"), format!("({},0)", first + BLOCKS)];
        let parameters = [(&range[0] as _, Type::TEXT), (&range[1] as _, Type::TEXT)];
        let row = sql.one("pruning the outbox", &statement, &parameters).await?;
        Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or(0))
    }

    async fn condition(&self, sql: &Sql, place: Place<'_>) -> Result<String, RelayError> {
        if let Place::Archive(_) = place {
            return Ok(self.past());
        }
        let Rows { proven, own } = Rows::read(sql, &self.relay, &self.table).await?;
        Ok(format!("{}{own} and {proven} and not {}", self.old, self.parked))
    }

    /// What is in the archive is not in the outbox, and the
    /// other way round.
    fn statement(&self, leaf: &str, condition: &str, archive: Option<&Archive>) -> String {
        let rows = self.retention.batch_rows;
        let (returning, archived, counted) = match archive {
            None => ("1".to_owned(), String::new(), "gone"),
            Some(Archive { table, columns }) => (
                columns.clone(),
                format!(
                    ", archived as (insert into {} ({columns}) select {columns} from gone \
                     returning 1)",
                    table.quoted()
                ),
                "archived",
            ),
        };
        format!(
            "with due as materialized (select o.ctid as place from {leaf} o \
                 where o.ctid >= $1::text::tid and o.ctid < $2::text::tid and {condition} \
                 limit {rows} for update of o skip locked), \
             gone as (delete from {leaf} where ctid = any (array(select place from due)) \
                 returning {returning}){archived} \
             select count(*) from {counted}"
        )
    }
}

/// The tables that hold the rows, and how many blocks they have.
pub(crate) async fn leaves(sql: &Sql, table: &TableName) -> Result<Vec<(String, i64)>, RelayError> {
    #[cfg(test)]
    if sql.simulation().is_some() {
        return Ok(vec![(table.quoted(), 1)]);
    }
    let query = "select format('%I.%I', n.nspname, c.relname), \
            pg_relation_size(c.oid) / current_setting('block_size')::int8 \
        from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relkind = 'r' and \
        (c.oid = to_regclass($1) or c.oid in (select relid from pg_partition_tree(to_regclass($1)))) \
        order by 1";
    let name = [(&table.quoted() as _, Type::TEXT)];
    let rows = sql.query("looking for the table's partitions", query, &name).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
