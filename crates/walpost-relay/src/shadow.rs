//! What a pipeline would publish, from a slot that goes with its session.
//!
//! Reads what the pipeline would read and makes the same messages of it; there is
//! no sink, no checkpoint, and nothing is written anywhere: no row, no topic, no
//! schema of a registry.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout};
use walpost_encode::avro::{RegistryConfig, RegistryErrorKind};
use walpost_event::{Bytes, Lsn, Message, Position, RowChange};
use walpost_pgoutput::LogicalMessage;
use walpost_postgres::Database;
use walpost_router::{Router, RouterConfig};

use crate::{
    asking::{Answer, Asker},
    config::RelayConfig,
    convert::{Converter, Sorted, Unmade, content},
    encoding::EventEncoding,
    error::RelayError,
    headers::OWN,
    parked::Parking,
    source::{Source, SourceItem},
    sql::Sql,
    wal::{
        ReplicationClient, StreamStart, WalSource, preflight, publication, relations, row_filter,
        slot::{self, NewSlot},
        stream_columns,
    },
};

/// Between two signs of life while somebody is asked.
const TICK: Duration = Duration::from_millis(100);
/// Until a schema is asked for again that nobody has registered yet.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How long the other one may take to register a schema.
const REGISTERED_WITHIN: Duration = Duration::from_secs(20);
/// For the server to notice that the session has ended, and drop its slot.
const DROPPED_WITHIN: Duration = Duration::from_secs(10);
/// Of the name of a slot, with [`SUFFIX_BYTES`] behind.
const SLOT_NAME_BYTES: usize = 63;
const SUFFIX_BYTES: usize = "_shadow_00000000".len();

/// An event, and what a pipeline would make of it.
#[derive(Debug)]
pub struct ShadowEvent {
    /// Where it stands; positions of one shadow rise.
    pub position: Position,
    /// What would become of it.
    pub made: ShadowMade,
}

/// What a pipeline would make of an event.
#[derive(Debug)]
pub enum ShadowMade {
    /// A record, without headers of Walpost's own.
    Message(Box<Message>),
    /// It would be parked.
    Parked {
        /// The event's id, where it has one.
        id: Option<Bytes>,
        /// The class of reason, as the table of parked events has it.
        reason: &'static str,
        /// What is wrong; no contents.
        detail: String,
    },
    /// Its record needs a schema that the registry does not have: whoever publishes
    /// now has not registered it within 20 s.
    Unregistered {
        /// The event's id, where it has one.
        id: Option<Bytes>,
        /// Which schema; no contents.
        detail: String,
    },
}

/// A pipeline's events as it would publish them, beside whoever publishes them now.
///
/// Its slot is temporary: the server drops it with the session, however that ends.
/// What was read is confirmed at once, so that it keeps no WAL. Needs no tables of
/// Walpost's; the publication has to be there.
///
/// Reads with pauses while the stream is busy, as a [`crate::Relay`] does.
pub struct Shadow {
    source: WalSource,
    sql: Sql,
    converter: Converter,
    asker: Asker,
    config: RelayConfig,
    slot: String,
    begins_at: Lsn,
    items: VecDeque<SourceItem>,
    held: Option<Held>,
    /// Not handed out yet.
    made: Vec<ShadowEvent>,
    /// Of the transaction that has begun: start of its commit record, and how many
    /// events it has had.
    open: Option<(Lsn, u32)>,
    read: Lsn,
    confirmed: Lsn,
    /// Since when the registry refuses the schema that is asked for, and when it is
    /// asked again.
    refused: Option<(Instant, Instant)>,
    dropped: u64,
}

/// An event that waits until what its message needs is known.
struct Held {
    position: Position,
    change: RowChange,
    emitted: Option<LogicalMessage>,
    /// The other one has not registered its schema.
    is_unregistered: bool,
}

impl Held {
    fn new(position: Position, change: RowChange, emitted: Option<LogicalMessage>) -> Self {
        Self { position, change, emitted, is_unregistered: false }
    }
}

impl std::fmt::Debug for Shadow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shadow({} from {})", self.slot, self.begins_at)
    }
}

