//! Who leads: it alone writes to the table, and has connectors run.

use std::{collections::BTreeMap, pin::Pin, sync::Arc};

use tokio::{
    sync::watch,
    time::{Interval, MissedTickBehavior, interval},
};
use walpost_event::{error_chain, jitter};

use super::{
    LOOK_INTERVAL, Reply, Role, Snapshot, View, Worker,
    checks::{Change, Checks},
    refusal,
    runs::Runs,
};
use crate::{
    config::{Config, masked, patched, unmasked},
    error::ApiError,
    state::{Event, Machine, State, Step, Target},
    store::{Store, StoreError, Stored},
    worker::{Done, Request},
};

/// Looks at which another process was found to lead, before this one gives up:
/// the server may not know yet that our own session is over.
const REFUSALS_MAX: u32 = 20;

const LOST_MEANWHILE: &str = "the session with the database of the connectors was lost while the \
                              configuration was checked; nothing was changed, so ask again";

pub(super) struct Leading<'a> {
    worker: &'a mut Worker,
    /// `None` while there is no session that has the lock.
    store: Option<Store>,
    refusals: u32,
    connectors: BTreeMap<String, Entry>,
    runs: Runs,
    ticks: Interval,
    checks: Checks,
}

/// What a request comes to.
enum Outcome {
    Done(Done),
    /// A configuration, which is checked before it is kept; what the connector is to do
    /// if it is a new one.
    ToCheck(Config, Option<Target>),
}

struct Entry {
    config: Arc<Config>,
    machine: Machine,
    stop: Option<watch::Sender<bool>>,
    /// It is deleted, and its run ends.
    is_leaving: bool,
    /// Who waits for the end of its run.
    waiting: Vec<Reply>,
}

/// Why it leads no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Stopped,
    Succeeded,
}

impl Over {
    pub(super) fn is_stopped(self) -> bool {
        self == Self::Stopped
    }
}

impl<'a> Leading<'a> {
    /// Begins what the table has.
    pub(super) async fn begin(worker: &'a mut Worker, store: Store) -> Result<Self, StoreError> {
        let all = store.load().await?;
        let mut ticks = interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let runs = Runs::new(worker.plugin.clone(), worker.runner.clone());
        let checks = Checks::new(worker.plugin.clone(), worker.runner.clone());
        let (store, connectors) = (Some(store), BTreeMap::new());
        let mut leading = Self { worker, store, refusals: 0, connectors, runs, ticks, checks };
        tracing::info!(connectors = all.len(), "this process runs the connectors");
        for (name, stored) in all {
            leading.insert(&name, stored);
        }
        leading.publish();
        Ok(leading)
    }

    /// Leads until `stop` is ready or another process does; then ends all runs.
    pub(super) async fn run(mut self, mut stop: Pin<&mut impl Future<Output = ()>>) -> Over {
        let mut over = None;
        loop {
            if let Some(over) = over
                && self.connectors.values().all(|entry| entry.machine.is_idle())
            {
                return over;
            }
            tokio::select! {
                biased;
                () = stop.as_mut(), if over != Some(Over::Stopped) => {
                    over = Some(Over::Stopped);
                    self.shut_down();
                }
                // Before what others may bring without a pause: the session is to be used.
                _ = self.ticks.tick(), if over.is_none() => {
                    if self.look().await {
                        tracing::warn!("another process runs the connectors; ending them here");
                        over = Some(Over::Succeeded);
                        self.shut_down();
                    }
                    // However long the look took, the others have their time.
                    self.ticks.reset();
                }
                (name, event) = self.runs.next() => self.on(&name, event),
                (change, checked) = self.checks.next() => self.conclude(change, checked).await,
                Some((request, reply)) = self.worker.requests.recv(), if self.checks.is_free() => {
                    match over {
                        Some(_) => drop(reply.send(Err(refusal(&Role::StandsBy)))),
                        None => self.carry_out(request, reply).await,
                    }
                }
            }
            self.publish();
        }
    }

