mod connect;
mod moved;

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use walpost_encode::Encoding;
use walpost_event::{
    Header, Identity, Message, Operation, Record, Relation, ReplicaIdentity, Row, RowChange,
    error_chain,
};
use walpost_pgoutput::LogicalMessage;
use walpost_router::{RouteErrorKind, Routed, Router, SkipReason};

pub(crate) use self::moved::Moves;
use self::{connect::Connect, moved::Arrivals};
use crate::{
    asking::{Answer, Question},
    columns,
    config::{RelayConfig, TableFilter, TableName},
    encoding::EventEncoding,
    error::RelayError,
    filters::{Columns, Prefixes, SkippedOperations},
    headers::set_source,
    id_space::{IdSpace, IdSpaceTable, IdSpaces},
    parked::{Contents, ParkReason, Parking},
};

/// The content of the logical message that a row stands for.
pub(crate) fn content(emitted: Option<&LogicalMessage>) -> Option<&Bytes> {
    emitted.map(|message| &message.content)
}

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
    making: Making,
    tables: HashSet<TableName>,
    new_tables: Option<TableFilter>,
    arrivals: Arrivals,
    moves: Moves,
    prefixes: Prefixes,
    columns: Columns,
    dead_letter_topic: Option<String>,
    placed_columns: Vec<(String, String)>,
    last_relation: Option<(Arc<Relation>, bool)>,
    spaces: IdSpaces,
    /// Where an id space is read that is not known yet; `None` where none is sent.
    space_table: Option<Arc<IdSpaceTable>>,
    updates: u64,
    dropped: u64,
}

const NOT_TRANSACTIONAL: &str = "the message is not transactional: it is in the WAL even if its transaction rolled back; emit \
     events by pg_logical_emit_message(true, …)";

/// Who makes messages of records.
enum Making {
    Plain(Encoding),
    Connect(Box<Connect>),
}

/// Why an event is no message.
pub(crate) enum Unmade {
    /// Somebody has to be asked, and the event made a message again.
    Ask(Question),
    /// It is to be parked.
    Park(Parking),
    /// By the configuration it is no event.
    Dropped,
}

/// What a change of an outbox table is.
pub(crate) enum Sorted {
    Event(RowChange),
    /// By the configuration it is not even looked at.
    Skipped,
    /// No event; the router says what becomes of it.
    Other(RowChange),
}

impl From<Parking> for Unmade {
    fn from(parking: Parking) -> Self {
        Self::Park(parking)
    }
}

impl Converter {
    pub(crate) fn new(router: Router, encoding: &EventEncoding, config: &RelayConfig) -> Self {
        let prefixes = match encoding {
            // Whoever does not decode messages has none that are events, whatever
            // their content.
            EventEncoding::Connect(options) if !options.transforms.decodes_messages() => {
                Prefixes::default()
            }
            _ => Prefixes::new(config),
        };
        let (router, making) = match encoding {
            EventEncoding::Plain(encoding) => (router, Making::Plain(*encoding)),
            EventEncoding::Connect(options) => {
                let connect = Connect::new((**options).clone(), &router);
                (router.without_tombstones(), Making::Connect(connect.into()))
            }
        };
        Self {
            making,
            router,
            tables: config.tables.iter().cloned().collect(),
            new_tables: config.new_tables.clone(),
            arrivals: Arrivals::default(),
            moves: Moves::default(),
            prefixes,
            columns: Columns::new(config),
            dead_letter_topic: config.dead_letter_topic.clone(),
            placed_columns: config.placed_columns.clone(),
            last_relation: None,
            spaces: IdSpaces::default(),
            space_table: config.source_header.then(|| IdSpaceTable::new(config).into()),
            updates: 0,
            dropped: 0,
        }
    }

    /// The same, with the id spaces that are known already.
    pub(crate) fn with_spaces(self, spaces: IdSpaces) -> Self {
        Self { spaces, ..self }
    }

    /// The id space of the event of a row, or of a logical message.
    pub(crate) fn id_space(&self, relation: &Relation, is_message: bool) -> Option<&IdSpace> {
        match is_message {
            true => self.space_of_messages(),
            false => self.spaces.of(relation),
        }
    }

    pub(crate) fn space_of_messages(&self) -> Option<&IdSpace> {
        self.spaces.of_messages()
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
        self.prefixes.takes(prefix)
    }

    /// The row that a logical message stands for.
    /// One that is part of no transaction is in the stream even if the transaction that
    /// emitted it has rolled back; Debezium publishes it.
    pub(crate) fn message_row(&mut self, message: &LogicalMessage) -> Result<Row, Parking> {
        if !message.transactional && matches!(self.making, Making::Plain(_)) {
            return Err(Parking {
                reason: ParkReason::Undecodable,
                detail: NOT_TRANSACTIONAL.to_owned(),
            });
        }
        self.router.row_from_message(&message.content).map_err(|error| Parking {
            reason: ParkReason::Undecodable,
            detail: error_chain(&error),
        })
    }

