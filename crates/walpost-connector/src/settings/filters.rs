use walpost_router::Pattern;

use crate::{judge::Scope, lists};

/// What is read, of names of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    /// Whatever there is.
    #[default]
    All,
    /// What one of these matches as a whole.
    Include(Vec<Pattern>),
    /// What none of these matches.
    Exclude(Vec<Pattern>),
}

impl Filter {
    /// Whether something of this name is read.
    pub fn passes(&self, name: &str) -> bool {
        let found = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(name));
        match self {
            Self::All => true,
            Self::Include(patterns) => found(patterns),
            Self::Exclude(patterns) => !found(patterns),
        }
    }
}

/// Which tables are read, and which of their columns. Patterns match whole names
/// of any case, `schema.table` and `schema.table.column`, without quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// `schema.include.list` or `schema.exclude.list`.
    pub schemas: Filter,
    /// `table.include.list` or `table.exclude.list`.
    pub tables: Filter,
    /// `column.include.list` or `column.exclude.list`.
    pub columns: Filter,
    /// `table.ignore.builtin`, default true.
    pub ignores_builtin: bool,
}

impl Tables {
    /// Whether a table is read.
    pub fn reads(&self, schema: &str, table: &str) -> bool {
        !(self.ignores_builtin && is_builtin(schema, table))
            && self.schemas.passes(schema)
            && self.tables.passes(&format!("{schema}.{table}"))
    }

    /// Whether a column of a table that is read is.
    pub fn reads_column(&self, schema: &str, table: &str, column: &str) -> bool {
        self.columns.passes(&format!("{schema}.{table}.{column}"))
    }
}

/// What Debezium takes for PostgreSQL's own.
fn is_builtin(schema: &str, table: &str) -> bool {
    let is_schema = ["pg_catalog", "information_schema"].iter();
    is_schema.into_iter().any(|known| known.eq_ignore_ascii_case(schema))
        || schema.starts_with("pg_temp")
        || table.eq_ignore_ascii_case("spatial_ref_sys")
}

pub(crate) fn tables(scope: &mut Scope<'_>) -> Tables {
    Tables {
        schemas: filter(scope, "schema"),
        tables: filter(scope, "table"),
        columns: filter(scope, "column"),
        ignores_builtin: scope.boolean("table.ignore.builtin"),
    }
}

/// `<of>.include.list` and `<of>.exclude.list`, not both.
pub(crate) fn filter(scope: &mut Scope<'_>, of: &str) -> Filter {
    let (include, exclude) = (format!("{of}.include.list"), format!("{of}.exclude.list"));
    let (included, excluded) = (patterns(scope, &include), patterns(scope, &exclude));
    match (included.is_empty(), excluded.is_empty()) {
        (false, false) => {
            scope.refuse(&exclude, format!("{include} is given too; remove one of them"));
            Filter::All
        }
        (false, true) => Filter::Include(included),
        (true, false) => Filter::Exclude(excluded),
        (true, true) => Filter::All,
    }
}

/// Patterns that ignore case; those that do not compile are refused already.
pub(crate) fn patterns(scope: &Scope<'_>, name: &str) -> Vec<Pattern> {
    let list = lists::split_escaped(&scope.given(name).unwrap_or_default());
    list.iter().filter_map(|text| Pattern::ignoring_case(text).ok()).collect()
}
