//! What is polled at the end, before the WAL is read.

use std::time::Duration;

use tokio::{sync::watch, time::Instant};
use walpost_postgres::Database;
use walpost_router::Router;

use super::{
    config::PollingConfig,
    gate::Gate,
    metrics::PollingMetrics,
    session::{PollingSession, Work},
    sight::PollingSight,
    table::polled,
};
use crate::{
    checkpoint::Cut,
    config::RelayConfig,
    encoding::EventEncoding,
    error::RelayError,
    sink::Sink,
    status::{Phase, StatusReporter},
};

/// While nothing goes on.
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// Publishes what `cut` sees and is not published yet; how many rows.
pub(crate) async fn drain<K: Sink>(
    database: &Database,
    (config, polling): (&RelayConfig, &PollingConfig),
    (router, encoding): (&Router, &EventEncoding),
    cut: &Cut,
    connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
) -> Result<u64, RelayError> {
    let (status, _receiver) = StatusReporter::new();
    let metrics = PollingMetrics::new(&config.pipeline);
    let (_keep, stop) = watch::channel(false);
    let session = PollingSession {
        database,
        config,
        polling,
        router,
        encoding,
        status: &status,
        metrics: &metrics,
        stop,
        gate: Gate::Switch(cut.clone()),
    };
    status.starting();
    let mut work = session.open().await?;
    status.phase(Phase::Streaming);
    let emptied = session.empty(&mut work, connect_sink).await;
    if let Some(sink) = work.sink.take() {
        sink.close().await;
    }
    emptied.map(|()| status.current().published)
}

impl PollingSession<'_> {
    /// Claims until nothing is left.
    async fn empty<K: Sink>(
        &self,
        work: &mut Work<K>,
        connect_sink: &mut impl AsyncFnMut() -> Result<K, RelayError>,
    ) -> Result<(), RelayError> {
        let interval = Duration::from_millis(self.polling.poll_interval_ms);
        let mut told: Option<(u64, Instant)> = None;
        loop {
            let sight = work.table.sight().await?;
            none_failed(self.config, &sight)?;
            if sight.pending == 0 {
                return Ok(());
            }
            let again =
                |(rows, at): (u64, Instant)| rows > sight.pending || at.elapsed() >= TELL_AGAIN;
            if told.is_none_or(again) {
                if told.is_some_and(|(rows, _)| rows == sight.pending) {
                    tracing::warn!(
                        rows = sight.pending,
                        next_step = "`walpost requeue --waiting` has them tried at once; `walpost \
                                     source switch --to polling` gives the switch up",
                        "the switch waits for rows whose next attempt is yet to come"
                    );
                }
                told = Some((sight.pending, Instant::now()));
                tracing::info!(rows = sight.pending, "polling what the slot does not bring");
            }
            while self.claim_next(work, connect_sink).await? {}
            tokio::time::sleep(interval).await;
        }
    }
}

/// A row that has failed is published by nobody once the WAL is read.
pub(crate) fn none_failed(config: &RelayConfig, sight: &PollingSight) -> Result<(), RelayError> {
    if sight.failed == 0 {
        return Ok(());
    }
    let table = polled(config)?;
    Err(RelayError::prerequisite(
        format!(
            "{} rows of table {table} have failed, and no relay that reads the WAL would publish \
             them",
            sight.failed
        ),
        "see them with `walpost requeue --all --dry-run`, mend the cause, make them pending with \
         `walpost requeue --all`, and switch again; what is given up, mark as published yourself",
    ))
}
