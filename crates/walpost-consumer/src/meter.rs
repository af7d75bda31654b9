//! How far an assigned partition is behind: pure but for the lock, and the
//! gauges that say it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use crate::{TopicPartition, metrics::PartitionGauges};

/// How old what is known of the end of the log may be, in milliseconds, before
/// it is asked for: of a partition that is behind, or was just read to its end.
const ASK_MS: u64 = 5_000;
/// The same while nothing comes.
const ASK_IDLE_MS: u64 = 30_000;

/// What is known of one partition. Its task and Kafka's thread write it, once
/// for many events; the reporter reads it.
#[derive(Debug)]
pub(crate) struct Meter {
    known: Mutex<Known>,
}

impl Meter {
    pub(crate) fn new(now: Instant) -> Self {
        Self { known: Mutex::new(Known::assigned(now)) }
    }

    /// The partition is claimed, and its effects end before `next_offset`.
    pub(crate) fn claimed(&self, next_offset: i64) {
        self.known().claimed(next_offset);
    }

    /// The event that is next carries this time, in milliseconds since 1970.
    pub(crate) fn next_is_of(&self, timestamp_ms: Option<i64>) {
        self.known().next_ms = timestamp_ms;
    }

    /// Effects end before `next_offset` now.
    pub(crate) fn advanced(&self, next_offset: i64) {
        self.known().next_offset = Some(next_offset);
    }

    /// Kafka was asked where the log ends, or has not answered.
    pub(crate) fn asked(&self, end: Option<i64>, now: Instant) {
        self.known().asked(end, now);
    }

    /// What has come from Kafka ends before `offset`, and so does the log if
    /// `is_end`.
    pub(crate) fn read(&self, offset: i64, is_end: bool, now: Instant) {
        self.known().read(offset, is_end, now);
    }

    /// Nothing is read any more until further notice.
    pub(crate) fn unread(&self) {
        self.known().read_to_end = None;
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no code panics while it holds the lock")
    }
}

#[derive(Clone, Debug)]
struct Known {
    next_offset: Option<i64>,
    /// Of the event that is next, as it carries it.
    next_ms: Option<i64>,
    /// Behind the last record that was read.
    read_to: Option<i64>,
    /// While the log ended there when it was last read.
    read_to_end: Option<ReadToEnd>,
    /// Of the log, markers of transactions included.
    end: Option<i64>,
    heard_at: Instant,
    asked_at: Instant,
    is_asking: bool,
    /// Since when there are events of which no time is known.
    behind_since: Option<Instant>,
}

/// Behind the last record that can be read there may be markers of
/// transactions and aborted records, which never come.
#[derive(Clone, Copy, Debug)]
struct ReadToEnd {
    offset: i64,
    /// The end that was told first afterwards.
    end: Option<i64>,
}

/// What the gauges say.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lag {
    events: i64,
    seconds: f64,
    age_seconds: f64,
}

impl Known {
    fn assigned(now: Instant) -> Self {
        Self {
            next_offset: None,
            next_ms: None,
            read_to: None,
            read_to_end: None,
            end: None,
            heard_at: now,
            asked_at: now,
            is_asking: false,
            behind_since: None,
        }
    }

    fn claimed(&mut self, next_offset: i64) {
        if self.next_offset != Some(next_offset) {
            (self.next_offset, self.next_ms, self.behind_since) = (Some(next_offset), None, None);
        }
        (self.read_to, self.read_to_end) = (None, None);
    }

    fn asked(&mut self, end: Option<i64>, now: Instant) {
        self.is_asking = false;
        if let Some(end) = end {
            (self.end, self.heard_at) = (Some(end), now);
            if let Some(read) = &mut self.read_to_end {
                read.end.get_or_insert(end);
            }
        }
    }

    fn read(&mut self, offset: i64, is_end: bool, now: Instant) {
        self.read_to = Some(offset);
        self.read_to_end = is_end.then_some(ReadToEnd { offset, end: None });
        if is_end {
            self.heard_at = now;
        }
    }

    /// Events that are there and not applied, as far as is known.
    fn events(&self) -> i64 {
        let Some(next) = self.next_offset else { return 0 };
        let behind = match self.read_to_end {
            Some(ReadToEnd { offset, end }) => {
                // What was appended since and has not come: it should, at once.
                let grown = self.end.zip(end).map_or(0, |(now, then)| now - then);
                (offset - next).max(0) + grown.max(0)
            }
            None => self.end.max(self.read_to).map_or(0, |end| end - next),
        };
        behind.max(0)
    }

