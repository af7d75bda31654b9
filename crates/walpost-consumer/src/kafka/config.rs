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
        .set("enable.partition.eof", "false")
        .set("allow.auto.create.topics", "false")
        .set("auto.offset.reset", "error")
        .set_log_level(RDKafkaLogLevel::Info);
    // Under the new group protocol these are the broker's, and refused.
    if config.get("group.protocol") != Some("consumer") {
        config
            .set("session.timeout.ms", session_timeout_ms.to_string())
            .set("heartbeat.interval.ms", heartbeat_interval_ms(settings).to_string());
        if config.get("partition.assignment.strategy").is_none() {
            config.set("partition.assignment.strategy", "cooperative-sticky");
        }
    }
    config
}

/// For a client that asks and belongs to no group.
#[cfg(feature = "redis")]
pub(crate) fn admin_config(settings: &Settings) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("client.id", format!("walpost-{}", settings.consumer));
    for (name, value) in &settings.kafka {
        config.set(name, value);
    }
    config
}

/// Five to a session.
pub(crate) fn heartbeat_interval_ms(settings: &Settings) -> u64 {
    settings.session_timeout_ms / 5
}
