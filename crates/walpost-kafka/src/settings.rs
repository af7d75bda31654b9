use std::{collections::BTreeMap, time::Duration};

use walpost_librdkafka::NoAccess;

use crate::batch::BATCH_BYTES;

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
    /// One setting under two names, with two values.
    #[error("kafka.{one} and kafka.{other} are one setting with two values; remove one of them")]
    Twice {
        /// One name.
        one: String,
        /// The other.
        other: String,
    },
    /// A transaction would be given up before it is committed.
    #[error(
        "transactions of {interval_ms} ms are too long for kafka.transaction.timeout.ms = \
         {timeout_ms}: at most half of it"
    )]
    TransactionTooLong {
        /// The interval that was asked for.
        interval_ms: u128,
        /// What the brokers allow.
        timeout_ms: u128,
    },
    /// No broker is named.
    #[error("kafka.bootstrap.servers is missing; name at least one broker as host:port")]
    NoBootstrap,
    /// The login that is asked for lacks something.
    #[error("{0}")]
    Access(NoAccess),
    /// librdkafka does not know the setting or refuses its value.
    #[error("librdkafka refuses the settings: {0}")]
    Refused(String),
}

/// What the promise rests on, and may not be changed.
pub(crate) const FIXED: [(&str, &str); 6] = [
    ("delivery.report.only.error", "false"),
    ("enable.idempotence", "true"),
    ("enable.gapless.guarantee", "true"),
    ("acks", "all"),
    ("message.timeout.ms", "0"),
    ("message.send.max.retries", "2147483647"),
];

/// Defaults that differ from librdkafka's.
pub(crate) const DEFAULTS: [(&str, &str); 11] = [
    ("client.id", "walpost"),
    ("linger.ms", "2"),
    ("compression.type", "lz4"),
    (IN_FLIGHT, "5"),
    ("batch.num.messages", "100000"),
    // The limit is the topic's, which is asked for; not the client's.
    ("message.max.bytes", "1000000000"),
    // The queue is bounded by what we count ourselves.
    ("queue.buffering.max.messages", "0"),
    ("queue.buffering.max.kbytes", "2147483647"),
    ("socket.keepalive.enable", "true"),
    ("reconnect.backoff.max.ms", "2000"),
    // Of what librdkafka says, warnings and worse.
    ("log_level", "4"),
];

const TRANSACTION_TIMEOUT: &str = "transaction.timeout.ms";
/// librdkafka's default.
const TRANSACTION_TIMEOUT_MS: &str = "60000";

const IN_FLIGHT: &str = "max.in.flight.requests.per.connection";
/// How many batches of a producer a broker keeps the numbers of.
const IN_FLIGHT_MAX: u32 = 5;
const BATCH_SIZE: &str = "batch.size";

/// librdkafka's other names of settings that have a value of ours.
const ALIASES: [(&str, &str); 8] = [
    ("metadata.broker.list", "bootstrap.servers"),
    ("sasl.mechanisms", "sasl.mechanism"),
    ("request.required.acks", "acks"),
    ("delivery.timeout.ms", "message.timeout.ms"),
    ("max.in.flight", IN_FLIGHT),
    ("retries", "message.send.max.retries"),
    ("queue.buffering.max.ms", "linger.ms"),
    ("compression.codec", "compression.type"),
];

/// Settings under one name each, none of them against the promise.
pub(crate) fn checked(
    given: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut settings: BTreeMap<String, (String, String)> = BTreeMap::new();
    for (key, value) in given {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == key);
        let name = alias.map_or(key.as_str(), |(_, name)| name).to_owned();
        if let Some(ours) = broken_promise(&name, &value) {
            return Err(ConfigError::Fixed { key, value, ours });
        }
        match settings.get(&name) {
            Some((other, before)) if *before != value => {
                return Err(ConfigError::Twice { one: key, other: other.clone() });
            }
            _ => settings.insert(name, (key, value)),
        };
    }
    let settings: BTreeMap<String, String> =
        settings.into_iter().map(|(name, (_, value))| (name, value)).collect();
    match settings.get("bootstrap.servers") {
        Some(servers) if !servers.trim().is_empty() => Ok(settings),
        _ => Err(ConfigError::NoBootstrap),
    }
}

