//! What keeps dead letters from being written, said now and then.

use std::time::Duration;

use metrics::{Counter, counter};
use tokio::time::Instant;

/// Between two lines that say the same.
const AGAIN: Duration = Duration::from_secs(30);

pub(super) struct Trouble {
    topic: String,
    failures: Counter,
    said: Option<(String, Instant)>,
}

impl Trouble {
    pub(super) fn new(pipeline: &str, topic: &str) -> Self {
        let label = [("pipeline", pipeline.to_owned())];
        let failures = counter!("walpost_dead_letter_failures_total", &label);
        Self { topic: topic.to_owned(), failures, said: None }
    }

    /// Counts it, and says it unless it was said just before.
    pub(super) fn tell(&mut self, reason: &str) {
        self.failures.increment(1);
        let is_told =
            self.said.as_ref().is_some_and(|(said, when)| said == reason && when.elapsed() < AGAIN);
        if is_told {
            return;
        }
        self.said = Some((reason.to_owned(), Instant::now()));
        tracing::warn!(
            topic = self.topic,
            reason,
            "dead letters cannot be written for the moment; their events are parked, and the \
             pipeline goes on"
        );
    }

    /// A letter was written.
    pub(super) fn over(&mut self) {
        if self.said.take().is_some() {
            tracing::info!(topic = self.topic, "dead letters are written again");
        }
    }
}
