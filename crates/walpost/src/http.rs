mod connections;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use axum::{
    Router,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use tokio::{net::TcpListener, sync::watch};
use walpost_relay::{
    Phase, PipelineStatus, Readiness, ReadyWatch, RelayConfig, SlotSight, WalBudget,
};

use crate::failure::{Exit, Failure};

/// Between two looks at the status, also while nobody asks.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// A pipeline's status, and what was seen of it before.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    status: watch::Receiver<PipelineStatus>,
    watch: Arc<Mutex<ReadyWatch>>,
}

/// What `/ready` says of a pipeline.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Answer {
    ready: bool,
    reason: String,
    phase: &'static str,
    lag_seconds: f64,
    outstanding: u64,
    published: u64,
    parked: u64,
    trouble: Option<String>,
    slot: Option<Slot>,
}

/// What the server last said of the slot.
#[derive(Debug, PartialEq, Serialize)]
struct Slot {
    wal_status: &'static str,
    invalidation_reason: Option<String>,
    confirmed_lsn: Option<String>,
    retained_bytes: Option<u64>,
    /// Absent where nothing bounds it.
    invalidation_bytes: Option<u64>,
    walsender_pid: Option<i32>,
    seen_seconds_ago: f64,
    /// Absent where nothing bounds it.
    budget: Option<Budget>,
    parked_open: Option<u64>,
    parked_held: Option<u64>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Budget {
    limit_bytes: u64,
    used_percent: u64,
    /// The mark that was reached last: 0, 25, 50, 75 or 100.
    level_percent: u64,
    set_by: &'static str,
}

impl Watched {
    pub(crate) fn new(status: watch::Receiver<PipelineStatus>, config: &RelayConfig) -> Self {
        Self { status, watch: Arc::new(Mutex::new(ReadyWatch::new(config))) }
    }

    /// Follows the status for ever, and says in the log when a relay that does
    /// its work stands still, and when that is over.
    pub(crate) async fn watch(self) {
        let mut ticks = tokio::time::interval(LOOK_INTERVAL);
        let mut told = false;
        loop {
            ticks.tick().await;
            let readiness = self.look();
            let works = matches!(self.status.borrow().phase, Phase::Streaming | Phase::Standby);
            if works && readiness.ready == told {
                told = !readiness.ready;
                match told {
                    true => tracing::warn!(reason = readiness.reason, "not ready"),
                    false => tracing::info!(reason = readiness.reason, "ready again"),
                }
            }
        }
    }

    fn look(&self) -> Readiness {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        watch.look(&self.status.borrow(), Instant::now())
    }

    /// The answer to `/ready`.
    pub(crate) fn ready(&self, headers: &HeaderMap) -> Response {
        let answer = self.answer();
        answered(answer.ready, &answer.reason, &answer, headers)
    }

    /// What `/ready` says of the pipeline now.
    pub(crate) fn answer(&self) -> Answer {
        let readiness = self.look();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        answer(readiness, &self.status.borrow(), now)
    }
}

/// Opens the port.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    let next_step = "set http.listen to another address, or to \"\" for none";
    bind_or(address, next_step).await
}

/// The same, where something else is to be done if it cannot be opened.
pub(crate) async fn bind_or(address: SocketAddr, next_step: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::new(Exit::Configuration, error)
            .context(&format!("cannot listen on {address}"))
            .next_step(next_step)
    })
}

/// Answers requests until the task is ended. `/ready` is that of the pipeline.
pub(crate) async fn serve(listener: TcpListener, watched: Watched, metrics: PrometheusHandle) {
    let ready = async move |headers: HeaderMap| watched.ready(&headers);
    serve_beside(listener, Router::new().route("/ready", get(ready)), metrics).await;
}

/// The same beside these routes.
pub(crate) async fn serve_beside(listener: TcpListener, routes: Router, metrics: PrometheusHandle) {
    let metrics = async move || {
        let kind = "text/plain; version=0.0.4; charset=utf-8";
        ([(header::CONTENT_TYPE, kind)], metrics.render()).into_response()
    };
    let router = routes.route("/live", get(async || "live\n")).route("/metrics", get(metrics));
    connections::serve(listener, router).await;
}

/// Answers nothing but these routes until the task is ended.
pub(crate) async fn serve_alone(listener: TcpListener, routes: Router) {
    connections::serve(listener, routes).await;
}

