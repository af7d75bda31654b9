//! Which ids are unique among themselves.
//!
//! An id that is not globally unique identifies an event only together with its
//! table. A row of the table `id_space` gives each outbox table a random id that
//! survives renames, upgrades and restores, and that does not depend on which
//! pipeline publishes the table.

mod refusals;
mod table;

use std::collections::HashMap;

use bytes::Bytes;
use uuid::Uuid;
use walpost_event::{GLOBALLY_UNIQUE_PATTERN, Header, Relation, is_globally_unique};

pub(crate) use self::table::IdSpaceTable;
use crate::{
    checkpoint::Checkpoint,
    config::{Initial, RelayConfig, TableName},
    event_id::printed,
    headers::SOURCE_HEADER,
    wal::{quote_identifier, quote_literal, slot::Slot},
};

/// The id spaces of a database, by table.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdSpaces {
    /// By the object ids of tables and of their partitions.
    tables: HashMap<u32, IdSpace>,
    /// Of logical messages, which have no table.
    messages: Option<IdSpace>,
}

/// One id space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdSpace {
    pub(crate) id: Uuid,
    header: Header,
}

impl IdSpace {
    pub(crate) fn new(id: Uuid) -> Self {
        let value = Some(Bytes::from(id.to_string()));
        Self { id, header: Header { name: SOURCE_HEADER.into(), value } }
    }

    /// The header of the events that belong to it.
    pub(crate) fn header(&self) -> Header {
        self.header.clone()
    }

    fn value(&self) -> Option<&Bytes> {
        self.header.value.as_ref()
    }
}

impl IdSpaces {
    /// The id space of a table that the stream has named, by its object id.
    pub(crate) fn of(&self, relation: &Relation) -> Option<&IdSpace> {
        self.tables.get(&relation.oid)
    }

    /// The id space of logical messages.
    pub(crate) fn of_messages(&self) -> Option<&IdSpace> {
        self.messages.as_ref()
    }

    /// Of a relation that is no table, that of logical messages.
    pub(crate) fn learn(&mut self, relation: &Relation, id: Uuid) {
        match relation.oid {
            0 => self.messages = Some(IdSpace::new(id)),
            oid => _ = self.tables.insert(oid, IdSpace::new(id)),
        }
    }

    /// Whether a record with this source is one of this database.
    pub(crate) fn has(&self, source: &[u8]) -> bool {
        let is_it = |space: &IdSpace| space.value().is_some_and(|value| value == source);
        self.tables.values().chain(&self.messages).any(is_it)
    }

    /// As in the simulation, where a pipeline has one table, by its number.
    #[cfg(test)]
    pub(crate) fn simulated(table: usize) -> Self {
        let space = IdSpace::new(Uuid::from_u128(table as u128));
        Self { tables: [(1, space.clone())].into(), messages: Some(space) }
    }
}

/// How a pipeline begins with its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// The pipeline has a position.
    Before,
    /// Its rows have a state.
    Polling,
    /// It is the first start, and it publishes every row.
    WithAllRows,
    /// It is the first start, and another program may have published rows.
    WithoutRows,
    /// It is the first start, on a slot that another program may have read.
    OnForeignSlot,
}

impl Begins {
    /// How a pipeline of this checkpoint and this slot starts.
    pub(crate) fn of(
        checkpoint: Option<&Checkpoint>,
        slot: Option<&Slot>,
        config: &RelayConfig,
    ) -> Self {
        let snapshot = &config.snapshot;
        let is_whole = snapshot.tables.is_none() && snapshot.overrides.is_empty();
        match (checkpoint, slot, config.initial) {
            (Some(_), ..) => Self::Before,
            (None, Some(_), _) => Self::OnForeignSlot,
            (None, None, Some(Initial::Publish)) if is_whole => Self::WithAllRows,
            _ => Self::WithoutRows,
        }
    }
}

/// An SQL expression of the id space of a table.
pub(crate) fn of_table(config: &RelayConfig, table: &TableName) -> String {
    let name = quote_literal(&table.quoted());
    format!(
        "(select s.id from {}.id_space s where s.outbox = \
         coalesce(pg_partition_root(to_regclass({name})), to_regclass({name})))",
        quote_identifier(&config.schema)
    )
}

/// Whether consumers may know events of a table by another source than the pipeline's,
/// as an expression of SQL.
pub(crate) fn is_shared_in_sql(config: &RelayConfig, table: &TableName) -> String {
    let space = of_table(config, table);
    format!(
        "({} and coalesce((select not s.only_walpost from {}.id_space s where s.id = {space}), \
         true))",
        config.source_header,
        quote_identifier(&config.schema)
    )
}

/// Whether the id of a row is globally unique, as a condition of SQL.
pub(crate) fn is_unique_in_sql(id_column: &str) -> String {
    let id = printed(&quote_identifier(id_column));
    format!("coalesce({id} ~ {}, false)", quote_literal(GLOBALLY_UNIQUE_PATTERN))
}

/// What identifies an event: its id, and its source where the id is not globally
/// unique.
pub(crate) fn identity(source: &[u8], id: &[u8]) -> Bytes {
    match is_unique(id) {
        true => Bytes::copy_from_slice(id),
        // No source has this byte, so no two pairs are alike.
        false => [source, b"\0", id].concat().into(),
    }
}

/// Whether an id as a record has it is globally unique.
pub(crate) fn is_unique(id: &[u8]) -> bool {
    std::str::from_utf8(id).is_ok_and(is_globally_unique)
}
