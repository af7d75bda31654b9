use walpost_router::Pattern;

use crate::{choices::SnapshotMode, judge::Scope, secret::Secret};

/// Rows that are in the tables before the stream begins: `snapshot.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// `snapshot.mode`, default `initial`.
    pub mode: SnapshotMode,
    /// What `configuration_based` asks for.
    pub configuration: SnapshotConfiguration,
    /// `snapshot.include.collection.list`: which of the tables that are read;
    /// `None` for all of them. Patterns match `schema.table` of any case.
    pub tables: Option<Vec<Pattern>>,
    /// `snapshot.select.statement.overrides`: tables as `schema.table` with the
    /// SELECT that takes the place of all their rows.
    pub overrides: Vec<SelectOverride>,
}

/// `snapshot.mode.configuration.based.*`, of the mode of that name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotConfiguration {
    /// Whether a start without a position publishes the rows.
    pub data: bool,
    /// Whether it streams behind them.
    pub stream: bool,
    /// Whether a start whose position is gone publishes the rows.
    pub on_data_error: bool,
}

/// The rows of one table in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectOverride {
    /// `schema.table`.
    pub table: String,
    /// A SELECT of its columns.
    pub statement: Secret,
}

const MODE: &str = "snapshot.mode";
/// Tables of one list.
const MAX_OVERRIDES: usize = 1_000;
const OVERRIDES: &str = "snapshot.select.statement.overrides";

pub(crate) fn read(scope: &mut Scope<'_>) -> Snapshot {
    let mode = mode(scope);
    let based = |rest: &str| scope.boolean(&format!("snapshot.mode.configuration.based.{rest}"));
    let configuration = SnapshotConfiguration {
        data: based("snapshot.data"),
        stream: based("start.stream"),
        on_data_error: based("snapshot.on.data.error"),
    };
    let publishes = match mode {
        SnapshotMode::NoData => false,
        SnapshotMode::ConfigurationBased => configuration.data,
        SnapshotMode::Always
        | SnapshotMode::Initial
        | SnapshotMode::InitialOnly
        | SnapshotMode::WhenNeeded => true,
    };
    scope.lay(MODE, if publishes { "publish" } else { "skip" });
    let replaces = match mode {
        SnapshotMode::ConfigurationBased => configuration.on_data_error,
        mode => mode == SnapshotMode::WhenNeeded,
    };
    if replaces {
        scope.lay_at(MODE, ("pipeline", "on_lost_slot"), "recover");
    }
    let tables = scope.patterns("snapshot.include.collection.list");
    Snapshot {
        mode,
        configuration,
        tables: Some(tables).filter(|tables| !tables.is_empty()),
        overrides: overrides(scope),
    }
}

fn mode(scope: &mut Scope<'_>) -> SnapshotMode {
    let given = scope.given(MODE).map(|text| text.to_ascii_lowercase());
    let mode = match given.as_deref() {
        Some("never") => {
            scope.map(MODE, "no_data, which never is since Debezium 2.6");
            SnapshotMode::NoData
        }
        Some("exported") => {
            scope.map(MODE, "initial, which takes the slot's exported snapshot");
            SnapshotMode::Initial
        }
        _ => scope.choice(MODE),
    };
    if matches!(mode, SnapshotMode::Initial | SnapshotMode::InitialOnly) && given.is_none() {
        scope.tell(
            MODE,
            "which is initial: a start without a position publishes every row of the outbox; \
             no_data publishes none",
        );
    }
    if mode == SnapshotMode::Always {
        scope.tell(MODE, "and each start publishes every row of the outbox again");
    }
    mode
}

/// Each table of the list has a statement, and each statement a table.
fn overrides(scope: &mut Scope<'_>) -> Vec<SelectOverride> {
    let tables = scope.list(OVERRIDES);
    if tables.len() > MAX_OVERRIDES {
        let note = format!("it has {} tables; write at most {MAX_OVERRIDES}", tables.len());
        scope.refuse(OVERRIDES, note);
        return Vec::new();
    }
    for (table, _) in scope.beginning(&format!("{OVERRIDES}.")) {
        if !tables.contains(&table) {
            let name = format!("{OVERRIDES}.{table}");
            scope.refuse(&name, format!("{OVERRIDES} does not name {table}; add it there"));
        }
    }
    let mut overrides = Vec::new();
    for table in tables {
        let name = format!("{OVERRIDES}.{table}");
        let given = scope.given(&name);
        match given {
            Some(statement) => {
                let statement = Secret::new(statement);
                overrides.push(SelectOverride { table, statement });
            }
            None if scope.has(&name) => scope.refuse(&name, "it is empty; write a SELECT"),
            None => scope.refuse(
                OVERRIDES,
                format!(
                    "{name} is missing, and all rows would be read; write it, or remove {table}"
                ),
            ),
        }
    }
    overrides
}
