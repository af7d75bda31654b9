use std::time::Duration;

const SECOND: u64 = 1;
const MINUTE: u64 = 60;
const HOUR: u64 = 3_600;
/// Longer waits are cut to this, so that no time overflows.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(366 * 24 * HOUR);

/// How long to wait before each further attempt, and how many there are.
///
/// Pure data: randomness is an argument.
///
/// ```
/// use std::time::Duration;
/// use walpost_webhook::Schedule;
///
/// let schedule = Schedule::new([1, 5].map(Duration::from_secs)).retry_limit(3);
/// let waits: Vec<_> = (1..=4).map(|failures| schedule.wait(failures, 0.5)).collect();
/// let seconds = |seconds| Some(Duration::from_secs(seconds));
/// assert_eq!(waits, [seconds(1), seconds(5), seconds(5), None]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    waits: Vec<Duration>,
    retry_limit: u32,
    jitter: f64,
    cap: Duration,
}

impl Schedule {
    /// One wait for each retry, the first behind the first attempt; without
    /// jitter.
    pub fn new(waits: impl IntoIterator<Item = Duration>) -> Self {
        let waits: Vec<Duration> = waits.into_iter().map(|wait| wait.min(WAIT_MAX)).collect();
        let retry_limit = u32::try_from(waits.len()).unwrap_or(u32::MAX);
        Self { waits, retry_limit, jitter: 0.0, cap: WAIT_MAX }
    }

    /// The same wait before each of so many retries.
    pub fn fixed(wait: Duration, retry_limit: u32) -> Self {
        Self::new([wait]).retry_limit(retry_limit)
    }

    /// For one system and another of the same owner: 5 s, 30 s, 5 min, 30 min
    /// and three times 4 h, exactly; eight attempts in 12 h 35 min 35 s.
    pub fn erp() -> Self {
        let (seconds, minutes, hours) = ([5, 30], [5, 30], [4, 4, 4]);
        let seconds = seconds.map(|number| number * SECOND);
        let minutes = minutes.map(|number| number * MINUTE);
        let waits = seconds.into_iter().chain(minutes).chain(hours.map(|number| number * HOUR));
        Self::new(waits.map(Duration::from_secs))
    }

    /// The example of Standard Webhooks, "Deliverability and reliability": ten
    /// attempts in 75 h 35 min 5 s, each wait a tenth shorter or longer.
    pub fn standard_webhooks() -> Self {
        let (minutes, hours) = ([5, 30], [2, 5, 10, 14, 20, 24]);
        let minutes = minutes.map(|number| number * MINUTE);
        let waits = [5 * SECOND].into_iter().chain(minutes);
        let waits = waits.chain(hours.map(|number| number * HOUR));
        Self::new(waits.map(Duration::from_secs)).jitter(0.1)
    }

    /// How many attempts there are behind the first; with more than there are
    /// waits the last one repeats. Without any wait there is no retry.
    #[must_use]
    pub fn retry_limit(mut self, retry_limit: u32) -> Self {
        self.retry_limit = retry_limit;
        self
    }

    /// By how much of it a wait is shorter or longer at most, from 0 to 1: so
    /// that those who failed at once do not all come back at once.
    #[must_use]
    pub fn jitter(mut self, part: f64) -> Self {
        self.jitter = if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) };
        self
    }

    /// The longest wait, jitter included; a year unless set.
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap.min(WAIT_MAX);
        self
    }

    /// What one delivery says of itself, where it does: how many retries, and one
    /// wait before each.
    #[must_use]
    pub fn overridden(&self, retry_limit: Option<u32>, wait: Option<Duration>) -> Self {
        let limit = retry_limit.unwrap_or(self.retry_limit);
        match wait {
            Some(wait) => Self::fixed(wait, limit).jitter(self.jitter).cap(self.cap),
            None => self.clone().retry_limit(limit),
        }
    }

    /// Attempts in all; at least one.
    pub fn attempts(&self) -> u32 {
        let retries = if self.waits.is_empty() { 0 } else { self.retry_limit };
        retries.saturating_add(1)
    }

    /// The wait behind `failures` failed attempts (from 1), in whole
    /// microseconds, which PostgreSQL has; `None` when no attempt is left.
    /// `random` from 0 to 1 takes it from the shortest to the longest.
    pub fn wait(&self, failures: u32, random: f64) -> Option<Duration> {
        let retry = failures.max(1);
        if retry > self.retry_limit {
            return None;
        }
        let index = retry as usize - 1;
        let wait = *self.waits.get(index).or(self.waits.last())?;
        let random = if random.is_nan() { 0.5 } else { random.clamp(0.0, 1.0) };
        let wait = wait.mul_f64(1.0 + self.jitter * (2.0 * random - 1.0));
        let micros = wait.min(self.cap).as_micros();
        Some(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
    }
}

/// How a processor takes deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How often to look for deliveries where nothing else says that there are.
    pub poll: Duration,
    /// How many to claim at once.
    pub batch: u32,
    /// How many are on their way at once.
    pub concurrency: u32,
}

impl Pace {
    /// Every 5 s up to 100, as a scheduled job does.
    pub fn scheduled() -> Self {
        Self { poll: Duration::from_secs(5), batch: 100, concurrency: 20 }
    }

    /// Every 200 ms, 20 at once, as a loop does.
    pub fn looping() -> Self {
        Self { poll: Duration::from_millis(200), batch: 20, concurrency: 20 }
    }
}

impl Default for Pace {
    /// Every 200 ms, up to 100 in one claim, 20 on their way at once.
    fn default() -> Self {
        Self { batch: 100, ..Self::looping() }
    }
}

#[cfg(test)]
mod tests {
    use walpost_testkit::{Seeded, property};

    use super::*;

