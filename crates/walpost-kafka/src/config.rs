use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rdkafka::{ClientConfig, error::KafkaError};
use walpost_relay::RelayError;

use crate::sink::KafkaSink;

/// Kafka's `max.message.bytes` is 1,048,588 where nobody set it; the rest is
/// room for the framing of a batch.
const BATCH_BYTES_DEFAULT: usize = 900_000;
const BATCH_BYTES_MIN: usize = 16 * 1024;
/// Our own queue bounds apply first; these keep librdkafka's out of the way.
const QUEUE_MESSAGES: usize = 200_000;

/// Settings of the sink, and what was learnt about the broker's limits.
///
/// Settings are librdkafka's, as strings. Those that the promise rests on are
/// fixed: see [`KafkaConnector::new`].
#[derive(Clone)]
pub struct KafkaConnector {
    settings: BTreeMap<String, String>,
    pub(crate) queue_max_bytes: usize,
    pub(crate) default_max_message_bytes: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) batch_bytes: Arc<AtomicUsize>,
}

impl std::fmt::Debug for KafkaConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.settings.keys().collect();
        f.debug_struct("KafkaConnector").field("settings", &names).finish_non_exhaustive()
    }
}

/// A setting cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A setting that the promise rests on.
    #[error(
        "kafka.{key} = {value:?} would break the promise that no event is lost or overtaken; remove it (walpost sets {ours})"
    )]
    Fixed {
        /// The setting.
        key: String,
        /// The value that was given.
        value: String,
        /// The value that Walpost uses.
        ours: &'static str,
    },
    /// No broker is named.
    #[error("kafka.bootstrap.servers is missing; name at least one broker as host:port")]
    NoBootstrap,
    /// librdkafka does not know the setting or refuses its value.
    #[error("librdkafka refuses the settings: {0}")]
    Refused(String),
}

/// What the promise rests on, and may not be changed.
const FIXED: [(&str, &str); 7] = [
    ("delivery.report.only.error", "false"),
    ("enable.idempotence", "true"),
    ("enable.gapless.guarantee", "true"),
    ("acks", "all"),
    ("message.timeout.ms", "0"),
    ("max.in.flight.requests.per.connection", "5"),
    ("message.send.max.retries", "2147483647"),
];

/// Other names of the fixed settings.
const ALIASES: [(&str, &str); 5] = [
    ("request.required.acks", "acks"),
    ("delivery.timeout.ms", "message.timeout.ms"),
    ("max.in.flight", "max.in.flight.requests.per.connection"),
    ("retries", "message.send.max.retries"),
    ("partitioner", "partitioner"),
];

impl KafkaConnector {
    /// Checks the settings. Nothing is connected yet.
    ///
    /// Fixed: `enable.idempotence`, `enable.gapless.guarantee`, `acks=all`,
    /// `message.timeout.ms=0` (for ever), at most 5 requests in flight, and
    /// the partitioner, which is Java's. Defaults that differ from
    /// librdkafka's: `linger.ms` 2, `compression.type` lz4, `client.id`
    /// walpost.
    ///
    /// # Errors
    /// [`ConfigError`] naming the setting.
    pub fn new(settings: BTreeMap<String, String>) -> Result<Self, ConfigError> {
        for (key, value) in &settings {
            let alias = ALIASES.iter().find(|(alias, _)| alias == key).map(|(_, name)| *name);
            let name = alias.unwrap_or(key);
            let fixed = FIXED.iter().find(|(fixed, _)| *fixed == name);
            let ours = match fixed {
                Some((_, ours)) => *ours,
                None if name == "partitioner" => "Java's default partitioner",
                None if name == "transactional.id" => "none",
                None => continue,
            };
            if !same_value(name, value, ours) {
                let (key, value) = (key.clone(), value.clone());
                return Err(ConfigError::Fixed { key, value, ours });
            }
        }
        let named = ["bootstrap.servers", "metadata.broker.list"]
            .iter()
            .any(|key| settings.get(*key).is_some_and(|servers| !servers.trim().is_empty()));
        if !named {
            return Err(ConfigError::NoBootstrap);
        }
        let connector = Self {
            settings,
            queue_max_bytes: 16 * 1024 * 1024,
            default_max_message_bytes: 1_048_588,
            connect_timeout: Duration::from_secs(10),
            batch_bytes: Arc::new(AtomicUsize::new(BATCH_BYTES_DEFAULT)),
        };
        connector
            .client_config()
            .create_native_config()
            .map_err(|error| ConfigError::Refused(without_value(&error)))?;
        Ok(connector)
    }

    /// Bound on the bytes of events that are queued and not yet acknowledged.
    /// Default 16 MiB.
    #[must_use]
    pub fn queue_max_bytes(mut self, bytes: usize) -> Self {
        self.queue_max_bytes = bytes.max(1);
        self
    }

