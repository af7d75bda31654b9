use std::time::Duration;

use tokio::{
    runtime::Runtime,
    sync::{oneshot, watch},
    time::interval,
};
use walpost_event::{RetrySchedule, error_chain, jitter};
use walpost_postgres::Database;
use walpost_router::{Router, RouterConfig};

use crate::{
    clock::now_us,
    config::RelayConfig,
    dead_letters,
    encoding::EventEncoding,
    error::{RelayError, SourceError},
    marking,
    metrics::PipelineMetrics,
    pipeline::Ended,
    policy::Carried,
    session::Session,
    sink::Sink,
    status::{Phase, PipelineStatus, StartStep, StatusReporter, TroubleWatch},
    wal::preflight,
    watch::Watch,
};

/// One pipeline, ready to start.
///
/// It runs on a thread of its own, which reads the WAL, routes, encodes and
/// hands to the sink: the reader leaves a busy socket alone for fractions of a
/// millisecond, which no shared runtime can.
#[derive(Debug)]
pub struct Relay {
    database: Database,
    config: RelayConfig,
    router: Router,
    encoding: EventEncoding,
}

/// A pipeline that runs. Dropping it asks it to stop without waiting.
#[derive(Debug)]
pub struct RunningRelay {
    stop: watch::Sender<bool>,
    status: watch::Receiver<PipelineStatus>,
    finished: oneshot::Receiver<Result<(), RelayError>>,
}

/// Between two attempts to take a slot that another relay holds.
const STANDBY_INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks of the gauges at the status, also while nothing runs.
pub(crate) const OBSERVE_INTERVAL: Duration = Duration::from_millis(100);

impl Relay {
    /// Checks the settings. Nothing is connected yet.
    ///
    /// # Errors
    /// [`RelayError::Config`] naming the setting.
    pub fn new(
        database: Database,
        mut config: RelayConfig,
        router: RouterConfig,
        encoding: impl Into<EventEncoding>,
    ) -> Result<Self, RelayError> {
        config.validate().map_err(RelayError::Config)?;
        let encoding = encoding.into();
        encoding.check()?;
        encoding.fit(&mut config);
        let router =
            Router::new(router).map_err(|error| RelayError::Config(error_chain(&error)))?;
        dead_letters::apart(&config, &router).map_err(RelayError::Config)?;
        Ok(Self { database, config, router, encoding })
    }

    /// Starts the pipeline. `connect_sink` is called for every session, also
    /// after an error.
    ///
    /// # Panics
    /// If the operating system gives no thread.
    pub fn start<K, F>(self, connect_sink: F) -> RunningRelay
    where
        K: Sink + 'static,
        F: AsyncFnMut() -> Result<K, RelayError> + Send + 'static,
    {
        RunningRelay::on_thread(
            format!("relay-{}", self.config.pipeline),
            move |stopped, reporter| {
                let metrics = PipelineMetrics::new(&self.config.pipeline, K::NAME);
                let watch =
                    Watch::start(self.database.clone(), self.config.clone(), reporter.clone());
                let result = runtime().and_then(|runtime| {
                    runtime.spawn(observe(reporter.clone(), metrics.clone()));
                    if self.config.mark_published {
                        runtime.spawn(self.mark(reporter.clone()));
                    }
                    runtime.block_on(self.run(stopped, &reporter, &metrics, connect_sink))
                });
                drop(watch);
                reporter.phase(Phase::Stopped);
                metrics.observe(&reporter.current(), now_us());
                result
            },
        )
    }

    fn mark(&self, status: StatusReporter) -> impl Future<Output = ()> + use<> {
        let (database, config) = (self.database.clone(), self.config.clone());
        marking::run(database, config, self.router.config().event_id.clone(), status)
    }

