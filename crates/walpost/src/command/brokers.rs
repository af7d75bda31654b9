use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, ClientContext,
    config::{FromClientConfigAndContext, RDKafkaLogLevel},
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::{KafkaError, RDKafkaErrorCode},
    metadata::Metadata,
};
use walpost_librdkafka::{NoAccess, without_value};

/// Longest wait for the brokers.
const LIMIT: Duration = Duration::from_secs(10);
/// Once none of them could be reached.
const DOWN_LIMIT: Duration = Duration::from_secs(2);
const SLICE: Duration = Duration::from_millis(500);

/// What the brokers say of themselves and their topics, or why they say
/// nothing. Blocks.
pub(crate) fn ask(config: &ClientConfig) -> Result<Metadata, String> {
    let context = Context::default();
    let told = context.told.clone();
    let start = Instant::now();
    let client: BaseConsumer<Context> = BaseConsumer::from_config_and_context(config, context)
        .map_err(|error| without_value(&error))?;
    loop {
        let error = match client.fetch_metadata(None, SLICE) {
            Ok(metadata) => return Ok(metadata),
            Err(error) => error,
        };
        // Serves what the brokers' threads have to tell.
        drop(client.poll(Duration::ZERO));
        let told = told.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = if told.are_down { DOWN_LIMIT } else { LIMIT };
        if start.elapsed() >= limit {
            return Err(told.reason.clone().unwrap_or_else(|| error.to_string()));
        }
    }
}

/// Keeps what librdkafka would log.
#[derive(Debug, Default)]
struct Context {
    told: Arc<Mutex<Told>>,
}

#[derive(Debug, Default)]
struct Told {
    /// Of the last broker that could not be used.
    reason: Option<String>,
    are_down: bool,
}

impl ClientContext for Context {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AllBrokersDown) => told.are_down = true,
            code => {
                let no_access = code.and_then(|code| NoAccess::of(code, reason));
                let told_reason = no_access.map_or_else(|| reason.to_owned(), |no| no.to_string());
                told.reason = Some(told_reason);
            }
        }
    }
}

impl ConsumerContext for Context {}
