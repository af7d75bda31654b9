use rdkafka::{ClientConfig, config::RDKafkaLogLevel};

use crate::settings::Settings;

/// librdkafka's configuration: ours first, then the user's, then what may not
/// be otherwise.
pub(super) fn client_config(settings: &Settings) -> ClientConfig {
    let read_ahead_kbytes = (settings.max_batch_bytes / 512).clamp(1024, 64 << 10);
    let mut config = ClientConfig::new();
    config
        .set("client.id", format!("walpost-{}", settings.consumer))
        .set(
            "queued.min.messages",
            (settings.max_batch_events * 2).clamp(1, 10_000_000).to_string(),
        )
        .set("queued.max.messages.kbytes", read_ahead_kbytes.to_string())
        // Little at a time, and at once when there is room: what was read ahead
        // is most of a consumer's memory.
        .set("fetch.message.max.bytes", (256 << 10).to_string())
        .set("fetch.queue.backoff.ms", "2")
        .set("fetch.wait.max.ms", "100")
        .set("fetch.error.backoff.ms", "100")
        .set("reconnect.backoff.max.ms", "2000")
        .set("topic.metadata.refresh.interval.ms", "30000")
        .set("socket.keepalive.enable", "true")
        .set("isolation.level", "read_committed");
    for (name, value) in &settings.kafka {
        config.set(name, value);
    }
    let session_timeout_ms = settings.session_timeout_ms;
    config
        .set("group.id", settings.group_id())
        .set("max.poll.interval.ms", session_timeout_ms.max(300_000).to_string())
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        // By which it is known that nothing is behind.
        .set("enable.partition.eof", "true")
        .set("allow.auto.create.topics", "false")
        .set("auto.offset.reset", "error")
        .set_log_level(RDKafkaLogLevel::Info);
    // Under the new group protocol these are the broker's, and refused.
    if members_assign(&config) {
        config
            .set("session.timeout.ms", session_timeout_ms.to_string())
            .set("heartbeat.interval.ms", heartbeat_interval_ms(settings).to_string());
        if config.get("partition.assignment.strategy").is_none() {
            let is_static = config.get("group.instance.id").is_some();
            let strategy = if is_static { "roundrobin" } else { "cooperative-sticky" };
            config.set("partition.assignment.strategy", strategy);
        }
    }
    config
}

/// Whether one member of the group hands the partitions out, and not the brokers.
pub(super) fn members_assign(config: &ClientConfig) -> bool {
    config.get("group.protocol") != Some("consumer")
}

/// How the names of settings begin that are about connections, and neither about
/// consuming nor about producing.
const CONNECTIONS: [&str; 12] = [
    "api.version.",
    "bootstrap.",
    "broker.",
    "client.",
    "connections.",
    "enable.ssl.",
    "https.",
    "reconnect.",
    "sasl.",
    "security.",
    "socket.",
    "ssl.",
];

/// For the producer of dead letters: it reaches the brokers as the consumer
/// does, creates no topic, gives up in bounded time, and has each record in a
/// batch of its own, so that an error is about that record.
pub(crate) fn producer_config(settings: &Settings) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("client.id", format!("walpost-{}", settings.consumer))
        .set("reconnect.backoff.max.ms", "2000")
        .set("socket.keepalive.enable", "true");
    let of_connections = |name: &str| CONNECTIONS.iter().any(|prefix| name.starts_with(prefix));
    for (name, value) in settings.kafka.iter().filter(|(name, _)| of_connections(name)) {
        config.set(name, value);
    }
    config
        .set("acks", "all")
        .set("allow.auto.create.topics", "false")
        .set("batch.num.messages", "1")
        .set("compression.type", "lz4")
        .set("linger.ms", "0")
        .set("max.in.flight.requests.per.connection", "1")
        // What is larger the topic would hardly take, and no request may be.
        .set("message.max.bytes", "52428800")
        .set("message.timeout.ms", "20000")
        .set("partitioner", "murmur2_random")
        .set("topic.metadata.propagation.max.ms", "5000")
        .set_log_level(RDKafkaLogLevel::Info);
    config
}

/// Five to a session.
pub(crate) fn heartbeat_interval_ms(settings: &Settings) -> u64 {
    settings.session_timeout_ms / 5
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a cooperative rebalance there would be a second half that nobody begins,
    /// where the member is started again between the two.
    #[test]
    fn a_static_member_is_eager() {
        let strategy = |given: &[(&str, &str)]| {
            let mut settings = Settings::new("shipping".into());
            let given = given.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            settings.kafka.extend(given);
            let config = client_config(&settings);
            config.get("partition.assignment.strategy").map(str::to_owned)
        };
        let (instance, new) = (("group.instance.id", "pod-0"), ("group.protocol", "consumer"));
        assert_eq!(strategy(&[]).as_deref(), Some("cooperative-sticky"));
        assert_eq!(strategy(&[instance]).as_deref(), Some("roundrobin"));
        assert_eq!(strategy(&[instance, new]), None);
        let given = ("partition.assignment.strategy", "range");
        assert_eq!(strategy(&[instance, given]).as_deref(), Some("range"));
    }

    #[test]
    fn a_producer_logs_in_as_the_consumer_does_and_has_none_of_its_other_settings() {
        let mut settings = Settings::new("shipping".into());
        let given = [
            ("bootstrap.servers", "localhost:9092"),
            ("sasl.password", "s3cr3t"),
            ("ssl.ca.location", "ca.pem"),
            ("group.instance.id", "pod-0"),
            ("fetch.min.bytes", "1"),
        ];
        settings.kafka.extend(given.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let config = producer_config(&settings);
        for (name, value) in &given[..3] {
            assert_eq!(config.get(name), Some(*value));
        }
        for (name, _) in &given[3..] {
            assert_eq!(config.get(name), None);
        }
        assert_eq!(config.get("acks"), Some("all"));
        settings.kafka.retain(|name, _| !name.starts_with("ssl."));
        producer_config(&settings).create_native_config().unwrap();
    }
}
