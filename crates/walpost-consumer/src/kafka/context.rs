use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use rdkafka::{
    ClientContext, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    types::RDKafkaRespErr,
};

/// Receives librdkafka's callbacks, all of which come on Kafka's thread while
/// it polls. None of them blocks: they are noted, and carried out by the
/// thread after the poll.
#[derive(Debug, Default)]
pub(super) struct Context {
    notes: Mutex<Vec<Note>>,
    served: AtomicU64,
    closing: AtomicBool,
}

/// Facility of the log lines about connections that failed; the same comes by
/// the callback for errors.
const FAILED: &str = "FAIL";

/// What a callback said.
#[derive(Debug)]
pub(super) enum Note {
    Complaint {
        code: RDKafkaErrorCode,
        reason: String,
    },
    Assign(Vec<(String, i32)>),
    Revoke {
        partitions: Vec<(String, i32)>,
        lost: bool,
    },
    /// A commit ended: its partitions with their offsets, and how.
    Committed {
        result: Result<(), String>,
        offsets: Vec<(String, i32, i64, Result<(), String>)>,
    },
}

impl Context {
    /// What was noted since the last call.
    pub(super) fn take_notes(&self) -> Vec<Note> {
        std::mem::take(&mut *self.notes())
    }

    /// Callbacks so far: whether a poll that returned no message did anything.
    pub(super) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// From here on partitions are given back at once.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    fn note(&self, note: Note) {
        self.served.fetch_add(1, Ordering::Relaxed);
        self.notes().push(note);
    }

    fn notes(&self) -> MutexGuard<'_, Vec<Note>> {
        self.notes.lock().expect("no code panics while it holds the lock")
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            _ if facility == FAILED => tracing::debug!(facility, "librdkafka: {message}"),
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error => tracing::error!(facility, "librdkafka: {message}"),
            RDKafkaLogLevel::Warning => tracing::warn!(facility, "librdkafka: {message}"),
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
                tracing::info!(facility, "librdkafka: {message}");
            }
            RDKafkaLogLevel::Debug => tracing::debug!(facility, "librdkafka: {message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::trace!(%error, "librdkafka: {reason}");
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        // That is no error, and comes by the partition's queue.
        if code == RDKafkaErrorCode::PartitionEOF || matches!(error, KafkaError::PartitionEOF(_)) {
            return;
        }
        self.note(Note::Complaint { code, reason: reason.to_owned() });
    }

    fn stats_raw(&self, _: &[u8]) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }
}

impl ConsumerContext for Context {
    /// librdkafka waits for the assign or unassign call, which the thread
    /// makes after the poll.
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        kind: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        if self.is_closing() {
            give_back(consumer, list);
            return;
        }
        let partitions = list
            .elements()
            .iter()
            .map(|element| (element.topic().to_owned(), element.partition()))
            .collect();
        self.note(match kind {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => Note::Assign(partitions),
            _ => Note::Revoke { partitions, lost: consumer.assignment_lost() },
        });
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        let offsets = offsets
            .elements()
            .iter()
            .filter_map(|element| {
                let offset = element.offset().to_raw()?;
                let result = element.error().map_err(|error| error.to_string());
                Some((element.topic().to_owned(), element.partition(), offset, result))
            })
            .collect();
        let result = result.map_err(|error| error.to_string());
        self.note(Note::Committed { result, offsets });
    }
}

fn give_back(consumer: &BaseConsumer<Context>, list: &TopicPartitionList) {
    let given = match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_unassign(list),
        RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.unassign(),
    };
    if let Err(error) = given {
        tracing::debug!(%error, "gave partitions back while closing");
    }
}
