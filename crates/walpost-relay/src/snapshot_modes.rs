//! Which rows that are there before the stream are published, and what comes
//! behind them: Debezium's `snapshot.*` beyond publishing and skipping, which
//! [`Initial`](crate::Initial) says.

use std::fmt;

use tokio_postgres::types::Type;
use walpost_event::Relation;
use walpost_router::{Pattern, RouterConfig};

use crate::{
    columns,
    config::{Initial, RelayConfig, TableName},
    error::RelayError,
    parked::ParkedId,
    sql::Sql,
    wal::{preflight, row_filter, snapshot::describe},
};

/// Rows that are counted before they are published, and how long; more are only said
/// to be more.
const COUNTED_MAX_ROWS: i64 = 10_000_000;
const COUNTING_MAX_MS: u64 = 5_000;
/// What a SELECT that takes a table's place is called in statements.
const ALIAS: &str = "walpost_rows";

/// What a [`RelayConfig`] says of the rows that are in the outbox tables before
/// the stream begins, beside [`initial`](RelayConfig::initial).
///
/// Debezium's modes: `initial` is the default with
/// [`Initial::Publish`](crate::Initial::Publish), `no_data` with
/// [`Initial::Skip`](crate::Initial::Skip), `initial_only` the first without
/// [`stream`](Self::stream), `always` the first with
/// [`each_start`](Self::each_start), `when_needed` the first with
/// [`LostSlot::Recover`](crate::LostSlot::Recover).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Go on with the stream. Where it is false, a start publishes what is to be
    /// published, drops the slot that it has made for that, and ends without an
    /// error; a later start ends at once. Default true.
    pub stream: bool,
    /// Each start of the process publishes all rows once more, by
    /// [`SnapshotAgain`](crate::SnapshotAgain). Default false.
    pub each_start: bool,
    /// Of the outbox tables only those whose `schema.table` one of these
    /// matches; `None` (the default) for all.
    pub tables: Option<Vec<Pattern>>,
    /// Tables whose rows a SELECT chooses. Default none.
    pub overrides: Vec<SelectOverride>,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self { stream: true, each_start: false, tables: None, overrides: Vec::new() }
    }
}

/// The rows of one table in a snapshot.
#[derive(Clone, PartialEq, Eq)]
pub struct SelectOverride {
    /// The table.
    pub table: TableName,
    /// A SELECT of its columns, which stands in a FROM. It has all that the
    /// router needs, each of the table's type; others may be missing.
    pub statement: String,
}

impl fmt::Debug for SelectOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may have values of rows in it.
        write!(f, "SelectOverride({})", self.table)
    }
}

/// Where the rows of a table are read from, and what they have.
pub(crate) struct Rows {
    /// What stands behind FROM.
    pub(crate) from: String,
    /// The columns that are there.
    pub(crate) relation: Relation,
    /// They are rows of a table, which have a place in it.
    pub(crate) is_table: bool,
}

impl Rows {
    /// All rows of a table.
    pub(crate) fn of_table(table: &TableName, relation: Relation) -> Self {
        Self { from: table.quoted(), relation, is_table: true }
    }

    /// Whether a column says which transaction wrote a row.
    pub(crate) fn tell_transactions(&self) -> bool {
        self.relation.column_index("xid").is_some()
    }
}

/// What a first start has to publish before the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstLoad {
    Nothing,
    /// It goes on where it was interrupted.
    Resumable,
    /// Nothing tells later which rows belong to it: one that is interrupted
    /// cannot go on.
    InOneGo,
}

impl Snapshot {
    /// Whether rows of a table are read.
    pub(crate) fn reads(&self, table: &TableName) -> bool {
        let name = table.to_string();
        self.tables
            .as_ref()
            .is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(&name)))
    }

    fn select(&self, table: &TableName) -> Option<String> {
        let of_table = self.overrides.iter().find(|select| select.table == *table)?;
        let statement = of_table.statement.trim().trim_end_matches([';', ' ', '\n']);
        // A comment at its end does not take the parenthesis with it.
        Some(format!("({statement}\n) as {ALIAS}"))
    }

    /// What stands behind FROM for a table's rows.
    pub(crate) fn from(&self, table: &TableName) -> String {
        self.select(table).unwrap_or_else(|| table.quoted())
    }
}

/// What a first start would publish of the rows that `sql` sees.
pub(crate) async fn first_load(sql: &Sql, config: &RelayConfig) -> Result<FirstLoad, RelayError> {
    // The role may not read them.
    if config.initial == Some(Initial::Skip) {
        return Ok(FirstLoad::Nothing);
    }
    let (mut has_rows, mut are_told) = (false, true);
    for table in config.tables.iter().filter(|table| config.snapshot.reads(table)) {
        let rows = rows(sql, config, table).await?;
        // A SELECT may bring others than the table has.
        has_rows = has_rows || !rows.is_table || preflight::has_rows(sql, config, table).await?;
        are_told &= rows.tell_transactions();
    }
    Ok(match (has_rows, are_told) {
        (false, _) => FirstLoad::Nothing,
        (true, true) => FirstLoad::Resumable,
        (true, false) => FirstLoad::InOneGo,
    })
}

