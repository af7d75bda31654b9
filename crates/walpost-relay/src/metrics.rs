use metrics::{Counter, Gauge, Unit, counter, describe_counter, describe_gauge, gauge};

use crate::status::PipelineStatus;

/// Handles of a pipeline's metrics, looked up once.
#[derive(Clone)]
pub(crate) struct PipelineMetrics {
    pub(crate) published: Counter,
    pub(crate) parked: Counter,
    pub(crate) resumed: Counter,
    pub(crate) skipped: Counter,
    pub(crate) transactions: Counter,
    pub(crate) failed_sessions: Counter,
    outstanding: Gauge,
    lag_seconds: Gauge,
    received: Gauge,
    confirmed: Gauge,
    retained: Gauge,
    streaming: Gauge,
}

/// Tells the recorder what each metric of the relay means.
pub fn describe_metrics() {
    describe_counter!("walpost_relay_published_total", "Events acknowledged by the sink");
    describe_counter!("walpost_relay_parked_total", "Events parked with their reason");
    describe_counter!(
        "walpost_relay_resumed_total",
        "Events found published after a start, and not sent again"
    );
    describe_counter!("walpost_relay_skipped_total", "Row changes that are no events");
    describe_counter!("walpost_relay_transactions_total", "Transactions read from the WAL");
    describe_counter!("walpost_relay_failed_sessions_total", "Sessions that ended with an error");
    describe_gauge!("walpost_relay_outstanding_events", "Events not acknowledged yet");
    describe_gauge!(
        "walpost_outbox_lag_seconds",
        Unit::Seconds,
        "Age of the oldest event that is neither published nor parked"
    );
    describe_gauge!("walpost_relay_received_lsn_bytes", Unit::Bytes, "WAL position received");
    describe_gauge!("walpost_relay_confirmed_lsn_bytes", Unit::Bytes, "WAL position confirmed");
    describe_gauge!(
        "walpost_slot_unconfirmed_bytes",
        Unit::Bytes,
        "WAL known to be written and not confirmed to the slot"
    );
    describe_gauge!("walpost_relay_streaming", "1 while events are published, else 0");
}

impl PipelineMetrics {
    pub(crate) fn new(pipeline: &str) -> Self {
        let label = [("pipeline", pipeline.to_owned())];
        Self {
            published: counter!("walpost_relay_published_total", &label),
            parked: counter!("walpost_relay_parked_total", &label),
            resumed: counter!("walpost_relay_resumed_total", &label),
            skipped: counter!("walpost_relay_skipped_total", &label),
            transactions: counter!("walpost_relay_transactions_total", &label),
            failed_sessions: counter!("walpost_relay_failed_sessions_total", &label),
            outstanding: gauge!("walpost_relay_outstanding_events", &label),
            lag_seconds: gauge!("walpost_outbox_lag_seconds", &label),
            received: gauge!("walpost_relay_received_lsn_bytes", &label),
            confirmed: gauge!("walpost_relay_confirmed_lsn_bytes", &label),
            retained: gauge!("walpost_slot_unconfirmed_bytes", &label),
            streaming: gauge!("walpost_relay_streaming", &label),
        }
    }

    /// Brings the gauges in line with `status`, at `now_us` since 1970.
    pub(crate) fn observe(&self, status: &PipelineStatus, now_us: i64) {
        let lag_us = status.oldest_pending_us.map_or(0, |oldest| (now_us - oldest).max(0));
        self.outstanding.set(status.outstanding as f64);
        self.lag_seconds.set(lag_us as f64 / 1e6);
        self.received.set(u64::from(status.received) as f64);
        self.confirmed.set(u64::from(status.confirmed) as f64);
        let known = status.received.max(status.written);
        self.retained.set(known.bytes_since(status.confirmed) as f64);
        let streaming = status.phase == crate::status::Phase::Streaming;
        self.streaming.set(f64::from(u8::from(streaming)));
    }
}
