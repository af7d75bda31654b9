use std::{
    fmt,
    future::{Future, ready},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    select,
    sync::Notify,
    task::JoinSet,
    time::{sleep, timeout},
};
use walpost_event::{RetrySchedule, jitter};

use crate::{
    Builder, Database, Error, Handler, Order, Snapshot,
    attempt::Attempt,
    builder::Shared,
    claim::{Choice, Claimed, Terms, claim, probe},
    database::{Session, Wake},
    metrics::{self, What},
    report::{Verdict, report},
    sql::CHANNEL,
};

/// Longest time for a claim, beyond which its connection is given up.
const CLAIM_TIMEOUT_MS: u64 = 30_000;
/// Between two looks for expired claims, where there is enough to do.
const EXPIRE_MS: u64 = 500;
/// Between two counts of what waits.
const MEASURE_MS: u64 = 5_000;
/// Between attempts to reach the database, doubling.
const AGAIN_FIRST_MS: u64 = 100;
const AGAIN_CAP_MS: u64 = 5_000;

/// Claims events of the inbox and has a [`Handler`] apply them, each in one
/// transaction with its state.
///
/// Any number of processors, in any number of processes, share a table: an event
/// is claimed by one at a time, under a lease. Whoever dies with a claim leaves
/// it to the others once the lease has ended; whoever only slept finds its claim
/// given up, and the database refuses its transaction.
pub struct Processor<H> {
    pub(crate) shared: Arc<Shared<H>>,
}

impl<H> Clone for Processor<H> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<H> fmt::Debug for Processor<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processor").field("shared", &self.shared).finish()
    }
}

impl Processor<()> {
    /// Begins to describe a processor.
    pub fn builder(database: Database) -> Builder {
        Builder::new(database)
    }
}

impl<H> Processor<H> {
    /// What it has done so far.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.metrics.snapshot()
    }
}

impl<H: Handler> Processor<H> {
    /// Processes events until `shutdown` is ready. Then it claims nothing more,
    /// ends what it has begun, each within its lease, and returns.
    ///
    /// A server that cannot be reached is waited for. If this future is dropped,
    /// attempts end where they are, and their events wait for their leases.
    ///
    /// # Errors
    /// [`Error::NotMigrated`] and [`Error::Denied`], once what was begun is done.
    ///
    /// ```no_run
    /// # use walpost_inbox::{Error, Handler, Processor};
    /// # async fn example<H: Handler>(processor: Processor<H>) -> Result<(), Error> {
    /// let terminated = async { /* wait for SIGTERM */ };
    /// processor.run(terminated).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run(&self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        metrics::describe();
        let wake = Arc::new(Notify::new());
        let mut listening = JoinSet::new();
        if self.shared.settings.listen {
            let schema = self.shared.inbox.schema().to_owned();
            let wake = Wake { schema, notify: Arc::clone(&wake) };
            listening.spawn(listen(self.shared.database.clone(), wake));
        }
        let mut running = Running::new(Arc::clone(&self.shared), wake);
        let mut shutdown = pin!(shutdown);
        let ended = loop {
            select! {
                biased;
                () = &mut shutdown => break Ok(()),
                () = ready(()) => {}
            }
            // Never dropped half-way: a claim whose answer is lost keeps its
            // events until their leases end.
            match running.claim().await {
                Err(error) => break Err(error),
                Ok(true) => continue,
                Ok(false) => {}
            }
            select! {
                biased;
                () = &mut shutdown => break Ok(()),
                () = running.wait() => {}
            }
        };
        running.drain().await;
        ended
    }
}

/// What a processor has while it runs.
struct Running<H: Handler> {
    shared: Arc<Shared<H>>,
    wake: Arc<Notify>,
    jobs: JoinSet<Option<Session>>,
    idle: Vec<Session>,
    claiming: Option<Session>,
    measured: Option<Instant>,
    expired: Option<Instant>,
    /// Whether the last claim took all that it could: there may be more.
    was_full: bool,
    failures: u32,
    not_before: Option<Instant>,
}

