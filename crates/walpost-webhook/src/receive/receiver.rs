use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use axum::{Router, extract::Request, routing::post};
use tokio::sync::{Semaphore, watch};
use tokio_postgres::Transaction;
use walpost_inbox::{Database, Event, Handler, HandlerError, Head, Inbox};

use super::{Source, connections::Connections, metrics, problem::Problem, serve::Route};

/// Longest name of a source, in bytes, as the table has it.
const NAME_MAX_BYTES: usize = 128;
/// Beyond this the database cannot take a payload.
const BODY_MAX_BYTES: usize = 256 << 20;
const ANSWER_WITHIN_MS: std::ops::RangeInclusive<u128> = 10..=600_000;
const CONNECTIONS_MAX: usize = 1_000;
const REQUESTS_MAX: usize = 100_000;

/// What receives webhooks: made by [`Receiver::builder`]. Cheap to clone.
#[derive(Clone)]
pub struct Receiver {
    shared: Arc<Shared>,
    router: Router,
}

/// What requests of one receiver share.
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) connections: Connections,
    pub(super) requests: Arc<Semaphore>,
    pub(super) running: watch::Sender<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) answer_within: Duration,
    pub(super) body_max_bytes: usize,
    connections: usize,
    requests: usize,
}

/// How a [`Receiver`] is made: see [the module](super).
#[must_use]
pub struct Builder {
    database: Database,
    inbox: Inbox,
    settings: Settings,
    mounts: Vec<Mount>,
}

type MountOn = dyn FnOnce(Router, &str, Arc<Shared>, Source) -> Router + Send;

/// A path that waits for what all of them share.
struct Mount {
    path: String,
    source: Source,
    mount: Box<MountOn>,
}

/// A setting of a [`Receiver`] is out of its bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("setting {setting}: {problem}")]
#[non_exhaustive]
pub struct SettingError {
    /// The method, and of which source.
    pub setting: String,
    /// What is wrong and what to do.
    pub problem: String,
}

impl Receiver {
    /// Into the table in the schema `walpost`, over connections to `database`.
    pub fn builder(database: Database) -> Builder {
        let settings = Settings {
            answer_within: Duration::from_secs(5),
            body_max_bytes: 1 << 20,
            connections: 16,
            requests: 1_000,
        };
        Builder { database, inbox: Inbox::new(), settings, mounts: Vec::new() }
    }

    /// The paths of all sources, to be served by itself or merged into another
    /// router.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Waits until no request runs any more, those of senders that are gone too.
    /// Call it once the server takes no more; it takes no longer than
    /// [`Builder::answer_within`].
    pub async fn drained(&self) {
        let mut running = self.shared.running.subscribe();
        // The sender is ours.
        let _ = running.wait_for(|running| *running == 0).await;
    }
}

impl Builder {
    /// Another schema, or an inbox that does not notify; the schema `walpost`
    /// unless set.
    pub fn in_inbox(mut self, inbox: Inbox) -> Self {
        self.inbox = inbox;
        self
    }

    /// Within which time each request is answered, from its head on: the body,
    /// the turn for a connection, a twin, the handler and the COMMIT; 10 ms to
    /// 600 s, 5 s unless set. Keep it below what senders wait.
    pub fn answer_within(mut self, answer_within: Duration) -> Self {
        self.settings.answer_within = answer_within;
        self
    }

    /// How long a body may be: up to 256 MiB, 1 MiB unless set.
    pub fn body_max_bytes(mut self, body_max_bytes: usize) -> Self {
        self.settings.body_max_bytes = body_max_bytes;
        self
    }

    /// How many connections there are at most, each for as long as a transaction
    /// lasts: 1 to 1,000, 16 unless set.
    pub fn connections(mut self, connections: usize) -> Self {
        self.settings.connections = connections;
        self
    }

    /// How many requests there are at a time, each with its body in memory: 1 to
    /// 100,000, 1,000 unless set. Others are refused at once, with 503.
    pub fn requests(mut self, requests: usize) -> Self {
        self.settings.requests = requests;
        self
    }

    /// Mode *inbox*: events that come by `POST` to `path` are inserted once, and
    /// answered; a [`Processor`](walpost_inbox::Processor) applies them.
    pub fn inbox(self, path: impl Into<String>, source: Source) -> Self {
        let inbox = self.inbox.clone();
        self.mount(path.into(), source, inbox, Nothing)
    }

    /// Mode *inline*: events that come by `POST` to `path` are inserted and
    /// applied by `handler` in one transaction, before they are answered. Those
    /// that its `select` does not know are inserted alone.
    pub fn inline(self, path: impl Into<String>, source: Source, handler: impl Handler) -> Self {
        // For the few that are left to a processor nobody is woken: transactions
        // that notify commit one after another.
        let inbox = self.inbox.clone().without_notify();
        self.mount(path.into(), source, inbox, handler)
    }