/// After how long the brokers give up a transaction.
///
/// # Errors
/// [`ConfigError::Refused`] where it is no number.
pub(crate) fn transaction_timeout(
    settings: &BTreeMap<String, String>,
) -> Result<Duration, ConfigError> {
    let given = settings.get(TRANSACTION_TIMEOUT).map_or(TRANSACTION_TIMEOUT_MS, String::as_str);
    let timeout = given.trim().parse().map(Duration::from_millis);
    timeout.map_err(|_| ConfigError::Refused(format!("{TRANSACTION_TIMEOUT}: no number of ms")))
}

/// The value that we need instead of this one, if it is another.
fn broken_promise(name: &str, value: &str) -> Option<&'static str> {
    let value = value.trim();
    let (is_ours, ours) = match name {
        "partitioner" => (false, "Java's default partitioner"),
        "transactional.id" => {
            (false, "that of sink.transactional_id, where sink.publish = \"transactional\"")
        }
        IN_FLIGHT => {
            let number = value.parse().is_ok_and(|number| (1..=IN_FLIGHT_MAX).contains(&number));
            (number, "5, and takes 1 to 5")
        }
        // Two spellings of one value.
        "acks" if value == "-1" => (true, "all"),
        _ => {
            let (_, ours) = FIXED.iter().find(|(fixed, _)| *fixed == name)?;
            (value.eq_ignore_ascii_case(ours), *ours)
        }
    };
    (!is_ours).then_some(ours)
}

/// The bytes of a batch to begin with.
///
/// # Errors
/// [`ConfigError::Refused`] where it is no number.
pub(crate) fn batch_bytes(settings: &BTreeMap<String, String>) -> Result<usize, ConfigError> {
    let Some(given) = settings.get(BATCH_SIZE) else { return Ok(BATCH_BYTES) };
    let number = given.trim().parse().ok().filter(|bytes| *bytes > 0);
    number.ok_or_else(|| ConfigError::Refused(format!("{BATCH_SIZE}: no number of bytes")))
}

