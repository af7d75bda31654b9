use std::time::{Duration, Instant};

use http::StatusCode;
use walpost_event::RetrySchedule;

use crate::{Failure, Outcome};

/// When nothing more is sent to a destination that is away, and when it is tried
/// again.
///
/// Each processor has its own: of several in several processes each counts for
/// itself, and each sends its own probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// So many failures one after another that speak of the destination open it;
    /// 10. Those are: no answer for whatever reason but ours, 5xx, and 429 without
    /// `retry-after`. Any other answer begins the count anew.
    pub failures: u32,
    /// How long nothing is sent then, before one delivery goes as a probe; 5 s, up
    /// to half of it less by chance. Each probe that fails doubles it.
    pub wait: Duration,
    /// At most; 5 min.
    pub wait_max: Duration,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { failures: 10, wait: Duration::from_secs(5), wait_max: Duration::from_secs(300) }
    }
}

impl Breaker {
    /// What is wrong with it, if anything.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        match self {
            Self { failures: 0, .. } => Some("after 0 failures it would never close; give it 1"),
            Self { wait, .. } if wait.is_zero() => Some("a wait of 0 would probe without end"),
            Self { wait, wait_max, .. } if wait > wait_max => Some("wait is longer than wait_max"),
            _ => None,
        }
    }
}

/// What an attempt says of its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// It is there.
    Well,
    /// It is away, or has too much to do.
    Ill,
    /// Nothing: it was not asked.
    Silent,
}

impl Signal {
    pub(crate) fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Answered { status, retry_after } => {
                // With a time it says itself when to come back, delivery by delivery.
                let throttles = status == StatusCode::TOO_MANY_REQUESTS && retry_after.is_none();
                if throttles || status.is_server_error() { Self::Ill } else { Self::Well }
            }
            Outcome::Unanswered { failure, .. } => match failure {
                Failure::Blocked | Failure::Request | Failure::LeaseExpired => Self::Silent,
                Failure::Timeout
                | Failure::Dns
                | Failure::Connect
                | Failure::Tls
                | Failure::Broken
                | Failure::Malformed
                | Failure::TooLarge => Self::Ill,
            },
        }
    }
}

/// How much may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    /// Whatever there is.
    Any,
    /// One delivery, as a probe.
    Probe,
    /// Nothing for so long, or until the probe has ended.
    Nothing(Option<Duration>),
}

/// A change that people are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Opened { wait: Duration },
    HalfOpened,
    Closed,
}

/// The states of a [`Breaker`]. Pure: time and randomness are arguments.
///
/// An attempt belongs to the era in which it was claimed, and what becomes of it
/// counts in that alone: whatever was on its way when the breaker opened neither
/// closes it nor opens it again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circuit {
    breaker: Breaker,
    state: State,
    era: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant, times: u32 },
    HalfOpen { is_probed: bool, times: u32 },
}

impl Circuit {
    /// A closed one.
    pub(crate) fn new(breaker: Breaker) -> Self {
        Self { breaker, state: State::Closed { failures: 0 }, era: 0 }
    }

    /// How much may be sent now.
    pub(crate) fn permit(&mut self, now: Instant) -> (Permit, Option<Change>) {
        match self.state {
            State::Closed { .. } => (Permit::Any, None),
            State::Open { until, .. } if now < until => (Permit::Nothing(Some(until - now)), None),
            State::Open { times, .. } => {
                self.enter(State::HalfOpen { is_probed: false, times });
                (Permit::Probe, Some(Change::HalfOpened))
            }
            State::HalfOpen { is_probed: false, .. } => (Permit::Probe, None),
            State::HalfOpen { is_probed: true, .. } => (Permit::Nothing(None), None),
        }
    }

    /// Something was claimed; what of it is to be told its end with.
    pub(crate) fn claimed(&mut self) -> u64 {
        if let State::HalfOpen { is_probed, .. } = &mut self.state {
            *is_probed = true;
        }
        self.era
    }

