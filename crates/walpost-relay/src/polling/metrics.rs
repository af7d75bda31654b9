use metrics::{Counter, Gauge, counter, gauge};

use super::sight::PollingSight;
use crate::status::{Phase, PipelineStatus};

/// Handles of a polling pipeline's metrics, looked up once.
#[derive(Clone)]
pub(super) struct PollingMetrics {
    published: Counter,
    attempts_failed: Counter,
    rows_failed: Counter,
    pub(super) failed_sessions: Counter,
    pending: Gauge,
    failed: Gauge,
    oldest_pending: Gauge,
    outstanding: Gauge,
    streaming: Gauge,
}

impl PollingMetrics {
    pub(super) fn new(pipeline: &str) -> Self {
        let label = [("pipeline", pipeline.to_owned())];
        Self {
            published: counter!("walpost_relay_published_total", &label),
            attempts_failed: counter!("walpost_polling_attempts_failed_total", &label),
            rows_failed: counter!("walpost_polling_rows_failed_total", &label),
            failed_sessions: counter!("walpost_relay_failed_sessions_total", &label),
            pending: gauge!("walpost_polling_pending_events", &label),
            failed: gauge!("walpost_polling_failed_events", &label),
            oldest_pending: gauge!("walpost_polling_oldest_pending_seconds", &label),
            outstanding: gauge!("walpost_relay_outstanding_events", &label),
            streaming: gauge!("walpost_relay_streaming", &label),
        }
    }

    pub(super) fn settled(&self, published: usize, attempts_failed: usize, rows_failed: usize) {
        self.published.increment(published as u64);
        self.attempts_failed.increment(attempts_failed as u64);
        self.rows_failed.increment(rows_failed as u64);
    }

    pub(super) fn sighted(&self, sight: &PollingSight) {
        self.pending.set(sight.pending as f64);
        self.failed.set(sight.failed as f64);
        self.oldest_pending.set(sight.oldest_pending_seconds.unwrap_or(0.0));
    }

    pub(super) fn observe(&self, status: &PipelineStatus) {
        self.outstanding.set(status.outstanding as f64);
        self.streaming.set(f64::from(u8::from(status.phase == Phase::Streaming)));
    }
}
