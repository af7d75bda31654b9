use std::{fmt, str::FromStr, sync::Arc};

use walpost_router::NameFilter;

use crate::{
    filters::SkippedOperations, heartbeat::Heartbeat, moves::crossing, published::RecordPlace,
    snapshot_modes::Snapshot,
};

/// Bound on [`RelayConfig::row_filter`].
const ROW_FILTER_MAX_BYTES: usize = 8_192;

/// Settings of one pipeline: one slot, one publication, one sink.
///
/// [`RelayConfig::new`] fills in the defaults that the fields name. Every
/// choice that could lose or repeat events must be made by the user: see
/// [`initial`](Self::initial).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RelayConfig {
    /// Name of the pipeline: key of its checkpoint, source of its events.
    pub pipeline: String,
    /// Replication slot. Default: `walpost_` and the pipeline's name.
    pub slot: String,
    /// Publication. Default `walpost`.
    pub publication: String,
    /// Outbox tables; inserts into them are events. Default `walpost.outbox`.
    pub tables: Vec<TableName>,
    /// The rows of the tables that are this pipeline's events: an SQL condition
    /// over their columns. A row for which it is false or NULL is none. The
    /// publication has the same condition. `None` (the default) for whatever
    /// rows the publication has. Needs PostgreSQL 15.
    pub row_filter: Option<String>,
    /// Whether messages are events beside a `row_filter`, which says nothing of
    /// them: they reach every slot. Of the pipelines of a table one at most may
    /// say so. Without a `row_filter` they always are. Default false.
    pub row_filter_messages: bool,
    /// Accept that another pipeline publishes every row of this one, or the
    /// reverse. Without it a first start refuses. Default false.
    pub allow_overlap: bool,
    /// Prefixes of `pg_logical_emit_message` that are events, compared
    /// exactly. Default `walpost`.
    pub message_prefixes: Vec<String>,
    /// Schema of Walpost's own tables. Default `walpost`.
    pub schema: String,
    /// Which client reads the WAL. Default [`SourceKind::Native`].
    pub source: SourceKind,
    /// What happens to rows that are there before the slot is. No default: at
    /// the first start a table that is not empty is refused without it, also
    /// beside a slot that exists, which only [`Initial::Skip`] takes.
    pub initial: Option<Initial>,
    /// What a start does when the pipeline's slot is lost: gone, or given up by
    /// the server. Default [`LostSlot::Refuse`].
    pub on_lost_slot: LostSlot,
    /// Create the slot when it is missing. Default true.
    pub create_slot: bool,
    /// Create the publication when it is missing. Default true.
    pub create_publication: bool,
    /// Set the columns `status` and `published_at` of rows that are proven to be
    /// published. Default false.
    pub mark_published: bool,
    /// What waits behind an event that was parked. Default
    /// [`ParkMode::Aggregate`].
    pub park: ParkMode,
    /// Events that may be parked in a row before the pipeline halts. Default
    /// 100.
    pub parked_halt_after: u32,
    /// How long the events of a topic that does not exist, or that refuses us,
    /// are set aside before they are parked, while other topics take records, or
    /// at the end of a load or before a switch, where nothing else comes.
    /// Default 60,000 ms.
    pub missing_topic_timeout_ms: u64,
    /// Topic to which events that are parked are published as well, by
    /// [`DeadLetters`](crate::DeadLetters). Default none.
    pub dead_letter_topic: Option<String>,
    /// Rows larger than this are parked unread. Default 8 MiB.
    pub max_event_bytes: usize,
    /// Events between the oldest that is not durable and the newest that was
    /// read; beyond it reading pauses. Default 1,000,000.
    pub in_flight_max_events: usize,
    /// Between two checkpoints. Default 1,000 ms.
    pub checkpoint_interval_ms: u64,
    /// After a stop that was not orderly, how long a record that was on its way
    /// may take to land, before the sink is read back. Default 500 ms.
    pub settle_ms: u64,
    /// Ids that are kept when the sink is read back and its records have no
    /// `walpost-position`; an event beyond may come a second time. Default
    /// 200,000.
    pub resume_max_ids: usize,
    /// Bound on every statement of the relay, and on the wait for each row of
    /// the initial load behind the first of its table. Default 10,000 ms.
    pub statement_timeout_ms: u64,
    /// Bound on the creation of the slot, which waits for transactions that
    /// are already running, and on the wait for the first row of each table of
    /// the initial load, which is sorted first. Default 600,000 ms.
    pub slot_timeout_ms: u64,
    /// `wal_sender_timeout` of the replication session, after which the server
    /// takes the slot from a relay that is gone. Default 5,000 ms.
    pub wal_sender_timeout_ms: u64,
    /// Bound on the orderly stop: half for the rest of the transaction at hand,
    /// a quarter for events on their way, a quarter for the last checkpoint. The
    /// sink's own release comes after that. Default 10,000 ms.
    pub drain_timeout_ms: u64,
    /// Gives up when a start has waited for servers for this time: one deadline
    /// for connecting, checking and the waits between attempts; `None` for trying
    /// for ever. Creating the slot, the initial load and reading topics back have
    /// bounds of their own and do not count. Once it has streamed, it always goes
    /// on trying. Default 60,000 ms.
    pub start_timeout_ms: Option<u64>,
    /// How long the slot may stand still, or the sink take nothing, while there
    /// is something to do, before the relay is not ready; of the slot, which is
    /// looked at every two seconds, that and a checkpoint's interval more.
    /// Default 20,000 ms.
    pub ready_stuck_ms: u64,
    /// WAL that the slot may keep before the log says so, at 25, 50, 75 and
    /// 100 % of it, in bytes. `None` (the default) for the server's own
    /// `max_slot_wal_keep_size`.
    pub wal_budget_bytes: Option<u64>,
    /// Add the header `walpost-position` to every record. Default true.
    pub position_header: bool,
    /// Add the header `walpost-source` with the id space of the event's table. Default
    /// true.
    pub source_header: bool,
    /// Records of other programs that say that they are the pipeline's; nothing is
    /// known by them. Default none.
    pub ignored_records: Vec<RecordPlace>,
    /// Columns of the router's `additional_placement` that stand there for
    /// another key, each with it, such as `router.event_type`: what errors tell
    /// to mend. Default none.
    pub placed_columns: Vec<(String, String)>,
    /// Read a column of a domain as one of the type below it, as plain encodings do;
    /// one of a connector makes the pipeline do otherwise. Default true.
    pub base_types: bool,
    /// Columns that the user has named, although a row without them is an event.
    /// One that no table has is a misspelt name. Default none.
    pub named_columns: Vec<NamedColumn>,
    /// Heartbeats, by [`Heartbeats`](crate::Heartbeats). Default none.
    pub heartbeat: Option<Heartbeat>,
    /// Which rows from before the stream are published, and whether there is a
    /// stream behind them. Default: all that `initial` says, and there is.
    pub snapshot: Snapshot,
    /// Messages whose prefix this lets through are events, beside those of
    /// `message_prefixes`, but for Walpost's own (`message.prefix.*`). Default
    /// none.
    pub message_filter: Option<NameFilter>,
    /// Which columns of the tables are read, as `schema.table.column`
    /// (`column.*`): what the router asks of others is not there. Those that it
    /// needs cannot be left out. Default all.
    pub columns: NameFilter,
    /// Operations that are passed over. Default none.
    pub skipped: SkippedOperations,
    /// A row that is inserted there ends the relay, since signals are not
    /// supported (`signal.data.collection`). Default none.
    pub signal_table: Option<TableName>,
    /// Whether a publication that the relay creates publishes the rows of
    /// partitions under the name of their root. Default true.
    pub publish_via_partition_root: bool,
    /// Which changes the server sends, by where they come from (`origin` of
    /// `slot.stream.params`). Needs PostgreSQL 16 and [`SourceKind::Native`].
    /// Default what the server does by itself, which is any.
    pub stream_origin: Option<StreamOrigin>,
    /// Tell the slot how far everything is durable. Where this is false
    /// (`lsn.flush.mode = manual`), somebody else moves the slot, and PostgreSQL
    /// keeps all WAL until then; a restart goes on from the checkpoint all the
    /// same. Needs [`SourceKind::Native`]. Default true.
    pub confirm_slot: bool,
    /// An orderly stop drops the slot (`slot.drop.on.stop`), and the next start
    /// makes another one. What was written in between is published from the
    /// outbox tables where these can tell it, as behind any lost slot; else it is
    /// lost, which the log says. Default false.
    pub drop_slot_on_stop: bool,
    /// Go on from a slot that is ahead of the checkpoint, which is an error
    /// otherwise (`offset.mismatch.strategy`: `trust_slot`,
    /// `trust_greater_lsn`). Events in between are lost. Default false.
    pub accept_advanced_slot: bool,
    /// Which tables that come while the relay runs are outbox tables too. Their rows
    /// are events from the first one on. Default none.
    pub new_tables: Option<TableFilter>,
    /// Those that have come since the relay was started.
    pub(crate) arrived: Vec<TableName>,
}

