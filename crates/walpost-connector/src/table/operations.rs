use super::{
    Kind::{Boolean, Name, Number, OneOf, Sql, Text},
    Rule, honoured, ignored,
    kind::{COUNT, INT, LONG, POSITIVE},
    mapped, only,
};
use crate::choices::{Choice, FailureHandling, Tolerance};

const CONVERTING: &[&str] = &["skip", "warn", "fail"];

/// How it runs.
pub(super) const RULES: &[Rule] = &[
    honoured(
        "heartbeat.interval.ms",
        Number(0, 86_400_000),
        "0",
        "between two records to the topic of heartbeats, 0 for none; the slot does not need them",
    ),
    honoured(
        "topic.heartbeat.prefix",
        Name,
        "__debezium-heartbeat",
        "beginning of that topic's name",
    ),
    honoured(
        "topic.heartbeat.name",
        Text,
        "",
        "the topic, whole; without it prefix, topic.delimiter and topic.prefix",
    ),
    honoured(
        "heartbeat.action.query",
        Sql,
        "",
        "SQL at each heartbeat; its errors are logged and end nothing, 57P01, 57P03 and 42P01 \
         too, which Debezium raises",
    ),
    ignored("max.batch.size", POSITIVE, "2048", "events go on as they come"),
    mapped("max.queue.size", POSITIVE, "8192", "pipeline.in_flight_max_events, where it is given")
        .makes("pipeline", "in_flight_max_events"),
    mapped("max.queue.size.in.bytes", LONG, "0", "sink.queue_max_bytes, where it is above 0")
        .makes("sink", "queue_max_bytes"),
    ignored(
        "poll.interval.ms",
        POSITIVE,
        "500",
        "events go on as they come, and nothing is polled",
    ),
    ignored("poll.dispatch.interval.ms", COUNT, "0", "events go on as they come"),
    only("queue.provider.type", "memory", &["memory"], "it names a Java class; write memory"),
    mapped("errors.max.retries", INT, "-1", "trying for ever"),
    mapped(
        "retriable.restart.connector.wait.ms",
        LONG,
        "10000",
        "Walpost's own waits between attempts",
    ),
    ignored(
        "executor.shutdown.timeout.ms",
        LONG,
        "4000",
        "pipeline.drain_timeout_ms is the bound of a stop",
    ),
    mapped(
        "event.processing.failure.handling.mode",
        OneOf(FailureHandling::NAMES),
        "fail",
        "parking an event that cannot be read, whatever it says",
    ),
    mapped(
        "event.converting.failure.handling.mode",
        OneOf(CONVERTING),
        "warn",
        "parking the event, whatever it says",
    ),
    mapped(
        "errors.tolerance",
        OneOf(Tolerance::NAMES),
        "none",
        "parking an event that a transform or converter fails on, whatever it says; with all, a \
         fatal update of the outbox is an error in the log",
    ),
    ignored(
        "errors.retry.timeout",
        Number(-1, i64::MAX),
        "0",
        "a transform or converter that fails on an event fails again; the event is parked",
    ),
    ignored(
        "errors.retry.delay.max.ms",
        LONG,
        "60000",
        "a transform or converter that fails on an event fails again; the event is parked",
    ),
    ignored(
        "errors.log.enable",
        Boolean,
        "false",
        "an event that is parked always has a line in the log",
    ),
    only(
        "errors.log.include.messages",
        "false",
        &["false"],
        "no contents reach Walpost's log; write false, and see `walpost parked show --payload`",
    ),
    mapped(
        "errors.deadletterqueue.topic.name",
        Name,
        "",
        "pipeline.dead_letter_topic; a source has none in Kafka Connect",
    )
    .sets("pipeline", "dead_letter_topic"),
    ignored(
        "errors.deadletterqueue.topic.replication.factor",
        POSITIVE,
        "3",
        "Walpost makes no such topic; create it",
    ),
    ignored(
        "errors.deadletterqueue.context.headers.enable",
        Boolean,
        "false",
        "dead letters always say why",
    ),
    ignored("notification.enabled.channels", Text, "", "`walpost status` and the metrics tell it"),
    ignored("notification.sink.topic.name", Text, "", "`walpost status` and the metrics tell it"),
    ignored("notification.http.*", Text, "", "`walpost status` and the metrics tell it"),
    ignored("memory.management.*", Text, "", "it is about Debezium's own memory"),
    ignored("guardrail.collections.max", COUNT, "0", "`walpost check` names the tables"),
    ignored("guardrail.collections.limit.action", Text, "warn", "`walpost check` names the tables"),
    ignored("custom.metric.tags", Text, "", "a scraper adds labels to metrics"),
    ignored("statistics.metrics.enabled", Boolean, "true", "the metrics are Walpost's own"),
    ignored("openlineage.*", Text, "", "Walpost tells no catalogue"),
    ignored("schema.history.internal.*", Text, "", "PostgreSQL needs no history, as in Debezium"),
    mapped(
        "custom.sanitize.pattern",
        super::Kind::Regex,
        "",
        "hiding every secret, whatever it says",
    ),
];
