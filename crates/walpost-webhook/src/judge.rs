use std::time::Duration;

use http::StatusCode;

use crate::{Failure, Outcome, Schedule, schedule::WAIT_MAX};

/// Longest wait that a receiver may ask for, unless set.
const RETRY_AFTER_CAP: Duration = Duration::from_secs(24 * 3_600);

/// What is done about attempts that fail.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// When to try again.
    pub schedule: Schedule,
    /// What becomes of a delivery of which nobody knows whether it had its effect.
    pub on_unknown_outcome: OnUnknownOutcome,
    /// Longest wait that a receiver may ask for by `retry-after`; a year at most.
    pub retry_after_cap: Duration,
}

/// What becomes of a delivery whose outcome is unknown: see
/// [`Outcome::is_unknown`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnknownOutcome {
    /// It is sent again, with the same key: for receivers that know the key.
    #[default]
    Resend,
    /// It waits for somebody who finds out: for mail, and for calls that would
    /// have their effect twice.
    Hold,
}

/// What becomes of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has arrived.
    Delivered,
    /// It is sent again.
    Retry {
        /// How long from now.
        wait: Duration,
        /// Whether the receiver has too much to do, and should be sent less.
        throttle: bool,
    },
    /// No attempt is left.
    Failed,
    /// Nobody knows whether it has arrived: it waits as `unknown`.
    Held,
    /// The receiver wants nothing more: its destination is disabled, and what is
    /// for it is held.
    Disable,
}

impl RetryPolicy {
    /// By this schedule; what is unknown is sent again, and a receiver may ask
    /// for a day.
    pub fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            on_unknown_outcome: OnUnknownOutcome::Resend,
            retry_after_cap: RETRY_AFTER_CAP,
        }
    }
}

/// What becomes of a delivery after its attempt of that number, from 1.
///
/// Only a status of 2xx is success; 3xx is a failure, since redirects are not
/// followed. 410 disables (Standard Webhooks, "Deliverability and reliability").
/// What a receiver asks for by `retry-after` can only move the next attempt
/// later, and adds none. An attempt that nobody wrote an end of is made again at
/// once: it was not the receiver who failed.
///
/// `random` from 0 to 1 is for the schedule's jitter.
///
/// ```
/// use std::time::Duration;
/// use http::StatusCode;
/// use walpost_webhook::{Outcome, RetryPolicy, Schedule, Verdict, judge};
///
/// let policy = RetryPolicy::new(Schedule::erp());
/// let busy = Outcome::Answered {
///     status: StatusCode::SERVICE_UNAVAILABLE,
///     retry_after: Some(Duration::from_secs(20)),
/// };
/// let wait = |seconds| Verdict::Retry { wait: Duration::from_secs(seconds), throttle: true };
/// assert_eq!(judge(&policy, 1, busy, 0.5), wait(20));
/// assert_eq!(judge(&policy, 2, busy, 0.5), wait(30));
/// assert_eq!(judge(&policy, 8, busy, 0.5), Verdict::Failed);
/// ```
pub fn judge(policy: &RetryPolicy, attempt: u32, outcome: Outcome, random: f64) -> Verdict {
    let (hint, throttle) = match outcome {
        Outcome::Answered { status, .. } if status.is_success() => return Verdict::Delivered,
        Outcome::Answered { status: StatusCode::GONE, .. } => return Verdict::Disable,
        Outcome::Answered { status, retry_after } => (retry_after, is_overload(status)),
        Outcome::Unanswered { .. } => (None, false),
    };
    if outcome.is_unknown() && policy.on_unknown_outcome == OnUnknownOutcome::Hold {
        return Verdict::Held;
    }
    let Some(wait) = policy.schedule.wait(attempt, random) else { return Verdict::Failed };
    let wait = match outcome {
        Outcome::Unanswered { failure: Failure::LeaseExpired, .. } => Duration::ZERO,
        _ => wait.max(hint.unwrap_or_default().min(policy.retry_after_cap).min(WAIT_MAX)),
    };
    Verdict::Retry { wait, throttle }
}