/// 200 or 503 with an answer. JSON, unless plain text is asked for before it.
pub(crate) fn answered(
    is_ready: bool,
    reason: &str,
    answer: &impl Serialize,
    headers: &HeaderMap,
) -> Response {
    let code = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let (kind, body) = body(is_ready, reason, answer, headers.get(header::ACCEPT));
    (code, [(header::CONTENT_TYPE, kind)], body).into_response()
}

fn body(
    is_ready: bool,
    reason: &str,
    answer: &impl Serialize,
    accept: Option<&HeaderValue>,
) -> (&'static str, String) {
    let accept = accept.and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let kinds = accept.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim());
    let wanted = kinds.into_iter().find(|kind| ["text/plain", "application/json"].contains(kind));
    if wanted == Some("text/plain") {
        let word = if is_ready { "ready" } else { "not ready" };
        return ("text/plain; charset=utf-8", format!("{word}: {reason}\n"));
    }
    ("application/json", serde_json::to_string(answer).expect("a struct of plain fields"))
}

fn answer(readiness: Readiness, status: &PipelineStatus, since_epoch: Duration) -> Answer {
    let error = match &status.phase {
        Phase::Waiting { error } => Some(error.clone()),
        _ => None,
    };
    let now_us = i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX);
    let lag_us = status.oldest_pending_us.map_or(0, |oldest| (now_us - oldest).max(0));
    Answer {
        ready: readiness.ready,
        reason: readiness.reason,
        phase: status.phase.as_str(),
        lag_seconds: lag_us as f64 / 1e6,
        outstanding: status.outstanding,
        published: status.published,
        parked: status.parked,
        trouble: status.trouble.clone().or(error),
        slot: status.slot.as_ref().map(slot),
    }
}

fn slot(sight: &SlotSight) -> Slot {
    let budget = |budget: WalBudget| Budget {
        limit_bytes: budget.limit_bytes,
        used_percent: budget.percent(),
        level_percent: budget.level.percent(),
        set_by: budget.set_by.as_str(),
    };
    Slot {
        wal_status: sight.state.as_str(),
        invalidation_reason: sight.invalidation.clone(),
        confirmed_lsn: sight.confirmed.map(|lsn| lsn.to_string()),
        retained_bytes: sight.retained_bytes(),
        invalidation_bytes: sight.invalidation_bytes,
        walsender_pid: sight.active_pid,
        seen_seconds_ago: sight.at.elapsed().as_secs_f64(),
        budget: sight.budget.map(budget),
        parked_open: sight.parked.map(|parked| parked.open),
        parked_held: sight.parked.map(|parked| parked.held),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: &PipelineStatus, since_epoch: Duration) -> Answer {
        let mut watch = ReadyWatch::new(&RelayConfig::new("shop"));
        answer(watch.look(status, Instant::now()), status, since_epoch)
    }

    #[test]
    fn the_lag_is_the_age_of_the_oldest_event() {
        let mut status = PipelineStatus::default();
        status.phase = Phase::Waiting { error: "e".into() };
        status.oldest_pending_us = Some(2_000_000);
        let answer = told(&status, Duration::from_secs(5));
        assert_eq!(answer.lag_seconds, 3.0);
        assert_eq!(answer.trouble.as_deref(), Some("e"));
        assert_eq!((answer.ready, &*answer.reason), (false, "waiting to try again: e"));
    }

    #[test]
    fn the_body_is_json_unless_plain_text_is_asked_for() {
        let mut status = PipelineStatus::default();
        status.phase = Phase::Streaming;
        let answer = told(&status, Duration::ZERO);
        let body = |accept: &'static str| {
            let accept = HeaderValue::from_static(accept);
            body(answer.ready, &answer.reason, &answer, Some(&accept))
        };
        for accept in ["", "*/*", "application/json", "application/json, text/plain"] {
            let (kind, text) = body(accept);
            assert_eq!(kind, "application/json", "{accept}");
            assert!(text.starts_with("{\"ready\":true,\"reason\":\"streaming\""), "{text}");
        }
        for accept in ["text/plain", "text/html, text/plain;q=0.9, */*"] {
            assert_eq!(body(accept).1, "ready: streaming\n", "{accept}");
        }
    }
}
