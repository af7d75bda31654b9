//! The table `id_space`.

use tokio_postgres::types::Type;
use uuid::Uuid;
use walpost_event::Relation;

use super::{Begins, IdSpace, IdSpaces, is_unique_in_sql, refusals::told_apart};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::{Parameter, Sql},
    wal::{quote_identifier, quote_literal},
};

/// The scope of ids whose records have the header of the source.
const TABLE: &str = "table";

const ATTEMPT: &str = "reading the id spaces of the outbox tables";

/// The table `id_space`, as a pipeline uses it.
#[derive(Debug)]
pub(crate) struct IdSpaceTable {
    /// Its name, quoted.
    pub(super) name: String,
    pub(super) scope: &'static str,
}

/// An outbox table of the pipeline, with its row of `id_space`.
pub(super) struct TableIds {
    pub(super) name: TableName,
    /// The table, for a partition its root.
    oid: u32,
    space: Option<Uuid>,
    /// Other than the configuration's.
    has_other_scope: bool,
    only_walpost: bool,
    pub(super) ids: Ids,
    may_be_read: bool,
}

/// What the type of the ids says of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ids {
    /// All are globally unique.
    Uuids,
    /// The rows tell.
    Texts,
    /// None is globally unique.
    Others,
}

impl IdSpaceTable {
    pub(crate) fn new(config: &RelayConfig) -> Self {
        let name = format!("{}.id_space", quote_identifier(&config.schema));
        Self { name, scope: if config.source_header { TABLE } else { "topic" } }
    }

