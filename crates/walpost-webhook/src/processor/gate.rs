use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use metrics::{Gauge, gauge};
use walpost_event::jitter;

use crate::{
    Breaker, Outcome,
    breaker::{Change, Circuit, Permit, Signal},
};

/// The breaker of a destination, if it has one, and whoever is told of it.
pub(super) struct Gate {
    circuit: Option<Mutex<Circuit>>,
    destination: String,
    is_open: Gauge,
}

/// What a claim is let through with. Dropped without an outcome, it says nothing
/// of the destination.
pub(super) struct Pass {
    gate: Arc<Gate>,
    era: u64,
    signal: Signal,
}

impl Gate {
    pub(super) fn new(breaker: Option<Breaker>, destination: &str) -> Self {
        let labels = [("destination", destination.to_owned())];
        let is_open = gauge!("walpost_webhook_breaker_open", &labels);
        is_open.set(0.0);
        let circuit = breaker.map(|breaker| Mutex::new(Circuit::new(breaker)));
        Self { circuit, destination: destination.to_owned(), is_open }
    }

    /// How much may be claimed now, and in which era that is.
    pub(super) fn permit(&self) -> (Permit, u64) {
        let Some(mut circuit) = self.circuit() else { return (Permit::Any, 0) };
        let (permit, change) = circuit.permit(Instant::now());
        self.tell(change);
        (permit, circuit.era())
    }

    /// Something was claimed by a permit of that era.
    pub(super) fn pass(self: &Arc<Self>, era: u64) -> Pass {
        if let Some(mut circuit) = self.circuit().filter(|circuit| circuit.era() == era) {
            circuit.claimed();
        }
        Pass { gate: Arc::clone(self), era, signal: Signal::Silent }
    }

    fn circuit(&self) -> Option<MutexGuard<'_, Circuit>> {
        let circuit = self.circuit.as_ref()?;
        Some(circuit.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, change: Option<Change>) {
        let destination = &*self.destination;
        match change {
            None => return,
            Some(Change::Opened { wait }) => {
                tracing::error!(destination, ?wait, "breaker open: nothing is sent meanwhile");
            }
            Some(Change::HalfOpened) => {
                tracing::info!(destination, "breaker half-open: one delivery goes as a probe");
            }
            Some(Change::Closed) => tracing::info!(destination, "breaker closed: all is sent"),
        }
        let is_closed = change == Some(Change::Closed);
        self.is_open.set(if is_closed { 0.0 } else { 1.0 });
    }
}

impl Pass {
    /// Whether it still lets through: not once the breaker has changed.
    pub(super) fn is_valid(&self) -> bool {
        self.gate.circuit().is_none_or(|circuit| circuit.era() == self.era)
    }

    /// What came of it.
    pub(super) fn ended(mut self, outcome: Outcome) {
        self.signal = Signal::of(outcome);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Some(mut circuit) = self.gate.circuit() else { return };
        let change = circuit.ended(self.era, self.signal, Instant::now(), jitter());
        self.gate.tell(change);
    }
}