    fn seconds(schedule: &Schedule, random: f64) -> Vec<u64> {
        (1..).map_while(|failures| schedule.wait(failures, random)).map(|w| w.as_secs()).collect()
    }

    #[test]
    fn the_presets_are_what_they_say() {
        let erp = Schedule::erp();
        for random in [0.0, 0.3, 1.0] {
            assert_eq!(seconds(&erp, random), [5, 30, 300, 1_800, 14_400, 14_400, 14_400]);
        }
        assert_eq!(erp.attempts(), 8);
        let total: u64 = seconds(&erp, 0.0).iter().sum();
        assert_eq!(total, 12 * HOUR + 35 * MINUTE + 35);
        let standard = Schedule::standard_webhooks();
        let waits = seconds(&standard, 0.5);
        assert_eq!(waits, [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400]);
        assert_eq!(waits.iter().sum::<u64>(), 75 * HOUR + 35 * MINUTE + 5);
        assert_eq!(standard.attempts(), 10);
        assert_eq!(standard.wait(2, 0.0), Some(Duration::from_secs(270)));
        assert_eq!(standard.wait(2, 1.0), Some(Duration::from_secs(330)));
        let scheduled = Pace::scheduled();
        assert_eq!((scheduled.poll, scheduled.batch), (Duration::from_secs(5), 100));
        let looping = Pace::looping();
        assert_eq!((looping.poll, looping.concurrency), (Duration::from_millis(200), 20));
    }

    #[test]
    fn the_limit_counts_retries_behind_the_first_attempt() {
        let once = Schedule::fixed(Duration::from_secs(1), 0);
        assert_eq!((once.attempts(), once.wait(1, 0.5)), (1, None));
        let twice = Schedule::fixed(Duration::from_secs(1), 1);
        assert_eq!((twice.attempts(), seconds(&twice, 0.5)), (2, vec![1]));
        assert_eq!(seconds(&Schedule::erp().retry_limit(2), 0.5), [5, 30]);
        assert_eq!(Schedule::new([]).retry_limit(9).attempts(), 1);
        assert_eq!(Schedule::new([]).retry_limit(9).wait(1, 0.5), None);
        assert_eq!(Schedule::erp().retry_limit(u32::MAX).attempts(), u32::MAX);
    }

    #[test]
    fn a_delivery_may_have_its_own_limit_and_wait() {
        let own = |limit, wait: Option<u64>| {
            seconds(&Schedule::erp().overridden(limit, wait.map(Duration::from_secs)), 0.5)
        };
        assert_eq!(own(None, None), seconds(&Schedule::erp(), 0.5));
        assert_eq!(own(Some(0), None), [0; 0]);
        assert_eq!(own(Some(2), None), [5, 30]);
        assert_eq!(own(Some(2), Some(9)), [9, 9]);
        assert_eq!(own(None, Some(9)), [9; 7]);
    }

    fn any(random: &mut Seeded) -> Schedule {
        let mut wait = 0;
        let mut waits = Vec::new();
        for _ in 0..=random.below(12) {
            wait += random.number() % (1 << random.below(40));
            waits.push(Duration::from_micros(wait));
        }
        let schedule = Schedule::new(waits).retry_limit(random.below(20) as u32);
        let schedule = schedule.jitter(random.below(101) as f64 / 100.0);
        if random.chance(50) { schedule } else { schedule.cap(Duration::from_millis(500)) }
    }

    #[test]
    fn any_wait_is_bounded_and_its_jitter_stays_inside_its_band() {
        property("waits", Duration::from_millis(500), |random| {
            let schedule = any(random);
            let retries = (1..).take_while(|n| schedule.wait(*n, 0.5).is_some()).count();
            assert_eq!(retries as u32 + 1, schedule.attempts());
            for failures in 1..schedule.attempts() {
                let of = |random: f64| schedule.wait(failures, random).unwrap();
                let drawn = of(random.number() as f64 / u64::MAX as f64);
                assert!(of(0.0) <= drawn && drawn <= of(1.0), "{failures} {schedule:?}");
                assert!(of(1.0) <= schedule.cap, "{failures} {schedule:?}");
                let index = (failures as usize - 1).min(schedule.waits.len() - 1);
                let plain = schedule.waits[index].as_secs_f64();
                let (least, most) = (1.0 - schedule.jitter, 1.0 + schedule.jitter);
                let cap = schedule.cap.as_secs_f64();
                let is_near = |a: f64, b: f64| (a - b).abs() < 2e-6 + b * 1e-9;
                assert!(is_near(of(0.0).as_secs_f64(), (plain * least).min(cap)), "{schedule:?}");
                assert!(is_near(of(1.0).as_secs_f64(), (plain * most).min(cap)), "{schedule:?}");
                let micros = drawn.as_nanos() % 1_000;
                assert_eq!(micros, 0);
            }
        });
    }

    #[test]
    fn waits_that_grow_never_shrink_at_the_same_randomness() {
        property("monotone", Duration::from_millis(300), |random| {
            let schedule = any(random);
            let drawn = random.number() as f64 / u64::MAX as f64;
            let waits: Vec<_> = (1..).map_while(|n| schedule.wait(n, drawn)).collect();
            assert!(waits.is_sorted(), "{waits:?} {schedule:?}");
        });
    }

    #[test]
    fn no_time_overflows() {
        let schedule = Schedule::fixed(Duration::MAX, u32::MAX).jitter(f64::INFINITY);
        assert_eq!(schedule.wait(u32::MAX, f64::INFINITY), Some(WAIT_MAX));
        assert_eq!(schedule.wait(1, f64::NAN), Some(WAIT_MAX));
        assert_eq!(Schedule::erp().jitter(f64::NAN).wait(1, 0.9), Some(Duration::from_secs(5)));
    }
}
