use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};

use rdkafka::{ClientConfig, config::RDKafkaLogLevel};
use walpost_librdkafka::{NoAccess, without_value};
use walpost_relay::RelayError;

use crate::{
    batch::BatchBytes,
    creation::{Creation, TopicSettings},
    deliveries::Reports,
    reach::Reach,
    rules::Learnt,
    settings::{ConfigError, batch_bytes, checked, effective, transaction_timeout},
    sink::KafkaSink,
};

/// Settings of the sink, and what was learnt about the broker's limits.
///
/// Settings are librdkafka's, as strings. Those that the promise rests on are
/// fixed: see [`KafkaConnector::new`].
#[derive(Clone)]
pub struct KafkaConnector {
    settings: BTreeMap<String, String>,
    pub(crate) queue_max_bytes: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) batch_bytes: BatchBytes,
    /// The `transactional.id`, and how long a transaction is open.
    transactions: Option<(Arc<str>, Duration)>,
    /// Whether it was said that the brokers do not tell a topic's limit.
    pub(crate) denial_said: Arc<AtomicBool>,
    /// Whether brokers have ever let this process in.
    pub(crate) was_let_in: Arc<AtomicBool>,
    /// Whether brokers answer.
    pub(crate) reach: Arc<Reach>,
    /// How topics are made that do not exist.
    pub(crate) creation: Option<Creation>,
    /// What refusals have told of topics.
    pub(crate) learnt: Arc<Mutex<Learnt>>,
    /// Records go one at a time.
    one_by_one: bool,
}

impl std::fmt::Debug for KafkaConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.settings.keys().collect();
        f.debug_struct("KafkaConnector")
            .field("settings", &names)
            .field("transactional_id", &self.transactional_id())
            .finish_non_exhaustive()
    }
}

/// How the names of settings begin that are about connections, and not about
/// producing.
const GENERAL: [&str; 14] = [
    "api.version.",
    "bootstrap.",
    "broker.",
    "client.",
    "connections.",
    "enable.sasl.",
    "enable.ssl.",
    "https.",
    "receive.message.max.bytes",
    "reconnect.",
    "sasl.",
    "security.",
    "socket.",
    "ssl.",
];

impl KafkaConnector {
    /// Checks the settings. Nothing is connected yet.
    ///
    /// Fixed: `enable.idempotence`, `enable.gapless.guarantee`, `acks=all`,
    /// `message.timeout.ms=0` (for ever), `message.send.max.retries`,
    /// `delivery.report.only.error=false`, no `transactional.id`, and the
    /// partitioner, which is Java's. At most 5 requests are in flight.
    /// Defaults that differ from librdkafka's: `linger.ms` 2,
    /// `compression.type` lz4, `client.id` walpost, `batch.size` 900,000 and
    /// others that the command's default file lists. `batch.size` is where
    /// batches begin: they become smaller when a topic refuses one.
    ///
    /// # Errors
    /// [`ConfigError`] naming the setting.
    pub fn new(settings: BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let settings = checked(settings)?;
        // As they were given: librdkafka knows best what it takes.
        let mut given = ClientConfig::new();
        for (key, value) in &settings {
            given.set(key, value);
        }
        given.create_native_config().map_err(|error| {
            let text = without_value(&error);
            NoAccess::in_refusal(&text).map_or(ConfigError::Refused(text), ConfigError::Access)
        })?;
        if let Some(missing) = NoAccess::in_settings(&given) {
            return Err(ConfigError::Access(missing));
        }
        let batch_bytes = BatchBytes::new(batch_bytes(&settings)?);
        Ok(Self {
            settings,
            queue_max_bytes: 16 * 1024 * 1024,
            connect_timeout: Duration::from_secs(10),
            batch_bytes,
            transactions: None,
            denial_said: Arc::new(AtomicBool::new(false)),
            was_let_in: Arc::new(AtomicBool::new(false)),
            reach: Arc::default(),
            creation: None,
            learnt: Arc::default(),
            one_by_one: false,
        })
    }

    /// Bound on the bytes of events that are queued and not yet acknowledged,
    /// with their headers and what librdkafka keeps beside them.
    /// Default 16 MiB.
    #[must_use]
    pub fn queue_max_bytes(mut self, bytes: usize) -> Self {
        self.queue_max_bytes = bytes.max(1);
        self
    }

    /// Tells of brokers that do not answer together with `other`, which has the
    /// same ones: once for both.
    #[must_use]
    pub fn beside(mut self, other: &Self) -> Self {
        self.reach = other.reach.clone();
        self
    }

    /// Makes topics that do not exist, each as `of` says for its name; where that
    /// says nothing, and by default, the brokers make them, or nobody. Kafka
    /// Connect's `topic.creation.*` does this. Others may make the topic at the
    /// same time. What the brokers refuse is told, and the events of that topic
    /// wait as for any other that is missing.
    #[must_use]
    pub fn create_topics(
        mut self,
        of: impl Fn(&str) -> Option<TopicSettings> + Send + Sync + 'static,
    ) -> Self {
        self.creation = Some(Arc::new(of));
        self
    }

