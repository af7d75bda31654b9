//! Rows that an update has moved to another partition, and tables that come while the
//! stream is read.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;
use walpost_event::{Operation, Relation, RowChange, type_oid};

use super::{Converter, table_name};
use crate::{config::TableName, error::RelayError};

/// Ids of deleted rows that are remembered until their transaction ends. An update
/// that moves rows deletes and inserts them one by one; more are only deleted.
const DELETED_MAX: usize = 1 << 18;

/// Id space and id of a row.
type DeletedRow = (Option<Uuid>, Vec<u8>);

/// What is known of the partitioned tables, and of the transaction at hand.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// By object id.
    tables: HashSet<u32>,
    /// The stream brings deletes.
    has_deletes: bool,
    xid: u32,
    /// It was replicated here, with what its rows said elsewhere.
    is_replicated: bool,
    /// By id space, since another table may have a row of the same id.
    deleted: HashSet<DeletedRow>,
}

impl Moves {
    /// Of tables that are partitioned, or partitions.
    pub(crate) fn new(tables: HashSet<u32>, has_deletes: bool) -> Self {
        Self { tables, has_deletes, ..Self::default() }
    }

    fn has_other_xid(&self, change: &RowChange) -> bool {
        let relation = change.row.relation();
        let is_xid = |index: &usize| relation.columns[*index].type_oid == type_oid::XID8;
        let index = relation.column_index("xid").filter(is_xid);
        let text = index.and_then(|index| change.row.text(index));
        let Some(xid) = text.and_then(|text| text.parse::<u64>().ok()) else { return false };
        // The stream has the lower half. One that is younger is of another cluster.
        (self.xid.wrapping_sub(xid as u32) as i32) > 0
    }
}

impl Converter {
    /// The same, of a stream in which rows move between partitions.
    pub(crate) fn with_moves(mut self, moves: Moves) -> Self {
        self.moves = moves;
        self
    }

    /// A transaction begins.
    pub(crate) fn begin(&mut self, xid: u32) {
        self.moves.xid = xid;
        self.moves.is_replicated = false;
        self.moves.deleted.clear();
    }

    /// The transaction at hand was replicated here.
    pub(crate) fn replicated(&mut self) {
        self.moves.is_replicated = true;
    }

    /// Remembers a row that is deleted, and may be on its way to another partition.
    pub(crate) fn note_delete(&mut self, change: &RowChange) {
        if change.operation != Operation::Delete
            || self.moves.deleted.len() >= DELETED_MAX
            || !self.moves.tables.contains(&change.row.relation().oid)
        {
            return;
        }
        if let Some(row) = self.deleted_row(change) {
            self.moves.deleted.insert(row);
        }
    }

    fn deleted_row(&self, change: &RowChange) -> Option<DeletedRow> {
        let space = self.id_space(change.row.relation(), false).map(|space| space.id);
        Some((space, self.identity(&change.row).event_id?.to_vec()))
    }

    /// Whether an insert is a row that was in the stream before, and was moved to
    /// another partition since.
    ///
    /// # Errors
    /// A fatal one where that may be so, and nothing tells.
    pub(crate) fn is_moved(&mut self, change: &RowChange) -> Result<bool, RelayError> {
        let relation = change.row.relation();
        if !self.moves.tables.contains(&relation.oid) {
            return Ok(false);
        }
        if !self.moves.deleted.is_empty()
            && let Some(row) = self.deleted_row(change)
            && self.moves.deleted.remove(&row)
        {
            return Ok(true);
        }
        let moves = &self.moves;
        if moves.has_deletes || moves.is_replicated || !moves.has_other_xid(change) {
            return Ok(false);
        }
        let table = table_name(relation);
        Err(RelayError::Fatal(format!(
            "a row came into {table} that says in column xid that an earlier transaction has \
             inserted it: an update of a column of the partitions' key has moved it, or it was \
             copied, and the stream does not tell which; let the publication publish deletes \
             (`alter publication … set (publish = 'insert, delete')`), by which a move is known, \
             and run `walpost slot recover`, which publishes what is missing once"
        )))
    }
}

/// Tables that were not there when the tables were looked for.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    known: HashMap<TableName, bool>,
}

impl Converter {
    /// The table of a relation that is none of the outbox tables, and would be one if
    /// they were looked for now.
    pub(crate) fn arrival(&mut self, relation: &Relation) -> Option<TableName> {
        let filter = self.new_tables.as_ref()?;
        let table = table_name(relation);
        let known = &mut self.arrivals.known;
        let passes = match known.get(&table) {
            Some(passes) => *passes,
            None => {
                let passes = filter.passes(&table);
                known.insert(table.clone(), passes);
                passes
            }
        };
        passes.then_some(table)
    }
}
