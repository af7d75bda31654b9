use std::sync::{Arc, Mutex, MutexGuard};

use rdkafka::{
    ClientContext, Message as _,
    config::RDKafkaLogLevel,
    error::KafkaError,
    message::{BorrowedMessage, DeliveryResult},
    producer::ProducerContext,
    types::RDKafkaErrorCode,
};
use tokio::sync::Notify;
use walpost_librdkafka::{NoAccess, may_have_landed};
use walpost_relay::{DeliveryError, DeliveryErrorKind, TransactionOutcome as Outcome};

use crate::{
    classify::{classify, detail, is_batch_too_large},
    log::note,
    queue::Slot,
    reach::Reach,
    topic::TopicLimits,
};

/// Where the producer's threads leave delivery reports and what they learnt of
/// topics, for the pipeline.
#[derive(Debug)]
pub(crate) struct Reports {
    /// The brokers, as they were given.
    brokers: String,
    /// What all sessions know of them.
    reach: Arc<Reach>,
    settled: Mutex<Vec<Report>>,
    answers: Mutex<Vec<Answer>>,
    /// How the transaction at hand has ended.
    outcome: Mutex<Option<Outcome>>,
    /// Why no broker can be used.
    trouble: Mutex<Option<String>>,
    /// Why connections fail, of the last that did.
    refusal: Mutex<Refusal>,
    wake: Notify,
}

/// What failed connections said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusal {
    /// Of the last one.
    pub(crate) reason: Option<String>,
    /// The same, where it was no mere want of an answer.
    pub(crate) no_access: Option<NoAccess>,
    /// No broker is left to try.
    pub(crate) all_down: bool,
}

/// One delivery report.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) slot: Slot,
    /// The offset, where the broker told it.
    pub(crate) result: Result<Option<i64>, Failure>,
}

/// A record that was not delivered, or perhaps not.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: DeliveryError,
    /// The broker found the batch too large.
    pub(crate) too_large: bool,
    /// Or a record invalid.
    pub(crate) invalid: bool,
}

/// What was learnt of a topic, or why nothing was.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) topic: Arc<str>,
    pub(crate) found: Result<Found, Unusable>,
}

/// Why a topic cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    pub(crate) reason: Arc<str>,
    /// The brokers have answered, and mean this topic alone.
    pub(crate) is_its_own: bool,
    /// It does not exist, or its name is refused.
    pub(crate) is_missing: bool,
}

/// A topic as the brokers tell it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) limits: TopicLimits,
    /// Where the topic was met for the first time.
    pub(crate) origin: Option<Origin>,
}

/// What a topic was when this sink met it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Its id, where the brokers know ids.
    pub(crate) id: Option<Arc<str>>,
    /// By partition: nothing of ours above the checkpoint stands below the
    /// first offset, and everything below the second was there.
    pub(crate) spans: Vec<(i64, i64)>,
}

impl Reports {
    /// Of a client of these brokers.
    pub(crate) fn new(brokers: &str, reach: Arc<Reach>) -> Self {
        Self {
            brokers: brokers.to_owned(),
            reach,
            settled: Mutex::default(),
            answers: Mutex::default(),
            outcome: Mutex::default(),
            trouble: Mutex::default(),
            refusal: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Waits until there is a report or an answer.
    pub(crate) async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Takes all reports. `into` is empty and lends its memory.
    pub(crate) fn take(&self, into: &mut Vec<Report>) {
        std::mem::swap(&mut *lock(&self.settled), into);
    }

    pub(crate) fn take_answers(&self) -> Vec<Answer> {
        std::mem::take(&mut lock(&self.answers))
    }

    pub(crate) fn push(&self, report: Report) {
        if report.result.is_ok() {
            self.answered();
        }
        let mut settled = lock(&self.settled);
        settled.push(report);
        let is_first = settled.len() == 1;
        drop(settled);
        if is_first {
            self.wake.notify_one();
        }
    }

    pub(crate) fn answer(&self, answer: Answer) {
        if answer.found.is_ok() {
            self.answered();
        }
        lock(&self.answers).push(answer);
        self.wake.notify_one();
    }

    /// Has whoever waits look again.
    pub(crate) fn nudge(&self) {
        self.wake.notify_one();
    }

    pub(crate) fn ended(&self, outcome: Outcome) {
        *lock(&self.outcome) = Some(outcome);
        self.wake.notify_one();
    }

    pub(crate) fn take_outcome(&self) -> Option<Outcome> {
        lock(&self.outcome).take()
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    /// No broker answers.
    fn silent(&self) {
        let Refusal { reason, no_access, .. } = self.refusal();
        let next_step = "see whether they run and can be reached";
        let why = match (no_access, reason) {
            (Some(no_access), _) => no_access.to_string(),
            (None, Some(reason)) => format!("{reason}; {next_step}"),
            (None, None) => next_step.to_owned(),
        };
        let brokers = &self.brokers;
        if self.reach.silent() {
            tracing::warn!(brokers, why, "no broker answers; events wait in PostgreSQL");
        }
        *lock(&self.trouble) = Some(format!("no broker answers at {brokers}; {why}"));
    }

    /// A broker has answered just now: whoever takes a report later cannot tell
    /// whether it still does.
    pub(crate) fn answered(&self) {
        if let Some(silence) = self.reach.answered() {
            let after_s = silence.as_secs();
            tracing::info!(brokers = self.brokers, after_s, "brokers answer again");
        }
    }

    /// A broker has answered though nothing was sent to it.
    pub(crate) fn reached(&self) {
        self.answered();
        self.clear_trouble();
        // The sink's own trouble is read anew.
        self.wake.notify_one();
    }

    /// No broker has answered lately.
    pub(crate) fn is_silent(&self) -> bool {
        lock(&self.trouble).is_some()
    }

    /// A broker answered.
    pub(crate) fn clear_trouble(&self) {
        *lock(&self.trouble) = None;
        *lock(&self.refusal) = Refusal::default();
    }

    pub(crate) fn refusal(&self) -> Refusal {
        lock(&self.refusal).clone()
    }

    fn failed(&self, code: RDKafkaErrorCode, reason: &str) {
        let mut refusal = lock(&self.refusal);
        match code {
            RDKafkaErrorCode::AllBrokersDown => refusal.all_down = true,
            code => {
                refusal.reason = Some(reason.to_owned());
                refusal.no_access = NoAccess::of(code, reason);
            }
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds these locks can leave them half written.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Callbacks of the producer.
pub(crate) struct Context {
    pub(crate) reports: Arc<Reports>,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        note(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "librdkafka");
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        self.reports.failed(code, reason);
        if code == RDKafkaErrorCode::AllBrokersDown {
            self.reports.silent();
        }
    }
}

/// What is purged from the queue may wait there for another try.
fn kind(error: &KafkaError, message: &BorrowedMessage<'_>) -> DeliveryErrorKind {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::PurgeQueue) if may_have_landed(message) => {
            DeliveryErrorKind::Unknown
        }
        _ => classify(error),
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Slot;

    fn delivery(&self, result: &DeliveryResult<'_>, slot: Slot) {
        let result = match result {
            Ok(message) => Ok((message.offset() >= 0).then(|| message.offset())),
            Err((error, message)) => Err(Failure {
                error: DeliveryError {
                    kind: kind(error, message),
                    topic: message.topic().into(),
                    detail: detail(error).into(),
                },
                too_large: is_batch_too_large(error),
                invalid: error.rdkafka_error_code() == Some(RDKafkaErrorCode::InvalidRecord),
            }),
        };
        self.reports.push(Report { slot, result });
    }
}