    /// Writes in transactions of `interval` under this `transactional.id`, which
    /// no other pipeline of the Kafka cluster may have. Readers with
    /// `isolation.level = read_committed` then see each event once, also when a
    /// relay that was replaced wakes beside its successor; an event becomes
    /// visible to them up to `interval` later. Brokers from Kafka 3.6 on verify
    /// transactions, which this rests on. Default: none.
    ///
    /// # Errors
    /// [`ConfigError::TransactionTooLong`] where `interval` is more than half of
    /// `transaction.timeout.ms`, by default 60,000 ms.
    pub fn transactional(self, id: &str, interval: Duration) -> Result<Self, ConfigError> {
        let timeout = transaction_timeout(&self.settings)?;
        if interval > timeout / 2 {
            let (interval_ms, timeout_ms) = (interval.as_millis(), timeout.as_millis());
            return Err(ConfigError::TransactionTooLong { interval_ms, timeout_ms });
        }
        Ok(Self { transactions: Some((id.into(), interval)), ..self })
    }

    /// Appends to the `transactional.id`, where there is one.
    #[must_use]
    pub fn named_after(mut self, name: &str) -> Self {
        if let Some((id, _)) = &mut self.transactions {
            *id = format!("{id}-{name}").into();
        }
        self
    }

    /// The `transactional.id`.
    pub fn transactional_id(&self) -> Option<&str> {
        self.transactions.as_ref().map(|(id, _)| &**id)
    }

    pub(crate) fn transaction_interval(&self) -> Option<Duration> {
        self.transactions.as_ref().map(|(_, interval)| *interval)
    }

    /// Opens a producer and waits until a broker answers.
    ///
    /// # Errors
    /// A transient [`RelayError::Sink`] when none answers in time;
    /// [`RelayError::SinkAccess`] when the brokers let nobody in by these
    /// settings, unless they have before.
    pub async fn connect(&self) -> Result<KafkaSink, RelayError> {
        KafkaSink::connect(self.clone()).await
    }

    /// For records that go one at a time: nothing is behind one that is refused, so
    /// its producer goes on, and none waits for others.
    pub(crate) fn one_by_one(&self) -> Self {
        Self { one_by_one: true, ..self.clone() }
    }

    /// For one client.
    pub(crate) fn reports(&self) -> Reports {
        Reports::new(self.bootstrap_servers(), self.reach.clone())
    }

    /// The brokers, as they were given.
    pub fn bootstrap_servers(&self) -> &str {
        self.settings.get("bootstrap.servers").map(String::as_str).unwrap_or_default()
    }

    /// Settings for clients of any kind: where the brokers are, and how to log
    /// in.
    pub fn admin_config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (key, value) in &self.settings {
            if GENERAL.iter().any(|prefix| key.starts_with(prefix)) {
                config.set(key, value);
            }
        }
        config
    }

    pub(crate) fn client_config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (key, value) in
            effective(&self.settings, self.batch_bytes.get(), self.transactional_id())
        {
            if key == "log_level" {
                config.set_log_level(log_level(&value));
            }
            config.set(key, value);
        }
        if self.one_by_one {
            config.set("enable.gapless.guarantee", "false").set("linger.ms", "0");
        }
        config
    }
}

/// rust-rdkafka sets a level of its own, over that of the setting.
fn log_level(value: &str) -> RDKafkaLogLevel {
    match value.trim().parse::<i32>().unwrap_or(4) {
        ..=0 => RDKafkaLogLevel::Emerg,
        1 => RDKafkaLogLevel::Alert,
        2 => RDKafkaLogLevel::Critical,
        3 => RDKafkaLogLevel::Error,
        4 => RDKafkaLogLevel::Warning,
        5 => RDKafkaLogLevel::Notice,
        6 => RDKafkaLogLevel::Info,
        7.. => RDKafkaLogLevel::Debug,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connector(pairs: &[(&str, &str)]) -> Result<KafkaConnector, ConfigError> {
        let servers = [("bootstrap.servers", "h:1")];
        let pairs = servers.iter().chain(pairs);
        KafkaConnector::new(
            pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        )
    }

    #[test]
    fn an_unknown_setting_and_a_wrong_value_are_named_without_the_value() {
        for key in ["sasl.pasword", "linger.ms", "batch.size"] {
            let text = connector(&[(key, "hunter2")]).unwrap_err().to_string();
            assert!(text.contains(key) && !text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn librdkafka_takes_all_that_is_ours() {
        connector(&[]).unwrap().client_config().create_native_config().unwrap();
    }

    #[test]
    fn the_log_level_is_the_one_that_is_set() {
        let level = |pairs| connector(pairs).unwrap().client_config().log_level as i32;
        assert_eq!((level(&[]), level(&[("log_level", "7")])), (4, 7));
    }

    #[test]
    fn a_transaction_ends_before_the_brokers_give_it_up() {
        let transactional = |pairs, ms| {
            let connector = connector(pairs).unwrap();
            connector.transactional("x", Duration::from_millis(ms)).map(drop)
        };
        assert_eq!(transactional(&[], 30_000), Ok(()));
        assert!(transactional(&[], 30_001).is_err());
        let short = [("transaction.timeout.ms", "10000")];
        assert_eq!(transactional(&short, 5_000), Ok(()));
        let text = transactional(&short, 5_001).unwrap_err().to_string();
        assert!(text.contains("5001") && text.contains("10000"), "{text}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?}", connector(&[("sasl.password", "hunter2")]).unwrap());
        assert!(shown.contains("sasl.password") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn the_batch_size_that_was_given_is_used_until_a_topic_refuses_it() {
        let connector = connector(&[("batch.size", "2000000")]).unwrap();
        let used = |connector: &KafkaConnector| {
            connector.client_config().get("batch.size").map(str::to_owned)
        };
        assert_eq!(used(&connector).as_deref(), Some("2000000"));
        let another_session = connector.clone();
        connector.batch_bytes.shrink(2_000_000, None);
        assert_eq!(used(&another_session).as_deref(), Some("1000000"));
    }
}
