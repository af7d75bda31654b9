//! Switches what brings a pipeline's events, between the WAL and polling. Nothing
//! is lost and nothing comes twice: a new slot's snapshot and position part the
//! rows of the one source from those of the other.
//!
//! To polling: what the cut sees is published from the old slot, and nothing
//! else (`leaving.rs`, `until.rs`); from then on the row of `checkpoint` says so;
//! the rows say so themselves; the old slot is dropped; pollers may start.
//!
//! To the WAL: no poller claims any more; the slot is made; what its cut sees is
//! polled; the relay may start where the slot begins.
//!
//! Each step is committed before the next one, which can be repeated: a switch
//! that was killed goes on where it was.

mod leaving;
mod possible;
mod to_polling;
mod to_wal;
mod until;

pub(crate) use self::until::Until;

use std::{fmt, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::time::Instant;
use walpost_event::{Lsn, error_chain};
use walpost_postgres::Database;
use walpost_router::{Router, RouterConfig};

use crate::{
    checkpoint::{Checkpoint, CheckpointStore, Cut, Feed},
    clock::now_us,
    config::{LostSlot, RelayConfig, SourceKind},
    encoding::EventEncoding,
    error::RelayError,
    polling::{PollingConfig, polled},
    proven::Pair,
    sink::Sink,
    sql::Sql,
    wal::{
        preflight::{self, Server},
        slot,
    },
};

/// For the server to notice that whoever has held a slot or a lock is gone.
const HOLDER_WAIT: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What is to bring a pipeline's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchTo {
    /// Relays that poll the outbox table.
    Polling,
    /// The relay that reads the WAL.
    Wal,
}

/// A step of a switch, when it is done and committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwitchStep {
    /// It is known up to where the WAL is read. Nothing is committed yet.
    CutMade,
    /// Everything up to there is published, and no relay reads the WAL any more.
    WalLeft,
    /// So many rows were marked as published.
    RowsMarked(u64),
    /// The slot is gone.
    SlotDropped,
    /// Nobody polls any more.
    PollingLeft,
    /// The slot is there.
    SlotMade,
    /// It is noted where it begins.
    CutNoted,
    /// So many rows were polled that the slot does not bring.
    RowsPolled(u64),
    /// The relays of the other source may start.
    Done,
}

impl fmt::Display for SwitchStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutMade => f.write_str("it is known up to where the WAL is read"),
            Self::WalLeft => f.write_str("everything up to there is published"),
            Self::RowsMarked(rows) => write!(f, "rows marked as published: {rows}"),
            Self::SlotDropped => f.write_str("the slot is dropped"),
            Self::PollingLeft => f.write_str("nobody polls any more"),
            Self::SlotMade => f.write_str("the slot is made"),
            Self::CutNoted => f.write_str("it is noted where the slot begins"),
            Self::RowsPolled(rows) => write!(f, "rows polled that it does not bring: {rows}"),
            Self::Done => f.write_str("relays of the other source may start"),
        }
    }
}

/// A switch that has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Switched {
    /// There was nothing to do.
    pub is_already: bool,
    /// What was committed below was published from the one source, the rest is
    /// from the other; `None` where nothing was done.
    pub position: Option<Lsn>,
}

impl Switched {
    const ALREADY: Self = Self { is_already: true, position: None };

    fn at(position: Lsn) -> Self {
        Self { is_already: false, position: Some(position) }
    }
}

/// A switch of a pipeline's source, ready to run while no relay of it does.
#[derive(Debug)]
pub struct SourceSwitch {
    database: Database,
    config: RelayConfig,
    polling: PollingConfig,
    router: Router,
    encoding: EventEncoding,
}

/// What a switch works with.
struct Desk {
    /// Holds the lock that keeps another switch out.
    sql: Sql,
    /// The one host that was found.
    database: Database,
    server: Server,
    checkpoints: CheckpointStore,
    row: Option<Checkpoint>,
}