/// A column of the outbox tables, as the configuration names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedColumn {
    /// Its name.
    pub name: String,
    /// The key that names it, such as `router.headers_column`.
    pub key: &'static str,
    /// A start refuses if no table has it; else `check` warns of it.
    pub is_required: bool,
}

impl RelayConfig {
    /// The defaults for a pipeline of this name.
    pub fn new(pipeline: impl Into<String>) -> Self {
        let pipeline = pipeline.into();
        let slot = format!("walpost_{pipeline}");
        Self {
            slot,
            pipeline,
            publication: "walpost".to_owned(),
            tables: vec![TableName { schema: "walpost".to_owned(), name: "outbox".to_owned() }],
            row_filter: None,
            row_filter_messages: false,
            allow_overlap: false,
            message_prefixes: vec!["walpost".to_owned()],
            schema: "walpost".to_owned(),
            source: SourceKind::Native,
            initial: None,
            on_lost_slot: LostSlot::Refuse,
            create_slot: true,
            create_publication: true,
            mark_published: false,
            park: ParkMode::Aggregate,
            parked_halt_after: 100,
            missing_topic_timeout_ms: 60_000,
            dead_letter_topic: None,
            max_event_bytes: 8 * 1024 * 1024,
            in_flight_max_events: 1_000_000,
            checkpoint_interval_ms: 1_000,
            settle_ms: 500,
            resume_max_ids: 200_000,
            statement_timeout_ms: 10_000,
            slot_timeout_ms: 600_000,
            wal_sender_timeout_ms: 5_000,
            drain_timeout_ms: 10_000,
            start_timeout_ms: Some(60_000),
            ready_stuck_ms: 20_000,
            wal_budget_bytes: None,
            position_header: true,
            source_header: true,
            ignored_records: Vec::new(),
            placed_columns: Vec::new(),
            base_types: true,
            named_columns: Vec::new(),
            heartbeat: None,
            snapshot: Snapshot::default(),
            message_filter: None,
            columns: NameFilter::All,
            skipped: SkippedOperations::default(),
            signal_table: None,
            publish_via_partition_root: true,
            stream_origin: None,
            confirm_slot: true,
            drop_slot_on_stop: false,
            accept_advanced_slot: false,
            new_tables: None,
            arrived: Vec::new(),
        }
    }

