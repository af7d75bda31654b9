use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use rdkafka::{
    error::{KafkaError, KafkaResult},
    producer::{BaseProducer, Producer},
};
use walpost_relay::{TransactionDecision as Decision, TransactionOutcome as Outcome};

use crate::deliveries::{Context, Reports};

/// Bound on one call, and so on how late the thread sees that it should end.
const CALL: Duration = Duration::from_secs(1);

/// A thread of its own that ends transactions, which blocks, and begins the
/// next. Dropping this ends it after the call that it may be in.
#[derive(Debug)]
pub(crate) struct Transactor {
    decisions: SyncSender<Decision>,
    stopped: Arc<AtomicBool>,
}

impl Transactor {
    /// Starts the thread. The first transaction has begun.
    pub(crate) fn start(
        producer: Arc<BaseProducer<Context>>,
        reports: Arc<Reports>,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        // The sink decides once for each transaction, and waits for its end.
        let (decisions, receiver) = sync_channel(1);
        let stopped = Arc::new(AtomicBool::new(false));
        let ending = Ending { producer, reports, stopped: stopped.clone() };
        let thread = std::thread::Builder::new().name("kafka-transactions".to_owned());
        let thread = thread.spawn(move || ending.serve(&receiver))?;
        Ok((Self { decisions, stopped }, thread))
    }

    /// Has the transaction ended; the outcome comes with the reports.
    pub(crate) fn end(&self, decision: Decision) {
        // A thread that has ended has left an outcome that ends the session.
        let _ = self.decisions.try_send(decision);
    }
}

impl Drop for Transactor {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

struct Ending {
    producer: Arc<BaseProducer<Context>>,
    reports: Arc<Reports>,
    stopped: Arc<AtomicBool>,
}

impl Ending {
    fn serve(&self, decisions: &Receiver<Decision>) {
        while let Ok(decision) = decisions.recv() {
            let outcome = match decision {
                Decision::Commit => self.commit(),
                Decision::Abort => self.abort("a record of it could not be delivered".to_owned()),
            };
            self.reports.ended(outcome);
        }
    }

    fn commit(&self) -> Outcome {
        match self.until_answered(|| self.producer.commit_transaction(CALL)) {
            Ok(()) => match self.producer.begin_transaction() {
                Ok(()) => Outcome::Committed,
                // It is committed all the same; the next record will tell.
                Err(error) => {
                    tracing::warn!(%error, "no next transaction");
                    Outcome::Committed
                }
            },
            Err(error) if requires_abort(&error) => self.abort(error.to_string()),
            Err(error) => Outcome::Lost(format!("whether it was committed is not known: {error}")),
        }
    }

    fn abort(&self, why: String) -> Outcome {
        match self.until_answered(|| self.producer.abort_transaction(CALL)) {
            Ok(()) => Outcome::Aborted(format!("its transaction was aborted: {why}")),
            Err(error) => Outcome::Lost(format!("its transaction was not aborted: {error}; {why}")),
        }
    }

    /// Calls again what the brokers have not answered in time, until told to
    /// stop.
    fn until_answered(&self, mut call: impl FnMut() -> KafkaResult<()>) -> KafkaResult<()> {
        loop {
            match call() {
                Err(error) if is_unanswered(&error) && !self.stopped.load(Ordering::Relaxed) => {}
                answered => return answered,
            }
        }
    }
}

fn requires_abort(error: &KafkaError) -> bool {
    matches!(error, KafkaError::Transaction(error) if error.txn_requires_abort())
}

fn is_unanswered(error: &KafkaError) -> bool {
    match error {
        KafkaError::Transaction(error) => error.is_retriable(),
        // The messages before the end of the transaction have no answer.
        KafkaError::Flush(_) => true,
        _ => false,
    }
}
