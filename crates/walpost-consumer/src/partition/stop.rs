use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::timeout};

use super::Interrupt;

/// Whether a partition is asked to finish.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    requested: watch::Receiver<bool>,
    settling: Arc<AtomicBool>,
}

/// The asking side.
#[derive(Debug)]
pub(crate) struct StopRequest {
    requested: watch::Sender<bool>,
    settling: Arc<AtomicBool>,
}

impl StopRequest {
    pub(crate) fn send(&self) {
        self.requested.send_replace(true);
    }

    /// Whether no batch is left that could be rolled back.
    pub(crate) fn is_settling(&self) -> bool {
        self.settling.load(Ordering::Relaxed)
    }
}

impl Stop {
    /// The asking side, and the asked.
    pub(crate) fn new() -> (StopRequest, Self) {
        let (sender, requested) = watch::channel(false);
        let settling = Arc::new(AtomicBool::new(false));
        let request = StopRequest { requested: sender, settling: Arc::clone(&settling) };
        (request, Self { requested, settling })
    }

    /// What was made is committed, and Kafka gets the last offset.
    pub(super) fn note_settling(&self) {
        self.settling.store(true, Ordering::Relaxed);
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
