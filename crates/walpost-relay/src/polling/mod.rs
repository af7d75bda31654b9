//! A pipeline that reads its outbox table by SQL instead of the WAL.
//!
//! The state of each row is the truth: there is no slot, no checkpoint, and
//! nothing is read back. A claim locks the first pending row of aggregates and
//! sends each of these aggregates from that row on, without a gap; the locks and
//! what became of the rows end in one transaction. Whoever does not get an
//! aggregate's first row leaves the aggregate alone.
//!
//! A claim: `table.rs` (`statements.rs`), `batch.rs`, `convert.rs` of the crate,
//! `send.rs`, `verdict.rs`, and back to `table.rs`.

mod batch;
mod check;
mod config;
mod drain;
mod gate;
mod listen;
mod metrics;
mod requeue;
mod seen;
mod send;
mod session;
mod sight;
mod statements;
mod table;
mod verdict;

use tokio::{sync::watch, time::interval};
use walpost_postgres::Database;
use walpost_router::{Router, RouterConfig};

pub use self::{
    check::check_polling,
    config::{AppliesTo, PollingConfig},
    requeue::{Requeue, Requeued, polling_sight, requeue},
    sight::PollingSight,
};
pub(crate) use self::{
    check::{run as check_table, unique::declared as declared_unique},
    drain::{drain, none_failed},
    seen::publish_seen,
    table::polled,
};
use self::{gate::Gate, metrics::PollingMetrics, session::PollingSession};
use crate::{
    config::RelayConfig,
    encoding::EventEncoding,
    error::RelayError,
    relay::{OBSERVE_INTERVAL, Retries, RunningRelay, is_final, runtime},
    sink::Sink,
    status::{Phase, StatusReporter},
};

/// One polling pipeline, ready to start.
///
/// Several may run at once, also in several processes: they share the work.
/// Killed at any moment, one loses nothing and reorders no aggregate; what it had
/// sent and not noted, at most `claim_max_events`, is published a second time.
#[derive(Debug)]
pub struct PollingRelay {
    database: Database,
    config: RelayConfig,
    polling: PollingConfig,
    router: Router,
    encoding: EventEncoding,
}

impl PollingRelay {
    /// Checks the settings. Nothing is connected yet. Of `config` what concerns
    /// slot, publication and checkpoint has no meaning here.
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
        let router = check::settings(&config, &polling, &router)?;
        let encoding = encoding.into();
        encoding.check()?;
        encoding.fit(&mut config);
        Ok(Self { database, config, polling, router, encoding })
    }

    /// Starts the pipeline on a thread of its own. `connect_sink` is called when
    /// there is something to send and no sink, also after an error.
    ///
    /// # Panics
    /// If the operating system gives no thread.
    pub fn start<K, F>(self, connect_sink: F) -> RunningRelay
    where
        K: Sink + 'static,
        F: AsyncFnMut() -> Result<K, RelayError> + Send + 'static,
    {
        RunningRelay::on_thread(
            format!("poller-{}", self.config.pipeline),
            move |stopped, reporter| {
                let metrics = PollingMetrics::new(&self.config.pipeline);
                let result = runtime().and_then(|runtime| {
                    runtime.spawn(observe(reporter.clone(), metrics.clone()));
                    runtime.block_on(self.run(stopped, &reporter, &metrics, connect_sink))
                });
                reporter.phase(Phase::Stopped);
                metrics.observe(&reporter.current());
                result
            },
        )
    }

    async fn run<K: Sink>(
        self,
        mut stop: watch::Receiver<bool>,
        status: &StatusReporter,
        metrics: &PollingMetrics,
        mut connect_sink: impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<(), RelayError> {
        let mut retries = Retries::new(&self.config);
        loop {
            let session = PollingSession {
                database: &self.database,
                config: &self.config,
                polling: &self.polling,
                router: &self.router,
                encoding: &self.encoding,
                status,
                metrics,
                stop: stop.clone(),
                gate: Gate::Relays,
            };
            let before = status.current().published;
            let outcome = tokio::select! {
                outcome = session.run(&mut connect_sink) => outcome,
                () = retries.late(status) => return Err(retries.too_late(status)),
            };
            let ended = status.current();
            let worked = ended.published > before;
            status.ended();
            let wait = match outcome {
                Ok(()) => return Ok(()),
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => {
                    retries.ended(ended.phase == Phase::Streaming, worked);
                    metrics.failed_sessions.increment(1);
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

/// Keeps the gauges in line with the status for ever.
async fn observe(status: StatusReporter, metrics: PollingMetrics) {
    let mut ticks = interval(OBSERVE_INTERVAL);
    loop {
        ticks.tick().await;
        metrics.observe(&status.current());
    }
}
