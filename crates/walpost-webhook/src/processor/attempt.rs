use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::{sync::mpsc, time::timeout_at};
use walpost_event::{error_chain, jitter};

use super::{LEASE_MARGIN, Shared, gate::Pass};
use crate::{
    Failure, Message, Outcome, RetryPolicy, Verdict,
    failpoint::Failpoint,
    judge,
    metrics::What,
    store::{Claim, End, Ended, Lapsed},
};

/// A timer that goes off so late belongs to a process that was paused.
const PAUSED: Duration = Duration::from_secs(1);

/// What a claim has come to, and until when that can be written down.
#[derive(Debug)]
pub(super) struct ToFinish {
    pub(super) fate: Fate,
    pub(super) deadline: Instant,
}

#[derive(Debug)]
pub(super) enum Fate {
    /// An attempt was made.
    Ended(Ended),
    /// None was: the delivery goes back, and the claim does not count.
    Unsent(Lapsed),
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
    pub(super) async fn attempt(
        self: Arc<Self>,
        (claim, pass): (Claim, Pass),
        ends: mpsc::Sender<ToFinish>,
    ) {
        let Claim { lapsed, message, deadline } = claim;
        let _retry_hand = match lapsed.attempt > 1 {
            true => Some(self.retry_hands.acquire().await.expect("nobody closes it")),
            false => None,
        };
        let _hand = self.hands.acquire().await.expect("nobody closes it");
        let sent = match pass.is_valid() {
            true => self.try_to_send(&message, deadline).await,
            false => None,
        };
        let fate = match sent {
            Some(end) => {
                pass.ended(end.outcome);
                self.ended(lapsed, end)
            }
            None => Fate::Unsent(lapsed),
        };
        // Nobody receives only where the processor was dropped.
        let _ = ends.send(ToFinish { fate, deadline }).await;
    }

    /// None where nothing was sent, and not for the receiver's sake.
    async fn try_to_send(&self, message: &Message, lease: Instant) -> Option<End> {
        // No byte goes out behind this, and the end can be written down under the lease.
        let last = lease - LEASE_MARGIN / 2;
        let until = Instant::now() + self.settings.client.timeout;
        let is_unread = self.secrets.look_in(Instant::now()).is_some();
        if until > last || self.standing.is_closed() || is_unread {
            return None;
        }
        self.metrics.inflight.increment(1.0);
        let end = self.send(message, until).await;
        self.metrics.inflight.decrement(1.0);
        let end = end?;
        let is_unsent = matches!(end.outcome, Outcome::Unanswered { sent: false, .. });
        // It was this process that had no time for it.
        let is_given_up = is_unsent && Instant::now() > until + PAUSED;
        (!is_given_up).then_some(end)
    }

    /// None where it cannot be made for a secret that cannot be read, whatever the message.
    async fn send(&self, message: &Message, until: Instant) -> Option<End> {
        let request = self.settings.destination.request(message, SystemTime::now());
        match timeout_at(until.into(), request).await {
            Ok(Ok(request)) => Some(End::of(self.client.send_until(&request, until.into()).await)),
            Ok(Err(error)) if error.is_of_secrets() => {
                self.unread(&error);
                None
            }
            Ok(Err(error)) => {
                let outcome = Outcome::Unanswered { failure: Failure::Request, sent: false };
                Some(End::without_call(outcome, error_chain(&error)))
            }
            // Of all that it takes only secrets are waited for.
            Err(_) => {
                self.unread_in_time(self.settings.client.timeout);
                None
            }
        }
    }

    fn ended(&self, lapsed: Lapsed, end: End) -> Fate {
        Failpoint::Answered.reached();
        if lapsed.attempt > 1 {
            self.metrics.add(What::Retry, 1);
        }
        let seconds = f64::from(end.elapsed_ms) / 1_000.0;
        self.metrics.attempted(end.outcome.name(), seconds);
        let ended = self.judged(lapsed, end);
        if ended.verdict == Verdict::Disable {
            self.standing.gone();
        }
        Fate::Ended(ended)
    }
}