    /// The prefixes whose messages are this pipeline's events.
    pub fn event_prefixes(&self) -> &[String] {
        match self.takes_messages() {
            true => &self.message_prefixes,
            false => &[],
        }
    }

    /// Whether messages of any prefix are events.
    pub(crate) fn takes_messages(&self) -> bool {
        self.row_filter.is_none() || self.row_filter_messages
    }

    /// Checks what PostgreSQL would refuse later, and bounds.
    ///
    /// # Errors
    /// Text that names the setting, its value and what it may be.
    pub fn validate(&self) -> Result<(), String> {
        let slot_ok = (1..=63).contains(&self.slot.len())
            && self.slot.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        if !slot_ok {
            return Err(format!(
                "slot is {:?}; a slot name has 1 to 63 of the characters a-z, 0-9 and _",
                self.slot
            ));
        }
        for (name, value) in [
            ("pipeline", &self.pipeline),
            ("publication", &self.publication),
            ("schema", &self.schema),
        ] {
            if value.is_empty() || value.len() > 63 {
                return Err(format!("{name} is {value:?}; it has 1 to 63 bytes"));
            }
        }
        let has_no_messages = self.message_prefixes.is_empty() && self.message_filter.is_none();
        if self.tables.is_empty() && has_no_messages {
            return Err("neither tables nor message_prefixes: nothing would be an event".into());
        }
        if let Some(topic) = &self.dead_letter_topic {
            legal_topic("dead_letter_topic", topic)?;
        }
        self.heartbeat.as_ref().map_or(Ok(()), Heartbeat::validate)?;
        if self.message_prefixes.iter().any(|prefix| prefix == crossing::PREFIX) {
            return Err(format!(
                "message_prefixes has {:?}, which marks where rows were moved",
                crossing::PREFIX
            ));
        }
        self.validate_row_filter()?;
        self.validate_source()?;
        let bounds = [
            ("missing_topic_timeout_ms", self.missing_topic_timeout_ms, 100, 86_400_000),
            ("max_event_bytes", self.max_event_bytes as u64, 1024, 1 << 30),
            ("in_flight_max_events", self.in_flight_max_events as u64, 1, 100_000_000),
            ("checkpoint_interval_ms", self.checkpoint_interval_ms, 10, 60_000),
            ("settle_ms", self.settle_ms, 0, 60_000),
            ("resume_max_ids", self.resume_max_ids as u64, 0, 10_000_000),
            ("statement_timeout_ms", self.statement_timeout_ms, 100, 600_000),
            ("slot_timeout_ms", self.slot_timeout_ms, 1_000, 86_400_000),
            ("wal_sender_timeout_ms", self.wal_sender_timeout_ms, 1_000, 600_000),
            ("drain_timeout_ms", self.drain_timeout_ms, 100, 600_000),
            ("ready_stuck_ms", self.ready_stuck_ms, 1_000, 3_600_000),
            ("wal_budget_bytes", self.wal_budget_bytes.unwrap_or(1 << 20), 1 << 20, 1 << 60),
        ];
        for (name, value, low, high) in bounds {
            if !(low..=high).contains(&value) {
                return Err(format!("{name} is {value}; it lies between {low} and {high}"));
            }
        }
        Ok(())
    }
}

