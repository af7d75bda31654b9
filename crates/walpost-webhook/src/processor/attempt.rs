use std::{
    sync::{Arc, atomic::Ordering},
    time::{Instant, SystemTime},
};

use tokio::sync::mpsc;
use walpost_event::{error_chain, jitter};

use super::{LEASE_MARGIN, Shared};
use crate::{
    Failure, Outcome, RetryPolicy, Verdict,
    failpoint::Failpoint,
    judge,
    metrics::What,
    store::{Claim, End, Ended, Lapsed},
};

/// The end of an attempt, and until when it can be written down.
#[derive(Debug)]
pub(super) struct ToFinish {
    pub(super) ended: Ended,
    pub(super) deadline: Instant,
}

impl Shared {
    /// What becomes of a claim by what came of its attempt.
    pub(super) fn judged(&self, lapsed: Lapsed, end: End) -> Ended {
        let policy = &self.settings.policy;
        let schedule = lapsed.schedule(&policy.schedule);
        let policy = RetryPolicy { schedule, ..policy.clone() };
        let verdict = judge(&policy, lapsed.attempt, end.outcome, jitter());
        Ended { lapsed, end, verdict }
    }

    /// Makes the attempt of a claim, and hands its end on.
    pub(super) async fn attempt(self: Arc<Self>, claim: Claim, ends: mpsc::Sender<ToFinish>) {
        let Claim { lapsed, message, deadline } = claim;
        let _hand = self.hands.acquire().await.expect("nobody closes it");
        self.metrics.inflight.increment(1.0);
        if lapsed.attempt > 1 {
            self.metrics.add(What::Retry, 1);
        }
        let end = if Instant::now() + self.settings.client.timeout > deadline - LEASE_MARGIN / 2 {
            // A claim that came late: its lease would end before the attempt does.
            unsent(Failure::Timeout, "claimed too late to be sent".to_owned())
        } else {
            match self.settings.destination.request(&message, SystemTime::now()).await {
                Ok(request) => End::of(self.client.send(&request).await),
                Err(error) => unsent(Failure::Request, error_chain(&error)),
            }
        };
        self.metrics.inflight.decrement(1.0);
        Failpoint::Answered.reached();
        let seconds = f64::from(end.elapsed_ms) / 1_000.0;
        self.metrics.attempted(end.outcome.name(), seconds);
        let ended = self.judged(lapsed, end);
        if ended.verdict == Verdict::Disable {
            self.gone.fetch_add(1, Ordering::SeqCst);
        }
        // Nobody receives only where the processor was dropped.
        let _ = ends.send(ToFinish { ended, deadline }).await;
    }
}

fn unsent(failure: Failure, detail: String) -> End {
    End::without_call(Outcome::Unanswered { failure, sent: false }, detail)
}