/// A claim that failed.
enum ClaimError {
    Passing(String),
    Fatal(Error),
}

impl<H: Handler> Running<H> {
    fn new(shared: Arc<Shared<H>>, wake: Arc<Notify>) -> Self {
        Self {
            shared,
            wake,
            jobs: JoinSet::new(),
            idle: Vec::new(),
            claiming: None,
            measured: None,
            expired: None,
            was_full: false,
            failures: 0,
            not_before: None,
        }
    }

    /// Claims as much as there are hands for; whether there may be more at once.
    async fn claim(&mut self) -> Result<bool, Error> {
        while let Some(ended) = self.jobs.try_join_next() {
            self.keep(ended);
        }
        let settings = &self.shared.settings;
        let free = settings.concurrency.saturating_sub(self.jobs.len() as u32);
        let is_early = self.not_before.is_some_and(|not_before| Instant::now() < not_before);
        if is_early || (free == 0 && !self.measures_in().is_zero()) {
            return Ok(false);
        }
        let limit = Duration::from_millis(CLAIM_TIMEOUT_MS);
        let claimed = match timeout(limit, self.claim_with(free.min(settings.batch_events))).await {
            Ok(claimed) => claimed,
            Err(_) => Err(ClaimError::Passing(format!("no answer in {CLAIM_TIMEOUT_MS} ms"))),
        };
        match claimed {
            Ok(claimed) => {
                self.failures = 0;
                self.not_before = None;
                self.was_full = claimed.is_some_and(|claimed| self.start(claimed));
                Ok(self.was_full)
            }
            Err(ClaimError::Fatal(error)) => Err(error),
            Err(ClaimError::Passing(reason)) => {
                if let Some(session) = self.claiming.take() {
                    session.discard();
                }
                self.failures = self.failures.saturating_add(1);
                let pause = pauses().delay(self.failures, jitter()).unwrap_or_default();
                self.not_before = Some(Instant::now() + pause);
                // At 5 s each: every minute.
                if self.failures == 1 || self.failures.is_multiple_of(12) {
                    let failures = self.failures;
                    tracing::warn!(reason, failures, "claiming events failed; trying again");
                }
                Ok(false)
            }
        }
    }

    /// Counts what waits, where that is due, and claims up to `limit` events.
    async fn claim_with(&mut self, limit: u32) -> Result<Option<Claimed<H::Work>>, ClaimError> {
        let is_due = self.measures_in().is_zero();
        let session = match &mut self.claiming {
            Some(session) if !session.client.is_closed() => session,
            place => {
                let connected = self.shared.database.connect(None).await;
                place.insert(connected.map_err(|none| match none.is_transient {
                    true => ClaimError::Passing(none.reason),
                    false => ClaimError::Fatal(Error::Refused {
                        attempted: "connecting",
                        detail: none.reason,
                        code: None,
                    }),
                })?)
            }
        };
        let Shared { settings, inbox, handler, metrics, .. } = &*self.shared;
        let failed = |error: tokio_postgres::Error| match Verdict::of(&error) {
            Verdict::NotMigrated | Verdict::Denied => ClaimError::Fatal(Error::from_driver(
                "claiming events",
                (&inbox.sql.schema, "processor"),
                &error,
            )),
            _ => ClaimError::Passing(report(&error)),
        };
        let source = settings.source.as_deref();
        if is_due {
            let measured = inbox.backlog_as("processor", &session.client, source).await;
            metrics.measured(measured.map_err(|error| match error {
                Error::NotMigrated { .. } | Error::Denied { .. } => ClaimError::Fatal(error),
                error => ClaimError::Passing(error.to_string()),
            })?);
            self.measured = Some(Instant::now());
        }
        if limit == 0 {
            return Ok(None);
        }
        let pause = Duration::from_millis(EXPIRE_MS);
        let expires = self.expired.is_none_or(|expired| expired.elapsed() >= pause);
        if !self.was_full && !probe(&session.client, &inbox.sql, source).await.map_err(failed)? {
            return Ok(None);
        }
        self.was_full = false;
        if expires {
            self.expired = Some(Instant::now());
        }
        let terms = Terms {
            source,
            order: settings.order,
            limit: if settings.order == Order::Serial { 1 } else { limit },
            lease_ms: settings.lease_ms,
            attempts_max: settings.attempts_max,
            name: &settings.name,
            on_unknown: settings.on_unknown,
            expires,
        };
        let choose =
            |head: &crate::Head| match catch_unwind(AssertUnwindSafe(|| handler.select(head))) {
                Ok(Some(work)) => Choice::Take(work),
                Ok(None) => Choice::Unknown,
                Err(_) => Choice::Panicked,
            };
        claim(&mut session.client, &inbox.sql, &terms, choose).await.map(Some).map_err(failed)
    }