    fn shut_down(&mut self) {
        self.checks.give_up(refusal(&Role::StandsBy));
        let names: Vec<String> = self.connectors.keys().cloned().collect();
        for name in names {
            self.on(&name, Event::ShutDown);
        }
    }

    fn insert(&mut self, name: &str, stored: Stored) {
        let (machine, step) = Machine::new(stored.target);
        let config = Arc::new(stored.config);
        let entry = Entry { config, machine, stop: None, is_leaving: false, waiting: Vec::new() };
        self.connectors.insert(name.to_owned(), entry);
        self.take(name, step);
    }

    /// Whether another process leads. Opens a new session where the last one is
    /// over.
    async fn look(&mut self) -> bool {
        if let Some(store) = &self.store {
            if store.is_alive().await {
                return false;
            }
            tracing::warn!("the session that leads is over; the connectors go on meanwhile");
            self.store = None;
        }
        match self.worker.try_to_lead().await {
            Ok(Some(store)) => {
                match store.load().await {
                    Ok(all) => {
                        tracing::info!("this process leads again");
                        self.refusals = 0;
                        self.store = Some(store);
                        self.follow(all);
                    }
                    Err(error) => {
                        let error = error_chain(&error);
                        tracing::warn!(error, "the connectors cannot be read; trying again");
                    }
                }
                false
            }
            Ok(None) => {
                self.refusals += 1;
                self.refusals >= REFUSALS_MAX
            }
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "no session that leads; trying again");
                false
            }
        }
    }

    /// Does what the table says, which may be other than what was kept last:
    /// of a statement without an answer nobody knows what became.
    fn follow(&mut self, mut all: BTreeMap<String, Stored>) {
        // It was begun beside what may be of the past.
        self.checks.give_up(ApiError::internal(LOST_MEANWHILE));
        let names: Vec<String> = self.connectors.keys().cloned().collect();
        for name in names {
            let entry = self.connectors.get_mut(&name).expect("one of the names");
            let Some(stored) = all.remove(&name) else {
                entry.is_leaving = true;
                self.on(&name, Event::Target(Target::Stopped));
                continue;
            };
            let is_as_before = *entry.config == stored.config;
            entry.config = Arc::new(stored.config);
            if entry.machine.target() != stored.target {
                self.on(&name, Event::Target(stored.target));
            }
            if !is_as_before {
                self.on(&name, Event::Reconfigured);
            }
        }
        for (name, stored) in all {
            self.insert(&name, stored);
        }
    }

    fn on(&mut self, name: &str, event: Event) {
        let Some(entry) = self.connectors.get_mut(name) else { return };
        if let Event::Ended(_, Err(failure)) = &event {
            tracing::error!(connector = name, error = failure.text, "the connector has failed");
        }
        let step = entry.machine.on(event, jitter());
        self.take(name, step);
    }

    /// Does what the machine says, and tells those who wait for its end.
    fn take(&mut self, name: &str, step: Option<Step>) {
        let Some(entry) = self.connectors.get_mut(name) else { return };
        match step {
            Some(Step::Start(number)) => {
                entry.stop = Some(self.runs.start(name, number, &entry.config));
            }
            Some(Step::Stop(_)) => drop(entry.stop.as_ref().map(|stop| stop.send_replace(true))),
            Some(Step::RetryIn(number, wait)) => self.runs.wait(name, number, wait),
            None => {}
        }
        if !entry.machine.is_idle() {
            return;
        }
        let waiting = std::mem::take(&mut entry.waiting);
        if entry.is_leaving {
            self.connectors.remove(name);
        }
        // So that whoever asks next finds it so.
        self.publish();
        for reply in waiting {
            let _ = reply.send(Ok(Done::Changed));
        }
    }

    async fn carry_out(&mut self, request: Request, reply: Reply) {
        // Whoever asked was told that it timed out, and may have asked for something
        // else since.
        if reply.is_closed() {
            return;
        }
        let name = request.name().to_owned();
        let waits = matches!(
            request,
            Request::Delete { .. } | Request::Target { target: Target::Stopped, .. }
        );
        match self.take_up(request).await {
            Ok(Outcome::ToCheck(config, target)) => {
                self.check(Change { name, config, target, reply });
            }
            Ok(Outcome::Done(done)) => {
                let idle = self.connectors.get_mut(&name).filter(|one| !one.machine.is_idle());
                match idle.filter(|_| waits) {
                    Some(entry) => entry.waiting.push(reply),
                    None => self.answer(reply, Ok(done)),
                }
            }
            Err(error) => self.answer(reply, Err(error)),
        }
    }

    fn answer(&self, reply: Reply, answer: Result<Done, ApiError>) {
        // So that whoever asks next finds it so.
        self.publish();
        let _ = reply.send(answer);
    }

    /// Does what is asked for, but for what has to be checked before.
    async fn take_up(&mut self, request: Request) -> Result<Outcome, ApiError> {
        let done = match request {
            Request::Create { config, target, .. } => {
                let config = unmasked(config, &Config::new())?;
                return Ok(Outcome::ToCheck(config, Some(target)));
            }
            Request::Put { name, config } => {
                self.is_not_leaving(&name)?;
                let (stored, target) = match self.connectors.get(&name) {
                    Some(entry) => (entry.config.clone(), None),
                    None => (Arc::default(), Some(Target::Running)),
                };
                return Ok(Outcome::ToCheck(unmasked(config, &stored)?, target));
            }
            Request::Patch { name, patch } => {
                let stored = self.entry(&name)?.config.clone();
                // As if all of it were sent back: what is not named in the request is known
                // to whoever asks as it is shown, and no better.
                let config = unmasked(patched(masked(&stored), patch), &stored)?;
                return Ok(Outcome::ToCheck(config, None));
            }
            Request::Target { name, target } => {
                self.entry(&name).map_err(|_| match target {
                    Target::Stopped => ApiError::no_connector(&name),
                    Target::Running | Target::Paused => {
                        ApiError::not_found(format!("Unknown connector {name}"))
                    }
                })?;
                self.kept(async |store| store.set_target(&name, target).await).await?;
                tracing::info!(
                    connector = name,
                    target = target.as_str(),
                    "told to be in another state"
                );
                self.on(&name, Event::Target(target));
                Done::Changed
            }
            Request::Restart { name, restart } => {
                let unknown = || ApiError::not_found(format!("Unknown connector: {name}"));
                let restarted =
                    self.entry(&name).map_err(|_| unknown())?.machine.restarted(restart);
                tracing::info!(connector = name, ?restart, "told to begin anew");
                self.on(&name, Event::Restart(restart));
                Done::Restarting(restarted)
            }
            Request::RestartTask { name } => {
                self.entry(&name)?;
                tracing::info!(connector = name, "its task is told to begin anew");
                self.on(&name, Event::RestartTask);
                Done::Changed
            }
            Request::Delete { name } => {
                self.entry(&name)?;
                self.kept(async |store| store.delete(&name).await).await?;
                tracing::info!(connector = name, "deleted; its slot stays");
                let entry = self.connectors.get_mut(&name).expect("it was found");
                entry.is_leaving = true;
                self.on(&name, Event::Target(Target::Stopped));
                Done::Changed
            }
        };
        Ok(Outcome::Done(done))
    }

    /// Whether a configuration is a connector's, and none that is here already
    /// has its slot.
    fn check(&mut self, change: Change) {
        let others = self
            .connectors
            .iter()
            .filter(|(other, _)| **other != change.name)
            .map(|(other, entry)| (other.clone(), entry.config.clone()))
            .collect();
        self.checks.begin(change, others);
    }

    /// Keeps what was checked, if it is a connector's. Meanwhile runs have ended, and
    /// nothing else has changed: requests have waited.
    async fn conclude(&mut self, change: Change, checked: Result<(), ApiError>) {
        let Change { name, config, target, reply } = change;
        if reply.is_closed() {
            return;
        }
        let done = match (checked, target) {
            (Ok(()), Some(target)) => self.create(&name, Stored { config, target }).await,
            (Ok(()), None) => self.replace(&name, config).await,
            (Err(error), _) => Err(error),
        };
        self.answer(reply, done);
    }

    fn entry(&self, name: &str) -> Result<&Entry, ApiError> {
        let found = self.connectors.get(name).filter(|entry| !entry.is_leaving);
        found.ok_or_else(|| ApiError::no_connector(name))
    }

    /// Not with one of the same name whose run has not ended: two would have one slot.
    fn is_not_leaving(&self, name: &str) -> Result<(), ApiError> {
        match self.connectors.get(name) {
            Some(entry) if entry.is_leaving => Err(ApiError::conflict(format!(
                "Connector {name} is being deleted, and its run has not ended yet; try again"
            ))),
            _ => Ok(()),
        }
    }

    async fn create(&mut self, name: &str, stored: Stored) -> Result<Done, ApiError> {
        self.is_not_leaving(name)?;
        if self.connectors.contains_key(name) {
            return Err(ApiError::conflict(format!("Connector {name} already exists")));
        }
        self.kept(async |store| store.put(name, &stored).await).await?;
        tracing::info!(connector = name, target = stored.target.as_str(), "created");
        self.insert(name, stored);
        Ok(Done::Created)
    }

    async fn replace(&mut self, name: &str, config: Config) -> Result<Done, ApiError> {
        let entry = self.entry(name)?;
        let target = entry.machine.target();
        let is_as_before = *entry.config == config;
        let stored = Stored { config, target };
        self.kept(async |store| store.put(name, &stored).await).await?;
        let entry = self.connectors.get_mut(name).expect("it was found");
        entry.config = Arc::new(stored.config);
        tracing::info!(connector = name, is_as_before, "configured");
        // What runs as it is told to goes on, as in Kafka Connect.
        if !is_as_before || entry.machine.is_idle() {
            self.on(name, Event::Reconfigured);
        }
        Ok(Done::Changed)
    }

    /// Writes to the table, or says why not.
    async fn kept(
        &mut self,
        write: impl AsyncFnOnce(&Store) -> Result<(), StoreError>,
    ) -> Result<(), ApiError> {
        let without = "the database of the connectors does not answer; nothing was changed";
        let store = self.store.as_ref().ok_or_else(|| ApiError::internal(without))?;
        let Err(error) = write(store).await else { return Ok(()) };
        let text = error_chain(&error);
        tracing::error!(error = text, "a request was not kept");
        // Whether it was is not known, where no answer came: the next look finds out.
        if matches!(error, StoreError::TimedOut { .. }) {
            self.store = None;
        }
        Err(ApiError::internal(text))
    }

    fn publish(&self) {
        let view = |entry: &Entry| View {
            config: entry.config.clone(),
            target: entry.machine.target(),
            shown: entry.machine.shown(),
            is_idle: entry.machine.is_idle(),
        };
        let all: BTreeMap<String, View> =
            self.connectors.iter().map(|(name, entry)| (name.clone(), view(entry))).collect();
        for state in State::ALL {
            let is_so = |view: &&View| view.shown.task.unwrap_or(view.shown.connector) == state;
            let count = all.values().filter(is_so).count();
            metrics::gauge!("walpost_connect_connectors", "state" => state.as_str())
                .set(count as f64);
        }
        self.worker
            .snapshot
            .send_replace(Snapshot { role: Role::Leads, connectors: Arc::new(all) });
    }
}