    async fn run<K: Sink>(
        self,
        mut stop: watch::Receiver<bool>,
        status: &StatusReporter,
        metrics: &PipelineMetrics,
        mut connect_sink: impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<(), RelayError> {
        let mut carried = Carried::default();
        let mut retries = Retries::new(&self.config);
        let mut config = self.config.clone();
        loop {
            let session = Session {
                database: &self.database,
                config: &config,
                router: &self.router,
                encoding: &self.encoding,
                status,
                metrics,
                carried: &mut carried,
            };
            let outcome = tokio::select! {
                outcome = session.run(stop.clone(), &mut connect_sink) => outcome,
                () = retries.late(status) => return Err(retries.too_late(status)),
                // Before the stream there is nothing to drain.
                () = stopped_while_starting(&mut stop, status) => return Ok(()),
            };
            let streamed = status.current().phase == Phase::Streaming;
            let worked = status.ended();
            let wait = match outcome {
                Ok(Ended::Stopped) => return Ok(()),
                Ok(Ended::Rejected) => {
                    retries.succeeded();
                    continue;
                }
                Err(RelayError::NewTable { table }) => {
                    tracing::info!(
                        %table,
                        "a table has come that the filters mean; its events are published too"
                    );
                    config.tables.push(table.clone());
                    config.arrived.push(table);
                    continue;
                }
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => {
                    retries.ended(streamed, worked);
                    if !is_standby(&error, status) {
                        metrics.failed_sessions.increment(1);
                    }
                    retries.after(error, status)?
                }
            };
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

/// Keeps the gauges in line with the status for ever: the lag grows, and the
/// phase changes, while no session is there to say so. Says when trouble is
/// over.
async fn observe(status: StatusReporter, metrics: PipelineMetrics) {
    let mut ticks = interval(OBSERVE_INTERVAL);
    let mut trouble = TroubleWatch::default();
    loop {
        ticks.tick().await;
        let status = status.current();
        if let Some(lasted) = trouble.look(&status, std::time::Instant::now()) {
            tracing::info!(after_s = lasted.as_secs(), "resumed: events are acknowledged again");
        }
        metrics.observe(&status, now_us());
    }
}

async fn stopped_while_starting(stop: &mut watch::Receiver<bool>, status: &StatusReporter) {
    let _ = stop.wait_for(|stop| *stop).await;
    if matches!(status.current().phase, Phase::Streaming | Phase::Loading) {
        std::future::pending::<()>().await;
    }
}

/// Whether no other session is worth a try. One command may fail on a standby, and
/// a relay waits for its promotion, as long as for anything else.
pub(crate) fn is_final(error: &RelayError) -> bool {
    !error.is_transient() && !preflight::is_in_recovery(error)
}

/// How long to wait after a failed session.
pub(crate) struct Retries {
    schedule: RetrySchedule,
    failures: u32,
    /// How long a start may wait for servers; `None` for ever.
    give_up: Option<Duration>,
    /// The last failure of a start, and what it did.
    last: Option<(StartStep, RelayError)>,
}

/// Longest wait for a server that cannot be reached: each attempt costs little,
/// and so long a server may be back without anything being published.
const UNREACHABLE_WAIT_MAX: Duration = Duration::from_secs(5);
/// The shortest time after which a start is cut off, so that it can say why.
const CUT_OFF_MIN: Duration = Duration::from_secs(1);
/// The shortest wait before the last attempts of a start.
const LAST_WAIT: Duration = Duration::from_millis(50);

impl Retries {
    pub(crate) fn new(config: &RelayConfig) -> Self {
        Self {
            schedule: RetrySchedule::backoff(Duration::from_millis(100), Duration::from_secs(30)),
            failures: 0,
            give_up: config.start_timeout_ms.map(Duration::from_millis),
            last: None,
        }
    }

    fn succeeded(&mut self) {
        self.failures = 0;
        self.give_up = None;
    }

    /// A session has ended with an error: whether it had come to stream, and
    /// whether it had done anything that lasts.
    pub(crate) fn ended(&mut self, streamed: bool, worked: bool) {
        if streamed {
            self.give_up = None;
        }
        if worked {
            self.failures = 0;
        }
    }

    pub(crate) fn after(
        &mut self,
        error: RelayError,
        status: &StatusReporter,
    ) -> Result<Duration, RelayError> {
        if is_standby(&error, status) {
            stand_by(&error, status);
            self.give_up = None;
            return Ok(STANDBY_INTERVAL);
        }
        let start = status.current().start;
        let left = self.give_up.map(|limit| limit.saturating_sub(start.waited(now())));
        if left.is_some_and(|left| left < LAST_WAIT) {
            return Err(error);
        }
        self.failures += 1;
        let mut wait = self.schedule.delay(self.failures, jitter()).unwrap_or(STANDBY_INTERVAL);
        if is_unreachable(&error) {
            wait = wait.min(UNREACHABLE_WAIT_MAX);
        }
        // The deadline is one for the waits as well, with time for another attempt.
        wait = left.map_or(wait, |left| wait.min((left / 2).max(LAST_WAIT)));
        let reason = error_chain(&error);
        tracing::warn!(
            error = reason,
            retry_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "the pipeline was interrupted"
        );
        status.update(|status| {
            status.failed_sessions += 1;
            status.phase = Phase::Waiting { error: reason };
        });
        if self.give_up.is_some() {
            self.last = Some((start.step(), error));
        }
        Ok(wait)
    }

    /// Waits until a start has waited for servers for too long; for ever where it
    /// is at work, or there is no limit.
    pub(crate) async fn late(&self, status: &StatusReporter) {
        let Some(limit) = self.give_up.map(|limit| limit.max(CUT_OFF_MIN)) else {
            return std::future::pending().await;
        };
        let mut changes = status.subscribe();
        loop {
            let left = {
                let status = changes.borrow_and_update();
                let counts = status.start.step() != StartStep::Work;
                counts.then(|| limit.saturating_sub(status.start.waited(now())))
            };
            let cut_off = async {
                match left {
                    Some(left) => tokio::time::sleep(left).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = cut_off => return,
                // The sender is ours.
                _ = changes.changed() => {}
            }
        }
    }

    /// What a start ends with that was cut off: its last failure, unless that is of
    /// something that has answered since.
    pub(crate) fn too_late(&mut self, status: &StatusReporter) -> RelayError {
        let limit = self.give_up.unwrap_or_default().max(CUT_OFF_MIN);
        let step = status.current().start.step();
        match self.last.take() {
            Some((of, error)) if of == step => error,
            _ if step == StartStep::Sink => RelayError::Sink {
                detail: format!("it was not connected within {} ms", limit.as_millis()),
                transient: true,
            },
            _ => RelayError::SqlTimeout { attempt: "connecting to PostgreSQL", limit },
        }
    }
}

/// A server gives no connection, or has not answered yet.
fn is_unreachable(error: &RelayError) -> bool {
    let connect = match error {
        RelayError::Connect(error) | RelayError::Source(SourceError::Connect(error)) => error,
        RelayError::Sink { transient, .. } => return *transient,
        _ => return false,
    };
    connect.is_transient()
}

/// Says once why this relay waits for the slot.
fn stand_by(error: &RelayError, status: &StatusReporter) {
    let own = status.current().walsender;
    let awaits_own = own.is_some_and(|pid| error.names_process(pid));
    if !status.standing_by(awaits_own) {
        return;
    }
    let reason = error_chain(error);
    let what = match awaits_own {
        true => {
            "the server still holds the slot for the session that this relay has lost; this relay \
             goes on when that has ended, after wal_sender_timeout_ms at the latest"
        }
        false => "standing by; this relay takes over when the other one is gone",
    };
    tracing::info!(reason, "{what}");
}

fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Another relay has the slot: no failure, but a second one's work. One that
/// stood by may find it left, and the position moved once more.
fn is_standby(error: &RelayError, status: &StatusReporter) -> bool {
    match error {
        RelayError::Source(SourceError::SlotInUse { .. }) => true,
        RelayError::TakenOver { .. } => status.current().phase == Phase::Standby,
        _ => false,
    }
}

/// Of a pipeline's own thread.
pub(crate) fn runtime() -> Result<Runtime, RelayError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| RelayError::Config(error.to_string()))
}

impl RunningRelay {
    /// Runs a pipeline on a thread of its own, until it ends by itself or is
    /// told to stop.
    ///
    /// # Panics
    /// If the operating system gives no thread.
    pub(crate) fn on_thread(
        name: String,
        pipeline: impl FnOnce(watch::Receiver<bool>, StatusReporter) -> Result<(), RelayError>
        + Send
        + 'static,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (reporter, status) = StatusReporter::new();
        let (finish, finished) = oneshot::channel();
        let span = tracing::Span::current();
        std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                let _entered = span.entered();
                // Nobody may be waiting any more.
                let _ = finish.send(pipeline(stopped, reporter));
            })
            .expect("a thread for the pipeline");
        Self { stop, status, finished }
    }

    /// Asks the pipeline to stop: nothing new, everything on its way settled,
    /// the last position confirmed.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// What the pipeline is doing.
    pub fn status(&self) -> watch::Receiver<PipelineStatus> {
        self.status.clone()
    }

    /// Waits until the pipeline has ended.
    ///
    /// # Errors
    /// What ended it, unless it was told to stop.
    pub async fn finished(&mut self) -> Result<(), RelayError> {
        (&mut self.finished)
            .await
            .unwrap_or_else(|_| Err(RelayError::Fatal("the pipeline's thread panicked".to_owned())))
    }
}

impl Drop for RunningRelay {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_that_moved_is_no_failure_of_a_relay_that_stood_by() {
        let (status, _receiver) = StatusReporter::new();
        let moved = RelayError::TakenOver { pipeline: "main".into() };
        status.starting();
        assert!(!is_standby(&moved, &status));
        status.standing_by(false);
        status.starting();
        assert!(is_standby(&moved, &status));
        let away = RelayError::Sink { detail: "x".into(), transient: true };
        assert!(!is_standby(&away, &status));
        status.working(Phase::Streaming, walpost_event::Lsn::from(1));
        assert!(!is_standby(&moved, &status));
    }