impl Shadow {
    /// Makes the slot and begins to stream: events whose transactions are committed
    /// from now on. Waits for transactions that are running, at most
    /// [`RelayConfig::slot_timeout_ms`].
    ///
    /// # Errors
    /// [`RelayError::Prerequisite`] where server, role, tables or publication are not
    /// as a pipeline needs them, [`RelayError::Config`] for a configuration under
    /// which nothing is streamed; else what failed.
    pub async fn open(
        database: &Database,
        mut config: RelayConfig,
        router: RouterConfig,
        encoding: EventEncoding,
    ) -> Result<Self, RelayError> {
        if !config.snapshot.stream {
            let text = "the connector publishes what is there and streams nothing: there is \
                        nothing to compare";
            return Err(RelayError::Config(text.to_owned()));
        }
        let encoding = looks_only(encoding);
        encoding.check()?;
        encoding.fit(&mut config);
        let router = Router::new(router).map_err(|error| RelayError::Config(error.to_string()))?;
        let limit = Duration::from_millis(config.statement_timeout_ms);
        let (client, database) = database.connect_to_one().await?;
        let sql = Sql::new(Arc::new(client), limit);
        let settings = "set default_transaction_read_only = on; set statement_timeout = 0; \
                        set idle_session_timeout = 0";
        sql.batch("setting up the session", settings).await?;
        let server = checked(&sql, &config, router.config()).await?;
        let timeout_ms = config.wal_sender_timeout_ms;
        let mut replication =
            ReplicationClient::connect(&database, timeout_ms, config.max_event_bytes).await?;
        let identity = replication.identify().await?;
        server.expect(&identity)?;
        let slot = slot_name(&config.slot, uuid::Uuid::new_v4().as_u64_pair().0 as u32);
        let NewSlot { consistent, .. } =
            slot::create_named(&slot, &mut replication, &sql, &config).await?;
        let start = StreamStart {
            server: identity,
            slot: slot.clone(),
            publications: vec![config.publication.clone()],
            position: consistent,
            messages: true,
            max_event_bytes: config.max_event_bytes,
            wal_sender_timeout_ms: timeout_ms,
            origin: config.stream_origin,
            confirms: true,
            base_types: config.base_types,
            tables: relations::fit(&sql, &config).await?.named(&config.tables).collect(),
        };
        let source = WalSource::start(replication, &start).await?;
        Ok(Self {
            source,
            asker: Asker::new(sql.clone(), &encoding)?,
            sql,
            converter: Converter::new(router, &encoding, &without_source(&config)),
            config,
            slot,
            begins_at: consistent,
            items: VecDeque::new(),
            held: None,
            made: Vec::new(),
            open: None,
            read: consistent,
            confirmed: consistent,
            refused: None,
            dropped: 0,
        })
    }

    /// Transactions that are committed behind this are read.
    pub fn begins_at(&self) -> Lsn {
        self.begins_at
    }

    /// Name of the temporary slot.
    pub fn slot(&self) -> &str {
        &self.slot
    }

    /// Everything that is committed up to here was read.
    pub fn read(&self) -> Lsn {
        self.read
    }