/// The rows of a table that are read.
pub(crate) async fn rows(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
) -> Result<Rows, RelayError> {
    let mut relation = describe(sql, config, table).await?;
    let Some(from) = config.snapshot.select(table) else {
        return Ok(Rows::of_table(table, relation));
    };
    let selected = selected(sql, table, &from).await?;
    for column in &relation.columns {
        let other =
            selected.iter().find(|(name, of)| **name == *column.name && *of != column.type_oid);
        if other.is_some() {
            return Err(misfit(
                table,
                format!("selects {:?} as another type than the column has", &*column.name),
            ));
        }
    }
    relation.columns.retain(|column| selected.iter().any(|(name, _)| **name == *column.name));
    Ok(Rows { from, relation, is_table: false })
}

/// Names and types of what a statement selects.
async fn selected(
    sql: &Sql,
    table: &TableName,
    from: &str,
) -> Result<Vec<(String, u32)>, RelayError> {
    let select = format!("select * from {from}");
    let columns = sql.columns("reading the columns of a snapshot's SELECT", &select).await;
    columns.map_err(|error| match error {
        RelayError::Sql { source, .. } if source.code().is_some() => {
            misfit(table, format!("is refused by the server: {source}"))
        }
        error => error,
    })
}

fn misfit(table: &TableName, what: String) -> RelayError {
    RelayError::prerequisite(
        format!("the SELECT of snapshot.select.statement.overrides for table {table} {what}"),
        "write one SELECT, as it stands in a FROM, of the table's columns",
    )
}

/// Each SELECT has what the router needs.
pub(crate) async fn selects_fit(
    sql: &Sql,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Result<(), RelayError> {
    if config.initial != Some(Initial::Publish) {
        return Ok(());
    }
    for table in config.tables.iter().filter(|table| config.snapshot.reads(table)) {
        if config.snapshot.select(table).is_none() {
            continue;
        }
        let rows = rows(sql, config, table).await?;
        let present: Vec<&str> = rows.relation.columns.iter().map(|column| &*column.name).collect();
        if let Some((column, key)) = columns::missing(config, router, &present).into_iter().next() {
            return Err(misfit(table, format!("lacks column {column:?}, which {key} names")));
        }
    }
    Ok(())
}

/// What would be published first, with how many rows of which table.
pub(crate) async fn preview(sql: &Sql, config: &RelayConfig) -> Result<String, RelayError> {
    let mut found = Vec::new();
    for table in config.tables.iter().filter(|table| config.snapshot.reads(table)) {
        let rows = row_filter::condition_to_be(sql, config, table).await?;
        let query = format!(
            "select count(*) from (select from {} where {rows} limit {}) as found",
            config.snapshot.from(table),
            COUNTED_MAX_ROWS + 1
        );
        found.push(match counted(sql, config, &query).await? {
            Some(count @ ..=COUNTED_MAX_ROWS) => format!("{count} of {table}"),
            Some(_) => format!("more than {COUNTED_MAX_ROWS} of {table}"),
            None => format!("those of {table}, more than can be counted in a few seconds"),
        });
    }
    Ok(match found.is_empty() {
        true => "no rows are published first: snapshot.include.collection.list has no table".into(),
        false => format!("rows in the table are published first: {}", found.join(", ")),
    })
}

/// What a statement counts, unless that takes too long.
async fn counted(sql: &Sql, config: &RelayConfig, query: &str) -> Result<Option<i64>, RelayError> {
    let attempt = "counting the rows of the outbox table";
    // The server ends the statement, so that the session is free for the next one.
    let limit_ms = (config.statement_timeout_ms / 2).clamp(1, COUNTING_MAX_MS);
    sql.batch(attempt, &format!("begin; set local statement_timeout = {limit_ms}")).await?;
    let count = sql.one(attempt, query, &[]).await;
    sql.batch(attempt, "rollback").await?;
    match count {
        Ok(row) => Ok(Some(row.get(0))),
        Err(error) if error.is_timeout() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Which of these events are parked and not done: they are not published a first
/// time.
pub(crate) async fn parked(
    sql: &Sql,
    config: &RelayConfig,
    ids: &[&str],
) -> Result<Vec<ParkedId>, RelayError> {
    let table = TableName { schema: config.schema.clone(), name: "parked".to_owned() };
    let query = format!(
        "select event_id, id_space from {} where pipeline = $1 and event_id = any ($2) \
         and state <> 'done'",
        table.quoted()
    );
    let of = [(&config.pipeline as _, Type::TEXT), (&ids as _, Type::TEXT_ARRAY)];
    let rows = sql.query("looking for parked events", &query, &of).await?;
    Ok(rows.iter().map(|row| ParkedId { space: row.get(1), id: row.get(0) }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> TableName {
        name.parse().unwrap()
    }

    #[test]
    fn tables_are_chosen_by_pattern_and_a_select_takes_their_place() {
        let mut snapshot = Snapshot::default();
        assert!(snapshot.reads(&table("shop.outbox")));
        assert_eq!(snapshot.from(&table("shop.outbox")), r#""shop"."outbox""#);
        snapshot.tables = Some(vec![Pattern::ignoring_case(r"shop\.out.*").unwrap()]);
        assert!(snapshot.reads(&table("Shop.Outbox")) && !snapshot.reads(&table("stock.outbox")));
        let statement = "select * from shop.outbox -- new ones ; ; ".to_owned();
        snapshot.overrides = vec![SelectOverride { table: table("shop.outbox"), statement }];
        assert_eq!(
            snapshot.from(&table("shop.outbox")),
            "(select * from shop.outbox -- new ones\n) as walpost_rows"
        );
        assert_eq!(snapshot.from(&table("shop.other")), r#""shop"."other""#);
        let shown = format!("{snapshot:?}");
        assert!(shown.contains("shop.outbox") && !shown.contains("new ones"), "{shown}");
    }
}