    /// For how long it is open, nothing more while it is half-open; `None` where all is sent.
    pub(crate) fn open_for(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Closed { .. } => None,
            State::Open { until, .. } => Some(until.saturating_duration_since(now)),
            State::HalfOpen { .. } => Some(Duration::ZERO),
        }
    }

    /// Now.
    pub(crate) fn era(&self) -> u64 {
        self.era
    }

    /// Whether nothing but probes is sent.
    #[cfg(test)]
    fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }

    /// An attempt of that era has ended.
    pub(crate) fn ended(
        &mut self,
        era: u64,
        signal: Signal,
        now: Instant,
        random: f64,
    ) -> Option<Change> {
        if era != self.era {
            return None;
        }
        match (self.state, signal) {
            (State::Closed { failures }, Signal::Ill) => {
                let failures = failures.saturating_add(1);
                self.state = State::Closed { failures };
                (failures >= self.breaker.failures).then(|| self.open(1, now, random))
            }
            (State::Closed { .. }, Signal::Well) => {
                self.state = State::Closed { failures: 0 };
                None
            }
            (State::HalfOpen { times, .. }, Signal::Ill) => {
                Some(self.open(times.saturating_add(1), now, random))
            }
            (State::HalfOpen { .. }, Signal::Well) => {
                self.enter(State::Closed { failures: 0 });
                Some(Change::Closed)
            }
            // It was no probe after all.
            (State::HalfOpen { times, .. }, Signal::Silent) => {
                self.state = State::HalfOpen { is_probed: false, times };
                None
            }
            (State::Closed { .. }, Signal::Silent) | (State::Open { .. }, _) => None,
        }
    }

    fn open(&mut self, times: u32, now: Instant, random: f64) -> Change {
        let waits = RetrySchedule::backoff(self.breaker.wait, self.breaker.wait_max);
        let wait = waits.delay(times, random).unwrap_or(self.breaker.wait_max);
        self.enter(State::Open { until: now + wait, times });
        Change::Opened { wait }
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.era += 1;
    }
}

#[cfg(test)]
mod tests {
    use walpost_testkit::property;

    use super::*;

    const BREAKER: Breaker =
        Breaker { failures: 3, wait: Duration::from_secs(10), wait_max: Duration::from_secs(30) };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn answered(status: u16, retry_after: Option<u64>) -> Outcome {
        let status = StatusCode::from_u16(status).unwrap();
        Outcome::Answered { status, retry_after: retry_after.map(seconds) }
    }

    /// One that has just opened.
    fn open(now: Instant) -> Circuit {
        let mut circuit = Circuit::new(BREAKER);
        let era = circuit.claimed();
        let changes = [1, 2, 3].map(|_| circuit.ended(era, Signal::Ill, now, 0.0));
        assert_eq!(changes, [None, None, Some(Change::Opened { wait: seconds(10) })]);
        circuit
    }

    #[test]
    fn failures_speak_of_the_destination_or_not() {
        for (status, retry_after, signal) in [
            (200, None, Signal::Well),
            (302, None, Signal::Well),
            (404, None, Signal::Well),
            (410, None, Signal::Well),
            (429, Some(9), Signal::Well),
            (429, None, Signal::Ill),
            (500, None, Signal::Ill),
            (503, Some(9), Signal::Ill),
        ] {
            assert_eq!(Signal::of(answered(status, retry_after)), signal, "{status}");
        }
        for (failure, signal) in [
            (Failure::Timeout, Signal::Ill),
            (Failure::Connect, Signal::Ill),
            (Failure::Dns, Signal::Ill),
            (Failure::Tls, Signal::Ill),
            (Failure::Broken, Signal::Ill),
            (Failure::Blocked, Signal::Silent),
            (Failure::Request, Signal::Silent),
            (Failure::LeaseExpired, Signal::Silent),
        ] {
            for sent in [true, false] {
                let outcome = Outcome::Unanswered { failure, sent };
                assert_eq!(Signal::of(outcome), signal, "{failure:?}");
            }
        }
    }

    #[test]
    fn only_failures_one_after_another_open_it() {
        let now = Instant::now();
        let mut circuit = Circuit::new(BREAKER);
        for signal in
            [Signal::Ill, Signal::Ill, Signal::Well, Signal::Ill, Signal::Silent, Signal::Ill]
        {
            assert_eq!(circuit.ended(0, signal, now, 0.0), None);
            assert_eq!(circuit.permit(now), (Permit::Any, None));
        }
        let opened = circuit.ended(0, Signal::Ill, now, 1.0);
        assert_eq!(opened, Some(Change::Opened { wait: seconds(5) }), "by chance half as long");
    }

    #[test]
    fn open_it_lets_one_probe_through_and_no_second_one() {
        let begun = Instant::now();
        let mut circuit = open(begun);
        let before = begun + seconds(10) - Duration::from_nanos(1);
        let left = Some(Duration::from_nanos(1));
        assert_eq!(circuit.permit(before), (Permit::Nothing(left), None));
        let now = begun + seconds(10);
        assert_eq!(circuit.permit(now), (Permit::Probe, Some(Change::HalfOpened)));
        // There was nothing to claim.
        assert_eq!(circuit.permit(now), (Permit::Probe, None));
        let probe = circuit.claimed();
        for after in [0, 1, 1_000] {
            assert_eq!(circuit.permit(now + seconds(after)), (Permit::Nothing(None), None));
        }
        // Stragglers change nothing.
        assert_eq!(circuit.ended(0, Signal::Well, now, 0.0), None);
        assert_eq!(circuit.ended(0, Signal::Ill, now, 0.0), None);
        assert!(circuit.is_open());
        assert_eq!(circuit.ended(probe, Signal::Well, now, 0.0), Some(Change::Closed));
        assert_eq!(circuit.permit(now), (Permit::Any, None));
    }

