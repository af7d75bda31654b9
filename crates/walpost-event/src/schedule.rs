use std::time::Duration;

/// How long to wait before each further attempt.
///
/// Pure data: jitter is an argument, so that a test or a simulation decides.
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

#[cfg(test)]
mod tests {
    use super::*;

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
