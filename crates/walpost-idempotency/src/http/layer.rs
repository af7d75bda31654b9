use std::{
    convert::Infallible,
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum_core::{BoxError, body::Body};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, request::Parts};
use tokio::{
    sync::{Semaphore, SemaphorePermit, watch},
    time::{Instant, sleep},
};
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;

use super::{
    Database,
    database::NoConnection,
    extract::Given,
    handling::{Failed, handle},
    leased,
    metrics::{self, Result as Counted},
    queue::{Queue, Turn},
    request::Asked,
    respond::{problem, replay},
    transactional,
};
use crate::{
    Claim, Error, Idempotency, InFlight, Lookup, Mode, OnStoreFailure, Policy, PolicyError, Problem,
};

/// Between two questions whether the twin of another process is done, doubling.
const ASK_FIRST: Duration = Duration::from_millis(10);
const ASK_CAP: Duration = Duration::from_millis(200);

type Principal = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Puts a [`Policy`] around the handlers of a route: a tower layer for axum.
#[derive(Clone)]
pub struct IdempotencyLayer {
    shared: Arc<Shared>,
}

/// A service with its [`IdempotencyLayer`].
#[derive(Clone)]
pub struct Idempotent<S> {
    shared: Arc<Shared>,
    service: S,
}

/// What requests of one layer share.
pub(super) struct Shared {
    pub(super) idempotency: Idempotency,
    pub(super) database: Database,
    pub(super) policy: Policy,
    pub(super) principal: Box<Principal>,
    queue: Arc<Queue>,
    /// Places for requests that wait for their twins.
    waiting: Semaphore,
    running: watch::Sender<usize>,
}

impl IdempotencyLayer {
    /// In the schema `walpost`. `principal` says whose a request is, by what the
    /// authentication before has left in it; where it says nobody, the request is
    /// refused with 403. Never take it from what a client may choose.
    ///
    /// # Errors
    /// What [`Policy::check`] finds.
    pub fn new(
        database: Database,
        policy: Policy,
        principal: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self, PolicyError> {
        Self::in_schema("walpost", database, policy, principal)
    }

    /// In another schema: its name as stored, without quotes.
    ///
    /// # Errors
    /// What [`Policy::check`] finds.
    pub fn in_schema(
        schema: impl Into<String>,
        database: Database,
        policy: Policy,
        principal: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self, PolicyError> {
        policy.check()?;
        metrics::describe();
        let waiting_max = policy.waiting_max;
        Ok(Self {
            shared: Arc::new(Shared {
                idempotency: Idempotency::in_schema(schema),
                database,
                policy,
                principal: Box::new(principal),
                waiting: Semaphore::new(waiting_max),
                queue: Arc::default(),
                running: watch::Sender::new(0),
            }),
        })
    }

    /// How many requests wait for their twins at this moment.
    pub fn waiting(&self) -> usize {
        self.shared.policy.waiting_max - self.shared.waiting.available_permits()
    }

    /// Waits until no request runs any more, those of clients that are gone too.
    /// Call it once the server takes no more; a request takes no longer than its
    /// policy says.
    pub async fn drained(&self) {
        let mut running = self.shared.running.subscribe();
        // The sender is ours.
        let _ = running.wait_for(|running| *running == 0).await;
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer").field("policy", &self.shared.policy).finish()
    }
}

impl<S> fmt::Debug for Idempotent<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotent").field("policy", &self.shared.policy).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotent<S>;

    fn layer(&self, service: S) -> Idempotent<S> {
        Idempotent { shared: Arc::clone(&self.shared), service }
    }
}

impl<S, B> Service<Request<Body>> for Idempotent<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let next = self.service.clone();
        let mut service = mem::replace(&mut self.service, next);
        let shared = Arc::clone(&self.shared);
        if !shared.policy.methods.iter().any(|method| request.method() == method.as_str()) {
            return Box::pin(async move { Ok(service.call(request).await?.map(Body::new)) });
        }
        Box::pin(async move {
            let asked = match Asked::read(&shared, request).await {
                Ok(asked) => asked,
                Err(found) => {
                    shared.count(Counted::Invalid);
                    return Ok(problem(&shared.policy, found));
                }
            };
            let _running = Running::new(Arc::clone(&shared));
            Ok(shared.serve(service, asked).await)
        })
    }
}

/// Counts a request while it runs.
struct Running(Arc<Shared>);