    #[test]
    fn each_probe_that_fails_doubles_the_wait_up_to_its_cap() {
        let mut now = Instant::now();
        let mut circuit = open(now);
        let mut last = 10;
        for wait in [20, 30, 30] {
            now += seconds(last);
            assert_eq!(circuit.permit(now).0, Permit::Probe);
            let probe = circuit.claimed();
            let opened = circuit.ended(probe, Signal::Ill, now, 0.0);
            assert_eq!(opened, Some(Change::Opened { wait: seconds(wait) }));
            assert_eq!(circuit.permit(now).0, Permit::Nothing(Some(seconds(wait))));
            last = wait;
        }
        // A probe that was never sent is none.
        now += seconds(last);
        let _ = circuit.permit(now);
        let unsent = circuit.claimed();
        assert_eq!(circuit.ended(unsent, Signal::Silent, now, 0.0), None);
        assert_eq!(circuit.permit(now), (Permit::Probe, None));
        let probe = circuit.claimed();
        assert_eq!(circuit.ended(probe, Signal::Well, now, 0.0), Some(Change::Closed));
        // From the beginning again.
        let era = circuit.claimed();
        let changes = [1, 2, 3].map(|_| circuit.ended(era, Signal::Ill, now, 0.0));
        assert_eq!(changes[2], Some(Change::Opened { wait: seconds(10) }));
    }

    #[test]
    fn bounds() {
        assert_eq!(Breaker::default().problem(), None);
        for wrong in [
            Breaker { failures: 0, ..BREAKER },
            Breaker { wait: Duration::ZERO, ..BREAKER },
            Breaker { wait_max: seconds(9), ..BREAKER },
        ] {
            assert!(wrong.problem().is_some(), "{wrong:?}");
        }
    }

    #[test]
    fn whatever_happens_there_is_one_probe_at_most_and_none_before_its_time() {
        property("breaker", Duration::from_millis(500), |random| {
            let mut now = Instant::now();
            let mut circuit = Circuit::new(BREAKER);
            // Eras of attempts under way, and what the breaker has said so far.
            let mut under_way: Vec<u64> = Vec::new();
            let (mut opened, mut failed) = (None::<Instant>, 0);
            for _ in 0..200 {
                now += seconds(random.below(8) as u64);
                let (permit, change) = circuit.permit(now);
                assert_eq!(circuit.is_open(), opened.is_some());
                match (permit, opened) {
                    (Permit::Any, until) => assert_eq!(until, None),
                    (_, None) => panic!("{permit:?} though it is closed"),
                    (Permit::Probe, Some(until)) => assert!(now >= until && failed >= 3),
                    (Permit::Nothing(Some(left)), Some(until)) => assert_eq!(now + left, until),
                    (Permit::Nothing(None), Some(_)) => {
                        assert_eq!(
                            under_way.iter().filter(|era| **era == circuit.era()).count(),
                            1
                        );
                    }
                }
                assert!(matches!(change, None | Some(Change::HalfOpened)));
                if permit == Permit::Any || (permit == Permit::Probe && random.chance(70)) {
                    under_way.push(circuit.claimed());
                }
                if under_way.is_empty() || random.chance(40) {
                    continue;
                }
                let era = under_way.swap_remove(random.below(under_way.len()));
                let counts = era == circuit.era();
                let signal =
                    [Signal::Well, Signal::Ill, Signal::Ill, Signal::Silent][random.below(4)];
                let change = circuit.ended(era, signal, now, 0.5);
                failed = match signal {
                    Signal::Ill if counts => failed + 1,
                    Signal::Well if counts => 0,
                    _ => failed,
                };
                match change {
                    None => {}
                    Some(Change::Opened { wait }) => {
                        assert!(counts && signal == Signal::Ill);
                        assert!(wait >= seconds(5) && wait <= seconds(30), "{wait:?}");
                        opened = Some(now + wait);
                    }
                    Some(Change::Closed) => {
                        assert!(counts && signal == Signal::Well);
                        opened = None;
                    }
                    Some(Change::HalfOpened) => panic!("by the end of an attempt"),
                }
            }
        });
    }
}
