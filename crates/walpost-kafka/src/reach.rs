//! Whether brokers answer, for all clients of a connector, and when to tell it.
//! librdkafka says several times a second that none does, and each session has a
//! client of its own.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::deliveries::lock;

/// How often a silence that goes on is told again.
const AGAIN: Duration = Duration::from_secs(30);
/// Between the tellings of two silences, which may be one: a client may get no
/// connection while another still has its own.
const APART: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// The same as in `silence`, for whoever asks at each record.
    is_silent: AtomicBool,
    silence: Mutex<Silence>,
}

/// Pure.
#[derive(Debug, Default)]
struct Silence {
    /// Since when no broker has answered.
    since: Option<Instant>,
    /// When one was told, this one or one before.
    told: Option<Instant>,
}

impl Reach {
    /// No broker answers. Whether that is to be told now; then it counts as done.
    pub(crate) fn silent(&self) -> bool {
        let mut silence = lock(&self.silence);
        self.is_silent.store(true, Ordering::Relaxed);
        silence.goes_on(Instant::now())
    }

    /// A broker has answered. For how long none had, if that was told.
    pub(crate) fn answered(&self) -> Option<Duration> {
        if !self.is_silent.load(Ordering::Relaxed) {
            return None;
        }
        let mut silence = lock(&self.silence);
        self.is_silent.store(false, Ordering::Relaxed);
        silence.ends(Instant::now())
    }
}

impl Silence {
    fn goes_on(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let pause = if self.is_told(since) { AGAIN } else { APART };
        let is_due = self.told.is_none_or(|told| now.duration_since(told) >= pause);
        if is_due {
            self.told = Some(now);
        }
        is_due
    }

    fn ends(&mut self, now: Instant) -> Option<Duration> {
        let since = self.since.take()?;
        self.is_told(since).then(|| now.duration_since(since))
    }

    fn is_told(&self, since: Instant) -> bool {
        self.told.is_some_and(|told| told >= since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says six times a second that no broker answers; at which seconds it is told.
    fn told(silence: &mut Silence, start: Instant, seconds: u64) -> Vec<u64> {
        let ticks = (0..seconds * 6).map(|tick| Duration::from_millis(tick * 1_000 / 6));
        ticks.filter(|at| silence.goes_on(start + *at)).map(|at| at.as_secs()).collect()
    }

    #[test]
    fn a_silence_is_told_at_once_and_then_at_a_bounded_rate_and_its_end_once() {
        let (mut silence, start) = (Silence::default(), Instant::now());
        assert_eq!(silence.ends(start), None);
        assert_eq!(told(&mut silence, start, 70), [0, 30, 60]);
        let end = start + Duration::from_secs(70);
        assert_eq!(silence.ends(end), Some(Duration::from_secs(70)));
        assert_eq!(silence.ends(end), None);
        assert_eq!(told(&mut silence, end, 20), [0], "it is another one");
    }

    #[test]
    fn silences_in_quick_succession_are_told_at_a_bounded_rate() {
        let (mut silence, start) = (Silence::default(), Instant::now());
        let (mut begun, mut ended) = (0, 0);
        for tick in 0..600 {
            let now = start + Duration::from_millis(tick * 100);
            begun += usize::from(silence.goes_on(now));
            ended += usize::from(silence.ends(now).is_some());
        }
        assert_eq!((begun, ended), (12, 12));
    }
}
