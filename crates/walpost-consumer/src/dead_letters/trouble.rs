//! What keeps dead letters from being written, said once.

use std::time::{Duration, Instant};

use metrics::Counter;

use crate::{metrics::DeadLetterMetrics, tell::tell};

/// Least time between two lines that say different things: they may alternate.
const OTHER_MS: u64 = 30_000;

/// What was said last.
pub(super) struct Trouble {
    topic: String,
    failures: Counter,
    said: Option<(String, Instant)>,
}

impl Trouble {
    pub(super) fn new(topic: &str, metrics: &DeadLetterMetrics) -> Self {
        Self { topic: topic.to_owned(), failures: metrics.failures.clone(), said: None }
    }

    /// Counts it, and says it if that is news.
    pub(super) fn tell(&mut self, reason: &str) {
        self.failures.increment(1);
        let now = Instant::now();
        if !is_news(self.said.as_ref(), reason, now) {
            return;
        }
        self.said = Some((reason.to_owned(), now));
        let topic = &self.topic;
        tell!(
            warn,
            { topic = topic, reason = reason },
            "dead letters cannot be written for the moment, trying again; their events are \
             parked, and the consumer goes on"
        );
    }

    /// A letter was written.
    pub(super) fn over(&mut self) {
        if self.said.take().is_some() {
            let topic = &self.topic;
            tell!(info, { topic = topic }, "dead letters are written again");
        }
    }
}

fn is_news(said: Option<&(String, Instant)>, reason: &str, now: Instant) -> bool {
    said.is_none_or(|(before, at)| {
        before != reason && now.duration_since(*at) >= Duration::from_millis(OTHER_MS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_and_others_at_a_bounded_rate() {
        let start = Instant::now();
        let later = start + Duration::from_secs(3_600);
        let said = Some(("gone".to_owned(), start));
        assert!(is_news(None, "gone", start));
        assert!(!is_news(said.as_ref(), "gone", later));
        assert!(!is_news(said.as_ref(), "denied", start + Duration::from_secs(29)));
        assert!(is_news(said.as_ref(), "denied", start + Duration::from_secs(30)));
    }
}