    fn lag(&mut self, now: Instant, now_ms: i64) -> Lag {
        let events = self.events();
        if events == 0 {
            (self.next_ms, self.behind_since) = (None, None);
        }
        let seconds = match (events, self.next_ms) {
            (0, _) => 0.0,
            (_, Some(next_ms)) => (now_ms - next_ms).max(0) as f64 / 1_000.0,
            (_, None) => {
                let since = *self.behind_since.get_or_insert(now);
                now.saturating_duration_since(since).as_secs_f64()
            }
        };
        let age_seconds = now.saturating_duration_since(self.heard_at).as_secs_f64();
        Lag { events, seconds, age_seconds }
    }

    /// Whether to ask for the end of the log now; the answer is waited for.
    fn is_to_be_asked(&mut self, now: Instant) -> bool {
        let is_idle = self.events() == 0 && self.read_to_end.is_some_and(|read| read.end.is_some());
        let limit = Duration::from_millis(if is_idle { ASK_IDLE_MS } else { ASK_MS });
        let last = self.heard_at.max(self.asked_at);
        let is_due = !self.is_asking && now.saturating_duration_since(last) >= limit;
        if is_due {
            (self.is_asking, self.asked_at) = (true, now);
        }
        is_due
    }
}

/// All assigned partitions of a consumer.
#[derive(Clone, Default)]
pub(crate) struct Meters {
    all: Arc<Mutex<BTreeMap<TopicPartition, Measured>>>,
}

struct Measured {
    meter: Arc<Meter>,
    gauges: PartitionGauges,
    /// When the group took the partition from a member that it did not hear.
    lost_at: Option<Instant>,
}

impl Meters {
    /// Of a partition that was assigned.
    pub(crate) fn add(&self, consumer: &str, of: &TopicPartition) -> (Arc<Meter>, PartitionGauges) {
        let meter = Arc::new(Meter::new(Instant::now()));
        let gauges = PartitionGauges::new(consumer, of);
        let (meter_too, gauges_too) = (Arc::clone(&meter), gauges.clone());
        let measured = Measured { meter: meter_too, gauges: gauges_too, lost_at: None };
        self.all().insert(of.clone(), measured);
        (meter, gauges)
    }

    /// The partition is another member's: it counts there.
    pub(crate) fn remove(&self, of: &TopicPartition) {
        let mut all = self.all();
        if let Some(measured) = all.remove(of) {
            measured.gauges.clear();
        }
    }

    /// The same of one that was lost: until Kafka answers again, nothing is
    /// known of it here.
    pub(crate) fn lose(&self, of: &TopicPartition, now: Instant) {
        if let Some(measured) = self.all().get_mut(of) {
            measured.gauges.clear_counts();
            measured.meter.unread();
            measured.lost_at = Some(now);
        }
    }

    /// The same of all.
    pub(crate) fn clear(&self) {
        let mut all = self.all();
        all.values().for_each(|measured| measured.gauges.clear());
        all.clear();
    }

    /// Sets the gauges.
    pub(crate) fn publish(&self, now: Instant, now_ms: i64) {
        self.all().retain(|_, Measured { meter, gauges, lost_at }| {
            let mut known = meter.known();
            let Lag { events, seconds, age_seconds } = known.lag(now, now_ms);
            match lost_at {
                Some(lost_at) if known.heard_at > *lost_at => {
                    gauges.clear();
                    return false;
                }
                Some(_) => {}
                None => {
                    gauges.lag_events.set(events as f64);
                    gauges.lag_seconds.set(seconds);
                }
            }
            gauges.end_age_seconds.set(age_seconds);
            true
        });
    }

