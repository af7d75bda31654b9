use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use axum::{
    Router,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use tokio::{net::TcpListener, sync::watch};
use walpost_relay::{Phase, PipelineStatus};

use crate::failure::{Exit, Failure};

/// How long the sink may be in trouble before the relay is not ready.
const TROUBLE: Duration = Duration::from_secs(5);

/// A pipeline's status, and since when its sink is in trouble.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    status: watch::Receiver<PipelineStatus>,
    trouble_since: Arc<Mutex<Option<Instant>>>,
}

/// What `/ready` says.
#[derive(Debug, PartialEq, Serialize)]
struct Readiness {
    ready: bool,
    phase: &'static str,
    lag_seconds: f64,
    outstanding: u64,
    published: u64,
    parked: u64,
    trouble: Option<String>,
}

impl Watched {
    pub(crate) fn new(status: watch::Receiver<PipelineStatus>) -> Self {
        Self { status, trouble_since: Arc::default() }
    }

    /// Follows the status for ever.
    pub(crate) async fn watch(mut self) {
        loop {
            let is_troubled = self.status.borrow_and_update().trouble.is_some();
            self.note(is_troubled);
            if self.status.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn note(&self, is_troubled: bool) {
        let mut since = self.trouble_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = is_troubled.then(|| since.unwrap_or_else(Instant::now));
    }

    fn readiness(&self) -> Readiness {
        let since = *self.trouble_since.lock().unwrap_or_else(PoisonError::into_inner);
        let trouble_for = since.map(|since| since.elapsed());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        readiness(&self.status.borrow(), trouble_for, now)
    }
}

/// Opens the port.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::new(Exit::Configuration, error)
            .context(&format!("cannot listen on {address}"))
            .next_step("set http.listen to another address, or to \"\" for none")
    })
}

/// Answers requests until the task is ended.
pub(crate) async fn serve(listener: TcpListener, watched: Watched, metrics: PrometheusHandle) {
    let ready = async move || {
        let readiness = watched.readiness();
        let code = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let body = serde_json::to_string(&readiness).expect("a struct of plain fields");
        (code, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    };
    let metrics = async move || {
        let kind = "text/plain; version=0.0.4; charset=utf-8";
        ([(header::CONTENT_TYPE, kind)], metrics.render()).into_response()
    };
    let router = Router::new()
        .route("/live", get(async || "live\n"))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics));
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "the HTTP server ended");
    }
}

fn readiness(
    status: &PipelineStatus,
    trouble_for: Option<Duration>,
    since_epoch: Duration,
) -> Readiness {
    let works = matches!(status.phase, Phase::Streaming | Phase::Standby);
    let is_troubled = trouble_for.is_some_and(|trouble| trouble > TROUBLE);
    let error = match &status.phase {
        Phase::Waiting { error } => Some(error.clone()),
        _ => None,
    };
    let now_us = i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX);
    let lag_us = status.oldest_pending_us.map_or(0, |oldest| (now_us - oldest).max(0));
    Readiness {
        ready: works && !is_troubled,
        phase: status.phase.as_str(),
        lag_seconds: lag_us as f64 / 1e6,
        outstanding: status.outstanding,
        published: status.published,
        parked: status.parked,
        trouble: status.trouble.clone().or(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(phase: Phase) -> PipelineStatus {
        let mut status = PipelineStatus::default();
        status.phase = phase;
        status
    }

    fn is_ready(phase: Phase, trouble_secs: Option<u64>) -> bool {
        readiness(&status(phase), trouble_secs.map(Duration::from_secs), Duration::ZERO).ready
    }

    #[test]
    fn ready_is_who_publishes_or_stands_by() {
        assert!(is_ready(Phase::Streaming, None));
        assert!(is_ready(Phase::Standby, None));
        for phase in [Phase::Starting, Phase::Loading, Phase::Stopped] {
            assert!(!is_ready(phase, None));
        }
        assert!(!is_ready(Phase::Waiting { error: "e".into() }, None));
    }

    #[test]
    fn trouble_of_the_sink_counts_after_a_while() {
        assert!(is_ready(Phase::Streaming, Some(4)));
        assert!(!is_ready(Phase::Streaming, Some(6)));
    }

    #[test]
    fn the_lag_is_the_age_of_the_oldest_event() {
        let mut status = status(Phase::Waiting { error: "e".into() });
        status.oldest_pending_us = Some(2_000_000);
        let readiness = readiness(&status, None, Duration::from_secs(5));
        assert_eq!(readiness.lag_seconds, 3.0);
        assert_eq!(readiness.trouble.as_deref(), Some("e"));
    }
}
