use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{error::Elapsed, timeout},
};
use walpost_encode::{Encoder, Encoding};
use walpost_postgres::Database;
use walpost_router::{Routed, Router, RouterConfig};

use super::{
    Bug, Planted,
    brokers::SETTLE_MS,
    rows::RowsOfWorld,
    schedule::{Life, Schedule},
    server::Server,
    sink::Producer,
    source::{self, WalOfWorld},
    world::{PIPELINE, World, lsn},
};
use crate::{
    checkpoint::{CheckpointStore, InitialState},
    config::RelayConfig,
    error::RelayError,
    metrics::PipelineMetrics,
    pipeline::Ended,
    policy::Carried,
    session::{Found, Session},
    sql::Sql,
    status::StatusReporter,
    wal::{ServerIdentity, preflight},
};

/// Of the world's time, for one schedule. A schedule that takes longer is stuck.
const SCHEDULE_MAX: Duration = Duration::from_secs(120);
/// Between a session that failed and the next.
const RETRY_MS: u64 = 10;

const ENCODING: Encoding = Encoding { key: Encoder::Raw, value: Encoder::Raw };
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

/// Lets a schedule happen, and says what is wrong then.
pub(super) fn run(schedule: &Schedule, bug: Option<Bug>) -> Option<String> {
    let _planted = Planted::new(bug);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O");
    let schedule = Arc::new(schedule.clone());
    runtime.block_on(async {
        let world = World::new(&schedule);
        let relay = Relay::new(&schedule, &world);
        let lived: Result<(), Elapsed> = timeout(SCHEDULE_MAX, async {
            tokio::select! {
                biased;
                () = world.over() => {}
                () = relay.live() => {}
            }
        })
        .await;
        let stuck = || format!("nothing new within {} s of its time", SCHEDULE_MAX.as_secs());
        world.judge().or_else(|| lived.err().map(|_| stuck()))
    })
}

/// The processes of a relay, one after another.
struct Relay<'a> {
    schedule: &'a Schedule,
    world: &'a World,
    config: RelayConfig,
    status: StatusReporter,
    metrics: PipelineMetrics,
}

impl<'a> Relay<'a> {
    fn new(schedule: &'a Schedule, world: &'a World) -> Self {
        let settings = &schedule.settings;
        let mut config = RelayConfig::new(PIPELINE);
        config.park = settings.park;
        config.in_flight_max_events = settings.in_flight_max_events;
        config.checkpoint_interval_ms = settings.checkpoint_interval_ms;
        config.settle_ms = SETTLE_MS;
        config.position_header = settings.position_header;
        let metrics = PipelineMetrics::new(PIPELINE, "simulated");
        Self { schedule, world, config, status: StatusReporter::new().0, metrics }
    }

    async fn live(&self) {
        let mut carried = Carried::default();
        let mut lives = self.schedule.lives.iter();
        loop {
            let ended = self.session(lives.next(), &mut carried).await;
            match ended {
                // The next process knows nothing of this one.
                None | Some(Ok(Ended::Stopped)) => carried = Carried::default(),
                Some(Ok(Ended::Rejected)) => {}
                Some(Err(error)) if error.is_transient() => self.world.pass(RETRY_MS).await,
                Some(Err(error)) => {
                    self.world.lock().oracle.wrong(walpost_event::error_chain(&error));
                    // Notices it.
                    drop(self.world.lock());
                    return std::future::pending().await;
                }
            }
        }
    }

    /// Runs one session. Nothing comes of one that is killed.
    async fn session(
        &self,
        life: Option<&Life>,
        carried: &mut Carried,
    ) -> Option<Result<Ended<Infallible>, RelayError>> {
        let (stop, stopped) = watch::channel(false);
        let session = Box::pin(self.serve(stopped, carried));
        match life {
            None => Some(session.await),
            Some(Life::Crash { polls }) => Killed { session: Some(session), polls: *polls }.await,
            Some(Life::Stop { after_ms }) => {
                let mut session = session;
                tokio::select! {
                    biased;
                    ended = &mut session => return Some(ended),
                    () = self.world.pass(*after_ms) => stop.send_replace(true),
                };
                Some(session.await)
            }
        }
    }

    /// As a session does it once everything is checked: start the stream, hold
    /// the slot, own the checkpoint, read back, publish.
    async fn serve(
        &self,
        stop: watch::Receiver<bool>,
        carried: &mut Carried,
    ) -> Result<Ended<Infallible>, RelayError> {
        let sql = Sql::simulated(Server::connect(self.world));
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
            database: DATABASE.clone(),
            left_at: None,
            sql,
            server: server(),
            identity: identity(),
            checkpoints,
            checkpoint,
            stored: true,
            new_slot: None,
        };
        if found.checkpoint.initial != InitialState::Done || self.world.lock().is_lost() {
            match self.recover(&mut session, &mut found, stop.clone()).await? {
                Ended::Reached((), _) => {}
                Ended::Stopped => return Ok(Ended::Stopped),
                Ended::Rejected => return Ok(Ended::Rejected),
            }
        }
        let source = WalOfWorld::start(self.world, found.checkpoint.confirmed);
        let slot = lsn(self.world.lock().slot());
        session.own(&mut found, slot).await?;
        session.stream(&found, source, stop, async || Ok(Producer::connect(self.world))).await
    }

    /// As a session replaces a lost slot, and publishes what that has not brought.
    async fn recover(
        &self,
        session: &mut Session<'_>,
        found: &mut Found,
        stop: watch::Receiver<bool>,
    ) -> Result<Ended<()>, RelayError> {
        let is_noted = matches!(found.checkpoint.initial, InitialState::Recover { .. });
        let is_new = !is_noted || self.world.lock().is_lost();
        if is_new {
            session.note_loss(found).await?;
            let (begin, boundary) = self.world.lock().create_slot();
            self.world.written();
            let before = preflight::Before { boundary, has_rows: true };
            session.note_slot(found, lsn(begin), before).await?;
        } else {
            session.take(found).await?;
        }
        let InitialState::Recover { boundary, .. } = found.checkpoint.initial.clone() else {
            unreachable!("the slot was just noted")
        };
        let proven = found.checkpoint.proven.as_ref().expect("from the beginning on");
        let position = found.checkpoint.confirmed.into();
        let rows =
            RowsOfWorld::open(self.world, position, &boundary, &proven.snapshot, is_new).await;
        let mut connect = async || Ok(Producer::connect(self.world));
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

/// A session that is dropped where it waits, after so many polls.
struct Killed<F> {
    session: Option<Pin<Box<F>>>,
    polls: u64,
}

impl<F: Future> Future for Killed<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == 0 {
            self.session = None;
        }
        let Some(session) = self.session.as_mut() else { return Poll::Ready(None) };
        match session.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => {
                self.polls -= 1;
                if self.polls == 0 {
                    // At once, and not when it would have gone on.
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }
}