    #[test]
    fn a_relay_waits_for_a_promotion_and_for_nothing_else_that_has_to_be_set_up() {
        let mut config = RelayConfig::new("shop");
        config.start_timeout_ms = Some(0);
        assert!(!is_final(&preflight::in_recovery()));
        assert!(is_final(&RelayError::prerequisite("wal_level is replica", "raise it")));
        let (status, _receiver) = StatusReporter::new();
        let given_up = Retries::new(&config).after(preflight::in_recovery(), &status).unwrap_err();
        assert!(given_up.to_string().starts_with("the server is a standby; connect"));
    }

    fn wait(retries: &mut Retries, streamed: bool, worked: bool) -> Duration {
        let (status, _receiver) = StatusReporter::new();
        retries.ended(streamed, worked);
        let error = RelayError::Source(SourceError::Ended);
        retries.after(error, &status).unwrap()
    }

    #[test]
    fn waits_grow_until_a_session_was_worth_its_start() {
        let mut retries = Retries::new(&RelayConfig::new("shop"));
        for _ in 0..9 {
            wait(&mut retries, true, false);
        }
        assert!(wait(&mut retries, true, false) >= Duration::from_secs(15));
        assert!(wait(&mut retries, true, true) <= Duration::from_millis(100));
        assert!(wait(&mut retries, true, false) > Duration::from_millis(90));
    }

