//! The tables that hold rows, and how they are reached.

use tokio_postgres::types::Type;

use crate::{config::TableName, error::RelayError, sql::Sql, wal::quote_literal};

/// A table without partitions.
pub(crate) struct Leaf {
    /// Quoted, with its schema.
    pub(crate) name: String,
    pub(crate) blocks: i64,
    pub(crate) reach: Reach,
}

/// How a table is read: by its name, or through the table whose partition it is
/// where the role has rights on that one alone, as `make_day` leaves it.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    /// What to read, under the alias `o`.
    pub(crate) from: String,
    /// Which of its rows, behind other conditions: empty or ` and …`.
    pub(crate) only: String,
}

impl Reach {
    /// Quoted, `only` in front of a table whose children are not to be read.
    fn by_name(quoted: &str) -> Self {
        Self { from: quoted.to_owned(), only: String::new() }
    }

    /// Of a table or partition with all that is below it, to be read.
    pub(super) async fn find(sql: &Sql, quoted: &str, root: &str) -> Result<Self, RelayError> {
        if quoted == root {
            return Ok(Self::by_name(quoted));
        }
        let query = "select coalesce(has_table_privilege(to_regclass($1)::oid, 'select'), true)";
        let name = [(&quoted as _, Type::TEXT)];
        if sql.one("looking at the rights on a partition", query, &name).await?.get(0) {
            return Ok(Self::by_name(quoted));
        }
        let name = quote_literal(quoted);
        let only =
            format!(" and o.tableoid in (select relid from pg_partition_tree({name}::regclass))");
        Ok(Self { from: root.to_owned(), only })
    }
}

/// The tables that hold the rows of a table.
pub(crate) async fn leaves(sql: &Sql, table: &TableName) -> Result<Vec<Leaf>, RelayError> {
    let quoted = table.quoted();
    #[cfg(test)]
    if sql.simulation().is_some() {
        let reach = Reach::by_name(&quoted);
        return Ok(vec![Leaf { name: quoted, blocks: 1, reach }]);
    }
    leaves_of(sql, &quoted, &quoted).await
}

/// Those of a partition of `root`.
pub(super) async fn leaves_of(
    sql: &Sql,
    quoted: &str,
    root: &str,
) -> Result<Vec<Leaf>, RelayError> {
    let query = "select format('%I.%I', n.nspname, c.relname), \
            pg_relation_size(c.oid) / current_setting('block_size')::int8, c.oid, \
            c.oid = to_regclass($2) or (has_table_privilege(c.oid, 'select') \
                and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete')) \
        from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relkind = 'r' and \
        (c.oid = to_regclass($1) or c.oid in (select relid from pg_partition_tree(to_regclass($1)))) \
        order by 1";
    let names = [(&quoted as _, Type::TEXT), (&root as _, Type::TEXT)];
    let rows = sql.query("looking for the table's partitions", query, &names).await?;
    let leaf = |row: &tokio_postgres::Row| {
        let (name, oid): (String, u32) = (row.get(0), row.get(2));
        let reach = match row.get(3) {
            true => Reach::by_name(&format!("only {name}")),
            false => Reach { from: root.to_owned(), only: format!(" and o.tableoid = {oid}") },
        };
        Leaf { name, blocks: row.get(1), reach }
    };
    Ok(rows.iter().map(leaf).collect())
}