    /// What makes ids unique that are not globally unique.
    pub(crate) fn scope(&self) -> &'static str {
        self.scope
    }

    /// Gives each table of the pipeline its id space, and reads all of them.
    /// `id_column` is that of the events' ids.
    ///
    /// # Errors
    /// [`RelayError::Prerequisite`] where the configuration would give ids that were
    /// published another source.
    pub(crate) async fn ensure(
        &self,
        sql: &Sql,
        config: &RelayConfig,
        id_column: &str,
        begins: Begins,
    ) -> Result<IdSpaces, RelayError> {
        self.note_dropped(sql).await?;
        for table in self.tables(sql, config, id_column).await? {
            if begins != Begins::Polling {
                told_apart(config, &table)?;
            }
            match table.space {
                Some(_) => self.keep(sql, config, &table, begins).await?,
                None => self.make(sql, config, &table, id_column, begins).await?,
            }
        }
        self.insert(sql, None, true).await?;
        if config.takes_messages() {
            self.keep_messages(sql, config).await?;
        }
        self.read(sql).await
    }

    /// The same, and nothing is left of it.
    pub(crate) async fn try_ensure(
        &self,
        sql: &Sql,
        config: &RelayConfig,
        id_column: &str,
        begins: Begins,
    ) -> Result<(), RelayError> {
        sql.batch(ATTEMPT, "begin").await?;
        let ensured = self.ensure(sql, config, id_column, begins).await;
        sql.batch(ATTEMPT, "rollback").await?;
        ensured.map(drop)
    }

    async fn make(
        &self,
        sql: &Sql,
        config: &RelayConfig,
        table: &TableIds,
        id_column: &str,
        begins: Begins,
    ) -> Result<(), RelayError> {
        let slow = sql.within_ms(config.slot_timeout_ms);
        if begins == Begins::OnForeignSlot && self.may_repeat(&slow, table, id_column).await? {
            return Err(self.foreign_slot(table));
        }
        let only_walpost = begins == Begins::WithAllRows || !may_have_rows(sql, table).await?;
        self.insert(sql, Some(table.oid), only_walpost).await
    }

    async fn keep(
        &self,
        sql: &Sql,
        config: &RelayConfig,
        table: &TableIds,
        begins: Begins,
    ) -> Result<(), RelayError> {
        if table.has_other_scope && table.ids != Ids::Uuids {
            let of = format!("events of table {}", table.name);
            let place = format!("outbox = {}::regclass", quote_literal(&table.name.quoted()));
            return Err(self.other_scope(config, &of, &place));
        }
        if table.has_other_scope {
            let change = format!("update {} set scope = $2 where outbox = $1::oid", self.name);
            let of = [(&table.oid as _, Type::OID), (&self.scope as _, Type::TEXT)];
            sql.query(ATTEMPT, &change, &of).await?;
        }
        let is_anew = matches!(begins, Begins::WithoutRows | Begins::OnForeignSlot);
        if is_anew && may_have_rows(sql, table).await? {
            self.share(sql, table.oid).await?;
        }
        if config.snapshot.each_start
            && !table.only_walpost
            && self.scope == TABLE
            && table.ids == Ids::Others
        {
            return Err(self.published_again(table));
        }
        Ok(())
    }

    /// Another program has published rows.
    async fn share(&self, sql: &Sql, oid: u32) -> Result<(), RelayError> {
        let share = format!(
            "update {} set only_walpost = false where outbox = $1::oid and only_walpost",
            self.name
        );
        sql.query(ATTEMPT, &share, &[(&oid as _, Type::OID)]).await.map(drop)
    }

    async fn keep_messages(&self, sql: &Sql, config: &RelayConfig) -> Result<(), RelayError> {
        let schema = quote_identifier(&config.schema);
        let other = format!(
            "select exists (select from {} where outbox is null and scope <> $1), \
             exists (select from {schema}.checkpoint where has_messages)",
            self.name
        );
        let row = sql.one(ATTEMPT, &other, &[(&self.scope as _, Type::TEXT)]).await?;
        match (row.get(0), row.get(1)) {
            (true, true) => Err(self.other_scope(config, "logical messages", "outbox is null")),
            (true, false) => {
                let change = format!("update {} set scope = $1 where outbox is null", self.name);
                sql.query(ATTEMPT, &change, &[(&self.scope as _, Type::TEXT)]).await.map(drop)
            }
            (false, _) => Ok(()),
        }
    }

    /// Makes the id spaces of tables that another program has published until now.
    pub(crate) async fn take_over(
        &self,
        sql: &Sql,
        config: &RelayConfig,
        id_column: &str,
    ) -> Result<(), RelayError> {
        self.ensure(sql, config, id_column, Begins::WithoutRows).await?;
        for table in self.tables(sql, config, id_column).await? {
            self.share(sql, table.oid).await?;
        }
        Ok(())
    }

    /// The first table whose events consumers would know by another identity than
    /// those that another program has published.
    pub(crate) async fn first_repeated(
        &self,
        sql: &Sql,
        config: &RelayConfig,
        id_column: &str,
    ) -> Result<Option<TableName>, RelayError> {
        let slow = sql.within_ms(config.slot_timeout_ms);
        for table in self.tables(sql, config, id_column).await? {
            if self.may_repeat(&slow, &table, id_column).await? {
                return Ok(Some(table.name));
            }
        }
        Ok(None)
    }

    /// Whether a record of another program would have another identity.
    async fn may_repeat(
        &self,
        sql: &Sql,
        table: &TableIds,
        id_column: &str,
    ) -> Result<bool, RelayError> {
        if self.scope != TABLE {
            return Ok(false);
        }
        let (rows, id) = (table.name.quoted(), quote_identifier(id_column));
        let all_unique = match table.ids {
            Ids::Others => return Ok(true),
            Ids::Texts if !table.may_be_read => return Ok(true),
            Ids::Uuids if !table.may_be_read => return Ok(false),
            // Counters with zeros in front, of which an index tells.
            Ids::Uuids => format!(
                "select not exists (select from {rows} \
                 where {id} <= '00000000-0000-0000-ffff-ffffffffffff')"
            ),
            Ids::Texts => format!(
                "select exists (select from {rows}) \
                 and not exists (select from {rows} where not ({}))",
                is_unique_in_sql(id_column)
            ),
        };
        let row = sql.one("reading the ids of the outbox table", &all_unique, &[]).await?;
        Ok(!row.get::<_, bool>(0))
    }

    /// The tables whose equal ids are one event where they share a topic.
    pub(crate) async fn ambiguous(
        &self,
        sql: &Sql,
        config: &RelayConfig,
        id_column: &str,
    ) -> Result<Vec<TableName>, RelayError> {
        let tables = self.tables(sql, config, id_column).await?;
        let others = tables.into_iter().filter(|table| table.ids == Ids::Others);
        let names: Vec<TableName> = others.map(|table| table.name).collect();
        Ok(if self.scope == TABLE || names.len() < 2 { Vec::new() } else { names })
    }

    /// The object id of a table that is gone may be that of another one later, as after
    /// a restore. The stream may still bring rows of a table that is gone.
    async fn note_dropped(&self, sql: &Sql) -> Result<(), RelayError> {
        let exists = "exists (select from pg_class c where c.oid = outbox)";
        let note = format!(
            "update {name} set id = gen_random_uuid(), only_walpost = false, dropped_at = null \
             where dropped_at is not null and {exists}; \
             update {name} set dropped_at = now() \
             where dropped_at is null and outbox is not null and not {exists}",
            name = self.name
        );
        sql.batch(ATTEMPT, &note).await
    }

    async fn tables(
        &self,
        sql: &Sql,
        config: &RelayConfig,
        id_column: &str,
    ) -> Result<Vec<TableIds>, RelayError> {
        let query = format!(
            "select t.number, r.oid, s.id, s.scope is distinct from $3, \
                 coalesce(s.only_walpost, true), \
                 case coalesce(nullif(y.typbasetype, 0), a.atttypid) \
                     when 'uuid'::regtype then 'uuid' when 'text'::regtype then 'text' \
                     when 'varchar'::regtype then 'text' when 'bpchar'::regtype then 'text' \
                     else '' end, \
                 has_table_privilege(r.oid, 'select') and not row_security_active(r.oid) \
             from unnest($1::text[]) with ordinality t (name, number) \
             cross join lateral (select coalesce(pg_partition_root(to_regclass(t.name)), \
                 to_regclass(t.name))::oid as oid) r \
             left join {} s on s.outbox = r.oid \
             left join pg_attribute a on a.attrelid = r.oid and a.attname = $2 and a.attnum > 0 \
                 and not a.attisdropped \
             left join pg_type y on y.oid = a.atttypid \
             where r.oid is not null order by t.number",
            self.name
        );
        let names: Vec<String> = config.tables.iter().map(TableName::quoted).collect();
        let parameters: [Parameter<'_>; 3] =
            [(&names, Type::TEXT_ARRAY), (&id_column, Type::TEXT), (&self.scope, Type::TEXT)];
        let rows = sql.query(ATTEMPT, &query, &parameters).await?;
        let table = |row: &tokio_postgres::Row| TableIds {
            name: config.tables[row.get::<_, i64>(0) as usize - 1].clone(),
            oid: row.get(1),
            space: row.get(2),
            has_other_scope: row.get(3),
            only_walpost: row.get(4),
            ids: match row.get::<_, &str>(5) {
                "uuid" => Ids::Uuids,
                "text" => Ids::Texts,
                _ => Ids::Others,
            },
            may_be_read: row.get(6),
        };
        Ok(rows.iter().map(table).collect())
    }

    /// Adds a row, unless there is one. Without an object id it is that of logical
    /// messages.
    async fn insert(
        &self,
        sql: &Sql,
        oid: Option<u32>,
        only_walpost: bool,
    ) -> Result<(), RelayError> {
        let insert = format!(
            "insert into {} (outbox, scope, only_walpost) values ($1::oid::regclass, $2, $3) \
             on conflict do nothing",
            self.name
        );
        let parameters: [Parameter<'_>; 3] =
            [(&oid, Type::OID), (&self.scope, Type::TEXT), (&only_walpost, Type::BOOL)];
        sql.query("making an id space", &insert, &parameters).await.map(drop)
    }

    /// All that there are, for a table in partitions also by these.
    pub(crate) async fn read(&self, sql: &Sql) -> Result<IdSpaces, RelayError> {
        let query = format!(
            "select s.id, coalesce(t.relid, s.outbox)::oid from {} s \
             left join lateral pg_partition_tree(s.outbox) t on true",
            self.name
        );
        let mut spaces = IdSpaces::default();
        for row in sql.query(ATTEMPT, &query, &[]).await? {
            let space = IdSpace::new(row.get(0));
            match row.get::<_, Option<u32>>(1) {
                Some(oid) => _ = spaces.tables.insert(oid, space),
                None => spaces.messages = Some(space),
            }
        }
        Ok(spaces)
    }

    /// The id space of a table that the stream names and the start did not: a
    /// partition that is new, or a table that was made since. One that is gone
    /// already gets one too, since the stream brings its rows. A relation that is no
    /// table has that of logical messages.
    pub(crate) async fn of_relation(
        &self,
        sql: &Sql,
        relation: &Relation,
    ) -> Result<Uuid, RelayError> {
        let root = "select coalesce(pg_partition_root($1::oid::regclass)::oid, nullif($1, 0::oid))";
        let oid = [(&relation.oid as _, Type::OID)];
        let root: Option<u32> = sql.one(ATTEMPT, root, &oid).await?.get(0);
        self.insert(sql, root, false).await?;
        let query =
            format!("select id from {} where outbox is not distinct from $1::oid", self.name);
        Ok(sql.one(ATTEMPT, &query, &[(&root as _, Type::OID)]).await?.get(0))
    }
}

/// Whether a table has rows, which another program may have published; a table
/// that may not be read may have some.
async fn may_have_rows(sql: &Sql, table: &TableIds) -> Result<bool, RelayError> {
    if !table.may_be_read {
        return Ok(true);
    }
    let rows = format!("select exists (select from {})", table.name.quoted());
    Ok(sql.one("looking for rows in the outbox table", &rows, &[]).await?.get(0))
}
