use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// How long to wait before each further attempt.
///
/// Pure data: jitter is an argument, so that a test or a simulation decides;
/// everyone else draws it with [`jitter`](jitter()).
///
/// ```
/// use std::time::Duration;
/// use walpost_event::RetrySchedule;
///
/// let schedule = RetrySchedule::new([1, 5, 30].map(Duration::from_secs));
/// assert_eq!(schedule.delay(1, 0.0), Some(Duration::from_secs(1)));
/// assert_eq!(schedule.delay(3, 0.0), Some(Duration::from_secs(30)));
/// assert_eq!(schedule.delay(4, 0.0), None);
///
/// let endless = schedule.repeating_last();
/// assert_eq!(endless.delay(400, 0.0), Some(Duration::from_secs(30)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetrySchedule {
    delays: Vec<Duration>,
    repeat_last: bool,
}

impl RetrySchedule {
    /// One delay per retry; after the last there is no further attempt.
    pub fn new(delays: impl Into<Vec<Duration>>) -> Self {
        Self { delays: delays.into(), repeat_last: false }
    }

    /// The same, but the last delay repeats for ever.
    #[must_use]
    pub fn repeating_last(mut self) -> Self {
        self.repeat_last = true;
        self
    }

    /// Doubling from `first` up to `cap`, for ever: for infrastructure that
    /// comes back, such as a database or a broker.
    pub fn backoff(first: Duration, cap: Duration) -> Self {
        let mut delays = vec![first.min(cap)];
        while let Some(last) = delays.last().copied().filter(|last| *last < cap && !last.is_zero())
        {
            delays.push((last * 2).min(cap));
        }
        Self { delays, repeat_last: true }
    }

    /// The wait before attempt `failures + 1`, after `failures` failed ones
    /// (from 1), shortened by up to half: `jitter` 0 takes nothing off, 1
    /// takes half. `None` when no attempt is left.
    pub fn delay(&self, failures: u32, jitter: f64) -> Option<Duration> {
        let index = failures.saturating_sub(1) as usize;
        let delay = match self.delays.get(index) {
            Some(delay) => *delay,
            None if self.repeat_last => *self.delays.last()?,
            None => return None,
        };
        Some(delay.mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0))
    }
}

/// A random number from 0 up to 1, another one with each call: so that those
/// who failed at once do not all come back at once.
///
/// Not for secrets. The argument of [`RetrySchedule::delay`].
pub fn jitter() -> f64 {
    // The keys of each state are random; 53 bits fill a float.
    let bits = RandomState::new().hash_one(()) >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_fills_its_range_and_does_not_leave_it() {
        let drawn: Vec<f64> = (0..1_000).map(|_| jitter()).collect();
        assert!(drawn.iter().all(|jitter| (0.0..1.0).contains(jitter)));
        for tenth in 0..10 {
            let from = f64::from(tenth) / 10.0;
            assert!(drawn.iter().any(|jitter| (from..from + 0.1).contains(jitter)), "{from}");
        }
    }

    #[test]
    fn backoff_doubles_to_its_cap_and_stays() {
        let schedule = RetrySchedule::backoff(Duration::from_millis(100), Duration::from_secs(1));
        let millis: Vec<u128> =
            (1..8).map(|n| schedule.delay(n, 0.0).unwrap().as_millis()).collect();
        assert_eq!(millis, [100, 200, 400, 800, 1000, 1000, 1000]);
    }

    #[test]
    fn jitter_shortens_by_at_most_half() {
        let schedule = RetrySchedule::new([Duration::from_secs(10)]);
        assert_eq!(schedule.delay(1, 1.0), Some(Duration::from_secs(5)));
        assert_eq!(schedule.delay(1, 7.0), Some(Duration::from_secs(5)));
        assert_eq!(schedule.delay(1, 0.5), Some(Duration::from_millis(7500)));
    }

    #[test]
    fn an_empty_schedule_never_retries() {
        assert_eq!(RetrySchedule::new([]).repeating_last().delay(1, 0.0), None);
    }
}
