use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use metrics::{Gauge, gauge};
use tokio::time::timeout;
use walpost_event::error_chain;

use super::Shared;
use crate::RequestError;

/// Between two looks at secrets that cannot be read; the longest time for one.
const LOOK: Duration = Duration::from_secs(5);
/// Between two lines that say so.
const TELL: Duration = Duration::from_secs(60);

/// Whether the secrets of a destination can be read, as far as its processor knows. While
/// they cannot, nothing is claimed: it is not the receiver who fails.
pub(super) struct Secrets {
    known: Mutex<Known>,
    destination: String,
    unreadable: Gauge,
}

#[derive(Debug)]
struct Known {
    /// When to look again; none where they could be read.
    look_at: Option<Instant>,
    /// When that was said last, since they could be read.
    told: Option<Instant>,
}

impl Secrets {
    /// Nobody has looked yet.
    pub(super) fn new(destination: &str) -> Self {
        let labels = [("destination", destination.to_owned())];
        let unreadable = gauge!("walpost_webhook_secret_unreadable", &labels);
        unreadable.set(0.0);
        let known = Known { look_at: Some(Instant::now()), told: None };
        Self { known: Mutex::new(known), destination: destination.to_owned(), unreadable }
    }

    /// Until the next look; `None` where they can be read.
    pub(super) fn look_in(&self, now: Instant) -> Option<Duration> {
        self.known().look_at.map(|at| at.saturating_duration_since(now))
    }

    fn read(&self) {
        let mut known = self.known();
        known.look_at = None;
        if known.told.take().is_some() {
            self.unreadable.set(0.0);
            tracing::info!(destination = self.destination, "its secrets can be read again");
        }
    }

    /// No text of `error` has any of them.
    fn unread(&self, error: &str, now: Instant) {
        let mut known = self.known();
        known.look_at = Some(now + LOOK);
        self.unreadable.set(1.0);
        if known.told.is_none_or(|told| now.saturating_duration_since(told) >= TELL) {
            known.told = Some(now);
            tracing::warn!(
                destination = self.destination,
                error,
                "no request can be made: its deliveries wait, and no attempt is counted; mend \
                 the secret, which is read again every 5 s"
            );
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Looks at the secrets where that is due.
    pub(super) async fn look_at_secrets(&self) {
        if self.secrets.look_in(Instant::now()) != Some(Duration::ZERO) {
            return;
        }
        match timeout(LOOK, self.settings.destination.read_secrets()).await {
            Ok(Ok(_)) => self.secrets.read(),
            Ok(Err(error)) => self.unread(&error),
            Err(_) => self.unread_in_time(LOOK),
        }
    }

    pub(super) fn unread(&self, error: &RequestError) {
        self.secrets.unread(&error_chain(error), Instant::now());
    }

    pub(super) fn unread_in_time(&self, limit: Duration) {
        let error = format!("a secret of the destination was not read in {limit:?}");
        self.secrets.unread(&error, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_unread_is_looked_at_again_after_a_while() {
        let secrets = Secrets::new("a");
        let now = Instant::now();
        assert_eq!(secrets.look_in(now), Some(Duration::ZERO), "nobody has looked");
        secrets.unread("it is not there", now);
        assert_eq!(secrets.look_in(now), Some(LOOK));
        let told = secrets.known().told;
        secrets.unread("it is not there", now + LOOK);
        assert_eq!(secrets.known().told, told, "said once");
        secrets.unread("it is not there", now + TELL);
        assert_ne!(secrets.known().told, told, "and again after a while");
        assert_eq!(secrets.look_in(now + TELL + LOOK), Some(Duration::ZERO));
        secrets.read();
        assert_eq!(secrets.look_in(now), None);
        secrets.unread("it is not there", now);
        assert_eq!(secrets.known().told, Some(now), "said at once");
    }
}