    /// What a change of an outbox table is; `is_load` where it was read before the
    /// stream, where nothing is skipped.
    pub(crate) fn sort(
        &self,
        change: RowChange,
        skipped: SkippedOperations,
        is_load: bool,
    ) -> Sorted {
        match change.operation {
            Operation::Insert if !skipped.insert || is_load => Sorted::Event(change),
            Operation::Insert => Sorted::Skipped,
            Operation::Update if skipped.update => Sorted::Skipped,
            Operation::Update if self.is_new_event(&change) => {
                Sorted::Event(RowChange { operation: Operation::Insert, ..change })
            }
            Operation::Update | Operation::Delete => Sorted::Other(change),
        }
    }

    /// Whether an update is a new event: Debezium makes two records of one that
    /// changes the primary key, and routes the second, a created row. PostgreSQL
    /// sends the key of before then, and only then.
    fn is_new_event(&self, change: &RowChange) -> bool {
        matches!(self.making, Making::Connect(_))
            && change.operation == Operation::Update
            && change.old.is_some()
            && change.row.relation().replica_identity == ReplicaIdentity::Default
    }

    /// Who the event is, also when it cannot be routed.
    pub(crate) fn identity(&self, row: &Row) -> Identity {
        self.router.identity(row)
    }

    /// The message of an insert, or of the row that a logical message of this
    /// content stands for, with its source.
    pub(crate) fn message(
        &mut self,
        change: &RowChange,
        content: Option<&Bytes>,
    ) -> Result<Message, Unmade> {
        let relation = change.row.relation();
        let source = self.id_space(relation, content.is_some()).map(IdSpace::header);
        if let (None, Some(table)) = (&source, &self.space_table) {
            return Err(Unmade::Ask(Question::IdSpace(relation.clone(), table.clone())));
        }
        self.message_of(change, content, source)
    }

    /// The same of an event whose source is known.
    pub(crate) fn message_of(
        &mut self,
        change: &RowChange,
        content: Option<&Bytes>,
        source: Option<Header>,
    ) -> Result<Message, Unmade> {
        let mut message = self.unmarked(change, content)?;
        set_source(&mut message.headers, source.filter(|_| self.space_table.is_some()));
        Ok(message)
    }

    fn unmarked(&mut self, change: &RowChange, content: Option<&Bytes>) -> Result<Message, Unmade> {
        let Self { router, making, columns, dead_letter_topic, placed_columns, .. } = self;
        let change = &*columns.of(change);
        let judge_topic = |topic: &str| apart_from(dead_letter_topic.as_deref(), topic);
        match making {
            Making::Plain(encoding) => {
                let record = routed(router, placed_columns, change)?;
                judge_topic(&record.topic)?;
                let encoded = encoding.encode(record).map_err(|error| Parking {
                    reason: ParkReason::Undecodable,
                    detail: error_chain(&error),
                });
                Ok(encoded?)
            }
            Making::Connect(connect) => {
                let route = |change: &RowChange| routed(router, placed_columns, change);
                connect.message(change, content, route, judge_topic)
            }
        }
    }

    /// What was asked for.
    pub(crate) fn learn(&mut self, answer: Answer) {
        if let Answer::IdSpace(relation, id) = answer {
            self.spaces.learn(&relation, id);
            return;
        }
        if let Making::Connect(connect) = &mut self.making {
            connect.learn(answer);
        }
    }

    /// The stream has described a table anew.
    pub(crate) fn forget(&mut self, relation: &Relation) {
        if let Making::Connect(connect) = &mut self.making {
            connect.forget(relation);
        }
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

/// What the router makes of an insert; `placed` are the
/// [`RelayConfig::placed_columns`].
fn routed(
    router: &mut Router,
    placed: &[(String, String)],
    change: &RowChange,
) -> Result<Record, Parking> {
    let unroutable = |detail| Parking { reason: ParkReason::Unroutable, detail };
    match router.route(change) {
        Ok(Routed::Record(record)) => Ok(record),
        Ok(Routed::Skipped(_)) => Err(unroutable("the router skips an insert".to_owned())),
        Err(error) if matches!(error.kind(), RouteErrorKind::UndecodableValue { .. }) => {
            let detail = format!("{}; correct the row, then retry", error_chain(&error));
            Err(Parking { reason: ParkReason::Undecodable, detail })
        }
        Err(error) => Err(unroutable(columns::told(placed, &error))),
    }
}

/// Nobody could tell an event that goes there from the dead letter of another
/// one.
fn apart_from(dead_letters: Option<&str>, topic: &str) -> Result<(), Parking> {
    if dead_letters != Some(topic) {
        return Ok(());
    }
    let detail = format!("its topic is {topic:?}, that of the dead letters");
    Err(Parking { reason: ParkReason::Unroutable, detail })
}

/// Between two log lines about updated rows, and about dropped events.
const UPDATES_PER_LINE: u64 = 10_000;

impl Converter {
    /// Says now and then that events are dropped.
    pub(crate) fn log_dropped(&mut self, row: &Row) {
        let seen = self.dropped;
        self.dropped += 1;
        if seen.is_multiple_of(UPDATES_PER_LINE) {
            let table = &row.relation().name;
            tracing::info!(table, seen, "the transforms drop an event; it is published nowhere");
        }
    }

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

#[cfg(test)]
mod tests;
