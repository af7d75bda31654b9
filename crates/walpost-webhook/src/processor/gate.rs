use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
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
    /// Since the last time that people were told.
    has_opened: AtomicBool,
    /// Since that was noted where operators look.
    has_changed: AtomicBool,
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
        let (has_opened, has_changed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { circuit, destination: destination.to_owned(), is_open, has_opened, has_changed }
    }

    pub(super) fn has_opened(&self) -> bool {
        self.has_opened.load(Ordering::SeqCst)
    }

    /// People were told that it has opened.
    pub(super) fn told(&self) {
        self.has_opened.store(false, Ordering::SeqCst);
    }

    /// Whether it has changed since it was asked.
    pub(super) fn has_changed(&self) -> bool {
        self.has_changed.swap(false, Ordering::SeqCst)
    }

    /// For how long it is open at least; `None` where all is sent.
    pub(super) fn open_for(&self) -> Option<Duration> {
        self.circuit().and_then(|circuit| circuit.open_for(Instant::now()))
    }

    /// What was asked could not be noted.
    pub(super) fn is_to_be_noted(&self) {
        self.has_changed.store(true, Ordering::SeqCst);
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
                self.has_opened.store(true, Ordering::SeqCst);
                tracing::error!(destination, ?wait, "breaker open: nothing is sent meanwhile");
            }
            Some(Change::HalfOpened) => {
                tracing::info!(destination, "breaker half-open: one delivery goes as a probe");
            }
            Some(Change::Closed) => tracing::info!(destination, "breaker closed: all is sent"),
        }
        self.has_changed.store(true, Ordering::SeqCst);
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

#[cfg(test)]
mod tests {
    use std::io;

    use http::StatusCode;

    use super::*;

    /// What a log has said.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn ended(gate: &Arc<Gate>, status: u16) {
        let status = StatusCode::from_u16(status).unwrap();
        let (permit, era) = gate.permit();
        assert!(!matches!(permit, Permit::Nothing(_)), "{permit:?}");
        gate.pass(era).ended(Outcome::Answered { status, retry_after: None });
    }

    #[test]
    fn each_change_is_one_line() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            let wait = Duration::from_nanos(1);
            let breaker = Breaker { failures: 2, wait, wait_max: wait };
            let gate = Arc::new(Gate::new(Some(breaker), "logistics"));
            for status in [500, 200, 500, 500] {
                ended(&gate, status);
            }
            // A claim that was given back is no probe.
            let (_, era) = gate.permit();
            let unsent = gate.pass(era);
            assert_eq!(gate.permit().0, Permit::Nothing(None));
            drop(unsent);
            for status in [500, 200, 200] {
                ended(&gate, status);
            }
        });
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let said: Vec<&str> = log
            .lines()
            .filter_map(|line| line.split("breaker ").nth(1)?.split(':').next())
            .collect();
        assert_eq!(said, ["open", "half-open", "open", "half-open", "closed"], "{log}");
        assert!(log.lines().all(|line| line.contains("logistics")), "{log}");
    }

    #[test]
    fn without_a_breaker_everything_passes() {
        let gate = Arc::new(Gate::new(None, "logistics"));
        for _ in 0..100 {
            ended(&gate, 500);
        }
        assert_eq!(gate.permit(), (Permit::Any, 0));
        assert!(gate.pass(0).is_valid());
    }
}
