//! Looks on while the consumer runs, and holds transactions at a step.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, mpsc, oneshot};
use walpost_consumer::{
    Event, TopicPartition,
    testing::{Kind, Outcome, Point, Probe},
};

use crate::{report::Call, step::Fault};

/// Transient failures of an event after which the consumer is not waited for: it
/// would try again for ever.
const MAX_TRANSIENT: u32 = 3;
/// Calls of the handler that are kept.
const MAX_CALLS: usize = 10_000;
/// Transactions that are held at once: one for each lane.
const MAX_HELD: usize = 256;

/// What is seen of one delivery, over all consumers that it takes.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Where transactions began that were interrupted.
    interrupted: HashSet<(TopicPartition, i64)>,
    /// Where each partition was before: Kafka is told of that again.
    before: BTreeMap<TopicPartition, i64>,
    pub(crate) calls: Vec<Call>,
    /// Failures that are no attempts, by the first event of the call.
    transient: HashMap<(TopicPartition, i64), u32>,
}

impl Seen {
    pub(crate) fn since(before: BTreeMap<TopicPartition, i64>) -> Self {
        Self { before, ..Self::default() }
    }
}

/// A transaction that waits at its step.
pub(crate) struct Held {
    release: oneshot::Sender<()>,
}

impl Held {
    pub(crate) fn release(self) {
        // One that is gone needs nothing.
        let _ = self.release.send(());
    }
}

/// Looks at one consumer.
pub(crate) struct Watch {
    fault: Option<Fault>,
    seen: Arc<Mutex<Seen>>,
    held: mpsc::Sender<Held>,
    /// The handler fails for ever.
    hopeless: Arc<Notify>,
    /// Nobody is held any more.
    open: AtomicBool,
}

impl Watch {
    pub(crate) fn new(
        fault: Option<Fault>,
        seen: &Arc<Mutex<Seen>>,
    ) -> (Arc<Self>, mpsc::Receiver<Held>, Arc<Notify>) {
        let (held, receiver) = mpsc::channel(MAX_HELD);
        let (seen, hopeless) = (Arc::clone(seen), Arc::new(Notify::new()));
        lock(&seen).transient.clear();
        let watch = Self {
            fault,
            seen,
            held,
            hopeless: Arc::clone(&hopeless),
            open: AtomicBool::new(false),
        };
        (Arc::new(watch), receiver, hopeless)
    }

    /// From now on everybody passes.
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::Release);
    }
}

impl Probe for Watch {
    fn reached(&self, point: Point, of: TopicPartition, offset: i64) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(fault) = self.fault.filter(|fault| fault.step().point() == point) else {
                return;
            };
            if self.open.load(Ordering::Acquire) {
                return;
            }
            {
                let mut seen = lock(&self.seen);
                let is_old = seen.before.get(&of).is_some_and(|before| *before >= offset);
                if point == Point::AfterCommit && is_old {
                    return;
                }
                let is_new = seen.interrupted.insert((of, offset));
                // Whoever is paused is so wherever it comes.
                if !is_new && !matches!(fault, Fault::Pause(_)) {
                    return;
                }
                // What fails for it is no fault of the handler.
                seen.transient.clear();
            }
            let (release, released) = oneshot::channel();
            if self.held.send(Held { release }).await.is_err() || released.await.is_err() {
                // A killed process takes no further step.
                pending::<()>().await;
            }
        })
    }

    fn handled(&self, events: &[Event], outcome: Outcome) {
        let mut seen = lock(&self.seen);
        let is_transient = matches!(outcome, Outcome::Failed { kind: Kind::Transient, .. });
        if let (true, Some(first)) = (is_transient, events.first()) {
            let of = TopicPartition { topic: first.topic().into(), partition: first.partition() };
            let failures = seen.transient.entry((of, first.offset())).or_default();
            *failures += 1;
            if *failures >= MAX_TRANSIENT {
                self.hopeless.notify_one();
            }
        }
        if seen.calls.len() < MAX_CALLS {
            seen.calls.push(Call::of(events, outcome));
        }
    }
}

pub(crate) fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