    /// Has each claimed event worked on; whether there may be more at once.
    fn start(&mut self, claimed: Claimed<H::Work>) -> bool {
        let metrics = &self.shared.metrics;
        metrics.add(What::Ignored, claimed.ignored);
        metrics.add(What::Reviewed, claimed.reviewed);
        metrics.add(What::LeaseExpired, claimed.expired);
        metrics.add(What::GivenUp, claimed.given_up);
        let retries = claimed.taken.iter().filter(|(claim, _)| claim.is_retry).count();
        metrics.add(What::Retry, retries as u64);
        for (claim, work) in claimed.taken {
            let attempt = Attempt { shared: Arc::clone(&self.shared), claim, work };
            self.jobs.spawn(attempt.run(self.idle.pop()));
        }
        claimed.is_full
    }

    /// Until there may be something to do.
    async fn wait(&mut self) {
        let is_full = self.jobs.len() as u32 >= self.shared.settings.concurrency;
        let poll = Duration::from_millis(u64::from(self.shared.settings.poll_ms));
        let pause = match self.not_before {
            Some(not_before) => not_before.saturating_duration_since(Instant::now()),
            None if is_full => self.measures_in(),
            None => poll,
        };
        let pause = pause.max(Duration::from_millis(1));
        let ended = select! {
            ended = self.jobs.join_next(), if !self.jobs.is_empty() => ended,
            () = self.wake.notified(), if !is_full && self.not_before.is_none() => None,
            () = sleep(pause) => None,
        };
        if let Some(ended) = ended {
            self.keep(ended);
        }
    }

    /// When to count next what waits.
    fn measures_in(&self) -> Duration {
        let pause = Duration::from_millis(MEASURE_MS);
        self.measured.map_or(Duration::ZERO, |measured| pause.saturating_sub(measured.elapsed()))
    }

    fn keep(&mut self, ended: Result<Option<Session>, tokio::task::JoinError>) {
        match ended {
            Ok(Some(session)) => self.idle.push(session),
            Ok(None) => {}
            // A handler's panic is caught before; its event waits for its lease.
            Err(error) => tracing::error!(panicked = error.is_panic(), "an attempt broke off"),
        }
    }

    async fn drain(mut self) {
        while let Some(ended) = self.jobs.join_next().await {
            self.keep(ended);
        }
    }
}

fn pauses() -> RetrySchedule {
    RetrySchedule::backoff(
        Duration::from_millis(AGAIN_FIRST_MS),
        Duration::from_millis(AGAIN_CAP_MS),
    )
}

/// Listens for inserts, for ever. Where it cannot, events are found by looking.
async fn listen(database: Database, wake: Wake) {
    let mut failures = 0;
    loop {
        let reason = match database.connect(Some(wake.clone())).await {
            Err(none) => none.reason,
            Ok(session) => {
                match session.client.batch_execute(&format!("listen {CHANNEL}")).await {
                    Err(error) => report(&error),
                    Ok(()) => {
                        failures = 0;
                        // For what came before.
                        wake.notify.notify_one();
                        session.ended().await;
                        "the connection ended".to_owned()
                    }
                }
            }
        };
        failures += 1;
        tracing::debug!(reason, failures, "not listening for events");
        sleep(pauses().delay(failures, jitter()).unwrap_or_default()).await;
    }
}
