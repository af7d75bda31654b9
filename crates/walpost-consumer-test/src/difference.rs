//! Two states of tables compared: pure.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use crate::tables::{Rows, Snapshot, Table};

/// Rows of a table that a text names; of the others it has the number.
const MAX_SHOWN: usize = 10;

/// What differs between two states of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableChange {
    /// Name of the table, with its schema unless that is `public`.
    pub table: String,
    /// Each row that differs.
    pub rows: Vec<RowChange>,
}

/// What differs in one row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowChange {
    /// Names and values of the columns of the primary key; empty where the table
    /// has none, or one that differs between runs.
    pub key: Vec<(String, String)>,
    /// What happened to it.
    pub change: Change,
}

/// How a row differs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It was not there before.
    Inserted,
    /// It is not there any more.
    Deleted,
    /// These columns have other values.
    Updated {
        /// Their names.
        columns: Vec<String>,
        /// Their values before and after, if
        /// [`show_contents`](crate::HandlerTest::show_contents) was asked for.
        values: Option<Vec<(Option<String>, Option<String>)>>,
    },
}

/// How states are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparing {
    /// All columns count: they are states of one database.
    pub(crate) whole: bool,
    pub(crate) contents: bool,
}

/// The tables that differ, with their rows.
pub(crate) fn compare(
    tables: &[Table],
    before: &Snapshot,
    after: &Snapshot,
    how: Comparing,
) -> Vec<TableChange> {
    let none = Rows::new();
    let changes = tables.iter().map(|table| {
        let of = |snapshot: &'_ Snapshot| snapshot.tables.get(&table.name).cloned();
        let (before, after) = (of(before), of(after));
        let rows = compare_rows(
            table,
            before.as_ref().unwrap_or(&none),
            after.as_ref().unwrap_or(&none),
            how,
        );
        TableChange { table: table.name.clone(), rows }
    });
    changes.filter(|change| !change.rows.is_empty()).collect()
}

fn compare_rows(table: &Table, before: &Rows, after: &Rows, how: Comparing) -> Vec<RowChange> {
    let counts = |index: &usize| how.whole || !table.columns[*index].left_out;
    let indexes: Vec<usize> = (0..table.columns.len()).filter(counts).collect();
    let key: Vec<usize> =
        (0..table.columns.len()).filter(|index| table.columns[*index].in_key).collect();
    if key.is_empty() || !key.iter().all(counts) {
        return by_whole_rows(&indexes, before, after);
    }
    let keyed = |rows: &Rows| -> BTreeMap<Row, Row> {
        rows.iter().map(|row| (pick(row, &key), pick(row, &indexes))).collect()
    };
    let (before, mut after) = (keyed(before), keyed(after));
    let mut changes = Vec::new();
    for (of, old) in before {
        let change = match after.remove(&of) {
            None => Change::Deleted,
            Some(new) if new == old => continue,
            Some(new) => updated(table, &indexes, &old, &new, how.contents),
        };
        changes.push(RowChange { key: named(table, &key, &of), change });
    }
    let inserted =
        after.keys().map(|of| RowChange { key: named(table, &key, of), change: Change::Inserted });
    changes.extend(inserted);
    changes
}

type Row = Vec<Option<String>>;

fn pick(row: &[Option<String>], indexes: &[usize]) -> Row {
    indexes.iter().map(|index| row[*index].clone()).collect()
}

fn named(table: &Table, key: &[usize], of: &[Option<String>]) -> Vec<(String, String)> {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "null".to_owned());
    key.iter().zip(of).map(|(at, of)| (table.columns[*at].name.clone(), value(of))).collect()
}

fn updated(table: &Table, indexes: &[usize], old: &Row, new: &Row, contents: bool) -> Change {
    let differ: Vec<usize> = (0..indexes.len()).filter(|at| old[*at] != new[*at]).collect();
    let columns = differ.iter().map(|at| table.columns[indexes[*at]].name.clone()).collect();
    let values =
        contents.then(|| differ.iter().map(|at| (old[*at].clone(), new[*at].clone())).collect());
    Change::Updated { columns, values }
}