    /// Events that the transforms or filters of the configuration drop.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether the slot of the pipeline, which the other one holds, says that
    /// everything up to [`begins_at`](Self::begins_at) is published.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn is_behind_start(&self) -> Result<bool, RelayError> {
        let slot = slot::inspect(&self.sql, &self.config.slot).await?;
        Ok(slot.and_then(|slot| slot.confirmed).is_some_and(|lsn| lsn >= self.begins_at))
    }

    /// Whether somebody streams from the slot of the pipeline now; `None` where there
    /// is no such slot.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn is_read_elsewhere(&self) -> Result<Option<bool>, RelayError> {
        let slot = slot::inspect(&self.sql, &self.config.slot).await?;
        Ok(slot.map(|slot| slot.active_pid.is_some()))
    }

    /// How far the server's WAL is on its disk: whatever anybody has published by now
    /// is committed before.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn flushed(&self) -> Result<Lsn, RelayError> {
        self.sql.flushed().await
    }

    /// Whether [`next`](Self::next) has returned every event that is committed up to
    /// there.
    pub fn has_returned(&self, lsn: Lsn) -> bool {
        self.made.is_empty() && self.read >= lsn
    }

    /// The next events, a bounded number, or none where none has come. Loses nothing
    /// when it is cancelled.
    ///
    /// # Errors
    /// [`RelayError`]: the slot is gone with it.
    pub async fn next(&mut self) -> Result<Vec<ShadowEvent>, RelayError> {
        self.make()?;
        if self.made.is_empty() && self.held.is_some() {
            self.ask().await?;
            return Ok(Vec::new());
        }
        self.confirm_read().await?;
        if self.made.is_empty() {
            let mut items = Vec::new();
            self.source.next(&mut items).await?;
            self.items.extend(items);
            self.make()?;
        }
        Ok(std::mem::take(&mut self.made))
    }

    /// Keeps the session while nothing is read.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn keep_alive(&mut self) -> Result<(), RelayError> {
        Ok(self.source.keep_alive().await?)
    }

    /// Ends the session, and waits until the server has dropped the slot.
    ///
    /// # Errors
    /// [`RelayError`] if it is still there after 10 s: a server that is busy drops it
    /// later.
    pub async fn close(self) -> Result<(), RelayError> {
        let Self { source, sql, slot, mut asker, .. } = self;
        asker.give_up();
        drop(source);
        let gone = async {
            while slot::inspect(&sql, &slot).await?.is_some() {
                sleep(TICK).await;
            }
            Ok(())
        };
        let limit = DROPPED_WITHIN;
        let late = RelayError::SqlTimeout { attempt: "dropping the temporary slot", limit };
        timeout(limit, gone).await.unwrap_or(Err(late))
    }

    /// As the pipeline takes what the source yields.
    fn make(&mut self) -> Result<(), RelayError> {
        let may_ask = self.refused.is_none_or(|(_, again)| Instant::now() >= again);
        if may_ask
            && !self.asker.is_asking()
            && let Some(held) = self.held.take()
        {
            self.advance(held);
        }
        while self.held.is_none()
            && let Some(item) = self.items.pop_front()
        {
            self.take(item)?;
        }
        Ok(())
    }

    fn take(&mut self, item: SourceItem) -> Result<(), RelayError> {
        match item {
            SourceItem::Begin { commit_lsn, .. } => self.open = Some((commit_lsn, 0)),
            SourceItem::Commit { end_lsn } => {
                self.open = None;
                self.read = self.read.max(end_lsn);
            }
            SourceItem::KeepAlive { wal_end } if self.open.is_none() => {
                self.read = self.read.max(wal_end);
            }
            SourceItem::KeepAlive { .. } => {}
            SourceItem::Relation(relation) => self.converter.forget(&relation),
            SourceItem::Origin => {}
            SourceItem::Change(change) => return self.change(change, None),
            SourceItem::Oversize { change, size_bytes } => {
                return self.change(change, Some(size_bytes));
            }
            SourceItem::Message(message) => self.logical_message(message),
            SourceItem::OversizeMessage { prefix, size_bytes } => {
                if self.converter.is_outbox_prefix(&prefix) {
                    let most = self.config.max_event_bytes;
                    self.park(None, Parking::too_large(size_bytes, most));
                }
            }
        }
        Ok(())
    }

    /// `too_large` are the bytes of a row whose large values were left out.
    fn change(&mut self, change: RowChange, too_large: Option<u64>) -> Result<(), RelayError> {
        if !self.converter.is_outbox(change.row.relation()) {
            return Ok(());
        }
        match self.converter.sort(change, self.config.skipped, false) {
            Sorted::Event(change) => {
                if let Some(size_bytes) = too_large {
                    let id = self.converter.identity(&change.row).event_id;
                    let most = self.config.max_event_bytes;
                    self.park(id, Parking::too_large(size_bytes, most));
                    return Ok(());
                }
                let position = self.position();
                self.advance(Held::new(position, change, None));
                Ok(())
            }
            Sorted::Skipped => Ok(()),
            Sorted::Other(change) => self.converter.other_operation(&change),
        }
    }

    fn logical_message(&mut self, message: LogicalMessage) {
        if !self.converter.is_outbox_prefix(&message.prefix) {
            return;
        }
        match self.converter.message_row(&message) {
            Ok(row) => {
                let (position, change) = (self.position(), RowChange::insert(row));
                self.advance(Held::new(position, change, Some(message)));
            }
            Err(parking) => self.park(None, parking),
        }
    }

    fn advance(&mut self, event: Held) {
        let Held { position, change, emitted, is_unregistered } = event;
        match self.converter.message(&change, content(emitted.as_ref())) {
            Ok(mut message) => {
                message.headers.retain(|header| !header.name.starts_with(OWN));
                let made = ShadowMade::Message(Box::new(message));
                self.made.push(ShadowEvent { position, made });
            }
            Err(Unmade::Ask(question)) => {
                self.asker.ask(question);
                self.held = Some(Held::new(position, change, emitted));
            }
            Err(Unmade::Park(parking)) => {
                let id = self.converter.identity(&change.row).event_id;
                let made = match is_unregistered {
                    true => ShadowMade::Unregistered { id, detail: parking.detail },
                    false => parked(id, parking),
                };
                self.made.push(ShadowEvent { position, made });
            }
            Err(Unmade::Dropped) => self.dropped += 1,
        }
    }

    fn park(&mut self, id: Option<Bytes>, parking: Parking) {
        let position = self.position();
        self.made.push(ShadowEvent { position, made: parked(id, parking) });
    }

    /// Of the next event of the transaction.
    fn position(&mut self) -> Position {
        let open = self.open.as_mut();
        let (commit_lsn, events) = open.expect("whatever the source yields is in a transaction");
        let ordinal = *events;
        *events = ordinal.saturating_add(1);
        Position { commit_lsn: *commit_lsn, ordinal }
    }

    /// Waits for an answer, but not for long.
    async fn ask(&mut self) -> Result<(), RelayError> {
        self.source.keep_alive().await?;
        // Without a question it is ASK_AGAIN that is waited for.
        let Ok(answer) = timeout(TICK, self.asker.answered()).await else { return Ok(()) };
        let answer = answer?;
        match &answer {
            // It registers nothing itself.
            Answer::Refused { kind, .. } => {
                let now = Instant::now();
                let (since, again) = self.refused.get_or_insert((now, now));
                if since.elapsed() < REGISTERED_WITHIN {
                    *again = now + ASK_AGAIN;
                    return Ok(());
                }
                // The next schema has a time of its own.
                self.refused = None;
                if let Some(held) = &mut self.held {
                    held.is_unregistered = *kind == RegistryErrorKind::NotRegistered;
                }
            }
            Answer::Id { .. } => self.refused = None,
            Answer::Described(..) | Answer::IdSpace(..) => {}
        }
        self.converter.learn(answer);
        Ok(())
    }

    /// The server may forget what was read: nothing is lost with it.
    async fn confirm_read(&mut self) -> Result<(), RelayError> {
        if self.held.is_none() && self.items.is_empty() && self.read > self.confirmed {
            self.confirmed = self.read;
            self.source.confirm(self.read).await?;
        }
        Ok(())
    }
}

