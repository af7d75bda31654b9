use std::{collections::HashSet, convert::Infallible, sync::LazyLock};

use tokio::sync::watch;
use walpost_encode::{Encoder, Encoding};
use walpost_postgres::Database;
use walpost_router::{Routed, Router, RouterConfig};

use super::{
    brokers::SETTLE_MS,
    lives::{Living, Polled, beside},
    rows::RowsOfWorld,
    schedule::{Life, Mode, Schedule},
    server::Server,
    sink::Producer,
    source::{self, WalOfWorld},
    world::{PIPELINES, World, lsn},
};
use crate::{
    checkpoint::{CheckpointStore, InitialState},
    config::RelayConfig,
    encoding::EventEncoding,
    error::{RelayError, SourceError},
    id_space::IdSpaces,
    metrics::PipelineMetrics,
    pipeline::Ended,
    policy::Carried,
    recovery::not_proven,
    session::{Found, Session},
    snapshot_modes::FirstLoad,
    sql::Sql,
    status::StatusReporter,
    wal::{ServerIdentity, preflight, row_filter},
};

/// Between a session that failed and the next.
const RETRY_MS: u64 = 10;

const ENCODING: EventEncoding =
    EventEncoding::Plain(Encoding { key: Encoder::Raw, value: Encoder::Raw });
/// Knows its topics already: expressions are slow without optimization.
static ROUTER: LazyLock<Router> = LazyLock::new(|| {
    let mut router = Router::new(RouterConfig::default()).expect("the defaults");
    for row in source::rows() {
        let routed = router.route(&row).expect("a row that can be routed");
        assert!(matches!(routed, Routed::Record(_)), "an insert is an event");
    }
    router
});
/// Nobody connects to it.
static DATABASE: LazyLock<Database> = LazyLock::new(|| {
    Database::parse("host=simulated user=relay dbname=shop").expect("a connection string")
});

/// How a session has ended, and what it leaves to the next one.
type Over = (Result<Ended<Infallible>, RelayError>, Carried);

/// How a session was left.
enum Left<'a> {
    Over(Box<Over>),
    /// Nothing comes of it.
    Killed,
    /// It wakes beside its successors.
    Paused(Living<'a, ()>),
}

/// The processes of a relay, one after another.
pub(super) struct Relay<'a> {
    schedule: &'a Schedule,
    world: World,
    config: RelayConfig,
    status: StatusReporter,
    metrics: PipelineMetrics,
}

impl<'a> Relay<'a> {
    pub(super) fn new(schedule: &'a Schedule, world: World) -> Self {
        let settings = &schedule.settings;
        let name = PIPELINES[world.pipeline];
        let mut config = RelayConfig::new(name);
        config.publication = name.to_owned();
        config.park = settings.park;
        config.in_flight_max_events = settings.in_flight_max_events;
        config.checkpoint_interval_ms = settings.checkpoint_interval_ms;
        config.settle_ms = SETTLE_MS;
        config.position_header = settings.position_header;
        let metrics = PipelineMetrics::new(name, "simulated");
        Self { schedule, world, config, status: StatusReporter::new().0, metrics }
    }

    pub(super) async fn live(&self) {
        let (mut carried, mut paused) = (Carried::default(), Vec::new());
        let plan = &self.schedule.pipelines[self.world.pipeline];
        let mut lives = plan.lives.iter().copied();
        self.world.until(plan.starts_ms).await;
        loop {
            let left = beside(&mut paused, self.session(lives.next(), carried)).await;
            carried = Carried::default();
            let (ended, to_the_next) = match left {
                // The next process knows nothing of this one.
                Left::Killed => continue,
                Left::Paused(session) => {
                    paused.push(session);
                    continue;
                }
                Left::Over(over) => *over,
            };
            match ended {
                Ok(Ended::Stopped) => {}
                Ok(Ended::Rejected) => carried = to_the_next,
                Err(error) if error.is_transient() => {
                    carried = to_the_next;
                    beside(&mut paused, self.world.pass(RETRY_MS)).await;
                }
                Err(error) => {
                    self.world.lock().oracle.wrong(walpost_event::error_chain(&error));
                    // Notices it.
                    drop(self.world.lock());
                    return std::future::pending().await;
                }
            }
        }
    }

