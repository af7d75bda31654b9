use metrics::{Counter, Gauge, Unit, counter, describe_counter, describe_gauge, gauge};

use crate::{
    sight::{SlotSight, SlotState},
    status::PipelineStatus,
};

/// Handles of a pipeline's metrics, looked up once.
#[derive(Clone)]
pub(crate) struct PipelineMetrics {
    pub(crate) published: Counter,
    pub(crate) parked: Counter,
    pub(crate) retried: Counter,
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
    describe_counter!("walpost_relay_parked_retried_total", "Parked events sent on");
    describe_counter!(
        "walpost_relay_resumed_total",
        "Events found published after a start, and not sent again"
    );
    describe_counter!("walpost_dead_letters_total", "Dead letters written of parked events");
    describe_counter!(
        "walpost_dead_letters_refused_total",
        "Parked events of which the topic takes no dead letter"
    );
    describe_counter!(
        "walpost_dead_letter_failures_total",
        "Times that dead letters could not be written and were put off"
    );
    describe_counter!("walpost_heartbeats_total", "Heartbeats acknowledged by the sink");
    describe_counter!(
        "walpost_heartbeat_failures_total",
        "Heartbeats that were not written, and action queries that failed"
    );
    describe_counter!("walpost_retention_removed_total", "Rows that have left the outbox");
    describe_counter!(
        "walpost_retention_parked_removed_total",
        "Settled parked events that were deleted"
    );
    describe_counter!(
        "walpost_retention_partitions_total",
        "Partitions that have left the outbox as a whole"
    );
    describe_counter!("walpost_retention_failures_total", "Times that retention was given up");
    describe_counter!("walpost_relay_skipped_total", "Row changes that are no events");
    describe_counter!("walpost_relay_transactions_total", "Transactions read from the WAL");
    describe_counter!("walpost_relay_failed_sessions_total", "Sessions that ended with an error");
    describe_gauge!("walpost_relay_outstanding_events", "Events not acknowledged yet");
    describe_gauge!(
        "walpost_outbox_lag_seconds",
        Unit::Seconds,
        "Age of the oldest event that was read and is neither delivered nor parked, by sink"
    );
    describe_gauge!("walpost_relay_received_lsn_bytes", Unit::Bytes, "WAL position received");
    describe_gauge!("walpost_relay_confirmed_lsn_bytes", Unit::Bytes, "WAL position confirmed");
    describe_gauge!(
        "walpost_slot_unconfirmed_bytes",
        Unit::Bytes,
        "WAL known to be written and not confirmed to the slot"
    );
    describe_gauge!("walpost_relay_streaming", "1 while events are published, else 0");
    describe_slot();
    describe_polling();
}

fn describe_polling() {
    describe_gauge!("walpost_polling_pending_events", "Rows of a polled outbox to be published");
    describe_gauge!(
        "walpost_polling_failed_events",
        "Rows of a polled outbox that could not be published, and wait to be requeued"
    );
    describe_gauge!(
        "walpost_polling_oldest_pending_seconds",
        Unit::Seconds,
        "Age of the oldest pending row of a polled outbox; 0 where the table does not tell it"
    );
    describe_counter!(
        "walpost_polling_attempts_failed_total",
        "Attempts to publish a row of a polled outbox that failed"
    );
    describe_counter!(
        "walpost_polling_rows_failed_total",
        "Rows of a polled outbox that were given up"
    );
}

fn describe_slot() {
    describe_gauge!(
        "walpost_slot_retained_bytes",
        Unit::Bytes,
        "WAL that the server keeps for the slot"
    );
    describe_gauge!(
        "walpost_slot_budget_bytes",
        Unit::Bytes,
        "WAL that the slot may keep; absent where nothing bounds it"
    );
    describe_gauge!(
        "walpost_slot_invalidation_bytes",
        Unit::Bytes,
        "WAL that may still be written before the server may give the slot up; absent where \
         nothing bounds it"
    );
    describe_gauge!("walpost_slot_wal_status", "1 for the status that the slot has, else 0");
    describe_gauge!("walpost_parked_open_events", "Events that could not be delivered");
    describe_gauge!(
        "walpost_parked_held_events",
        "Events that wait behind a parked one of their aggregate"
    );
    describe_gauge!(
        "walpost_parked_oldest_seconds",
        Unit::Seconds,
        "Age of the oldest event that is parked or waits behind one"
    );
}

impl PipelineMetrics {
    pub(crate) fn new(pipeline: &str, sink: &'static str) -> Self {
        let label = [("pipeline", pipeline.to_owned())];
        let sink = [("pipeline", pipeline.to_owned()), ("sink", sink.to_owned())];
        Self {
            published: counter!("walpost_relay_published_total", &label),
            parked: counter!("walpost_relay_parked_total", &label),
            retried: counter!("walpost_relay_parked_retried_total", &label),
            resumed: counter!("walpost_relay_resumed_total", &label),
            skipped: counter!("walpost_relay_skipped_total", &label),
            transactions: counter!("walpost_relay_transactions_total", &label),
            failed_sessions: counter!("walpost_relay_failed_sessions_total", &label),
            outstanding: gauge!("walpost_relay_outstanding_events", &label),
            lag_seconds: gauge!("walpost_outbox_lag_seconds", &sink),
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
        let seen = status.slot.as_ref().map(|sight| sight.wal).unwrap_or_default();
        let known = status.received.max(status.written).max(seen);
        self.retained.set(known.bytes_since(status.confirmed) as f64);
        let streaming = status.phase == crate::status::Phase::Streaming;
        self.streaming.set(f64::from(u8::from(streaming)));
    }
}

/// What was seen of the slot, and what is set aside.
pub(crate) struct SlotMetrics {
    pipeline: String,
    /// The gauge of it is there.
    is_bounded: bool,
}

impl SlotMetrics {
    pub(crate) fn new(pipeline: &str) -> Self {
        Self { pipeline: pipeline.to_owned(), is_bounded: false }
    }

    /// Each gauge is there once its value is known.
    pub(crate) fn sighted(&mut self, sight: &SlotSight) {
        let label = [("pipeline", self.pipeline.clone())];
        // For a slot that is lost or gone nothing is kept.
        let is_kept = !matches!(sight.state, SlotState::Lost | SlotState::Missing);
        let retained = if is_kept { sight.retained_bytes() } else { Some(0) };
        if let Some(bytes) = retained {
            gauge!("walpost_slot_retained_bytes", &label).set(bytes as f64);
        }
        if let Some(budget) = sight.budget {
            gauge!("walpost_slot_budget_bytes", &label).set(budget.limit_bytes as f64);
        }
        let left = match sight.invalidation_bytes {
            Some(bytes) => Some(bytes as f64),
            None if sight.state == SlotState::Lost => Some(0.0),
            // A gauge does not go away again.
            None => self.is_bounded.then_some(f64::INFINITY),
        };
        if let Some(left) = left {
            self.is_bounded = true;
            gauge!("walpost_slot_invalidation_bytes", &label).set(left);
        }
        for state in SlotState::ALL {
            let is_so = f64::from(u8::from(state == sight.state));
            let label =
                [("pipeline", self.pipeline.clone()), ("status", state.as_str().to_owned())];
            gauge!("walpost_slot_wal_status", &label).set(is_so);
        }
        if let Some(parked) = sight.parked {
            gauge!("walpost_parked_open_events", &label).set(parked.open as f64);
            gauge!("walpost_parked_held_events", &label).set(parked.held as f64);
            gauge!("walpost_parked_oldest_seconds", &label).set(parked.oldest_seconds);
        }
    }
}