impl SourceSwitch {
    /// Checks the settings. Nothing is connected yet. Of `config` both what
    /// concerns the slot and what concerns polling counts; its
    /// [`source`](RelayConfig::source) does not.
    ///
    /// # Errors
    /// [`RelayError::Config`] naming the setting.
    pub fn new(
        database: Database,
        mut config: RelayConfig,
        polling: PollingConfig,
        router: RouterConfig,
        encoding: impl Into<EventEncoding>,
    ) -> Result<Self, RelayError> {
        config.validate().map_err(RelayError::Config)?;
        polling.validate().map_err(RelayError::Config)?;
        polled(&config)?;
        config.source = SourceKind::Native;
        // These are for relays.
        config.on_lost_slot = LostSlot::Refuse;
        config.mark_published = false;
        let encoding = encoding.into();
        encoding.check()?;
        encoding.fit(&mut config);
        let router =
            Router::new(router).map_err(|error| RelayError::Config(error_chain(&error)))?;
        Ok(Self { database, config, polling, router, encoding })
    }

    /// Switches, or goes on with a switch that was ended half-way. `tell` hears
    /// of each step, and the next one begins when it has returned.
    ///
    /// A sink that can be fenced off is of no use to pollers: `connect_sink` makes
    /// one that cannot.
    ///
    /// # Errors
    /// [`RelayError::Prerequisite`] when a relay of the pipeline runs, or where the
    /// switch could lose or repeat events, with what to do; else what failed.
    /// Until [`SwitchStep::WalLeft`] or [`SwitchStep::PollingLeft`] nothing has
    /// changed then; afterwards no relay of the pipeline starts until the switch
    /// has come to its end.
    pub async fn run<K: Sink>(
        &self,
        to: SwitchTo,
        mut connect_sink: impl AsyncFnMut() -> Result<K, RelayError>,
        mut tell: impl AsyncFnMut(SwitchStep),
    ) -> Result<Switched, RelayError> {
        match to {
            SwitchTo::Polling => Box::pin(self.to_polling(&mut connect_sink, &mut tell)).await,
            SwitchTo::Wal => Box::pin(self.to_wal(&mut connect_sink, &mut tell)).await,
        }
    }

    async fn open(&self) -> Result<Desk, RelayError> {
        let limit = Duration::from_millis(self.config.statement_timeout_ms);
        let (client, database) = self.database.connect_to_one().await?;
        let sql = Sql::new(Arc::new(client), limit);
        let settings = "set synchronous_commit = local; set statement_timeout = 0; \
                        set idle_session_timeout = 0; \
                        set idle_in_transaction_session_timeout = 0";
        sql.batch("setting up the session", settings).await?;
        let server = preflight::server(&sql).await?;
        preflight::own_tables(&sql, &self.config).await?;
        if !lock_patiently(&sql, &self.config).await? {
            return Err(RelayError::prerequisite(
                format!(
                    "pipeline {:?} is in use: a relay runs that has made its first start, or \
                     another process switches its source",
                    self.config.pipeline
                ),
                "stop the relay, and those that stand by, or wait for the end of the other switch",
            ));
        }
        // Whoever waits for claims waits as long as one may be silent.
        let patient =
            sql.within_ms(self.config.statement_timeout_ms + self.polling.claim_timeout_ms);
        let checkpoints = CheckpointStore::new(patient, &self.config);
        let row = checkpoints.read().await?;
        Ok(Desk { sql, database, server, checkpoints, row })
    }
}

/// Whether we keep relays from their first start, and other commands out. One that
/// was killed does so until the server has noticed, and is waited for.
pub(crate) async fn lock_patiently(sql: &Sql, config: &RelayConfig) -> Result<bool, RelayError> {
    let deadline = Instant::now() + HOLDER_WAIT;
    while !slot::lock_first_start(sql, config).await? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(true)
}

impl Desk {
    fn feed(&self) -> Option<&Feed> {
        self.row.as_ref().map(|row| &row.feed)
    }
}

/// Everything that the cut sees is published.
fn proof(cut: &Cut, floors: Value) -> Pair {
    let Cut { snapshot, position } = cut.clone();
    Pair { snapshot, lsn: position, floors, taken_at: now_us() / 1_000_000 }
}
