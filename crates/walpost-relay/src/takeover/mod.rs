//! A slot changes hands between another program that reads it, as Debezium's
//! connector, and a pipeline; nothing is lost and nothing comes twice.
//!
//! To the pipeline: what the other one has published is known
//! ([`Boundary`]). Mostly it ends inside of a transaction, since the other one
//! stores its place with an event and hears of the end of the transaction later;
//! so the slot is read from its own position up to there, and it is counted how
//! many events of that transaction are published (`scan.rs`). The row of
//! `checkpoint` says both, and the pipeline's first start goes on from it.
//!
//! Back: a last session publishes up to a position, and nothing above; there the
//! slot is moved to (`hand_back.rs`).

mod hand_back;
mod scan;

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, timeout_at};
use walpost_event::{Lsn, Position, error_chain};
use walpost_postgres::Database;
use walpost_router::{Router, RouterConfig};
use walpost_takeover::Boundary;

pub use self::hand_back::{HandBack, HandedBack, plan_hand_back};
use self::scan::{Part, Scan, Scanned};
use crate::{
    check::overlap,
    checkpoint::{Checkpoint, CheckpointStore, InitialState, Watched, new_generation},
    config::RelayConfig,
    convert::Converter,
    encoding::EventEncoding,
    error::{RelayError, SourceError},
    history,
    id_space::{Begins, IdSpaceTable},
    retention::ReaderFeed,
    sql::Sql,
    switch::lock_patiently,
    wal::{
        ReplicationClient, ServerIdentity, StreamStart, WalSource, membership,
        preflight::{self, Server},
        relations,
        slot::{self, Slot},
    },
};

/// For the server to notice that whoever has held the slot or a lock is gone.
const HOLDER_WAIT: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Longest reading of what the slot brings again.
const SCAN_MAX: Duration = Duration::from_secs(600);

/// How a pipeline takes over.
#[derive(Clone, Copy, Debug)]
pub struct TakeOverOrder {
    /// What the other program has published.
    pub boundary: Boundary,
    /// Go on where the slot stands also if that is behind the boundary: what was
    /// committed in between nobody publishes, unless the other program has.
    pub accept_slot_ahead: bool,
    /// Go on also where consumers know events that the other program has published by
    /// another source: what of it is published again they apply twice.
    pub accept_duplicates: bool,
}

/// What a take-over does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TakeOverPlan {
    /// Where the slot stands.
    pub slot_confirmed: Lsn,
    /// Where the pipeline begins to stream.
    pub begins_at: Lsn,
    /// Events that the slot would bring and that are published already, in
    /// transactions below where the pipeline begins.
    pub skipped_events: u64,
    /// The transaction behind that of which the first events are published.
    pub part: Option<TakeOverPart>,
    /// The transaction that holds the last published event is not in the stream.
    pub is_part_missing: bool,
    /// Where the pipeline stood when it gave the slot away.
    pub stood_at: Option<Lsn>,
    /// What stands in the way, each with what to do.
    pub obstacles: Vec<(String, String)>,
    /// It is done.
    pub is_done: bool,
}

/// A transaction of which the first events are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TakeOverPart {
    /// Start of its commit record.
    pub commit_lsn: Lsn,
    /// Of its events those that are not sent again.
    pub published: u32,
    /// All of them.
    pub events: u32,
}

/// Says what a take-over would do; reads from the slot and changes nothing.
/// `encoding` is the pipeline's, which decides what of the stream is an event.
///
/// # Errors
/// [`RelayError::Prerequisite`] while anybody streams from the slot, or where slot,
/// publication or tables are not as they have to be; else what failed.
pub async fn plan_take_over(
    database: &Database,
    config: &RelayConfig,
    router: &RouterConfig,
    encoding: &EventEncoding,
    order: &TakeOverOrder,
) -> Result<TakeOverPlan, RelayError> {
    Ok(look(database, config, router, encoding, order).await?.plan)
}

