use std::time::Duration;

use tokio::time::Instant;

/// When the next event may go, at most so many a second. Pure.
///
/// Events that had to wait for something else are not made up for: a burst
/// after a pause is what the rate is to prevent.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    next: Option<Instant>,
}

/// Events may be late by so much before that counts as a pause.
const SLACK: Duration = Duration::from_millis(100);

impl Pace {
    pub(super) fn new(rate_per_s: u32) -> Self {
        Self { interval: Duration::from_secs(1) / rate_per_s.max(1), next: None }
    }

    /// The moment at which an event may go; `None` for now.
    pub(super) fn waits_until(&self, now: Instant) -> Option<Instant> {
        self.next.filter(|next| *next > now)
    }

    /// An event has gone.
    pub(super) fn went(&mut self, now: Instant) {
        let earliest = now.checked_sub(SLACK).unwrap_or(now);
        let due = self.next.map_or(now, |next| next.max(earliest));
        self.next = Some(due + self.interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events that go within `limit`, if whoever sends looks at the clock every
    /// so often.
    fn sent(rate_per_s: u32, looks_every: Duration, limit: Duration) -> u32 {
        let start = Instant::now();
        let (mut pace, mut sent, mut at) = (Pace::new(rate_per_s), 0, Duration::ZERO);
        while at < limit {
            while pace.waits_until(start + at).is_none() {
                pace.went(start + at);
                sent += 1;
            }
            at += looks_every;
        }
        sent
    }

    #[test]
    fn no_more_go_than_the_rate_and_no_fewer() {
        for (rate, looks_every_ms) in [(1, 10), (50, 1), (1_000, 1), (1_000, 20), (50_000, 5)] {
            let count = sent(rate, Duration::from_millis(looks_every_ms), Duration::from_secs(10));
            assert!(count.abs_diff(10 * rate) <= 1 + rate / 20, "{rate}: {count}");
        }
    }

    #[test]
    fn a_pause_is_not_made_up_for() {
        let start = Instant::now();
        let mut pace = Pace::new(100);
        pace.went(start);
        let later = start + Duration::from_secs(60);
        let mut burst = 0;
        while pace.waits_until(later).is_none() {
            pace.went(later);
            burst += 1;
        }
        assert!(burst <= 12, "{burst}");
    }
}
