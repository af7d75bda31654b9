//! Every metric of the consumer, through the `metrics` facade.

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

use crate::{PartitionState, Status, TopicPartition};

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
    describe_counter!(
        "walpost_consumer_epoch_conflicts_total",
        "Transactions that were refused because somebody else had claimed the partition"
    );
    describe_histogram!("walpost_consumer_batch_seconds", "Time of a batch, BEGIN to COMMIT");
    describe_histogram!("walpost_consumer_batch_events", "Events in a committed batch");
    describe_histogram!("walpost_consumer_handler_seconds", "Time of a call of the handler");
    describe_gauges();
}

fn describe_gauges() {
    describe_gauge!("walpost_consumer_lag_events", "Offsets that are there and not applied");
    describe_gauge!("walpost_consumer_lag_seconds", "Age of the event that is next");
    describe_gauge!(
        "walpost_consumer_log_end_age_seconds",
        "Seconds since the end of the log was last heard of"
    );
    describe_gauge!("walpost_consumer_parked_open_events", "Parked events that are not settled");
    describe_gauge!(
        "walpost_consumer_parked_held_events",
        "Events that wait behind a parked one of their key"
    );
    describe_gauge!(
        "walpost_consumer_handler_blocked_seconds",
        "For how long a call of the handler has blocked its thread"
    );
    describe_gauge!("walpost_consumer_partitions", "Assigned partitions in a state");
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
    pub(crate) epoch_conflicts: Counter,
    pub(crate) batch_seconds: Histogram,
    pub(crate) batch_events: Histogram,
    pub(crate) handler_seconds: Histogram,
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
            epoch_conflicts: counter!("walpost_consumer_epoch_conflicts_total", &labels),
            batch_seconds: histogram!("walpost_consumer_batch_seconds", &labels),
            batch_events: histogram!("walpost_consumer_batch_events", &labels),
            handler_seconds: histogram!("walpost_consumer_handler_seconds", &labels),
        }
    }
}

/// What holds for one partition while it is ours.
#[derive(Clone)]
pub(crate) struct PartitionGauges {
    pub(crate) lag_events: Gauge,
    pub(crate) lag_seconds: Gauge,
    pub(crate) end_age_seconds: Gauge,
    pub(crate) parked_open_events: Gauge,
    pub(crate) parked_held_events: Gauge,
    pub(crate) handler_blocked_seconds: Gauge,
}

impl PartitionGauges {
    pub(crate) fn new(consumer: &str, of: &TopicPartition) -> Self {
        let labels = [
            ("consumer", consumer.to_owned()),
            ("topic", of.topic.to_string()),
            ("partition", of.partition.to_string()),
        ];
        Self {
            lag_events: gauge!("walpost_consumer_lag_events", &labels),
            lag_seconds: gauge!("walpost_consumer_lag_seconds", &labels),
            end_age_seconds: gauge!("walpost_consumer_log_end_age_seconds", &labels),
            parked_open_events: gauge!("walpost_consumer_parked_open_events", &labels),
            parked_held_events: gauge!("walpost_consumer_parked_held_events", &labels),
            handler_blocked_seconds: gauge!("walpost_consumer_handler_blocked_seconds", &labels),
        }
    }

    /// Of a partition that is not ours: sums over the members are right.
    pub(crate) fn clear(&self) {
        self.clear_counts();
        self.end_age_seconds.set(0.0);
    }

    /// The same, but that it is unknown is still told.
    pub(crate) fn clear_counts(&self) {
        self.lag_events.set(0.0);
        self.lag_seconds.set(0.0);
        self.parked_open_events.set(0.0);
        self.parked_held_events.set(0.0);
        self.handler_blocked_seconds.set(0.0);
    }
}

/// How many partitions of a topic are in each state.
pub(crate) struct StateGauges {
    topic: String,
    claiming: Gauge,
    running: Gauge,
    retrying: Gauge,
    halted: Gauge,
}

impl StateGauges {
    pub(crate) fn new(consumer: &str, topic: &str) -> Self {
        let of = |state: &str| {
            let labels = [
                ("consumer", consumer.to_owned()),
                ("topic", topic.to_owned()),
                ("state", state.to_owned()),
            ];
            gauge!("walpost_consumer_partitions", &labels)
        };
        Self {
            topic: topic.to_owned(),
            claiming: of("claiming"),
            running: of("running"),
            retrying: of("retrying"),
            halted: of("halted"),
        }
    }

    pub(crate) fn set(&self, status: &Status) {
        let mut counts = [0.0; 4];
        for (of, partition) in &status.partitions {
            let index = match partition.state {
                PartitionState::Claiming => 0,
                PartitionState::Running => 1,
                PartitionState::Retrying => 2,
                PartitionState::Halted { .. } => 3,
            };
            counts[index] += f64::from(u8::from(*of.topic == *self.topic));
        }
        let gauges = [&self.claiming, &self.running, &self.retrying, &self.halted];
        gauges.into_iter().zip(counts).for_each(|(gauge, count)| gauge.set(count));
    }

    pub(crate) fn clear(&self) {
        self.set(&Status::default());
    }
}
