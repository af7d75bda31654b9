//! What would give an event a second source, and what to do.

use super::table::{IdSpaceTable, Ids, TableIds};
use crate::{config::RelayConfig, error::RelayError, wal::quote_literal};

impl IdSpaceTable {
    pub(super) fn other_scope(&self, config: &RelayConfig, of: &str, place: &str) -> RelayError {
        let (now, before) = (config.source_header, !config.source_header);
        RelayError::prerequisite(
            format!(
                "pipeline.source_header is {now}, and {of} were published with {before}: ids that \
                 are not globally unique would have another source, and consumers would apply an \
                 event twice that is published under both"
            ),
            format!(
                "set pipeline.source_header = {before} again; to change it, let the consumers \
                 apply everything that is published, replay none of it later, and run `update {} \
                 set scope = '{}', only_walpost = false where {place}`",
                self.name, self.scope
            ),
        )
    }

    pub(super) fn foreign_slot(&self, table: &TableIds) -> RelayError {
        let name = &table.name;
        RelayError::prerequisite(
            format!(
                "the pipeline begins on a slot that another program may have read, and ids of \
                 table {name} are not globally unique: consumers know what that program has \
                 published by its topic, and would apply it again under the table's id space"
            ),
            format!(
                "set pipeline.source_header = false before the first start; or, if no other \
                 program has published the table, run `insert into {} (outbox, scope, \
                 only_walpost) values ({}::regclass, 'table', true)`",
                self.name,
                quote_literal(&name.quoted())
            ),
        )
    }

    pub(super) fn published_again(&self, table: &TableIds) -> RelayError {
        let name = &table.name;
        RelayError::prerequisite(
            format!(
                "each start publishes all rows again, as snapshot.mode says, and another program \
                 may have published rows of table {name} under another source: its ids are not \
                 globally unique, so consumers would apply these events twice"
            ),
            format!(
                "set another snapshot.mode; or, if no other program has published the table, run \
                 `update {} set only_walpost = true where outbox = {}::regclass`",
                self.name,
                quote_literal(&name.quoted())
            ),
        )
    }
}

/// After a crash the topics tell what is published.
pub(super) fn told_apart(config: &RelayConfig, table: &TableIds) -> Result<(), RelayError> {
    if config.position_header || config.source_header || table.ids == Ids::Uuids {
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!(
            "position_header and source_header are off, and the ids of table {} are no uuids: \
             after a crash nothing tells which records are the table's",
            table.name
        ),
        "set pipeline.position_header or pipeline.source_header to true",
    ))
}