    fn mount<H: Handler>(mut self, path: String, source: Source, inbox: Inbox, handler: H) -> Self {
        let mount = move |router: Router, path: &str, shared: Arc<Shared>, source: Source| {
            let route = Arc::new(Route { shared, source, inbox, handler });
            let receive = move |request: Request| {
                let route = Arc::clone(&route);
                async move { route.serve(request).await }
            };
            let refuse = async || Problem::Method.response();
            router.route(path, post(receive).fallback(refuse))
        };
        self.mounts.push(Mount { path, source, mount: Box::new(mount) });
        self
    }

    /// Connects to nothing yet.
    ///
    /// # Errors
    /// When a setting is out of its bounds, a path or a name of a source is there
    /// twice, or a place is none.
    pub fn build(self) -> Result<Receiver, SettingError> {
        self.check_settings()?;
        let mut seen: Vec<(String, String)> = Vec::new();
        for Mount { path, source, .. } in &self.mounts {
            check_path(path)?;
            check_source(source)?;
            if seen.iter().any(|(other, name)| other == path || *name == source.name) {
                let of = format!("source {:?} at {path}", source.name);
                return Err(wrong(of, "another one has its name or its path".to_owned()));
            }
            seen.push((path.clone(), source.name.clone()));
        }
        metrics::describe();
        let shared = Arc::new(Shared {
            settings: self.settings,
            connections: Connections::new(self.database, self.settings.connections),
            requests: Arc::new(Semaphore::new(self.settings.requests)),
            running: watch::Sender::new(0),
        });
        let mut router = Router::new();
        for Mount { path, source, mount } in self.mounts {
            router = mount(router, &path, Arc::clone(&shared), source);
        }
        Ok(Receiver { shared, router })
    }

    fn check_settings(&self) -> Result<(), SettingError> {
        let Settings { answer_within, body_max_bytes, connections, requests } = self.settings;
        if !ANSWER_WITHIN_MS.contains(&answer_within.as_millis()) {
            let problem = format!("{answer_within:?} is not 10 ms to 600 s");
            return Err(wrong("answer_within", problem));
        }
        for (setting, value, max) in [
            ("body_max_bytes", body_max_bytes, BODY_MAX_BYTES),
            ("connections", connections, CONNECTIONS_MAX),
            ("requests", requests, REQUESTS_MAX),
        ] {
            if !(1..=max).contains(&value) {
                return Err(wrong(setting, format!("{value} is not 1 to {max}")));
            }
        }
        Ok(())
    }
}

/// Paths without parameters: axum panics at what it takes for a wrong one.
fn check_path(path: &str) -> Result<(), SettingError> {
    let is_plain = path.starts_with('/')
        && !path.contains(['{', '}'])
        && !path.split('/').any(|part| part.starts_with([':', '*']));
    let problem = "a path begins with a slash and has no parameters, such as /webhooks/github";
    if is_plain { Ok(()) } else { Err(wrong(format!("path {path:?}"), problem.to_owned())) }
}

fn check_source(source: &Source) -> Result<(), SettingError> {
    let name = &source.name;
    let of = |what: &str| format!("{what} of source {name:?}");
    if !(1..=NAME_MAX_BYTES).contains(&name.len()) || name.contains('\0') {
        let problem = format!("it has 1 to {NAME_MAX_BYTES} bytes, and no NUL");
        return Err(wrong(of("name"), problem));
    }
    if source.event_id.is_empty() {
        return Err(wrong(of("event_id"), "it stands at one place at least".to_owned()));
    }
    if source.event_id.iter().all(|place| matches!(place, super::Place::Fixed(_))) {
        return Err(wrong(of("event_id"), "a fixed one makes all events the same".to_owned()));
    }
    if !source.has_keys() {
        let problem = "its verifier has no key, or empty ones; is a secret not set?";
        return Err(wrong(of("keys"), problem.to_owned()));
    }
    match source.places().find_map(super::Place::problem) {
        Some(problem) => Err(wrong(of("places"), problem.to_owned())),
        None => Ok(()),
    }
}

fn wrong(setting: impl Into<String>, problem: String) -> SettingError {
    SettingError { setting: setting.into(), problem }
}

/// Applies nothing, so that all events are inserted alone.
struct Nothing;

impl Handler for Nothing {
    type Work = Infallible;

    fn select(&self, _: &Head) -> Option<Infallible> {
        None
    }

    async fn process(
        &self,
        _: &Transaction<'_>,
        work: &Infallible,
        _: &Event,
    ) -> Result<(), HandlerError> {
        match *work {}
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({:?})", self.shared.settings)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<&str> = self.mounts.iter().map(|mount| &*mount.path).collect();
        write!(f, "Builder({:?}, {paths:?})", self.settings)
    }
}