impl Running {
    fn new(shared: Arc<Shared>) -> Self {
        shared.running.send_modify(|running| *running += 1);
        Self(shared)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

/// What one attempt to serve a request came to.
pub(super) enum Step {
    Answered(Box<Response<Body>>),
    /// Its twin has the key.
    Busy(Duration),
    /// Nothing has been done, for want of the database.
    StoreFailed(String),
    /// The same, on a connection that may be of the time before a restart of the
    /// server.
    Stale(String),
    /// The same, since all connections are lent.
    Full(String),
}

/// The same, once nothing is left to be done about it here.
enum Ended<S> {
    Answered(Box<Response<Body>>),
    /// Its twin has the key.
    Busy(Duration, Box<Untouched<S>>),
}

/// A request that was not carried out.
struct Untouched<S> {
    call: Option<(S, Asked)>,
    turn: Option<Turn>,
}

/// Why there is no turn for a request.
enum NoTurn {
    /// It has not come in time.
    Late,
    /// As many wait as may.
    Crowded,
}

/// A request that may wait, counted while it does.
struct Waiting<'a> {
    places: &'a Semaphore,
    place: Option<SemaphorePermit<'a>>,
}

impl<'a> Waiting<'a> {
    fn new(places: &'a Semaphore) -> Self {
        Self { places, place: None }
    }

    /// Whether there is a place for it.
    fn begin(&mut self) -> bool {
        if self.place.is_none() {
            self.place = self.places.try_acquire().ok();
        }
        self.place.is_some()
    }

    fn end(&mut self) {
        self.place = None;
    }
}

impl From<NoConnection> for Step {
    fn from(none: NoConnection) -> Self {
        match none {
            NoConnection::Busy(reason) => Self::Full(reason),
            NoConnection::Away(reason) => Self::StoreFailed(reason),
        }
    }
}

impl Step {
    pub(super) fn answered(response: Response<Body>) -> Self {
        Self::Answered(Box::new(response))
    }

    /// A connection could not begin.
    pub(super) fn failed(error: &Error, is_used: bool) -> Self {
        match error {
            Error::Unavailable { .. } if is_used => Self::Stale(error.to_string()),
            _ => Self::StoreFailed(error.to_string()),
        }
    }
}

impl Shared {
    /// Waits here, where it ends together with its client, and carries out what
    /// is to be in a task of its own: that is ended, also when the client has gone.
    async fn serve<S, B>(self: &Arc<Self>, service: S, asked: Asked) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let until = Instant::now() + self.policy.wait_max;
        let lookup = asked.claim.map(|(lookup, _)| lookup);
        let mut waiting = Waiting::new(&self.waiting);
        let turn = match self.turn(lookup, until, &mut waiting).await {
            Ok(turn) => turn,
            Err(NoTurn::Late) => return self.conflict(self.policy.retry_after),
            Err(NoTurn::Crowded) => return self.crowded(),
        };
        let mut untouched = Untouched { call: Some((service, asked)), turn };
        let mut pause = ASK_FIRST;
        loop {
            let attempted = Arc::clone(self).attempted(untouched);
            let Ok(step) = tokio::spawn(attempted.in_current_span()).await else {
                // Panics of handlers are caught where they happen.
                return problem(&self.policy, Problem::HandlerFailed);
            };
            let retry_after = match step {
                Ended::Answered(response) => return *response,
                Ended::Busy(retry_after, given_back) => {
                    untouched = *given_back;
                    retry_after
                }
            };
            let waits = self.policy.in_flight == InFlight::Wait && Instant::now() + pause < until;
            if !waits {
                return self.conflict(retry_after);
            }
            if !waiting.begin() {
                return self.crowded();
            }
            sleep(pause).await;
            pause = (pause * 2).min(ASK_CAP);
        }
    }

