use std::sync::{Arc, Mutex, MutexGuard};

use rdkafka::{
    ClientContext, Message as _, config::RDKafkaLogLevel, error::KafkaError,
    message::DeliveryResult, producer::ProducerContext, types::RDKafkaErrorCode,
};
use tokio::sync::Notify;
use walpost_relay::{Delivery, DeliveryError, Ticket};

use crate::classify::{classify, is_batch_too_large};

/// Where librdkafka's threads leave delivery reports for the pipeline.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    settled: Mutex<Vec<Report>>,
    wake: Notify,
    trouble: Mutex<Option<String>>,
}

/// One delivery report, with what the sink keeps books on.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) delivery: Delivery,
    pub(crate) lane: LaneId,
    pub(crate) bytes: usize,
    /// The broker found the batch too large.
    pub(crate) too_large: bool,
}

/// Index of a topic-partition within one sink.
pub(crate) type LaneId = u32;

/// Ticket and lane travel through librdkafka in one pointer.
const TICKET_BITS: u32 = 40;

/// Packs a ticket and its lane; `None` beyond a trillion events or 16 million
/// partitions in one session.
pub(crate) fn opaque(ticket: Ticket, lane: LaneId) -> Option<usize> {
    let fits = ticket >> TICKET_BITS == 0 && lane >> (64 - TICKET_BITS) == 0;
    fits.then(|| (u64::from(lane) << TICKET_BITS | ticket) as usize)
}

fn unpack(opaque: usize) -> (Ticket, LaneId) {
    let opaque = opaque as u64;
    (opaque & ((1 << TICKET_BITS) - 1), (opaque >> TICKET_BITS) as LaneId)
}

/// Bytes that a message takes while it is queued: its own, and about what
/// librdkafka keeps beside them.
pub(crate) fn queued_bytes(key: usize, payload: usize) -> usize {
    key + payload + 512
}

impl Reports {
    /// Waits until there is a report, or until woken.
    pub(crate) async fn changed(&self) {
        self.wake.notified().await;
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(crate) fn take(&self, into: &mut Vec<Report>) {
        std::mem::swap(&mut *lock(&self.settled), into);
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        *lock(&self.trouble) = trouble;
    }

    /// Adds a report.
    pub(crate) fn push(&self, report: Report) {
        let mut settled = lock(&self.settled);
        settled.push(report);
        let first = settled.len() == 1;
        drop(settled);
        if first {
            self.wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds these locks can leave them half written.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Callbacks of the producer.
pub(crate) struct Context {
    pub(crate) reports: Arc<Reports>,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error
            | RDKafkaLogLevel::Warning => tracing::debug!(facility, message, "librdkafka"),
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
                tracing::trace!(facility, message, "librdkafka");
            }
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "librdkafka");
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
            tracing::warn!("no broker answers; events wait in PostgreSQL");
            self.reports.set_trouble(Some("no broker answers".to_owned()));
        }
    }
}

impl ProducerContext for Context {
    /// Ticket and lane, packed.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: usize) {
        let (ticket, lane) = unpack(opaque);
        let too_large = result.as_ref().is_err_and(|(error, _)| is_batch_too_large(error));
        let (message, result) = match result {
            Ok(message) => (message, Ok(())),
            Err((error, message)) => {
                let error = DeliveryError {
                    kind: classify(error),
                    topic: message.topic().into(),
                    detail: error.to_string().into(),
                };
                (message, Err(error))
            }
        };
        let bytes = queued_bytes(message.key_len(), message.payload_len());
        let delivery = Delivery { ticket, result };
        self.reports.push(Report { delivery, lane, bytes, too_large });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticket_and_lane_come_back() {
        for (ticket, lane) in [(0, 0), (1, 7), ((1 << 40) - 1, (1 << 24) - 1)] {
            assert_eq!(unpack(opaque(ticket, lane).unwrap()), (ticket, lane));
        }
        assert_eq!(opaque(1 << 40, 0), None);
        assert_eq!(opaque(0, 1 << 24), None);
    }
}