/// Takes the slot over, unless something stands in the way: the next start of the
/// pipeline goes on behind what is published. Can be repeated until that start.
///
/// # Errors
/// As [`plan_take_over`]; nothing has changed then.
pub async fn take_over(
    database: &Database,
    config: &RelayConfig,
    router: &RouterConfig,
    encoding: &EventEncoding,
    order: &TakeOverOrder,
) -> Result<TakeOverPlan, RelayError> {
    let Found { desk, identity, held, last, mut plan } =
        look(database, config, router, encoding, order).await?;
    if !plan.obstacles.is_empty() {
        return Ok(plan);
    }
    let row = Checkpoint {
        confirmed: plan.begins_at,
        initial: InitialState::Done,
        taken_over_at: last,
        ..Checkpoint::new(new_generation(), identity.system_id, identity.timeline, &config.slot)
    };
    IdSpaceTable::new(config).take_over(&desk.sql, config, &router.event_id).await?;
    desk.checkpoints.begin_behind(&row, desk.row.as_ref()).await?;
    // Until now nobody else could have moved the slot.
    drop(held);
    plan.is_done = true;
    Ok(plan)
}

/// What is worked with.
struct Desk {
    /// Holds the lock that keeps a first start and other commands out.
    sql: Sql,
    /// The one host that was found.
    database: Database,
    server: Server,
    checkpoints: CheckpointStore,
    row: Option<Checkpoint>,
    slot: Slot,
}

struct Found {
    desk: Desk,
    identity: ServerIdentity,
    /// Holds the slot.
    held: WalSource,
    /// The last published event of a transaction that has others.
    last: Option<Position>,
    plan: TakeOverPlan,
}

/// Opens a session, and checks what both directions need.
async fn open(database: &Database, config: &RelayConfig) -> Result<Desk, RelayError> {
    config.validate().map_err(RelayError::Config)?;
    let (client, database) = database.connect_to_one().await?;
    let sql = Sql::new(Arc::new(client), Duration::from_millis(config.statement_timeout_ms));
    let settings = "set synchronous_commit = local; set statement_timeout = 0; \
                    set idle_session_timeout = 0";
    sql.batch("setting up the session", settings).await?;
    let server = preflight::server(&sql).await?;
    preflight::rights(&sql).await?;
    preflight::own_tables(&sql, config).await?;
    preflight::up_to_date(&sql, config).await?;
    if !lock_patiently(&sql, config).await? {
        return Err(RelayError::prerequisite(
            format!("pipeline {:?} is in use by a relay or another command", config.pipeline),
            "stop the relay, and those that stand by, or wait for the end of the other command",
        ));
    }
    let mut checkpoints = CheckpointStore::new(sql.clone(), config);
    let row = checkpoints.read().await?;
    let slot = slot::inspect(&sql, &config.slot).await?.ok_or_else(|| no_slot(config))?;
    slot::check(&slot, config, database.dbname())?;
    slot::owned_by_no_other(&sql, config, &server.system_id).await?;
    let publication = membership::read(&sql, config).await?;
    if publication.is_none() {
        return Err(RelayError::prerequisite(
            format!("publication {:?} does not exist", config.publication),
            "set pipeline.publication to the connector's publication.name: what was committed \
             before another one was made is not in the stream of that",
        ));
    }
    checkpoints.expect_publication(publication, None);
    let facts = relations::read(&sql, config, &[]).await?;
    checkpoints.expect_relations(Watched::new(&database, config, server.version, None, &facts));
    if let Some(row) = &row {
        row.feed.expect_wal(config)?;
        history::same_cluster(row, config, &server)?;
    }
    Ok(Desk { sql, database, server, checkpoints, row, slot })
}

fn no_slot(config: &RelayConfig) -> RelayError {
    RelayError::prerequisite(
        format!("slot {:?} does not exist", config.slot),
        "set pipeline.slot to the connector's slot.name; if the slot is gone, what was committed \
         since is published by no slot: see initial = \"publish\"",
    )
}

