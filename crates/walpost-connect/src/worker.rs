//! The one task that changes anything: it leads or stands by, keeps connectors
//! in the table and has their runs begin and end.

mod checks;
mod lead;
mod requests;
mod runs;

use std::{collections::BTreeMap, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{MissedTickBehavior, interval, timeout},
};
use walpost_event::error_chain;
use walpost_postgres::Database;

use self::lead::Leading;
pub(crate) use self::requests::{Done, Request};
use crate::{
    config::Config,
    error::ApiError,
    plugin::Plugin,
    runner::Runner,
    state::{Shown, Target},
    store::{Store, StoreError},
};

/// Requests that wait for their turn.
const REQUESTS_MAX: usize = 64;
/// How long a request waits for its answer, the end of a run included.
const ANSWER_LIMIT: Duration = Duration::from_secs(45);
/// Between two looks at the session, or attempts to lead.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Keeps connectors and has them run: see [`run`](Self::run).
#[derive(Debug)]
pub struct Worker {
    database: Database,
    schema: String,
    plugin: Arc<Plugin>,
    runner: Arc<Runner>,
    requests: mpsc::Receiver<(Request, Reply)>,
    snapshot: watch::Sender<Snapshot>,
}

/// Who asks a [`Worker`]; clones ask the same.
#[derive(Clone, Debug)]
pub struct Connectors {
    requests: mpsc::Sender<(Request, Reply)>,
    snapshot: watch::Receiver<Snapshot>,
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) runner: Arc<Runner>,
}

type Reply = oneshot::Sender<Result<Done, ApiError>>;

/// What there is, as it was when something last changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) role: Role,
    pub(crate) connectors: Arc<BTreeMap<String, View>>,
}

/// What a process does among those of one database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It has not found out yet; why, where it was tried.
    #[default]
    Starting,
    /// It runs the connectors.
    Leads,
    /// Another process does.
    StandsBy,
    /// The database does not answer; nothing of the connectors is known.
    Waits(String),
}

/// One connector.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) config: Arc<Config>,
    pub(crate) target: Target,
    pub(crate) shown: Shown,
    pub(crate) is_idle: bool,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker on the table `connector` of a schema, and who asks it. Nothing
    /// happens yet.
    pub fn new(
        database: Database,
        schema: impl Into<String>,
        plugin: Plugin,
        runner: Runner,
    ) -> (Self, Connectors) {
        let (ask, requests) = mpsc::channel(REQUESTS_MAX);
        let snapshot = watch::Sender::new(Snapshot::default());
        let (plugin, runner) = (Arc::new(plugin), Arc::new(runner));
        let connectors = Connectors {
            requests: ask,
            snapshot: snapshot.subscribe(),
            plugin: plugin.clone(),
            runner: runner.clone(),
        };
        let schema = schema.into();
        (Self { database, schema, plugin, runner, requests, snapshot }, connectors)
    }

    /// Leads, or stands by until it can, until `stop` is ready; then has all
    /// runs end and waits for them.
    ///
    /// One process leads, which an advisory lock of the database decides. Who
    /// loses its session goes on with its runs, since each is the only one that
    /// has its slot, and ends them once another one leads.
    ///
    /// # Errors
    /// [`StoreError`] where trying again does not help, before it has led.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), StoreError> {
        let mut stop = std::pin::pin!(stop);
        let mut ticks = interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                // Before requests, which may come without a pause.
                _ = ticks.tick() => {
                    if self.lead(stop.as_mut()).await? {
                        return Ok(());
                    }
                    // However long that took, requests have their time.
                    ticks.reset();
                }
                Some((_, reply)) = self.requests.recv() => {
                    // Whoever asked may be gone.
                    let _ = reply.send(Err(self.refusal()));
                }
            }
        }
    }

    /// Leads if it can; whether it was stopped.
    async fn lead(&mut self, stop: Pin<&mut impl Future<Output = ()>>) -> Result<bool, StoreError> {
        let leading = match self.try_to_lead().await {
            Ok(Some(store)) => Leading::begin(self, store).await.map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        match leading {
            Ok(Some(leading)) => {
                if leading.run(stop).await.is_stopped() {
                    return Ok(true);
                }
                self.tell(Role::StandsBy);
            }
            Ok(None) => drop(self.tell(Role::StandsBy)),
            Err(error) if error.is_transient() => self.waits(&error),
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    async fn try_to_lead(&self) -> Result<Option<Store>, StoreError> {
        let store = Store::open(&self.database, &self.schema).await?;
        Ok(store.lead().await?.then_some(store))
    }

    fn waits(&self, error: &StoreError) {
        let error = error_chain(error);
        if self.tell(Role::Waits(error.clone())) {
            tracing::warn!(error, "the connectors cannot be read; trying again");
        }
    }

    /// Whether that is news.
    fn tell(&self, role: Role) -> bool {
        self.snapshot.send_if_modified(|snapshot| {
            let is_new = snapshot.role != role;
            if is_new {
                tracing::info!(?role, "among the processes that serve connectors");
                *snapshot = Snapshot { role, connectors: Arc::default() };
            }
            is_new
        })
    }

    fn refusal(&self) -> ApiError {
        refusal(&self.snapshot.borrow().role)
    }
}

/// Why a process that does not lead answers nothing.
fn refusal(role: &Role) -> ApiError {
    match role {
        Role::StandsBy => ApiError::conflict(
            "Cannot complete request: this process stands by, and another one runs the \
             connectors; ask that one",
        ),
        Role::Waits(error) => ApiError::internal(format!(
            "Cannot complete request: the database of the connectors does not answer: {error}"
        )),
        Role::Starting | Role::Leads => {
            ApiError::conflict("Cannot complete request momentarily: the process has just begun")
        }
    }
}

impl Connectors {
    /// What the process does.
    pub fn role(&self) -> Role {
        self.snapshot.borrow().role.clone()
    }

    /// The connectors.
    ///
    /// # Errors
    /// Where this process does not lead.
    pub(crate) fn all(&self) -> Result<Arc<BTreeMap<String, View>>, ApiError> {
        let snapshot = self.snapshot.borrow();
        match snapshot.role {
            Role::Leads => Ok(snapshot.connectors.clone()),
            _ => Err(refusal(&snapshot.role)),
        }
    }

    /// One of them.
    pub(crate) fn find(&self, name: &str) -> Result<Option<View>, ApiError> {
        Ok(self.all()?.get(name).cloned())
    }

    /// Has a request carried out.
    pub(crate) async fn ask(&self, request: Request) -> Result<Done, ApiError> {
        let timed_out = || ApiError::internal("Request timed out");
        let asking = async {
            let (reply, answer) = oneshot::channel();
            self.requests.send((request, reply)).await.ok()?;
            answer.await.ok()
        };
        let ended = || ApiError::conflict("Cannot complete request: the process ends");
        timeout(ANSWER_LIMIT, asking)
            .await
            .map_err(|_| timed_out())?
            .unwrap_or_else(|| Err(ended()))
    }
}