    /// Opens a producer and waits until a broker answers.
    ///
    /// # Errors
    /// A transient [`RelayError::Sink`] when none answers in time.
    pub async fn connect(&self) -> Result<KafkaSink, RelayError> {
        KafkaSink::connect(self.clone()).await
    }

    /// The brokers, as they were given.
    pub fn bootstrap_servers(&self) -> &str {
        let get = |key: &str| self.settings.get(key).map(String::as_str);
        get("bootstrap.servers").or_else(|| get("metadata.broker.list")).unwrap_or_default()
    }

    /// Settings for clients of any kind: where the brokers are, and how to log
    /// in.
    pub fn admin_config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (key, value) in &self.settings {
            let general = ["bootstrap.", "metadata.broker.list", "security.", "sasl.", "ssl."];
            let general = general.iter().any(|prefix| key.starts_with(prefix));
            if general || key == "client.id" || key.starts_with("socket.") {
                config.set(key, value);
            }
        }
        config
    }

    pub(crate) fn client_config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("client.id", "walpost")
            .set("linger.ms", "2")
            .set("compression.type", "lz4")
            .set("queue.buffering.max.messages", QUEUE_MESSAGES.to_string())
            .set("queue.buffering.max.kbytes", (2 * self.queue_max_bytes / 1024 + 64 * 1024).to_string())
            // The limit is the topic's, which is asked for; not the client's.
            .set("message.max.bytes", "1000000000")
            .set("batch.num.messages", "100000")
            .set("socket.keepalive.enable", "true")
            .set("reconnect.backoff.max.ms", "2000")
            .set("log_level", "4");
        for (key, value) in &self.settings {
            config.set(key, value);
        }
        for (key, value) in FIXED {
            config.set(key, value);
        }
        config.set("batch.size", self.batch_bytes.load(Ordering::Relaxed).to_string());
        config
    }

    /// Halves the batches after the broker refused one as too large; false
    /// when they are as small as is sensible.
    pub(crate) fn shrink_batches(&self) -> bool {
        let halve =
            |bytes: usize| (bytes > BATCH_BYTES_MIN).then_some((bytes / 2).max(BATCH_BYTES_MIN));
        self.batch_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, halve).is_ok()
    }
}

/// What librdkafka says of a setting, without the value, which may be a secret.
fn without_value(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, description, key, _) => format!("{key}: {description}"),
        error => error.to_string(),
    }
}

/// `acks` has two spellings of the same value.
fn same_value(name: &str, value: &str, ours: &str) -> bool {
    let value = value.trim();
    value.eq_ignore_ascii_case(ours) || (name == "acks" && value == "-1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn refusal(pairs: &[(&str, &str)]) -> String {
        KafkaConnector::new(settings(pairs)).unwrap_err().to_string()
    }

    #[test]
    fn what_the_promise_rests_on_cannot_be_changed_under_any_name() {
        for (key, value) in [
            ("acks", "1"),
            ("request.required.acks", "0"),
            ("enable.idempotence", "false"),
            ("delivery.timeout.ms", "120000"),
            ("max.in.flight", "1000000"),
            ("partitioner", "consistent"),
            ("transactional.id", "x"),
            ("delivery.report.only.error", "true"),
        ] {
            let text = refusal(&[("bootstrap.servers", "h:1"), (key, value)]);
            assert!(text.contains(key) && text.contains("promise"), "{text}");
        }
        for (key, value) in [("acks", "-1"), ("acks", "all"), ("enable.idempotence", "TRUE")] {
            KafkaConnector::new(settings(&[("bootstrap.servers", "h:1"), (key, value)])).unwrap();
        }
    }

    #[test]
    fn a_missing_broker_and_an_unknown_setting_are_named() {
        assert!(refusal(&[]).contains("bootstrap.servers"));
        let unknown = refusal(&[("bootstrap.servers", "h:1"), ("sasl.pasword", "hunter2")]);
        assert!(unknown.contains("sasl.pasword") && !unknown.contains("hunter2"), "{unknown}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let given = settings(&[("bootstrap.servers", "h:1"), ("sasl.password", "hunter2")]);
        let shown = format!("{:?}", KafkaConnector::new(given).unwrap());
        assert!(shown.contains("sasl.password") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn batches_shrink_to_a_floor() {
        let connector = KafkaConnector::new(settings(&[("bootstrap.servers", "h:1")])).unwrap();
        let mut steps = 0;
        while connector.shrink_batches() {
            steps += 1;
        }
        assert_eq!(steps, 6);
        assert_eq!(connector.batch_bytes.load(Ordering::Relaxed), BATCH_BYTES_MIN);
    }
}