fn is_overload(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

#[cfg(test)]
mod tests {
    use walpost_testkit::{Seeded, property};

    use super::*;

    const FAILURES: [Failure; 10] = [
        Failure::Timeout,
        Failure::Dns,
        Failure::Blocked,
        Failure::Connect,
        Failure::Tls,
        Failure::Broken,
        Failure::Malformed,
        Failure::TooLarge,
        Failure::Request,
        Failure::LeaseExpired,
    ];

    fn answered(status: u16, retry_after_seconds: Option<u64>) -> Outcome {
        Outcome::Answered {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: retry_after_seconds.map(Duration::from_secs),
        }
    }

    fn seconds(wait: u64, throttle: bool) -> Verdict {
        Verdict::Retry { wait: Duration::from_secs(wait), throttle }
    }

    fn holding() -> RetryPolicy {
        let on_unknown_outcome = OnUnknownOutcome::Hold;
        RetryPolicy { on_unknown_outcome, ..RetryPolicy::new(Schedule::erp()) }
    }

    #[test]
    fn each_status_has_its_verdict() {
        let policy = RetryPolicy::new(Schedule::erp());
        for (status, expected) in [
            (200, Verdict::Delivered),
            (202, Verdict::Delivered),
            (204, Verdict::Delivered),
            (299, Verdict::Delivered),
            (101, seconds(5, false)),
            (301, seconds(5, false)),
            (304, seconds(5, false)),
            (307, seconds(5, false)),
            (400, seconds(5, false)),
            (401, seconds(5, false)),
            (404, seconds(5, false)),
            (410, Verdict::Disable),
            (429, seconds(5, true)),
            (500, seconds(5, false)),
            (502, seconds(5, true)),
            (503, seconds(5, true)),
            (504, seconds(5, true)),
            (999, seconds(5, false)),
        ] {
            assert_eq!(judge(&policy, 1, answered(status, None), 0.5), expected, "{status}");
        }
        for failure in FAILURES {
            for sent in [true, false] {
                let outcome = Outcome::Unanswered { failure, sent };
                let wait = if failure == Failure::LeaseExpired { 0 } else { 30 };
                assert_eq!(judge(&policy, 2, outcome, 0.5), seconds(wait, false), "{failure:?}");
                assert_eq!(judge(&policy, 8, outcome, 0.5), Verdict::Failed, "{failure:?}");
            }
        }
    }

    #[test]
    fn the_eighth_attempt_of_the_erp_is_the_last() {
        let policy = RetryPolicy::new(Schedule::erp());
        let failed = answered(500, None);
        let waits = [5, 30, 300, 1_800, 14_400, 14_400, 14_400];
        for (attempt, wait) in (1..).zip(waits) {
            assert_eq!(judge(&policy, attempt, failed, 0.9), seconds(wait, false), "{attempt}");
        }
        assert_eq!(judge(&policy, 8, failed, 0.9), Verdict::Failed);
        assert_eq!(judge(&policy, 8, answered(200, None), 0.9), Verdict::Delivered);
        assert_eq!(judge(&policy, 8, answered(410, None), 0.9), Verdict::Disable);
    }

    #[test]
    fn what_a_receiver_asks_for_only_moves_the_next_attempt_later() {
        let policy = RetryPolicy::new(Schedule::erp());
        let day = 24 * 3_600;
        for (status, hint, attempt, expected) in [
            (429, Some(1), 1, seconds(5, true)),
            (429, Some(60), 1, seconds(60, true)),
            (503, Some(60), 3, seconds(300, true)),
            (400, Some(60), 1, seconds(60, false)),
            (429, Some(u64::MAX), 1, seconds(day, true)),
            (429, Some(60), 8, Verdict::Failed),
            (200, Some(60), 1, Verdict::Delivered),
        ] {
            let outcome = answered(status, hint);
            assert_eq!(judge(&policy, attempt, outcome, 0.5), expected, "{status} {hint:?}");
        }
        let endless = RetryPolicy { retry_after_cap: Duration::MAX, ..policy.clone() };
        let longest = Verdict::Retry { wait: WAIT_MAX, throttle: true };
        assert_eq!(judge(&endless, 1, answered(429, Some(u64::MAX)), 0.5), longest);
        let short = RetryPolicy { retry_after_cap: Duration::from_secs(8), ..policy };
        assert_eq!(judge(&short, 1, answered(429, Some(60)), 0.5), seconds(8, true));
    }

    #[test]
    fn what_is_unknown_is_held_where_it_must_not_happen_twice() {
        let policy = holding();
        for failure in FAILURES {
            let sent = Outcome::Unanswered { failure, sent: true };
            assert_eq!(judge(&policy, 1, sent, 0.5), Verdict::Held, "{failure:?}");
            assert_eq!(judge(&policy, 8, sent, 0.5), Verdict::Held, "{failure:?}");
            let unsent = Outcome::Unanswered { failure, sent: false };
            assert_ne!(judge(&policy, 1, unsent, 0.5), Verdict::Held, "{failure:?}");
        }
        for (status, expected) in [
            (200, Verdict::Delivered),
            (400, seconds(5, false)),
            (410, Verdict::Disable),
            (429, seconds(5, true)),
            (501, seconds(5, false)),
            (500, Verdict::Held),
            (502, Verdict::Held),
            (503, Verdict::Held),
            (504, Verdict::Held),
        ] {
            assert_eq!(judge(&policy, 1, answered(status, None), 0.5), expected, "{status}");
        }
    }

    fn any(random: &mut Seeded) -> Outcome {
        if random.chance(50) {
            let failure = FAILURES[random.below(FAILURES.len())];
            return Outcome::Unanswered { failure, sent: random.chance(50) };
        }
        let hint = random.chance(50).then(|| random.number() % (1 << random.below(64)));
        answered(100 + random.below(900) as u16, hint)
    }

    #[test]
    fn whatever_happens_there_is_an_end_within_the_bounds() {
        property("verdicts", Duration::from_millis(500), |random| {
            let limit = random.below(12) as u32;
            let schedule = Schedule::fixed(Duration::from_secs(60), limit).jitter(0.5);
            let mut policy = RetryPolicy::new(schedule);
            if random.chance(50) {
                policy.on_unknown_outcome = OnUnknownOutcome::Hold;
            }
            for attempt in 1.. {
                let outcome = any(random);
                let drawn = random.number() as f64 / u64::MAX as f64;
                let verdict = judge(&policy, attempt, outcome, drawn);
                assert!(attempt <= limit + 1, "{attempt} {limit}");
                let Verdict::Retry { wait, .. } = verdict else {
                    assert!(verdict != Verdict::Failed || attempt == limit + 1, "{attempt}");
                    break;
                };
                assert!(wait <= policy.retry_after_cap.max(Duration::from_secs(90)), "{wait:?}");
                let is_ours =
                    matches!(outcome, Outcome::Unanswered { failure: Failure::LeaseExpired, .. });
                assert!(is_ours || wait >= Duration::from_secs(30), "{wait:?} {outcome:?}");
            }
        });
    }
}
