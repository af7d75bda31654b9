use walpost_router::NameFilter;

use crate::judge::Scope;

/// Which tables are read, and which of their columns. Patterns match whole names
/// of any case, `schema.table` and `schema.table.column`, without quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// `schema.include.list` or `schema.exclude.list`.
    pub schemas: NameFilter,
    /// `table.include.list` or `table.exclude.list`.
    pub tables: NameFilter,
    /// `column.include.list` or `column.exclude.list`.
    pub columns: NameFilter,
    /// `table.ignore.builtin`, default true.
    pub ignores_builtin: bool,
    /// `signal.data.collection`: no outbox. A row in it asks for something that
    /// Walpost does not do, and has to be an error.
    pub signals: Option<SignalTable>,
}

/// The table of signals, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalTable {
    /// Schema.
    pub schema: String,
    /// Table.
    pub table: String,
}

impl Tables {
    /// Whether a table is an outbox. `own` is the schema of Walpost's own tables
    /// (`pipeline.schema`), of which the outbox and its partitions alone may be:
    /// what an event is parked in would otherwise be the next event.
    pub fn reads(&self, schema: &str, table: &str, own: &str) -> bool {
        !(self.ignores_builtin && is_builtin(schema, table))
            && (schema != own || is_outbox(table))
            && !self.is_signal(schema, table)
            && self.schemas.passes(schema)
            && self.tables.passes(&format!("{schema}.{table}"))
    }

    /// Whether rows of a table are signals.
    pub fn is_signal(&self, schema: &str, table: &str) -> bool {
        let named = |signals: &SignalTable| signals.schema == schema && signals.table == table;
        self.signals.as_ref().is_some_and(named)
    }

    /// Whether no filter says which tables are outboxes.
    pub fn has_no_filter(&self) -> bool {
        self.schemas == NameFilter::All && self.tables == NameFilter::All
    }
}

/// What Debezium takes for PostgreSQL's own.
fn is_builtin(schema: &str, table: &str) -> bool {
    let is_schema = ["pg_catalog", "information_schema"].iter();
    is_schema.into_iter().any(|known| known.eq_ignore_ascii_case(schema))
        || schema.starts_with("pg_temp")
        || table.eq_ignore_ascii_case("spatial_ref_sys")
}

/// Of Walpost's own tables.
fn is_outbox(table: &str) -> bool {
    let is_partition = table.starts_with("outbox_");
    table == "outbox"
        || (is_partition && table != "outbox_key" && !table.starts_with("outbox_archive"))
}

pub(crate) fn tables(scope: &mut Scope<'_>) -> Tables {
    Tables {
        schemas: filter(scope, "schema"),
        tables: filter(scope, "table"),
        columns: filter(scope, "column"),
        ignores_builtin: scope.boolean("table.ignore.builtin"),
        signals: signals(scope),
    }
}

fn signals(scope: &mut Scope<'_>) -> Option<SignalTable> {
    const NAME: &str = "signal.data.collection";
    let name = scope.given(NAME)?;
    match name.split_once('.').filter(|(schema, table)| !schema.is_empty() && !table.is_empty()) {
        Some((schema, table)) => {
            Some(SignalTable { schema: schema.to_owned(), table: table.to_owned() })
        }
        None => {
            scope.refuse(NAME, "it is no schema.table; write that, or remove it");
            None
        }
    }
}

/// `<of>.include.list` and `<of>.exclude.list`, not both.
pub(crate) fn filter(scope: &mut Scope<'_>, of: &str) -> NameFilter {
    let (include, exclude) = (format!("{of}.include.list"), format!("{of}.exclude.list"));
    let (included, excluded) = (scope.patterns(&include), scope.patterns(&exclude));
    match (included.is_empty(), excluded.is_empty()) {
        (false, false) => {
            scope.refuse(&exclude, format!("{include} is given too; remove one of them"));
            NameFilter::Include(included)
        }
        (false, true) => NameFilter::Include(included),
        (true, false) => NameFilter::Exclude(excluded),
        (true, true) => NameFilter::All,
    }
}