/// Takes the slot and finds what is published.
async fn look(
    database: &Database,
    config: &RelayConfig,
    router: &RouterConfig,
    encoding: &EventEncoding,
    order: &TakeOverOrder,
) -> Result<Found, RelayError> {
    let mut desk = open(database, config).await?;
    for table in &config.tables {
        preflight::columns(&desk.sql, config, table, router).await?;
    }
    preflight::streamed(&desk.sql, config, router).await?;
    let repeated = repeated(&desk.sql, config, &router.event_id, encoding).await?;
    if desk.row.is_none() {
        overlap::none(&desk.sql, config, &config.tables, ReaderFeed::Wal).await?;
    }
    let (mut held, identity) = hold(&mut desk, config).await?;
    let slot_confirmed = desk.slot.confirmed.unwrap_or_default();
    let boundary = order.boundary;
    // Without a part there is nothing to look for.
    let scanned = match boundary.inside {
        Some(_) => {
            let router = Router::new(router.clone())
                .map_err(|error| RelayError::Config(error_chain(&error)))?;
            let converter = Converter::new(router, encoding, config);
            let until = desk.checkpoints.flushed().await?;
            scan(&mut held, Scan::new(converter, config.skipped, boundary, until)).await?
        }
        None => Scanned::default(),
    };
    let whole = scanned.part.filter(|part| part.is_whole());
    let after = whole.map_or(boundary.after, |part| Some(part.end_lsn));
    let begins_at = after.unwrap_or_default().max(slot_confirmed);
    same_server(begins_at, desk.checkpoints.flushed().await?)?;
    let mut obstacles = obstacles(&desk, config, order, begins_at);
    obstacles.extend(repeated.filter(|_| !order.accept_duplicates));
    let plan = TakeOverPlan {
        slot_confirmed,
        begins_at,
        skipped_events: scanned.whole_events + whole.map_or(0, |part| u64::from(part.events)),
        part: scanned.part.filter(|part| !part.is_whole()).map(told),
        is_part_missing: boundary.inside.is_some() && scanned.part.is_none(),
        stood_at: desk.row.as_ref().map(|row| row.confirmed),
        obstacles,
        is_done: false,
    };
    let last = scanned.part.and_then(Part::last);
    Ok(Found { desk, identity, held, last, plan })
}

/// Where consumers would know an event by another source than that of the other
/// program, which may have published more than its offset says.
async fn repeated(
    sql: &Sql,
    config: &RelayConfig,
    id_column: &str,
    encoding: &EventEncoding,
) -> Result<Option<(String, String)>, RelayError> {
    let spaces = IdSpaceTable::new(config);
    spaces.try_ensure(sql, config, id_column, Begins::WithoutRows).await?;
    // Consumers take no id for globally unique that is not plain text.
    let table = match config.source_header && !encoding.has_plain_headers() {
        true => config.tables.first().cloned(),
        false => spaces.first_repeated(sql, config, id_column).await?,
    };
    Ok(table.map(|table| {
        let problem = format!(
            "ids of table {table} are not globally unique, or it has no row that shows it: \
             consumers know what the connector has published by its topic, and would apply an \
             event again that the pipeline publishes under the table's id space"
        );
        let remedy = "set pipeline.source_header = false, which keeps the topic as source; or take \
                      --accept-duplicates, if the connector was stopped in order and no event is \
                      replayed later";
        (problem, remedy.to_owned())
    }))
}

/// From a position that the server has not written yet it would stream in silence.
fn same_server(begins_at: Lsn, flushed: Lsn) -> Result<(), RelayError> {
    if begins_at <= flushed {
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!(
            "the connector has published up to {begins_at}, and the server's WAL ends at {flushed}: \
             the offset is of another server, or this one was set back"
        ),
        "check postgres.url, the connector's name and its topic.prefix",
    ))
}

fn told(part: Part) -> TakeOverPart {
    let Part { commit_lsn, published, events, .. } = part;
    TakeOverPart { commit_lsn, published, events }
}