/// Without a key that means the same in both.
fn by_whole_rows(indexes: &[usize], before: &Rows, after: &Rows) -> Vec<RowChange> {
    let mut balance: HashMap<Row, i64> = HashMap::new();
    for (rows, step) in [(before, -1), (after, 1)] {
        for row in rows {
            *balance.entry(pick(row, indexes)).or_default() += step;
        }
    }
    let inserted = balance.values().filter(|count| **count > 0).sum::<i64>();
    let deleted = -balance.values().filter(|count| **count < 0).sum::<i64>();
    let rows = |change: Change, count: i64| {
        (0..count).map(move |_| RowChange { key: Vec::new(), change: change.clone() })
    };
    rows(Change::Deleted, deleted).chain(rows(Change::Inserted, inserted)).collect()
}

/// Columns whose values differ between two undisturbed runs are left out; the
/// name of a table where even the number of rows does is the error.
pub(crate) fn leave_out_unsteady(
    tables: &mut [Table],
    one: &Snapshot,
    other: &Snapshot,
) -> Result<(), String> {
    for table in tables {
        let none = Rows::new();
        let of = |snapshot: &Snapshot| snapshot.tables.get(&table.name).cloned();
        let (one, other) =
            (of(one).unwrap_or_else(|| none.clone()), of(other).unwrap_or_else(|| none.clone()));
        if one.len() != other.len() {
            return Err(table.name.clone());
        }
        for (index, column) in table.columns.iter_mut().enumerate() {
            let sorted = |rows: &Rows| {
                let mut values: Vec<_> = rows.iter().map(|row| row[index].clone()).collect();
                values.sort_unstable();
                values
            };
            column.left_out |= sorted(&one) != sorted(&other);
        }
    }
    Ok(())
}

impl TableChange {
    /// How many rows were inserted, updated and deleted.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |wanted: fn(&Change) -> bool| {
            self.rows.iter().filter(|row| wanted(&row.change)).count()
        };
        (
            count(|change| matches!(change, Change::Inserted)),
            count(|change| matches!(change, Change::Updated { .. })),
            count(|change| matches!(change, Change::Deleted)),
        )
    }
}

/// A line for the table, and one for each of the first rows.
impl fmt::Display for TableChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (inserted, updated, deleted) = self.counts();
        let table = &self.table;
        write!(f, "{table:<30} {inserted:>8} {updated:>8} {deleted:>8}")?;
        let named = self.rows.iter().filter(|row| !row.key.is_empty());
        for row in named.clone().take(MAX_SHOWN) {
            write!(f, "\n    {row}")?;
        }
        let more = named.count().saturating_sub(MAX_SHOWN);
        if more > 0 { write!(f, "\n    and {more} more") } else { Ok(()) }
    }
}

impl fmt::Display for RowChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key: Vec<String> =
            self.key.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let key = key.join(", ");
        match &self.change {
            Change::Inserted => write!(f, "inserted {key}"),
            Change::Deleted => write!(f, "deleted {key}"),
            Change::Updated { columns, values: None } => {
                write!(f, "updated {key}: {}", columns.join(", "))
            }
            Change::Updated { columns, values: Some(values) } => {
                write!(f, "updated {key}:")?;
                let shown = |value: &Option<String>| value.clone().unwrap_or("null".to_owned());
                for (column, (old, new)) in columns.iter().zip(values) {
                    write!(f, " {column} from {} to {}", shown(old), shown(new))?;
                }
                Ok(())
            }
        }
    }
}

/// The changes below a head line; nothing for none.
pub(crate) fn write_table(f: &mut fmt::Formatter<'_>, changes: &[TableChange]) -> fmt::Result {
    if changes.is_empty() {
        return Ok(());
    }
    write!(f, "\n{:<30} {:>8} {:>8} {:>8}", "table", "inserted", "updated", "deleted")?;
    changes.iter().try_for_each(|change| write!(f, "\n{change}"))
}

#[cfg(test)]
mod tests;
