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
use walpost_librdkafka::{NoAccess, census, without_value};

/// Longest wait for the brokers.
const LIMIT: Duration = Duration::from_secs(10);
/// Once none of them could be reached.
const DOWN_LIMIT: Duration = Duration::from_secs(2);
const SLICE: Duration = Duration::from_millis(500);
/// Longest wait for each broker.
const EACH_LIMIT: Duration = Duration::from_secs(3);

/// What the brokers say of themselves and their topics, or why they say
/// nothing that counts. Blocks.
pub(crate) fn ask(config: &ClientConfig) -> Result<Metadata, String> {
    let context = Context::default();
    let told = context.told.clone();
    let start = Instant::now();
    let client: BaseConsumer<Context> = BaseConsumer::from_config_and_context(config, context)
        .map_err(|error| without_value(&error))?;
    loop {
        let error = match client.fetch_metadata(None, SLICE) {
            Ok(metadata) => {
                agree(&client)?;
                return Ok(metadata);
            }
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

/// Whether the brokers agree on who they are. One that is cut off from its
/// controller denies topics and partitions that exist.
fn agree(client: &BaseConsumer<Context>) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let found = census(client.client(), EACH_LIMIT).map_err(|code| code.to_string())?;
        let cut_off = found.cut_off();
        let reason = match found.doubt() {
            Some(doubt) => doubt,
            None if cut_off.is_empty() => return Ok(()),
            None => format!(
                "brokers {cut_off:?} are no more known to the others, and what they say does not \
                 count; see whether they reach the controller, or leave them out of \
                 kafka.bootstrap.servers"
            ),
        };
        if start.elapsed() >= LIMIT {
            return Err(reason);
        }
        std::thread::sleep(SLICE);
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
