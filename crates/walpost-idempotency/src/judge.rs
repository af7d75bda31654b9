use std::time::{Duration, SystemTime};

use crate::{AfterExpiry, Fingerprint, Overtake, Policy, Response};

/// What is stored under a [`Lookup`](crate::Lookup).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Of the request that is or was carried out.
    pub fingerprint: Fingerprint,
    /// How far it is.
    pub progress: Progress,
    /// From then on it counts no more; never, where an operator has to look.
    pub expires_at: Option<SystemTime>,
    /// Until then, once expired, there is a tombstone of it.
    pub gone_until: Option<SystemTime>,
}

impl Record {
    /// One that does not expire.
    pub fn new(fingerprint: Fingerprint, progress: Progress) -> Self {
        Self { fingerprint, progress, expires_at: None, gone_until: None }
    }

    /// From when on it counts no more.
    #[must_use]
    pub fn expires_at(mut self, expires_at: SystemTime) -> Self {
        self.expires_at = Some(expires_at);
        self
    }
}

/// How far a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Somebody runs it, or has died with it.
    InProgress {
        /// Then its claim may be taken over.
        lease_until: SystemTime,
        /// The last one that was committed.
        recovery_point: Option<String>,
    },
    /// It is over, and this was its answer.
    Completed(Response),
    /// It is over, and its answer has expired.
    Tombstone,
}

/// What a request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is carried out.
    New,
    /// It is carried out in the place of a run whose lease has ended.
    TakeOver {
        /// Where to go on; from the beginning where there is none.
        recovery_point: Option<String>,
    },
    /// It was carried out, and this was its answer.
    Replay(Response),
    /// It is being carried out.
    InFlight {
        /// When to ask again.
        retry_after: Duration,
    },
    /// It was begun, nobody knows how far it came, and the policy is
    /// [`Overtake::Refuse`].
    Unresolved,
    /// Another request has the key.
    Mismatch,
    /// It was carried out, and its answer has expired; or it was begun, and its
    /// key has expired before anybody ended it.
    Gone,
}

/// Decides about a request under a key, by what is stored under it. Pure: `now`
/// is the database's.
///
/// A record that has expired tells nothing, also of a mismatch. A run under a
/// lease does not expire while the lease lasts.
pub fn judge(
    record: Option<Record>,
    fingerprint: &Fingerprint,
    now: SystemTime,
    policy: &Policy,
) -> Verdict {
    let Some(record) = record else { return Verdict::New };
    let holds_lease = matches!(
        record.progress,
        Progress::InProgress { lease_until, .. } if lease_until > now
    );
    let is_expired = record.expires_at.is_some_and(|at| at <= now) && !holds_lease;
    if is_expired || record.progress == Progress::Tombstone {
        return after_expiry(&record, now, policy);
    }
    if record.fingerprint != *fingerprint {
        return Verdict::Mismatch;
    }
    match record.progress {
        Progress::Completed(response) => Verdict::Replay(response),
        Progress::InProgress { lease_until, recovery_point } => {
            match (lease_until.duration_since(now), policy.overtake) {
                (Ok(left), _) if !left.is_zero() => {
                    Verdict::InFlight { retry_after: left.min(policy.retry_after) }
                }
                (_, Overtake::Resume) => Verdict::TakeOver { recovery_point },
                (_, Overtake::Rerun) => Verdict::TakeOver { recovery_point: None },
                (_, Overtake::Refuse) => Verdict::Unresolved,
            }
        }
        Progress::Tombstone => Verdict::Gone,
    }
}

