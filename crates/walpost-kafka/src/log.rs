use rdkafka::{
    ClientContext, config::RDKafkaLogLevel, consumer::ConsumerContext, error::KafkaError,
};

/// A client whose callers get every error as an answer, so that what librdkafka
/// says besides is for debugging.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        note(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "librdkafka");
    }
}

impl ConsumerContext for Quiet {}

/// Passes on a line of librdkafka's own log.
pub(crate) fn note(level: RDKafkaLogLevel, facility: &str, message: &str) {
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