    /// At most `max` partitions whose end is to be asked for.
    pub(crate) fn to_be_asked(
        &self,
        now: Instant,
        max: usize,
    ) -> Vec<(TopicPartition, Arc<Meter>)> {
        let all = self.all();
        let due = all.iter().filter(|(_, measured)| measured.meter.known().is_to_be_asked(now));
        due.take(max).map(|(of, measured)| (of.clone(), Arc::clone(&measured.meter))).collect()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, Measured>> {
        self.all.lock().expect("no code panics while it holds the lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_700_000_000_000;

    struct Clock(Instant);

    impl Clock {
        fn after(&self, seconds: u64) -> Instant {
            self.0 + Duration::from_secs(seconds)
        }
    }

    /// Claimed at 10, of a log that ends at 15.
    fn claimed() -> (Known, Clock) {
        let clock = Clock(Instant::now());
        let mut known = Known::assigned(clock.0);
        known.asked(Some(15), clock.0);
        known.claimed(10);
        (known, clock)
    }

    fn lag(known: &mut Known, now: Instant) -> (i64, f64) {
        let Lag { events, seconds, .. } = known.lag(now, NOW_MS);
        (events, seconds)
    }

    #[test]
    fn the_lag_is_what_is_there_and_not_applied_and_its_age_that_of_the_next_event() {
        let (mut known, clock) = claimed();
        known.next_ms = Some(NOW_MS - 2_500);
        assert_eq!(lag(&mut known, clock.0), (5, 2.5));
        known.read(20, false, clock.0);
        assert_eq!(lag(&mut known, clock.0), (10, 2.5), "what was read is there");
        known.next_offset = Some(18);
        assert_eq!(lag(&mut known, clock.0), (2, 2.5));
        known.next_ms = Some(NOW_MS + 9);
        assert_eq!(lag(&mut known, clock.0), (2, 0.0), "a clock that is ahead is no lag");
    }

    #[test]
    fn at_the_end_the_lag_is_none_whatever_markers_are_behind_it() {
        let (mut known, clock) = claimed();
        known.read(14, true, clock.0);
        assert_eq!(lag(&mut known, clock.0).0, 4);
        known.next_offset = Some(14);
        assert_eq!(lag(&mut known, clock.0), (0, 0.0), "a marker at 14 never comes");
        known.asked(Some(15), clock.after(5));
        assert_eq!(lag(&mut known, clock.after(5)), (0, 0.0));
        known.asked(Some(18), clock.after(35));
        assert_eq!(lag(&mut known, clock.after(35)), (3, 0.0), "these should have come");
        assert_eq!(lag(&mut known, clock.after(39)), (3, 4.0));
        known.read(14, true, clock.after(40));
        assert_eq!(lag(&mut known, clock.after(40)), (0, 0.0), "they were aborted");
    }

    #[test]
    fn a_partition_that_is_not_read_is_behind_by_what_kafka_says() {
        let (mut known, clock) = claimed();
        known.next_offset = Some(15);
        known.read(15, true, clock.0);
        known.read_to_end = None;
        assert_eq!(lag(&mut known, clock.0), (0, 0.0));
        known.asked(Some(20), clock.after(5));
        assert_eq!(lag(&mut known, clock.after(5)), (5, 0.0));
        assert_eq!(lag(&mut known, clock.after(65)), (5, 60.0), "nobody knows its time");
        known.claimed(15);
        assert_eq!(lag(&mut known, clock.after(66)), (5, 61.0), "another claim mends nothing");
        known.claimed(3);
        assert_eq!(lag(&mut known, clock.after(66)), (17, 0.0), "a reset begins anew");
    }

    #[test]
    fn without_an_answer_the_lag_stays_and_what_is_known_ages() {
        let (mut known, clock) = claimed();
        assert!(!known.is_to_be_asked(clock.after(4)));
        assert!(known.is_to_be_asked(clock.after(5)));
        assert!(!known.is_to_be_asked(clock.after(60)), "there is no answer yet");
        known.asked(None, clock.after(60));
        let after = known.lag(clock.after(60), NOW_MS);
        assert_eq!((after.events, after.age_seconds), (5, 60.0));
        assert!(known.is_to_be_asked(clock.after(60)));
        known.asked(Some(16), clock.after(61));
        assert_eq!(known.lag(clock.after(61), NOW_MS).age_seconds, 0.0);
    }

    #[test]
    fn an_idle_partition_is_asked_about_rarely() {
        let (mut known, clock) = claimed();
        known.next_offset = Some(15);
        known.read(15, true, clock.0);
        assert!(known.is_to_be_asked(clock.after(5)), "what is behind the last record?");
        known.asked(Some(15), clock.after(5));
        assert!(!known.is_to_be_asked(clock.after(34)));
        assert!(known.is_to_be_asked(clock.after(35)));
    }

    #[test]
    fn before_the_first_claim_there_is_no_lag_to_tell() {
        let now = Instant::now();
        let mut known = Known::assigned(now);
        known.asked(Some(15), now);
        assert_eq!(lag(&mut known, now), (0, 0.0));
    }
}