/// Debezium's records have no source, and nothing is written for one here.
fn without_source(config: &RelayConfig) -> RelayConfig {
    RelayConfig { source_header: false, ..config.clone() }
}

fn parked(id: Option<Bytes>, parking: Parking) -> ShadowMade {
    ShadowMade::Parked { id, reason: parking.reason.as_str(), detail: parking.detail }
}

/// What a pipeline needs of the server, as far as it is about reading.
async fn checked(
    sql: &Sql,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Result<preflight::Server, RelayError> {
    let server = preflight::server(sql).await?;
    preflight::rights(sql).await?;
    for table in &config.tables {
        preflight::columns(sql, config, table, router).await?;
    }
    preflight::origin_supported(&server, config)?;
    row_filter::supported(&server, config)?;
    if !publication::exists(sql, config).await? {
        return Err(RelayError::prerequisite(
            format!("publication {:?} does not exist", config.publication),
            "name the publication of the connector that runs, in publication.name",
        ));
    }
    publication::found(sql, config, router).await?;
    stream_columns::suffice(sql, server.version, config, router).await?;
    Ok(server)
}

/// Schemas that are not registered are left to the other one.
fn looks_only(mut encoding: EventEncoding) -> EventEncoding {
    if let EventEncoding::Connect(options) = &mut encoding {
        let registries = &mut options.registries;
        let all = [&mut registries.key, &mut registries.value, &mut registries.header];
        for registry in all.into_iter().flatten() {
            let RegistryConfig { auto_register, .. } = registry;
            *auto_register = false;
        }
    }
    encoding
}

/// Of a temporary slot that says whose shadow it is.
fn slot_name(slot: &str, number: u32) -> String {
    // Names of slots are ASCII.
    let kept: String = slot.chars().take(SLOT_NAME_BYTES - SUFFIX_BYTES).collect();
    format!("{kept}_shadow_{number:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_says_whose_shadow_it_is_and_fits() {
        assert_eq!(slot_name("debezium", 0xab), "debezium_shadow_000000ab");
        assert_eq!(slot_name(&"x".repeat(63), 1).len(), SLOT_NAME_BYTES);
    }
}
