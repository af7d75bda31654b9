//! Every metric of the consumer, through the `metrics` facade.

use metrics::{Counter, Histogram, counter, describe_counter, describe_histogram, histogram};

use crate::TopicPartition;

/// Says what each metric means. Called when a consumer starts.
pub(crate) fn describe() {
    describe_counter!("walpost_consumer_applied_total", "Effects that were committed");
    describe_counter!("walpost_consumer_duplicates_total", "Events whose effect had been made");
    describe_counter!("walpost_consumer_parked_total", "Events that were parked");
    describe_counter!(
        "walpost_consumer_waiting_total",
        "Events that were set aside behind a parked one of their key"
    );
    describe_counter!(
        "walpost_consumer_unparked_total",
        "Parked and waiting events whose effect was made after all"
    );
    describe_counter!("walpost_consumer_resets_total", "Offset resets that were carried out");
    describe_counter!("walpost_consumer_claims_total", "Claims of partitions");
    describe_counter!("walpost_consumer_halts_total", "Partitions that were halted");
    describe_counter!("walpost_consumer_failures_total", "Transactions that were rolled back");
    describe_counter!("walpost_consumer_pruned_total", "Effects that were forgotten");
    describe_counter!("walpost_consumer_dead_letters_total", "Dead letters that were written");
    describe_counter!(
        "walpost_consumer_dead_letters_refused_total",
        "Times that the topic took no dead letter of an event"
    );
    describe_counter!(
        "walpost_consumer_dead_letter_failures_total",
        "Times that dead letters were put off"
    );
    describe_histogram!("walpost_consumer_batch_seconds", "Time of a batch, BEGIN to COMMIT");
    describe_histogram!("walpost_consumer_batch_events", "Events in a committed batch");
}

/// Effects that need no longer be remembered, of all topics.
pub(crate) fn pruned(consumer: &str) -> Counter {
    counter!("walpost_consumer_pruned_total", "consumer" => consumer.to_owned())
}

/// The metrics of dead letters, of all topics.
pub(crate) struct DeadLetterMetrics {
    pub(crate) written: Counter,
    pub(crate) refused: Counter,
    pub(crate) failures: Counter,
}

impl DeadLetterMetrics {
    pub(crate) fn new(consumer: &str) -> Self {
        let labels = [("consumer", consumer.to_owned())];
        Self {
            written: counter!("walpost_consumer_dead_letters_total", &labels),
            refused: counter!("walpost_consumer_dead_letters_refused_total", &labels),
            failures: counter!("walpost_consumer_dead_letter_failures_total", &labels),
        }
    }
}

/// The metrics of one topic of one consumer.
pub(crate) struct TopicMetrics {
    pub(crate) applied: Counter,
    pub(crate) duplicates: Counter,
    pub(crate) parked: Counter,
    pub(crate) waiting: Counter,
    pub(crate) unparked: Counter,
    pub(crate) resets: Counter,
    pub(crate) claims: Counter,
    pub(crate) halts: Counter,
    pub(crate) failures: Counter,
    pub(crate) batch_seconds: Histogram,
    pub(crate) batch_events: Histogram,
}

impl TopicMetrics {
    pub(crate) fn new(consumer: &str, of: &TopicPartition) -> Self {
        let labels = [("consumer", consumer.to_owned()), ("topic", of.topic.to_string())];
        Self {
            applied: counter!("walpost_consumer_applied_total", &labels),
            duplicates: counter!("walpost_consumer_duplicates_total", &labels),
            parked: counter!("walpost_consumer_parked_total", &labels),
            waiting: counter!("walpost_consumer_waiting_total", &labels),
            unparked: counter!("walpost_consumer_unparked_total", &labels),
            resets: counter!("walpost_consumer_resets_total", &labels),
            claims: counter!("walpost_consumer_claims_total", &labels),
            halts: counter!("walpost_consumer_halts_total", &labels),
            failures: counter!("walpost_consumer_failures_total", &labels),
            batch_seconds: histogram!("walpost_consumer_batch_seconds", &labels),
            batch_events: histogram!("walpost_consumer_batch_events", &labels),
        }
    }
}