fn obstacles(
    desk: &Desk,
    config: &RelayConfig,
    order: &TakeOverOrder,
    begins_at: Lsn,
) -> Vec<(String, String)> {
    let mut obstacles = Vec::new();
    let slot = desk.slot.confirmed.unwrap_or_default();
    if let Some(after) = order.boundary.after.filter(|after| *after < slot)
        && !order.accept_slot_ahead
    {
        obstacles.push((
            format!(
                "slot {:?} stands at {slot}, and the connector has published up to {after}: \
                 somebody else has moved the slot, or this is not the connector's last offset",
                config.slot
            ),
            "check the connector's name, its topic.prefix and where its offsets are; with \
             lsn.flush.mode = connector_and_driver this is normal while nothing is written, and \
             with --accept-slot-ahead the pipeline begins where the slot stands"
                .to_owned(),
        ));
    }
    let Some(row) = &desk.row else { return obstacles };
    if row.initial != InitialState::Done {
        obstacles.push((
            format!("pipeline {:?} has a first start or a recovery to finish", config.pipeline),
            format!(
                "let `walpost run` finish it, or delete the pipeline's row in {}.checkpoint",
                config.schema
            ),
        ));
    } else if begins_at < row.confirmed {
        obstacles.push((
            format!(
                "pipeline {:?} has published up to {}, which is behind what the connector has \
                 published",
                config.pipeline, row.confirmed
            ),
            "there is nothing to take over: start `walpost run`".to_owned(),
        ));
    }
    obstacles
}

/// Streams from where the slot stands, confirming nothing, so that nobody else can.
async fn hold(
    desk: &mut Desk,
    config: &RelayConfig,
) -> Result<(WalSource, ServerIdentity), RelayError> {
    let deadline = Instant::now() + HOLDER_WAIT;
    loop {
        let mut replication = ReplicationClient::connect(
            &desk.database,
            config.wal_sender_timeout_ms,
            config.max_event_bytes,
        )
        .await?;
        let identity = replication.identify().await?;
        desk.server.expect(&identity)?;
        let start = StreamStart {
            server: identity.clone(),
            slot: config.slot.clone(),
            publications: vec![config.publication.clone()],
            position: desk.slot.confirmed.unwrap_or_default(),
            messages: true,
            max_event_bytes: config.max_event_bytes,
            origin: config.stream_origin,
            confirms: true,
            base_types: config.base_types,
            tables: relations::fit(&desk.sql, config).await?.named(&config.tables).collect(),
            wal_sender_timeout_ms: config.wal_sender_timeout_ms,
        };
        match WalSource::start(replication, &start).await {
            Ok(source) => {
                let now = slot::inspect(&desk.sql, &config.slot).await?;
                desk.slot = now.ok_or_else(|| no_slot(config))?;
                if desk.slot.confirmed.unwrap_or_default() == start.position {
                    return Ok((source, identity));
                }
                // Whoever had it has moved it meanwhile.
            }
            Err(SourceError::SlotInUse { .. }) if Instant::now() < deadline => {}
            Err(SourceError::SlotInUse { slot, detail }) => return Err(in_use(&slot, &detail)),
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        let now = slot::inspect(&desk.sql, &config.slot).await?;
        desk.slot = now.ok_or_else(|| no_slot(config))?;
    }
}

fn in_use(slot: &str, detail: &str) -> RelayError {
    RelayError::prerequisite(
        format!("slot {slot:?} is in use: {detail}"),
        "stop who reads it, the connector (`PUT /connectors/<name>/stop`, or its worker) or \
         `walpost run`, and wait until it has ended",
    )
}

async fn scan(source: &mut WalSource, mut scan: Scan) -> Result<Scanned, RelayError> {
    let deadline = Instant::now() + SCAN_MAX;
    loop {
        let items = timeout_at(deadline, source.next_located()).await.map_err(|_| {
            let attempt = "reading what the slot brings again";
            RelayError::SqlTimeout { attempt, limit: SCAN_MAX }
        })??;
        if let Some(found) = items.iter().find_map(|(at, item)| scan.take(*at, item)) {
            return Ok(found);
        }
    }
}
