//! Every metric of deliveries, through the `metrics` facade.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

/// Says what each metric means. Called when a processor starts, or a sink.
pub(crate) fn describe() {
    describe_counter!("walpost_webhook_created_total", "Deliveries that events became");
    describe_counter!("walpost_webhook_unsubscribed_total", "Events that no destination takes");
    describe_counter!("walpost_webhook_attempts_total", "Attempts that were made, by outcome");
    describe_counter!("walpost_webhook_delivered_total", "Deliveries that arrived");
    describe_counter!("walpost_webhook_retries_total", "Attempts behind a failed one");
    describe_counter!("walpost_webhook_exhausted_total", "Deliveries without a further attempt");
    describe_counter!("walpost_webhook_unknown_total", "Deliveries of unknown outcome");
    describe_counter!("walpost_webhook_disabled_total", "Times that a destination answered 410");
    describe_counter!("walpost_webhook_stuck_total", "Claims whose lease ended before they did");
    describe_counter!("walpost_webhook_lost_total", "Ends of attempts that were not written down");
    describe_counter!("walpost_webhook_given_back_total", "Claims that nothing was sent under");
    describe_histogram!("walpost_webhook_attempt_seconds", "Time that an attempt took");
    describe_gauge!("walpost_webhook_inflight", "Attempts that are being made");
    describe_gauge!(
        "walpost_webhook_secret_unreadable",
        "1 while nothing is sent for a secret that cannot be read"
    );
    describe_gauge!(
        "walpost_webhook_breaker_open",
        "1 while nothing but probes is sent to the destination"
    );
}

/// What a processor counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Delivered,
    Retry,
    Exhausted,
    Unknown,
    Disabled,
    Stuck,
    Lost,
    GivenBack,
}

const WHATS: usize = 8;

/// What a [`Processor`](crate::Processor) has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Deliveries that arrived.
    pub delivered: u64,
    /// Attempts behind a failed one.
    pub retries: u64,
    /// Deliveries without a further attempt.
    pub exhausted: u64,
    /// Deliveries of unknown outcome.
    pub unknown: u64,
    /// Times that the destination answered 410.
    pub disabled: u64,
    /// Claims whose lease ended before they did.
    pub stuck: u64,
    /// Ends of attempts that were not written down: another one had the delivery,
    /// or the database was away for too long.
    pub lost: u64,
    /// Claims that nothing was sent under, and that do not count: of a destination
    /// that was disabled meanwhile, whose secrets could not be read, or whose time was over.
    pub given_back: u64,
}

/// The metrics of one processor, which can also be read here.
pub(crate) struct Metrics {
    destination: String,
    counts: [(AtomicU64, Counter); WHATS],
    seconds: Histogram,
    pub(crate) inflight: Gauge,
}

impl Metrics {
    pub(crate) fn new(destination: &str) -> Self {
        let labels = [("destination", destination.to_owned())];
        // In the order of `What`.
        let counters = [
            counter!("walpost_webhook_delivered_total", &labels),
            counter!("walpost_webhook_retries_total", &labels),
            counter!("walpost_webhook_exhausted_total", &labels),
            counter!("walpost_webhook_unknown_total", &labels),
            counter!("walpost_webhook_disabled_total", &labels),
            counter!("walpost_webhook_stuck_total", &labels),
            counter!("walpost_webhook_lost_total", &labels),
            counter!("walpost_webhook_given_back_total", &labels),
        ];
        Self {
            destination: destination.to_owned(),
            counts: counters.map(|counter| (AtomicU64::new(0), counter)),
            seconds: histogram!("walpost_webhook_attempt_seconds", &labels),
            inflight: gauge!("walpost_webhook_inflight", &labels),
        }
    }

    pub(crate) fn add(&self, what: What, count: u64) {
        let (own, counter) = &self.counts[what as usize];
        own.fetch_add(count, Ordering::Relaxed);
        counter.increment(count);
    }

    pub(crate) fn attempted(&self, outcome: &'static str, seconds: f64) {
        let labels = [("destination", self.destination.clone()), ("outcome", outcome.to_owned())];
        counter!("walpost_webhook_attempts_total", &labels).increment(1);
        self.seconds.record(seconds);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let count = |what: What| self.counts[what as usize].0.load(Ordering::Relaxed);
        Snapshot {
            delivered: count(What::Delivered),
            retries: count(What::Retry),
            exhausted: count(What::Exhausted),
            unknown: count(What::Unknown),
            disabled: count(What::Disabled),
            stuck: count(What::Stuck),
            lost: count(What::Lost),
            given_back: count(What::GivenBack),
        }
    }
}
