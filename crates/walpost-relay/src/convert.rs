use std::{collections::HashSet, sync::Arc};

use walpost_encode::Encoding;
use walpost_event::{Identity, Message, Relation, Row, RowChange, error_chain};
use walpost_pgoutput::LogicalMessage;
use walpost_router::{Routed, Router, SkipReason};

use crate::{
    columns,
    config::{RelayConfig, TableName},
    error::RelayError,
    parked::{Contents, ParkReason, Parking},
};

/// What an event was made of.
pub(crate) struct Origin {
    pub(crate) row: Row,
    /// The logical message that the row stands for.
    pub(crate) emitted: Option<LogicalMessage>,
}

impl Origin {
    /// Outbox table, or prefix of the logical message.
    pub(crate) fn source(&self) -> String {
        match &self.emitted {
            Some(message) => message.prefix.clone(),
            None => table_name(self.row.relation()).to_string(),
        }
    }

    /// All that there was of the event.
    pub(crate) fn contents(self) -> Contents {
        match self.emitted {
            Some(message) => Contents::Message(message.content),
            None => Contents::Row(self.row),
        }
    }
}

/// The table of a relation.
pub(crate) fn table_name(relation: &Relation) -> TableName {
    TableName { schema: relation.schema.clone(), name: relation.name.clone() }
}

/// From what the source yields to what the sink takes: the pure middle of the
/// pipeline.
pub(crate) struct Converter {
    router: Router,
    encoding: Encoding,
    tables: HashSet<TableName>,
    prefixes: Vec<String>,
    dead_letter_topic: Option<String>,
    placed_columns: Vec<(String, String)>,
    last_relation: Option<(Arc<Relation>, bool)>,
    updates: u64,
}

impl Converter {
    pub(crate) fn new(router: Router, encoding: Encoding, config: &RelayConfig) -> Self {
        Self {
            router,
            encoding,
            tables: config.tables.iter().cloned().collect(),
            prefixes: config.event_prefixes().to_vec(),
            dead_letter_topic: config.dead_letter_topic.clone(),
            placed_columns: config.placed_columns.clone(),
            last_relation: None,
            updates: 0,
        }
    }

    /// Whether rows of this relation are events.
    pub(crate) fn is_outbox(&mut self, relation: &Arc<Relation>) -> bool {
        if let Some((last, is_outbox)) = &self.last_relation
            && Arc::ptr_eq(last, relation)
        {
            return *is_outbox;
        }
        let is_outbox = self.tables.contains(&table_name(relation));
        self.last_relation = Some((relation.clone(), is_outbox));
        is_outbox
    }

    /// Whether messages with this prefix are events.
    pub(crate) fn is_outbox_prefix(&self, prefix: &str) -> bool {
        self.prefixes.iter().any(|known| known == prefix)
    }

    /// The row that a logical message stands for.
    pub(crate) fn message_row(&mut self, message: &LogicalMessage) -> Result<Row, Parking> {
        self.router.row_from_message(&message.content).map_err(|error| Parking {
            reason: ParkReason::Undecodable,
            detail: error_chain(&error),
        })
    }

    /// Who the event is, also when it cannot be routed.
    pub(crate) fn identity(&self, row: &Row) -> Identity {
        self.router.identity(row)
    }

    /// The message of an insert.
    pub(crate) fn message(&mut self, change: &RowChange) -> Result<Message, Parking> {
        let routed = self.router.route(change).map_err(|error| Parking {
            reason: ParkReason::Unroutable,
            detail: columns::told(&self.placed_columns, &error),
        })?;
        let Routed::Record(record) = routed else {
            let detail = "the router skips an insert".to_owned();
            return Err(Parking { reason: ParkReason::Unroutable, detail });
        };
        if self.dead_letter_topic.as_deref() == Some(&*record.topic) {
            // Nobody could tell it from the dead letter of another event.
            let detail = format!("its topic is {:?}, that of the dead letters", record.topic);
            return Err(Parking { reason: ParkReason::Unroutable, detail });
        }
        self.encoding.encode(record).map_err(|error| Parking {
            reason: ParkReason::Undecodable,
            detail: error_chain(&error),
        })
    }

    /// An update or delete of an outbox row: no event, and an error where the
    /// configuration says so.
    pub(crate) fn other_operation(&mut self, change: &RowChange) -> Result<(), RelayError> {
        match self.router.route(change) {
            Ok(Routed::Skipped(SkipReason::Updated { log_as_error })) => {
                self.log_update(change, log_as_error);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) => Err(RelayError::Fatal(format!(
                "{}; table.op.invalid.behavior is fatal",
                error_chain(&error)
            ))),
        }
    }
}

/// Between two log lines about updated rows.
const UPDATES_PER_LINE: u64 = 10_000;

impl Converter {
    fn log_update(&mut self, change: &RowChange, as_error: bool) {
        let seen = self.updates;
        self.updates += 1;
        if !seen.is_multiple_of(UPDATES_PER_LINE) {
            return;
        }
        let table = &change.row.relation().name;
        if as_error {
            tracing::error!(table, seen, "an outbox row was updated; that is no event");
        } else {
            tracing::warn!(table, seen, "an outbox row was updated; that is no event");
        }
    }
}
