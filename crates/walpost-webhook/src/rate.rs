use std::time::{Duration, Instant};

/// How much a destination is sent at most.
///
/// ```
/// use walpost_webhook::Rate;
///
/// // Ten a second; up to 20 at once behind a pause.
/// let rate = Rate { burst: 20, ..Rate::per_second(10.0) };
/// # let _ = rate;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Attempts in a second on the average, from 0.001 to 1,000,000.
    pub per_second: f64,
    /// Attempts that are made at once where none were for a while; 1 at least.
    pub burst: u32,
}

impl Rate {
    /// That many in a second, and one at once for each whole one of them.
    pub fn per_second(per_second: f64) -> Self {
        // A cast of a float stays within the bounds of the number.
        Self { per_second, burst: (per_second as u32).max(1) }
    }

    /// What is wrong with it, if anything.
    pub(crate) fn problem(&self) -> Option<String> {
        if !(0.001..=1_000_000.0).contains(&self.per_second) {
            return Some(format!("{} a second is not within 0.001 to 1000000", self.per_second));
        }
        (self.burst == 0).then(|| "a burst of 0 would let nothing pass; give it 1".to_owned())
    }
}

/// The tokens of a [`Rate`]: as many as its burst, and each that was taken comes
/// back in its turn. Between any two moments no more are taken than the burst and
/// what the rate gives meanwhile.
///
/// Pure: the time is an argument. Kept as the moment at which the bucket is full
/// again (the generic cell rate algorithm of ITU-T I.371), so that nothing is lost
/// in rounding however often it is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    /// Between one token and the next.
    interval: Duration,
    burst: u32,
    full_at: Instant,
}

impl Bucket {
    /// A full one.
    pub(crate) fn new(rate: Rate, now: Instant) -> Self {
        let interval = Duration::from_secs_f64(1.0 / rate.per_second);
        Self { interval, burst: rate.burst, full_at: now }
    }

    /// How many there are when it is full.
    pub(crate) fn most(&self) -> u32 {
        self.burst
    }

    /// How many tokens there are.
    pub(crate) fn tokens(&self, now: Instant) -> u32 {
        let missing = self.full_at.saturating_duration_since(now).as_nanos();
        let missing = missing.div_ceil(self.interval.as_nanos());
        self.burst.saturating_sub(u32::try_from(missing).unwrap_or(u32::MAX))
    }

    /// Takes tokens, of which there are so many.
    pub(crate) fn take(&mut self, now: Instant, tokens: u32) {
        self.full_at = self.full_at.max(now) + self.interval * tokens;
    }

    /// How long until there are so many tokens, of which there can be.
    pub(crate) fn wait(&self, now: Instant, tokens: u32) -> Duration {
        let others = self.interval * self.burst.saturating_sub(tokens);
        self.full_at.saturating_duration_since(now).saturating_sub(others)
    }
}

#[cfg(test)]
mod tests {
    use walpost_testkit::property;

    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_burst_goes_at_once_and_then_each_in_its_turn() {
        let begun = Instant::now();
        let rate = Rate { per_second: 10.0, burst: 3 };
        let mut bucket = Bucket::new(rate, begun);
        assert_eq!((bucket.tokens(begun), bucket.wait(begun, 3)), (3, Duration::ZERO));
        bucket.take(begun, 3);
        for (after, tokens) in [(0, 0), (99, 0), (100, 1), (299, 2), (300, 3), (9_000, 3)] {
            assert_eq!(bucket.tokens(begun + millis(after)), tokens, "{after} ms");
        }
        let waits = [1, 2, 3].map(|tokens| bucket.wait(begun + millis(50), tokens));
        assert_eq!(waits, [50, 150, 250].map(millis));
        // A long pause gives no more than the burst.
        let late = begun + millis(9_000);
        bucket.take(late, 3);
        assert_eq!(bucket.tokens(late), 0);
    }

    #[test]
    fn presets_and_bounds() {
        assert_eq!(Rate::per_second(7.9).burst, 7);
        assert_eq!(Rate::per_second(0.5), Rate { per_second: 0.5, burst: 1 });
        for per_second in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9] {
            assert!(Rate { per_second, burst: 1 }.problem().is_some(), "{per_second}");
        }
        assert!(Rate { burst: 0, ..Rate::per_second(1.0) }.problem().is_some());
        for per_second in [0.001, 0.5, 1e6] {
            assert_eq!(Rate::per_second(per_second).problem(), None);
        }
    }

    #[test]
    fn between_any_two_moments_no_more_pass_than_burst_and_rate_give() {
        property("rate", millis(500), |random| {
            let per_second = [0.5, 3.0, 10.0, 333.3, 20_000.0][random.below(5)];
            let rate = Rate { per_second, burst: 1 + random.below(20) as u32 };
            let mut now = Instant::now();
            let begun = now;
            let mut bucket = Bucket::new(rate, now);
            let mut taken: Vec<(f64, u32)> = Vec::new();
            for _ in 0..40 {
                now += match random.chance(50) {
                    true => bucket.wait(now, 1 + random.below(rate.burst as usize) as u32),
                    false => Duration::from_secs_f64(random.below(300) as f64 / 100.0 / per_second),
                };
                let most = bucket.tokens(now);
                let tokens = most.min(random.below(rate.burst as usize + 1) as u32);
                bucket.take(now, tokens);
                assert_eq!(bucket.tokens(now), most - tokens);
                taken.push(((now - begun).as_secs_f64(), tokens));
            }
            for (first, (from, _)) in taken.iter().enumerate() {
                let mut sum = 0;
                for (until, tokens) in &taken[first..] {
                    sum += tokens;
                    let most = f64::from(rate.burst) + (until - from) * per_second;
                    // A nanosecond is lost in each interval at most.
                    let slack = 1e-4 * f64::from(sum) + 1e-6;
                    assert!(f64::from(sum) <= most + slack, "{sum} {most} {rate:?}");
                }
            }
            let wait = bucket.wait(now, rate.burst);
            assert_eq!(bucket.tokens(now + wait), rate.burst, "what is waited for is there");
        });
    }
}