impl RelayConfig {
    /// What the other client of the WAL has not.
    fn validate_source(&self) -> Result<(), String> {
        let needs =
            |setting: &str| Err(format!("{setting} is set, which needs source = \"native\""));
        match (self.source, self.stream_origin, self.confirm_slot) {
            (SourceKind::Pgwire, ..) if cfg!(not(feature = "pgwire")) => Err(NO_PGWIRE.to_owned()),
            (SourceKind::Pgwire, Some(_), _) => needs("stream_origin"),
            (SourceKind::Pgwire, None, false) => needs("confirm_slot = false"),
            _ => Ok(()),
        }
    }

    fn validate_row_filter(&self) -> Result<(), String> {
        let Some(filter) = &self.row_filter else { return Ok(()) };
        if filter.trim().is_empty() || filter.len() > ROW_FILTER_MAX_BYTES || filter.contains('\0')
        {
            return Err(format!(
                "row_filter has {} bytes; it is a condition of 1 to {ROW_FILTER_MAX_BYTES} bytes",
                filter.len()
            ));
        }
        if self.tables.is_empty() {
            return Err("row_filter is set and tables is empty: there is no row to filter".into());
        }
        Ok(())
    }
}

/// Whether Kafka takes the name of a topic.
pub(crate) fn legal_topic(setting: &str, topic: &str) -> Result<(), String> {
    let is_legal = (1..=249).contains(&topic.len())
        && topic.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && !matches!(topic, "." | "..");
    if is_legal {
        return Ok(());
    }
    Err(format!(
        "{setting} is {topic:?}; a topic's name has 1 to 249 of letters, digits, '.', '_' and '-'"
    ))
}

/// Tables by their names, beside those that were there at a moment.
#[derive(Clone)]
pub struct TableFilter {
    passes: Arc<dyn Fn(&TableName) -> bool + Send + Sync>,
    looked_at: u64,
}

impl TableFilter {
    /// `looked_at` is the first transaction id (`pg_snapshot_xmax`) that was not given
    /// out when the tables were looked for that pass.
    pub fn new(
        looked_at: u64,
        passes: impl Fn(&TableName) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { passes: Arc::new(passes), looked_at }
    }

    /// Whether such a table is an outbox table.
    pub fn passes(&self, table: &TableName) -> bool {
        (self.passes)(table)
    }

    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at
    }
}

impl fmt::Debug for TableFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableFilter(looked at {})", self.looked_at)
    }
}

/// A table with its schema, both as stored, without quotes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableName {
    /// Schema.
    pub schema: String,
    /// Table.
    pub name: String,
}