    #[test]
    fn who_cannot_be_reached_is_tried_often_and_within_what_is_left() {
        let (status, _receiver) = StatusReporter::new();
        let away = || RelayError::Sink { detail: "x".into(), transient: true };
        let mut config = RelayConfig::new("shop");
        config.start_timeout_ms = None;
        let mut retries = Retries::new(&config);
        let waits = (0..12).map(|_| retries.after(away(), &status).unwrap());
        assert!(waits.max().unwrap() <= UNREACHABLE_WAIT_MAX);
        config.start_timeout_ms = Some(4_000);
        let mut retries = Retries::new(&config);
        let waits = (0..12).map(|_| retries.after(away(), &status).unwrap());
        assert!(waits.max().unwrap() <= Duration::from_secs(2), "half of what is left");
    }

    #[test]
    fn whoever_never_streamed_gives_up_in_time_and_nobody_else() {
        let mut config = RelayConfig::new("shop");
        config.start_timeout_ms = Some(0);
        let (status, _receiver) = StatusReporter::new();
        let error = || RelayError::Sink { detail: "x".into(), transient: true };
        let mut retries = Retries::new(&config);
        retries.ended(false, false);
        assert!(retries.after(error(), &status).is_err());
        let mut retries = Retries::new(&config);
        retries.ended(true, false);
        assert!(retries.after(error(), &status).is_ok());
        retries.ended(false, false);
        assert!(retries.after(error(), &status).is_ok());
    }
}
