use std::time::Duration;

use tokio::{sync::watch, time::timeout};

use super::Interrupt;

/// Whether a partition is asked to finish.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    requested: watch::Receiver<bool>,
}

impl Stop {
    /// The asking side, and the asked.
    pub(crate) fn new() -> (watch::Sender<bool>, Self) {
        let (sender, requested) = watch::channel(false);
        (sender, Self { requested })
    }

    /// Whether it was asked to.
    pub(super) fn is_requested(&self) -> bool {
        *self.requested.borrow() || self.requested.has_changed().is_err()
    }

    /// Waits until it is. Safe to cancel.
    pub(super) async fn requested(&mut self) {
        // An error means that nobody is left to ask, which asks for the same.
        let _ = self.requested.wait_for(|requested| *requested).await;
    }

    /// Sleeps, unless it is asked to stop.
    pub(super) async fn sleep(&mut self, duration: Duration) -> Result<(), Interrupt> {
        match timeout(duration, self.requested()).await {
            Ok(()) => Err(Interrupt::Stopped),
            Err(_) => Ok(()),
        }
    }
}
