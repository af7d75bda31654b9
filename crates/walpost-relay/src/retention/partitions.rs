//! Partitions of an outbox table or its archive, as their bounds tell.

use tokio_postgres::types::Type;

use crate::{config::TableName, error::RelayError, sql::Sql};

/// Rows of a partition wait for each other no longer than that: those of a
/// larger range leave one by one.
const RANGE_DAYS_MAX: u32 = 32;

/// How rows leave a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// With it, when all of them may.
    Whole,
    /// With it, and it is not old enough.
    Later,
    /// One by one.
    Rows,
}

/// A partition of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    /// Quoted, with its schema.
    pub(super) name: String,
    /// As `ATTACH PARTITION` takes them.
    pub(super) bounds: String,
    /// That a row is within them, of the column created_at.
    pub(super) within: String,
    /// Nothing is in it that is younger than was asked for. None where its
    /// bounds do not tell.
    is_old: Option<bool>,
    is_short: bool,
    /// It may be dropped: by its kind, the role's rights, and what depends on it.
    may_go: bool,
}

impl Partition {
    pub(super) fn way(&self) -> Way {
        match self.is_old {
            Some(true) if self.may_go => Way::Whole,
            Some(false) if self.may_go && self.is_short => Way::Later,
            _ => Way::Rows,
        }
    }
}

/// The partitions of a table by range over created_at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Partitions {
    /// Those with bounds, from the oldest on, and last the one of the others.
    pub(super) all: Vec<Partition>,
    /// Name of the one that takes what no other takes.
    pub(super) default: Option<String>,
    /// The role may attach to the table and detach from it.
    pub(super) owns: bool,
    /// The table has no index, which would be built for what is attached.
    pub(super) has_no_index: bool,
}

/// None for a table that is not partitioned so. `days` says which partitions are
/// old.
pub(super) async fn read(
    sql: &Sql,
    table: &TableName,
    days: u32,
) -> Result<Option<Partitions>, RelayError> {
    #[cfg(test)]
    if sql.simulation().is_some() {
        return Ok(None);
    }
    let quoted = table.quoted();
    let name = [(&quoted as _, Type::TEXT)];
    let root = "select pg_has_role(c.relowner, 'usage'), \
            not exists (select from pg_index where indrelid = c.oid) \
        from pg_class c join pg_partitioned_table p on p.partrelid = c.oid \
        join pg_attribute a on a.attrelid = c.oid and a.attnum = p.partattrs[0] \
        where c.oid = to_regclass($1) and p.partstrat = 'r' and p.partnatts = 1 \
            and a.attname = 'created_at' and a.atttypid = 'timestamptz'::regtype";
    let attempt = "looking for the table's partitions";
    let Some(root) = sql.opt(attempt, root, &name).await? else { return Ok(None) };
    let rows = sql.query(attempt, &children(days), &name).await?;
    let owns: bool = root.get(0);
    let all: Vec<Partition> = rows.iter().map(|row| partition(row, owns)).collect();
    let default = all.iter().find(|one| one.bounds == "DEFAULT").map(|one| one.name.clone());
    Ok(Some(Partitions { all, default, owns, has_no_index: root.get(1) }))
}

/// Bounds are printed with the session's time zone in them, which does no harm
/// as long as the style of dates is ISO.
fn children(days: u32) -> String {
    format!(
        "with child as (select c.oid, c.relkind, c.relowner, i.inhparent as root, \
            format('%I.%I', n.nspname, c.relname) as name, \
            pg_get_expr(c.relpartbound, c.oid) as bounds \
            from pg_inherits i join pg_class c on c.oid = i.inhrelid \
            join pg_namespace n on n.oid = c.relnamespace \
            where i.inhparent = to_regclass($1) and not i.inhdetachpending), \
        bound as (select child.*, \
            substring(bounds from 'FROM \\(''([^'']*)''\\)')::timestamptz as low, \
            substring(bounds from 'TO \\(''([^'']*)''\\)')::timestamptz as high from child) \
        select name, bounds, \
            concat_ws(' and ', 'created_at is not null', \
                'created_at >= ' || quote_literal(low), 'created_at < ' || quote_literal(high)), \
            high < clock_timestamp() - interval '{days} days', \
            coalesce(isfinite(low) and isfinite(high) \
                and low + interval '{RANGE_DAYS_MAX} days' >= high, false), \
            relkind = 'r' and pg_has_role(relowner, 'usage') \
                and not exists (select from pg_constraint f \
                    where f.contype = 'f' and f.confrelid in (oid, root)) \
                and not exists (select from pg_trigger t where t.tgrelid in (oid, root) \
                    and not t.tgisinternal and t.tgtype & 8 <> 0) \
        from bound order by high nulls last, name"
    )
}

fn partition(row: &tokio_postgres::Row, owns_root: bool) -> Partition {
    Partition {
        name: row.get(0),
        bounds: row.get(1),
        within: row.get(2),
        is_old: row.get(3),
        is_short: row.get(4),
        may_go: owns_root && row.get(5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_ranges_leave_where_nothing_keeps_them_and_others_row_by_row() {
        let way = |is_old, is_short, may_go| {
            let (name, bounds, within) = Default::default();
            Partition { name, bounds, within, is_old, is_short, may_go }.way()
        };
        assert_eq!(way(Some(true), true, true), Way::Whole);
        assert_eq!(way(Some(true), false, true), Way::Whole);
        assert_eq!(way(Some(false), true, true), Way::Later);
        assert_eq!(way(Some(false), false, true), Way::Rows, "a range of years");
        assert_eq!(way(None, false, true), Way::Rows, "the default partition");
        for is_old in [Some(true), Some(false), None] {
            assert_eq!(way(is_old, true, false), Way::Rows, "something depends on it");
        }
    }
}