    /// Runs one session, to its end or as far as it comes. From its beginning on
    /// no other one holds the slot.
    async fn session(&self, life: Option<Life>, carried: Carried) -> Left<'_> {
        let number = {
            let mut state = self.world.lock();
            let slot = &mut state.slots[self.world.pipeline];
            slot.holder += 1;
            slot.holder
        };
        let modes = self.schedule.settings.modes;
        let mode = modes[number as usize % modes.len()].of(self.world.pipeline);
        let mut session: Living<'_, _> = Box::pin(self.process(number, mode, life, carried));
        let ended = match life {
            Some(Life::Crash { polls } | Life::Pause { polls, .. }) => {
                Polled { session: session.as_mut(), polls }.await
            }
            _ => Some(session.as_mut().await),
        };
        match (ended, life) {
            (Some(over), _) => Left::Over(Box::new(over)),
            (None, Some(Life::Pause { for_ms, unnoticed_ms, .. })) if mode != Mode::Idempotent => {
                let mut state = self.world.lock();
                state.beside += 1;
                let until_ms = state.now_ms + for_ms + unnoticed_ms;
                state.slots[self.world.pipeline].unnoticed.push((number, until_ms));
                drop(state);
                Left::Paused(Box::pin(async move {
                    self.world.pass(for_ms).await;
                    // Nobody asks what becomes of it.
                    drop(session.await);
                    self.world.lock().beside -= 1;
                    drop(self.world.lock());
                }))
            }
            _ => Left::Killed,
        }
    }

    /// A session, which may be told to stop.
    async fn process(
        &self,
        number: u32,
        mode: Mode,
        life: Option<Life>,
        mut carried: Carried,
    ) -> Over {
        let (stop, stopped) = watch::channel(false);
        let stops = async {
            match life {
                Some(Life::Stop { after_ms }) => self.world.pass(after_ms).await,
                _ => std::future::pending().await,
            }
        };
        let mut session = Box::pin(self.serve(number, mode, stopped, &mut carried));
        let ended = tokio::select! {
            biased;
            ended = &mut session => ended,
            () = stops => {
                stop.send_replace(true);
                session.as_mut().await
            }
        };
        drop(session);
        (ended, carried)
    }

    /// As a session does it once everything is checked: start the stream, hold
    /// the slot, own the checkpoint, read back, publish.
    async fn serve(
        &self,
        number: u32,
        mode: Mode,
        stop: watch::Receiver<bool>,
        carried: &mut Carried,
    ) -> Result<Ended<Infallible>, RelayError> {
        let sql = Sql::simulated(Server::connect(&self.world));
        let checkpoints = CheckpointStore::new(sql.clone(), &self.config);
        let checkpoint = checkpoints.read().await?.expect("the first start is over");
        let mut session = Session {
            database: &DATABASE,
            config: &self.config,
            router: &ROUTER,
            encoding: &ENCODING,
            status: &self.status,
            metrics: &self.metrics,
            carried,
        };
        let mut found = Found {
            tables: Vec::new(),
            partitioned: HashSet::new(),
            has_deletes: false,
            database: DATABASE.clone(),
            spaces: IdSpaces::simulated(self.table()),
            left_at: None,
            sql,
            server: server(),
            identity: identity(),
            checkpoints,
            checkpoint,
            stored: true,
            new_slot: None,
            has_sink: false,
        };
        if found.checkpoint.initial != InitialState::Done || self.is_lost() {
            match self.recover(number, mode, &mut session, &mut found, stop.clone()).await? {
                Ended::Reached((), _) => {}
                Ended::Stopped => return Ok(Ended::Stopped),
                Ended::Rejected => return Ok(Ended::Rejected),
            }
        }
        self.alone(number)?;
        let source = WalOfWorld::start(&self.world, number, found.checkpoint.confirmed);
        let slot = lsn(self.world.lock().slots[self.world.pipeline].position());
        session.own(&mut found, slot).await?;
        let connect = async || Ok(Producer::connect(&self.world, mode).await);
        session.stream(&found, source, stop, connect).await
    }

    /// Pipelines that each publish everything have a table each: of one table either
    /// would count what the other has published.
    fn table(&self) -> usize {
        let mut pipelines = self.schedule.pipelines.iter();
        let is_shared = pipelines.all(|pipeline| pipeline.aggregates.is_none());
        if is_shared { self.world.pipeline } else { 0 }
    }

    fn is_lost(&self) -> bool {
        self.world.lock().slots[self.world.pipeline].is_lost
    }

    /// Slots, and the locks of first starts, are of those that the server still
    /// hears of.
    fn alone(&self, number: u32) -> Result<(), RelayError> {
        if self.world.lock().slots[self.world.pipeline].holder == number {
            return Ok(());
        }
        let (slot, detail) = (self.config.slot.clone(), "a successor has it".to_owned());
        Err(RelayError::Source(SourceError::SlotInUse { slot, detail }))
    }

    /// As a session replaces a lost slot, and publishes what that has not brought.
    async fn recover(
        &self,
        number: u32,
        mode: Mode,
        session: &mut Session<'_>,
        found: &mut Found,
        stop: watch::Receiver<bool>,
    ) -> Result<Ended<()>, RelayError> {
        let is_noted = matches!(found.checkpoint.initial, InitialState::Recover { .. });
        let is_new = !is_noted || self.is_lost();
        if is_new {
            session.note_loss(found).await?;
            self.alone(number)?;
            let (begin, boundary) = self.world.lock().create_slot(self.world.pipeline);
            self.world.written();
            session.note_slot(found, lsn(begin), &boundary, FirstLoad::Resumable).await?;
        } else {
            session.take(found).await?;
        }
        let InitialState::Recover { boundary, .. } = found.checkpoint.initial.clone() else {
            unreachable!("the slot was just noted")
        };
        let proven = found.checkpoint.proven.as_ref().expect("from the beginning on");
        let position = found.checkpoint.confirmed.into();
        session.givers_have_passed(found, &boundary).await?;
        let missing = not_proven(&proven.snapshot);
        let own = row_filter::condition(&found.sql, &self.config, &self.config.tables[0]).await?;
        let rows = format!("{} and {missing}", own.as_deref().unwrap_or("true"));
        let rows = RowsOfWorld::open(&self.world, number, position, &boundary, &rows, is_new).await;
        let mut connect = async || Ok(Producer::connect(&self.world, mode).await);
        session.publish_rows(found, rows, &boundary, stop, &mut connect).await
    }
}

fn server() -> preflight::Server {
    let ServerIdentity { system_id, dbname, .. } = identity();
    preflight::Server { version: 180_000, system_id, dbname, wal: lsn(0) }
}

fn identity() -> ServerIdentity {
    ServerIdentity { system_id: String::new(), timeline: 1, dbname: String::new() }
}