    /// One attempt, in a task of its own, which has the turn meanwhile.
    async fn attempted<S, B>(self: Arc<Self>, untouched: Untouched<S>) -> Ended<S>
    where
        S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Send,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let _running = Running::new(Arc::clone(&self));
        let Untouched { mut call, turn } = untouched;
        let mut is_fresh = false;
        loop {
            let step = match self.policy.mode {
                Mode::Transactional => transactional::attempt(&self, &mut call).await,
                Mode::Leased => leased::attempt(&self, &mut call).await,
            };
            let response = match step {
                Step::Answered(response) => return Ended::Answered(response),
                Step::Busy(retry_after) => {
                    return Ended::Busy(retry_after, Box::new(Untouched { call, turn }));
                }
                Step::Stale(_) if !is_fresh => {
                    is_fresh = true;
                    self.database.forget_idle();
                    continue;
                }
                Step::StoreFailed(reason) | Step::Stale(reason) => {
                    self.without_store(call, &reason).await
                }
                // Never open: another one may be at work on the same request.
                Step::Full(reason) => self.refuse(&reason),
            };
            return Ended::Answered(Box::new(response));
        }
    }

    /// Those that wait for twins of this process stand in line.
    async fn turn(
        &self,
        lookup: Option<Lookup>,
        until: Instant,
        waiting: &mut Waiting<'_>,
    ) -> Result<Option<Turn>, NoTurn> {
        let (Some(lookup), InFlight::Wait) = (lookup, self.policy.in_flight) else {
            return Ok(None);
        };
        if let Some(turn) = self.queue.turn_now(lookup) {
            return Ok(Some(turn));
        }
        if !waiting.begin() {
            return Err(NoTurn::Crowded);
        }
        let turn = self.queue.turn(lookup, until).await;
        waiting.end();
        turn.map(Some).ok_or(NoTurn::Late)
    }

    /// As many wait as may.
    fn crowded(&self) -> Response<Body> {
        self.count(Counted::Crowded);
        problem(&self.policy, Problem::crowded(self.policy.retry_after))
    }

    fn refuse(&self, reason: &str) -> Response<Body> {
        let route = &*self.policy.route;
        tracing::error!(route, reason, "no idempotency without the database: refused");
        self.count(Counted::StoreError);
        self.store_failed()
    }

    /// Nothing has been done yet, and `call` is what could be.
    async fn without_store<S, B>(&self, call: Option<(S, Asked)>, reason: &str) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let route = &*self.policy.route;
        let (OnStoreFailure::Open, Some((service, mut asked))) =
            (self.policy.on_store_failure, call)
        else {
            return self.refuse(reason);
        };
        tracing::error!(route, reason, "no idempotency without the database: runs unprotected");
        self.count(Counted::Open);
        asked.parts.extensions.insert(Given::Nothing);
        let Policy { response_max_bytes, handler_timeout, .. } = self.policy;
        match handle(service, asked.request(), response_max_bytes, handler_timeout).await {
            Ok((parts, body)) => Response::from_parts(parts, Body::from(body)),
            Err(failed) => self.failed(failed),
        }
    }

    /// The claim, or the answer where it is none to carry the request out.
    pub(super) fn granted<T>(&self, claim: Claim<T>) -> Result<T, Step> {
        let (counted, response) = match claim {
            Claim::New(claimed) => return Ok(claimed),
            Claim::InFlight { retry_after } => return Err(Step::Busy(retry_after)),
            Claim::Replay(stored) => (Counted::Replayed, replay(&stored)),
            Claim::Mismatch => (Counted::Mismatch, problem(&self.policy, Problem::Mismatch)),
            Claim::Gone => (Counted::Expired, problem(&self.policy, Problem::Gone)),
            Claim::Unresolved => (Counted::Unresolved, problem(&self.policy, Problem::Unresolved)),
        };
        self.count(counted);
        Err(Step::answered(response))
    }

    /// A handler that was called has no response to store.
    pub(super) fn failed(&self, failed: Failed) -> Response<Body> {
        let (route, reason) = (&*self.policy.route, failed.reason());
        tracing::error!(route, reason, "a handler under an idempotency key failed");
        metrics::failure(route, reason);
        problem(&self.policy, self.problem_of(failed))
    }

    pub(super) fn problem_of(&self, failed: Failed) -> Problem {
        match failed {
            Failed::Panicked | Failed::Broken => Problem::HandlerFailed,
            Failed::TimedOut => Problem::timed_out(self.policy.retry_after),
            Failed::TooLarge => {
                Problem::ResponseTooLarge { max_bytes: self.policy.response_max_bytes }
            }
        }
    }

    /// The handler has done its work, and its end could not be stored.
    pub(super) fn not_stored(&self, error: &Error) -> Response<Body> {
        let route = &*self.policy.route;
        tracing::error!(
            route,
            error = error as &dyn std::error::Error,
            "a response was not stored"
        );
        metrics::failure(route, "not_stored");
        match error {
            Error::Conflict { .. } | Error::Unavailable { .. } => self.store_failed(),
            Error::GivenUp { .. } => {
                problem(&self.policy, Problem::in_flight(self.policy.retry_after))
            }
            _ => problem(&self.policy, Problem::HandlerFailed),
        }
    }

    fn store_failed(&self) -> Response<Body> {
        problem(&self.policy, Problem::store_unavailable(self.policy.retry_after))
    }

    fn conflict(&self, retry_after: Duration) -> Response<Body> {
        self.count(Counted::Conflict);
        problem(&self.policy, Problem::in_flight(retry_after))
    }

    pub(super) fn count(&self, result: Counted) {
        metrics::request(&self.policy.route, result);
    }

    pub(super) fn lease_lost(&self) {
        metrics::lease_lost(&self.policy.route);
    }
}