/// All that librdkafka is told: defaults, what was given, and what is fixed.
pub(crate) fn effective(
    given: &BTreeMap<String, String>,
    batch_bytes: usize,
    transactional_id: Option<&str>,
) -> BTreeMap<String, String> {
    let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let mut settings: BTreeMap<String, String> = owned(&DEFAULTS).into_iter().collect();
    settings.extend(given.clone());
    settings.extend(owned(&FIXED));
    if let Some(id) = transactional_id {
        // A record that its transaction cannot wait for any more ends it, and
        // the session, and comes again. librdkafka insists on both.
        let timeout = given.get(TRANSACTION_TIMEOUT).map_or(TRANSACTION_TIMEOUT_MS, String::as_str);
        settings.extend(owned(&[
            ("transactional.id", id),
            ("enable.gapless.guarantee", "false"),
            ("message.timeout.ms", timeout),
        ]));
    }
    settings.insert(BATCH_SIZE.to_owned(), batch_bytes.to_string());
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let servers = [("bootstrap.servers", "h:1")];
        let pairs = servers.iter().chain(pairs);
        pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_the_promise_rests_on_cannot_be_changed_under_any_name() {
        for (key, value) in [
            ("acks", "1"),
            ("request.required.acks", "0"),
            ("enable.idempotence", "false"),
            ("enable.gapless.guarantee", "false"),
            ("delivery.timeout.ms", "120000"),
            ("max.in.flight", "1000000"),
            ("max.in.flight.requests.per.connection", "6"),
            ("max.in.flight", "0"),
            ("retries", "3"),
            ("partitioner", "consistent"),
            ("transactional.id", "x"),
            ("delivery.report.only.error", "true"),
        ] {
            let text = checked(settings(&[(key, value)])).unwrap_err().to_string();
            assert!(text.contains(key) && text.contains("promise"), "{text}");
        }
        for (key, value) in [("acks", "-1"), ("acks", "all"), ("enable.idempotence", "TRUE")] {
            checked(settings(&[(key, value)])).unwrap();
        }
    }

    #[test]
    fn in_transactions_what_librdkafka_would_refuse_beside_them_is_left_out() {
        for given in [&[][..], &[(TRANSACTION_TIMEOUT, "20000")]] {
            let effective = effective(&settings(given), 1, Some("walpost-shop"));
            assert_eq!(effective["transactional.id"], "walpost-shop");
            assert_eq!(effective["enable.idempotence"], "true");
            let config: rdkafka::ClientConfig = effective.into_iter().collect();
            // Looks at the settings as a whole, and connects to nobody.
            let _producer: rdkafka::producer::BaseProducer = config.create().unwrap();
        }
    }

    #[test]
    fn fewer_requests_in_flight_than_five_are_safe_and_honoured() {
        for (key, value) in [("max.in.flight", "1"), (IN_FLIGHT, "3"), (IN_FLIGHT, "5")] {
            let given = checked(settings(&[(key, value)])).unwrap();
            assert_eq!(effective(&given, 1, None)[IN_FLIGHT], value);
        }
        assert_eq!(effective(&settings(&[]), 1, None)[IN_FLIGHT], "5");
    }

    #[test]
    fn a_setting_wins_over_our_default_under_each_of_its_names() {
        for (key, name, value) in [
            ("queue.buffering.max.ms", "linger.ms", "50"),
            ("linger.ms", "linger.ms", "50"),
            ("compression.codec", "compression.type", "zstd"),
        ] {
            let effective = effective(&checked(settings(&[(key, value)])).unwrap(), 1, None);
            assert_eq!(effective[name], value);
            assert!(key == name || !effective.contains_key(key), "one name for librdkafka");
        }
        let twice = settings(&[("queue.buffering.max.ms", "5"), ("linger.ms", "6")]);
        let text = checked(twice).unwrap_err().to_string();
        assert!(text.contains("linger.ms") && text.contains("queue.buffering.max.ms"), "{text}");
        checked(settings(&[("queue.buffering.max.ms", "5"), ("linger.ms", "5")])).unwrap();
    }

    #[test]
    fn a_missing_broker_is_named() {
        for servers in ["", " "] {
            let given = BTreeMap::from([("bootstrap.servers".to_owned(), servers.to_owned())]);
            assert_eq!(checked(given), Err(ConfigError::NoBootstrap));
        }
        let given = BTreeMap::from([("metadata.broker.list".to_owned(), "h:1".to_owned())]);
        assert_eq!(checked(given).unwrap()["bootstrap.servers"], "h:1");
    }

    #[test]
    fn a_batch_size_that_is_given_is_where_batches_begin() {
        assert_eq!(batch_bytes(&settings(&[])), Ok(BATCH_BYTES));
        assert_eq!(batch_bytes(&settings(&[(BATCH_SIZE, "2000000")])), Ok(2_000_000));
        for wrong in ["0", "-1", "many"] {
            let text = batch_bytes(&settings(&[(BATCH_SIZE, wrong)])).unwrap_err().to_string();
            assert!(text.contains(BATCH_SIZE), "{text}");
        }
        let given = settings(&[(BATCH_SIZE, "2000000")]);
        assert_eq!(
            effective(&given, 1_000_000, None)[BATCH_SIZE],
            "1000000",
            "after it was halved"
        );
    }

    /// The default file is the manual.
    #[test]
    fn the_default_file_tells_every_setting_that_is_ours() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../walpost/config.default.toml");
        let manual = std::fs::read_to_string(path).unwrap();
        let batch = BATCH_BYTES.to_string();
        for (name, value) in FIXED.iter().chain(&DEFAULTS).chain([&(BATCH_SIZE, batch.as_str())]) {
            let line = format!("#   {name} = {value}");
            let told =
                manual.lines().any(|told| told == line || told.starts_with(&format!("{line}  ")));
            assert!(told, "{line:?} is not in the default file");
        }
    }
}
