//! The tables of the application: which there are, and what is in them.

use std::collections::{BTreeMap, BTreeSet};

use postgres_protocol::escape::escape_identifier;
use walpost_consumer::tokio_postgres::Client;

use crate::{Error, world::SCHEMA};

/// Largest table that is read, in bytes on disk.
const MAX_TABLE_BYTES: i64 = 64 << 20;

/// What is looked at.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// As they were named, `None` for all.
    pub(crate) tables: Option<BTreeSet<String>>,
    /// Table and column, as they were named.
    pub(crate) left_out: BTreeSet<(String, String)>,
    pub(crate) max_rows: usize,
}

/// One table as the catalog has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: String,
    /// Quoted, with its schema.
    sql: String,
    pub(crate) columns: Vec<Column>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) in_key: bool,
    /// Its value may differ between runs of the same events.
    pub(crate) left_out: bool,
}

/// Every row, each value as text.
pub(crate) type Rows = Vec<Vec<Option<String>>>;

/// All tables at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) tables: BTreeMap<String, Rows>,
}

impl Table {
    #[cfg(test)]
    pub(crate) fn named(name: &str, columns: Vec<Column>) -> Self {
        Self { name: name.to_owned(), sql: name.to_owned(), columns }
    }

    /// What the consumer has set aside: whatever way events come, it is the same.
    pub(crate) fn parked() -> Self {
        let column = |name: &str| Column { name: name.to_owned(), in_key: false, left_out: false };
        let name = format!("{SCHEMA}.consumer_parked");
        Self {
            sql: name.clone(),
            name,
            columns: ["source", "event_id", "state"].map(column).into(),
        }
    }
}

/// Ordinary and partitioned tables that belong to neither the consumer nor an
/// extension, with the columns
/// that are stored by themselves: name, quoted name, bytes, column, whether in
/// the key, whether it is drawn from a sequence.
const CATALOG: &str = "select \
     case when n.nspname = 'public' then c.relname::text else n.nspname || '.' || c.relname end, \
     format('%I.%I', n.nspname, c.relname), \
     (select coalesce(sum(pg_table_size(t.relid)), 0)::bigint from \
        (select c.oid::regclass as relid union select relid from pg_partition_tree(c.oid)) t), \
     a.attname::text, \
     coalesce(a.attnum = any(k.conkey), false), \
     a.attidentity <> '' or coalesce(pg_get_expr(d.adbin, d.adrelid) like 'nextval(%', false), \
     c.oid::bigint, a.attnum \
     from pg_class c join pg_namespace n on n.oid = c.relnamespace \
     join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped \
        and a.attgenerated = '' \
     left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum \
     left join pg_constraint k on k.conrelid = c.oid and k.contype = 'p' \
     where c.relkind in ('r', 'p') and not c.relispartition and c.relpersistence <> 't' \
     and n.nspname not in ('pg_catalog', 'information_schema') \
     and not (n.nspname = $1 and (c.relname in ('position', 'done', 'consumer', 'migration') \
        or starts_with(c.relname::text, 'consumer_'))) \
     and not exists (select from pg_depend e where e.classid = 'pg_class'::regclass \
        and e.objid = c.oid and e.deptype = 'e') \
     order by 1, a.attnum";

/// Foreign keys: table and column, and those that it refers to.
const REFERENCES: &str = "select f.conrelid::bigint, f.here, f.confrelid::bigint, f.there from \
     (select conrelid, confrelid, unnest(conkey) as here, unnest(confkey) as there \
      from pg_constraint where contype = 'f') f";

impl Scope {
    /// The tables that are looked at, by their names.
    pub(crate) async fn tables(&self, client: &Client) -> Result<Vec<Table>, Error> {
        let failed = |error| Error::database("reading the catalog of tables failed", error);
        let rows = client.query(CATALOG, &[&SCHEMA]).await.map_err(failed)?;
        let references = client.query(REFERENCES, &[]).await.map_err(failed)?;
        let mut drawn: BTreeSet<(i64, i16)> = BTreeSet::new();
        drawn.extend(rows.iter().filter(|row| row.get(5)).map(|row| (row.get(6), row.get(7))));
        // Who refers to what is left out is left out too, however far.
        let mut before = 0;
        while before < drawn.len() {
            before = drawn.len();
            for row in &references {
                if drawn.contains(&(row.get(2), row.get(3))) {
                    drawn.insert((row.get(0), row.get(1)));
                }
            }
        }
        let mut tables: Vec<Table> = Vec::new();
        for row in &rows {
            let name: String = row.get(0);
            if self.tables.as_ref().is_some_and(|named| !named.contains(&name)) {
                continue;
            }
            if row.get::<_, i64>(2) > MAX_TABLE_BYTES {
                let limit = format!("{MAX_TABLE_BYTES} bytes");
                return Err(Error::TooLarge { table: name, limit });
            }
            if tables.last().is_none_or(|last| last.name != name) {
                tables.push(Table { name: name.clone(), sql: row.get(1), columns: Vec::new() });
            }
            let column: String = row.get(3);
            let left_out = drawn.contains(&(row.get(6), row.get(7)))
                || self.left_out.contains(&(name, column.clone()));
            if let Some(table) = tables.last_mut() {
                table.columns.push(Column { name: column, in_key: row.get(4), left_out });
            }
        }
        self.all_are_known(&tables)?;
        Ok(tables)
    }

    fn all_are_known(&self, tables: &[Table]) -> Result<(), Error> {
        let unknown = |what: String| Err(Error::Unknown { what });
        for name in self.tables.iter().flatten() {
            if !tables.iter().any(|table| table.name == *name) {
                return unknown(format!("table {name}"));
            }
        }
        for (of, name) in &self.left_out {
            let table = tables.iter().find(|table| table.name == *of);
            if !table.is_some_and(|table| table.columns.iter().any(|column| column.name == *name)) {
                return unknown(format!("column {name} of a table {of} that is looked at"));
            }
        }
        Ok(())
    }

    /// What is in them now.
    pub(crate) async fn read(&self, client: &Client, of: &[Table]) -> Result<Snapshot, Error> {
        let mut tables = BTreeMap::new();
        let mut left = self.max_rows;
        for Table { name, sql, columns } in of {
            let texts: Vec<String> = columns
                .iter()
                .map(|column| format!("{}::text", escape_identifier(&column.name)))
                .collect();
            let query = format!(
                "select array[{}]::text[] from {sql} limit {}",
                texts.join(", "),
                left.saturating_add(1)
            );
            let rows = client.query(&query, &[]).await.map_err(|error| {
                let attempted = format!("reading table {name} failed; give the role select on it");
                Error::database(attempted, error)
            })?;
            if rows.len() > left {
                let limit = format!("{} rows in all tables together", self.max_rows);
                return Err(Error::TooLarge { table: name.clone(), limit });
            }
            left -= rows.len();
            tables.insert(name.clone(), rows.iter().map(|row| row.get(0)).collect());
        }
        Ok(Snapshot { tables })
    }
}
