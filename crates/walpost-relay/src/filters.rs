//! What of the stream is an event, beside tables and prefixes by their names:
//! Debezium's filters by pattern, and operations that are skipped.

use std::{borrow::Cow, sync::Arc};

use walpost_event::{Operation, Relation, RowChange};
use walpost_router::NameFilter;

use crate::{
    config::{RelayConfig, TableName},
    convert::table_name,
    error::RelayError,
    moves::crossing,
};

/// Operations in the stream that are passed over (`skipped.operations`). Deletes
/// and truncations are no events either way, and rows from before the stream are
/// none of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkippedOperations {
    /// Inserts: nothing of the stream's tables is an event.
    pub insert: bool,
    /// Updates: `table.op.invalid.behavior` does not hear of them.
    pub update: bool,
}

/// Which prefixes of logical messages are events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefixes {
    exact: Vec<String>,
    filter: Option<NameFilter>,
}

impl Prefixes {
    pub(crate) fn new(config: &RelayConfig) -> Self {
        let filter = config.takes_messages().then(|| config.message_filter.clone()).flatten();
        Self { exact: config.event_prefixes().to_vec(), filter }
    }

    pub(crate) fn takes(&self, prefix: &str) -> bool {
        // Where rows were moved is for the relay itself.
        prefix != crossing::PREFIX
            && (self.exact.iter().any(|known| known == prefix)
                || self.filter.as_ref().is_some_and(|filter| filter.passes(prefix)))
    }
}

/// Rows of the tables without the columns that are not read.
#[derive(Debug)]
pub(crate) struct Columns {
    filter: NameFilter,
    tables: Vec<TableName>,
    /// Of the relation that came last: what is left of it, and where that is.
    last: Option<(Arc<Relation>, Arc<Relation>, Vec<usize>)>,
}

impl Columns {
    pub(crate) fn new(config: &RelayConfig) -> Self {
        Self { filter: config.columns.clone(), tables: config.tables.clone(), last: None }
    }

    /// The change without what is not read of its row. What a message says is
    /// read whole.
    pub(crate) fn of<'a>(&mut self, change: &'a RowChange) -> Cow<'a, RowChange> {
        if self.filter == NameFilter::All {
            return Cow::Borrowed(change);
        }
        let whole = change.row.relation();
        if !self.last.as_ref().is_some_and(|(last, ..)| Arc::ptr_eq(last, whole)) {
            let (left, kept) = self.left(whole);
            self.last = Some((whole.clone(), Arc::new(left), kept));
        }
        match &self.last {
            Some((whole, left, kept)) if kept.len() < whole.columns.len() => {
                let row = change.row.project(left.clone(), kept);
                // Of the row of before its key alone is asked for.
                Cow::Owned(RowChange { operation: change.operation, row, old: change.old.clone() })
            }
            _ => Cow::Borrowed(change),
        }
    }

    fn left(&self, whole: &Relation) -> (Relation, Vec<usize>) {
        let table = table_name(whole);
        let is_outbox = self.tables.contains(&table);
        let is_kept = |name: &str| !is_outbox || self.filter.passes(&format!("{table}.{name}"));
        let kept: Vec<usize> =
            (0..whole.columns.len()).filter(|index| is_kept(&whole.columns[*index].name)).collect();
        let columns = kept.iter().map(|index| whole.columns[*index].clone()).collect();
        (Relation { columns, ..whole.clone() }, kept)
    }
}

/// A row in the table of signals asks for what is not done here, and saying
/// nothing would be taken for doing it.
///
/// # Errors
/// A fatal one for such a row.
pub(crate) fn no_signal(signals: Option<&TableName>, change: &RowChange) -> Result<(), RelayError> {
    let relation = change.row.relation();
    let is_signal =
        |table: &&TableName| table.schema == relation.schema && table.name == relation.name;
    match signals.filter(is_signal) {
        Some(table) if change.operation == Operation::Insert => Err(RelayError::Fatal(format!(
            "a signal was inserted into {table}, and signals are not supported: nothing was done \
             for it; publish rows once more with `walpost replay`, and take \
             signal.data.collection out of the file to go on behind the signal"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use walpost_event::{Column, ReplicaIdentity, Row, type_oid};
    use walpost_router::Pattern;

    use super::*;

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| Pattern::ignoring_case(text).unwrap()).collect()
    }

    #[test]
    fn prefixes_are_taken_by_name_and_by_pattern_and_walposts_own_never() {
        let mut config = RelayConfig::new("shop");
        let prefixes = Prefixes::new(&config);
        assert!(prefixes.takes("walpost") && !prefixes.takes("orders"));
        config.message_prefixes = Vec::new();
        config.message_filter = Some(NameFilter::All);
        let prefixes = Prefixes::new(&config);
        assert!(prefixes.takes("orders") && !prefixes.takes(crossing::PREFIX));
        config.message_filter = Some(NameFilter::Include(patterns(&["order.*", "walpost-.*"])));
        let prefixes = Prefixes::new(&config);
        assert!(prefixes.takes("Orders") && !prefixes.takes("stock"));
        assert!(!prefixes.takes(crossing::PREFIX), "also where a pattern has it");
        config.message_filter = Some(NameFilter::Exclude(patterns(&["stock"])));
        let prefixes = Prefixes::new(&config);
        assert!(prefixes.takes("orders") && !prefixes.takes("stock"));
        config.row_filter = Some("true".to_owned());
        assert!(!Prefixes::new(&config).takes("orders"), "they are another pipeline's");
    }

    #[test]
    fn columns_that_are_not_read_are_not_in_the_row() {
        let column = |name: &str| Column {
            name: name.into(),
            type_oid: type_oid::TEXT,
            type_modifier: -1,
            is_key: false,
        };
        let relation = Arc::new(Relation {
            oid: 1,
            schema: "shop".into(),
            name: "outbox".into(),
            replica_identity: ReplicaIdentity::Default,
            columns: ["id", "secret", "payload"].map(column).into(),
        });
        let row = Row::from_text(relation.clone(), [Some("e1"), Some("hunter2"), None::<&str>]);
        let change = RowChange::insert(row);
        let mut config = RelayConfig::new("shop");
        config.tables = vec!["shop.outbox".parse().unwrap()];
        config.columns = NameFilter::Exclude(patterns(&[r"shop\.outbox\.secret"]));
        let mut columns = Columns::new(&config);
        for _ in 0..2 {
            let left = columns.of(&change).into_owned().row;
            assert_eq!(left.relation().columns.len(), 2);
            assert_eq!((left.text(0), left.text(1)), (Some("e1"), None));
            assert_eq!(left.relation().column_index("secret"), None);
        }
        let whole = |config: &RelayConfig| {
            let read = Columns::new(config).of(&change).into_owned();
            Arc::ptr_eq(read.row.relation(), &relation)
        };
        assert!(!whole(&config));
        config.tables = vec!["shop.other".parse().unwrap()];
        assert!(whole(&config), "the row of a message has no table");
        config.columns = NameFilter::All;
        assert!(whole(&config));
    }
}