fn after_expiry(record: &Record, now: SystemTime, policy: &Policy) -> Verdict {
    // A run that nobody ended may have had its effect all the same. Whether or not
    // it was begun under this policy, its key is as gone as that of an answer.
    let gone_until = record.gone_until.or_else(|| match record.progress {
        Progress::InProgress { .. } => record.expires_at?.checked_add(policy.tombstone),
        Progress::Completed(_) | Progress::Tombstone => None,
    });
    match policy.after_expiry {
        AfterExpiry::Gone if gone_until.is_some_and(|until| until > now) => Verdict::Gone,
        AfterExpiry::Gone | AfterExpiry::New => Verdict::New,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)
    }

    fn at(seconds: i64) -> SystemTime {
        let offset = Duration::from_secs(seconds.unsigned_abs());
        if seconds < 0 { now() - offset } else { now() + offset }
    }

    fn fingerprint(body: &[u8]) -> Fingerprint {
        Fingerprint::of(&Request { body, ..Request::default() })
    }

    fn completed(expires: i64) -> Record {
        Record {
            fingerprint: fingerprint(b"a"),
            progress: Progress::Completed(Response::new(201, "made")),
            expires_at: Some(at(expires)),
            gone_until: Some(at(expires + 100)),
        }
    }

    fn running(lease: i64, expires: Option<i64>) -> Record {
        let progress = Progress::InProgress {
            lease_until: at(lease),
            recovery_point: Some("charged".to_owned()),
        };
        Record { progress, expires_at: expires.map(at), ..completed(0) }
    }

    fn verdict(record: Record, body: &[u8], policy: &Policy) -> Verdict {
        judge(Some(record), &fingerprint(body), now(), policy)
    }

    fn policy() -> Policy {
        Policy::new("r")
    }

    #[test]
    fn nothing_stored_is_new() {
        assert_eq!(judge(None, &fingerprint(b"a"), now(), &policy()), Verdict::New);
    }

    #[test]
    fn what_is_completed_is_replayed_to_the_same_request_alone() {
        let replay = Verdict::Replay(Response::new(201, "made"));
        assert_eq!(verdict(completed(1), b"a", &policy()), replay);
        assert_eq!(verdict(completed(1), b"b", &policy()), Verdict::Mismatch);
    }

    #[test]
    fn what_has_expired_is_new_or_gone_by_policy_whatever_the_request() {
        let gone = policy().after_expiry(AfterExpiry::Gone);
        for body in [b"a", b"b"] {
            assert_eq!(verdict(completed(0), body, &policy()), Verdict::New);
            assert_eq!(verdict(completed(0), body, &gone), Verdict::Gone);
            assert_eq!(verdict(completed(-99), body, &gone), Verdict::Gone);
            assert_eq!(verdict(completed(-100), body, &gone), Verdict::New);
            let tombstone = Record { progress: Progress::Tombstone, ..completed(-1) };
            assert_eq!(verdict(tombstone.clone(), body, &gone), Verdict::Gone);
            assert_eq!(verdict(tombstone, body, &policy()), Verdict::New);
        }
        let never_gone = Record { gone_until: None, ..completed(0) };
        assert_eq!(verdict(never_gone, b"a", &gone), Verdict::New);
    }

    #[test]
    fn what_runs_under_a_lease_is_in_flight_also_beyond_its_expiry() {
        for expires in [Some(100), Some(-1), None] {
            let soon = verdict(
                running(1, expires),
                b"a",
                &policy().retry_after(at(9).duration_since(now()).unwrap()),
            );
            assert_eq!(soon, Verdict::InFlight { retry_after: Duration::from_secs(1) });
            let later = verdict(running(50, expires), b"a", &policy());
            assert_eq!(later, Verdict::InFlight { retry_after: Duration::from_secs(1) });
            assert_eq!(verdict(running(1, expires), b"b", &policy()), Verdict::Mismatch);
        }
    }

    #[test]
    fn a_run_that_nobody_ended_is_gone_once_its_key_has_expired() {
        let month = 30 * 86_400;
        let gone = policy().after_expiry(AfterExpiry::Gone);
        for overtake in [Overtake::Resume, Overtake::Rerun, Overtake::Refuse] {
            let gone = gone.clone().overtake(overtake);
            let never_ended = Record { gone_until: None, ..running(-9, Some(-1)) };
            assert_eq!(verdict(never_ended.clone(), b"a", &gone), Verdict::Gone);
            let noted = Record { gone_until: Some(at(1)), ..never_ended };
            assert_eq!(verdict(noted, b"b", &gone), Verdict::Gone);
            let late = Record { gone_until: None, ..running(-9, Some(-month)) };
            assert_eq!(verdict(late, b"a", &gone), Verdict::New);
        }
        // Before that it is taken over as ever.
        let still = verdict(running(-9, Some(1)), b"a", &gone);
        assert!(matches!(still, Verdict::TakeOver { .. }), "{still:?}");
    }

    #[test]
    fn what_lost_its_lease_is_taken_over_by_policy() {
        let by = |overtake| verdict(running(0, Some(100)), b"a", &policy().overtake(overtake));
        let recovery_point = Some("charged".to_owned());
        assert_eq!(by(Overtake::Resume), Verdict::TakeOver { recovery_point });
        assert_eq!(by(Overtake::Rerun), Verdict::TakeOver { recovery_point: None });
        assert_eq!(by(Overtake::Refuse), Verdict::Unresolved);
        assert_eq!(verdict(running(0, Some(100)), b"b", &policy()), Verdict::Mismatch);
        let refuse = policy().overtake(Overtake::Refuse);
        assert_eq!(verdict(running(-9, None), b"a", &refuse), Verdict::Unresolved);
        assert_eq!(verdict(running(-9, Some(-1)), b"a", &policy()), Verdict::New);
    }
}
