//! Every metric of the inbox, through the `metrics` facade.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

use crate::{Backlog, Snapshot};

/// Says what each metric means. Called when a processor starts.
pub(crate) fn describe() {
    describe_counter!("walpost_inbox_received_total", "Events that were given to insert_once");
    describe_counter!("walpost_inbox_succeeded_total", "Events whose effect was committed");
    describe_counter!("walpost_inbox_ignored_total", "Events of unknown types that were ignored");
    describe_counter!("walpost_inbox_reviewed_total", "Events that were set aside for review");
    describe_counter!("walpost_inbox_failures_total", "Attempts that failed and count");
    describe_counter!("walpost_inbox_given_up_total", "Events without a further attempt");
    describe_counter!("walpost_inbox_retries_total", "Attempts behind a failed one");
    describe_counter!("walpost_inbox_transient_total", "Attempts that failed and do not count");
    describe_counter!("walpost_inbox_lease_expired_total", "Claims that were taken away");
    describe_counter!("walpost_inbox_lost_total", "Attempts that were refused at their end");
    describe_histogram!("walpost_inbox_seconds", "Time from receipt to the committed effect");
    describe_gauge!("walpost_inbox_events", "Events that are not done, by state");
    describe_gauge!("walpost_inbox_oldest_pending_seconds", "Age of the oldest event to claim");
}

pub(crate) fn received(source: &str, result: &'static str) {
    let labels = [("source", source.to_owned()), ("result", result.to_owned())];
    counter!("walpost_inbox_received_total", &labels).increment(1);
}

/// What a processor counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Succeeded,
    Ignored,
    Reviewed,
    Failure,
    GivenUp,
    Retry,
    Transient,
    LeaseExpired,
    Lost,
}

const WHATS: usize = 9;

/// The metrics of one processor, which can also be read here.
pub(crate) struct Metrics {
    counts: [(AtomicU64, Counter); WHATS],
    backlog: Mutex<Option<Backlog>>,
    seconds: Histogram,
    oldest_pending_seconds: Gauge,
    events: [Gauge; 5],
}

impl Metrics {
    pub(crate) fn new(processor: &str) -> Self {
        let labels = [("processor", processor.to_owned())];
        // In the order of `What`.
        let counters = [
            counter!("walpost_inbox_succeeded_total", &labels),
            counter!("walpost_inbox_ignored_total", &labels),
            counter!("walpost_inbox_reviewed_total", &labels),
            counter!("walpost_inbox_failures_total", &labels),
            counter!("walpost_inbox_given_up_total", &labels),
            counter!("walpost_inbox_retries_total", &labels),
            counter!("walpost_inbox_transient_total", &labels),
            counter!("walpost_inbox_lease_expired_total", &labels),
            counter!("walpost_inbox_lost_total", &labels),
        ];
        let states = ["pending", "processing", "waiting", "given_up", "review"];
        Self {
            counts: counters.map(|counter| (AtomicU64::new(0), counter)),
            backlog: Mutex::new(None),
            seconds: histogram!("walpost_inbox_seconds", &labels),
            oldest_pending_seconds: gauge!("walpost_inbox_oldest_pending_seconds", &labels),
            events: states.map(|state| {
                let labels = [("processor", processor.to_owned()), ("state", state.to_owned())];
                gauge!("walpost_inbox_events", &labels)
            }),
        }
    }

    pub(crate) fn add(&self, what: What, count: u64) {
        let (own, counter) = &self.counts[what as usize];
        own.fetch_add(count, Ordering::Relaxed);
        counter.increment(count);
    }

    pub(crate) fn succeeded(&self, seconds: f64) {
        self.add(What::Succeeded, 1);
        self.seconds.record(seconds);
    }

    pub(crate) fn measured(&self, backlog: Backlog) {
        let Backlog { pending, processing, waiting, given_up, review, .. } = backlog;
        let counts = [pending, processing, waiting, given_up, review];
        for (gauge, count) in self.events.iter().zip(counts) {
            gauge.set(count as f64);
        }
        self.oldest_pending_seconds.set(backlog.oldest_pending_seconds);
        *self.backlog.lock().unwrap_or_else(PoisonError::into_inner) = Some(backlog);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let count = |what: What| self.counts[what as usize].0.load(Ordering::Relaxed);
        Snapshot {
            succeeded: count(What::Succeeded),
            ignored: count(What::Ignored),
            reviewed: count(What::Reviewed),
            failures: count(What::Failure),
            given_up: count(What::GivenUp),
            retries: count(What::Retry),
            transient: count(What::Transient),
            lease_expired: count(What::LeaseExpired),
            lost: count(What::Lost),
            backlog: *self.backlog.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}
