//! What a failed attempt does to a row. Pure.

use std::time::Duration;

use walpost_event::RetrySchedule;

use super::config::{AppliesTo, PollingConfig};

/// What became of a row in one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The sink has it.
    Published,
    /// By its transforms it is no event, and published nowhere.
    Dropped,
    /// Not tried, or not for its own or the sink's sake: as before.
    Untouched,
    /// Refused together with others: to be sent alone.
    Suspect,
    /// Not delivered, for its own sake; why.
    Refused(String),
    /// Not acknowledged: the sink, and not the row, is to blame; why.
    Unanswered(String),
}

/// What is known of a row's earlier attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tried {
    pub(super) attempts: u32,
    /// Those that failed for the row's own sake.
    pub(super) refused: u32,
    /// The row's own bound on further attempts after the first.
    pub(super) retry_limit: Option<u32>,
    /// The row's own wait between two.
    pub(super) retry_wait: Option<Duration>,
}

/// What to note of a row whose attempt failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    pub(super) attempts: u32,
    pub(super) refused: u32,
    pub(super) wait: Duration,
    /// It has failed for good, until somebody requeues it.
    pub(super) failed: bool,
}

/// Decides about failed attempts.
pub(super) struct Judge {
    schedule: RetrySchedule,
    max_attempts: u32,
    applies_to: AppliesTo,
}

impl Judge {
    pub(super) fn new(config: &PollingConfig) -> Self {
        Self {
            schedule: RetrySchedule::new(config.retry_delays.clone()).repeating_last(),
            max_attempts: config.max_attempts,
            applies_to: config.max_attempts_applies_to,
        }
    }

    /// `own`: it failed for the row's own sake.
    pub(super) fn judge(&self, tried: &Tried, own: bool, jitter: f64) -> Verdict {
        let attempts = tried.attempts.saturating_add(1);
        let refused = tried.refused.saturating_add(u32::from(own));
        let limit = tried.retry_limit.map_or(self.max_attempts, |limit| limit.saturating_add(1));
        let failed = match self.applies_to {
            AppliesTo::Row => own && refused >= limit,
            AppliesTo::All => attempts >= limit,
        };
        let scheduled = || self.schedule.delay(attempts, jitter).unwrap_or_default();
        Verdict { attempts, refused, failed, wait: tried.retry_wait.unwrap_or_else(scheduled) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(max_attempts: u32, applies_to: AppliesTo) -> Judge {
        let retry_delays = [5, 30].map(Duration::from_secs).to_vec();
        let max_attempts_applies_to = applies_to;
        Judge::new(&PollingConfig {
            retry_delays,
            max_attempts,
            max_attempts_applies_to,
            ..PollingConfig::default()
        })
    }

    fn after(judge: &Judge, failures: &[bool]) -> Vec<(u32, u64, bool)> {
        let mut tried = Tried::default();
        let mut seen = Vec::new();
        for own in failures {
            let verdict = judge.judge(&tried, *own, 0.0);
            seen.push((verdict.attempts, verdict.wait.as_secs(), verdict.failed));
            tried.attempts = verdict.attempts;
            tried.refused = verdict.refused;
        }
        seen
    }

    #[test]
    fn a_row_that_is_refused_waits_by_the_schedule_and_fails_at_its_end() {
        let seen = after(&judge(3, AppliesTo::Row), &[true, true, true]);
        assert_eq!(seen, [(1, 5, false), (2, 30, false), (3, 30, true)]);
    }

    #[test]
    fn without_brokers_attempts_and_waits_grow_and_no_row_fails() {
        let seen = after(&judge(2, AppliesTo::Row), &[false; 4]);
        assert_eq!(seen, [(1, 5, false), (2, 30, false), (3, 30, false), (4, 30, false)]);
    }

    #[test]
    fn an_outage_takes_no_attempt_from_a_row_that_is_refused_later() {
        let seen = after(&judge(2, AppliesTo::Row), &[false, false, true, true]);
        assert_eq!(seen.iter().map(|seen| seen.2).collect::<Vec<_>>(), [false, false, false, true]);
    }

    #[test]
    fn where_all_attempts_count_an_outage_fails_rows() {
        let seen = after(&judge(2, AppliesTo::All), &[false, false]);
        assert_eq!(seen, [(1, 5, false), (2, 30, true)]);
    }

    #[test]
    fn a_rows_own_limit_and_wait_come_first() {
        let judge = judge(8, AppliesTo::All);
        let wait = Duration::from_millis(1_500);
        let tried = Tried { retry_limit: Some(0), retry_wait: Some(wait), ..Tried::default() };
        let verdict = judge.judge(&tried, false, 0.0);
        assert_eq!((verdict.wait, verdict.failed), (wait, true));
        let once_more = Tried { retry_limit: Some(1), ..tried };
        assert!(!judge.judge(&once_more, false, 0.0).failed);
    }
}