impl TableName {
    /// The name as an SQL identifier.
    pub fn quoted(&self) -> String {
        use crate::wal::quote_identifier;
        format!("{}.{}", quote_identifier(&self.schema), quote_identifier(&self.name))
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

impl FromStr for TableName {
    type Err = String;

    /// Reads `table` or `schema.table`, each part as stored or in double
    /// quotes. A table without a schema is in `public`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = Vec::new();
        let mut part = String::new();
        let mut quoted = false;
        for c in text.chars() {
            match c {
                '"' => quoted = !quoted,
                '.' if !quoted => parts.push(std::mem::take(&mut part)),
                c => part.push(c),
            }
        }
        parts.push(part);
        let refused = || format!("{text:?} is no table name such as public.outbox");
        if quoted || parts.iter().any(String::is_empty) {
            return Err(refused());
        }
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next(), parts.next()) {
            (Some(name), None, None) => Ok(Self { schema: "public".to_owned(), name }),
            (Some(schema), Some(name), None) => Ok(Self { schema, name }),
            _ => Err(refused()),
        }
    }
}

pub(crate) const NO_PGWIRE: &str = "source is \"pgwire\", which this build has not: it needs the \
    feature `pgwire`; set source = \"native\", or install a package";

/// Which client reads the WAL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceKind {
    /// Walpost's own.
    #[default]
    Native,
    /// The crate `pgwire-replication`, with the feature `pgwire`.
    Pgwire,
}

/// Where changes come from that the server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOrigin {
    /// From nowhere else: not what logical replication has brought there.
    None,
    /// From anywhere.
    Any,
}

/// What happens to rows that are in an outbox table before the slot exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initial {
    /// Publish them, in insert order, before everything else.
    Publish,
    /// Leave them: they were published by something else.
    Skip,
}

/// What becomes of a slot that is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LostSlot {
    /// Nothing: the relay says what is missing and how to go on.
    #[default]
    Refuse,
    /// It is replaced, and the rows that are not published yet are published
    /// from the outbox tables, where these can tell which.
    Recover,
}

/// What waits behind an event that was parked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParkMode {
    /// The later events of its aggregate.
    #[default]
    Aggregate,
    /// Nothing: the event loses its place in the order.
    Event,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_names_are_read_with_and_without_quotes() {
        let name = |text: &str| text.parse::<TableName>().map(|table| table.to_string());
        assert_eq!(name("outbox").unwrap(), "public.outbox");
        assert_eq!(name("shop.outbox").unwrap(), "shop.outbox");
        let odd: TableName = r#""My.Schema"."OutboxEvent""#.parse().unwrap();
        assert_eq!(odd.quoted(), r#""My.Schema"."OutboxEvent""#);
        for text in ["", ".", "a.", "a.b.c", "\"a"] {
            assert!(name(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(RelayConfig::new("shop").validate(), Ok(()));
    }

    #[test]
    fn messages_are_events_beside_a_row_filter_only_where_it_is_said() {
        let mut config = RelayConfig::new("shop");
        assert_eq!(config.event_prefixes(), ["walpost"]);
        config.row_filter = Some("tenant = 'a'".to_owned());
        assert_eq!(config.validate(), Ok(()));
        assert!(config.event_prefixes().is_empty());
        config.row_filter_messages = true;
        assert_eq!(config.event_prefixes(), ["walpost"]);
    }

    #[test]
    fn a_row_filter_needs_a_condition_and_a_table() {
        let mut config = RelayConfig::new("shop");
        config.row_filter = Some(" ".to_owned());
        assert!(config.validate().unwrap_err().contains("row_filter has 1 bytes"));
        config.row_filter = Some("true".to_owned());
        config.tables.clear();
        assert!(config.validate().unwrap_err().contains("tables is empty"));
    }

    #[test]
    fn a_wrong_setting_is_named_with_its_value() {
        let mut config = RelayConfig::new("Shop");
        assert!(config.validate().unwrap_err().contains("walpost_Shop"));
        config = RelayConfig::new("shop");
        config.max_event_bytes = 1;
        assert!(config.validate().unwrap_err().contains("max_event_bytes is 1"));
        for topic in ["", "..", "dead letters", &"x".repeat(250)] {
            config = RelayConfig::new("shop");
            config.dead_letter_topic = Some(topic.to_owned());
            let problem = config.validate().unwrap_err();
            assert!(problem.starts_with("dead_letter_topic is \""), "{problem}");
        }
    }
}
