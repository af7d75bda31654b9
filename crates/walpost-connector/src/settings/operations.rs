use std::path::PathBuf;

use super::filters::{self, Filter};
use crate::{
    choices::{ExactlyOnce, FailureHandling, LsnFlushMode, Tolerance, TransactionBoundary},
    judge::Scope,
    table::Kind,
};

/// Records that say that the connector lives: `heartbeat.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// `heartbeat.interval.ms`; `None` for 0, the default: none are sent. Under
    /// [`LsnFlushMode::ConnectorAndDriver`] 0 means 600,000, as in Debezium.
    pub interval_ms: Option<u64>,
    /// Their topic: `topic.heartbeat.name`, else `topic.heartbeat.prefix`,
    /// `topic.delimiter` and `topic.prefix` one behind the other.
    pub topic: String,
    /// `heartbeat.action.query`: SQL at each of them.
    pub action_query: Option<String>,
}

/// What becomes of an event that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    /// `errors.tolerance`, default none.
    pub tolerance: Tolerance,
    /// `errors.retry.timeout`: for how long a transform or converter that fails
    /// is tried again. `None` for ever (-1); default 0.
    pub retry_timeout_ms: Option<u64>,
    /// `errors.retry.delay.max.ms`, default 60,000.
    pub retry_delay_max_ms: u64,
    /// `errors.log.enable`, default false.
    pub log: bool,
    /// `event.processing.failure.handling.mode`, default `fail`.
    pub processing: FailureHandling,
    /// `errors.deadletterqueue.topic.name`.
    pub dead_letter_topic: Option<String>,
    /// `errors.deadletterqueue.topic.replication.factor`, where it is given.
    pub dead_letter_replication: Option<u16>,
}

/// Bounds on what waits, where they are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// `max.queue.size`.
    pub max_events: Option<u64>,
    /// `max.queue.size.in.bytes`, above 0.
    pub max_bytes: Option<u64>,
}

/// Logical messages: which prefixes are events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Messages {
    /// `message.prefix.include.list` or `message.prefix.exclude.list`.
    pub prefixes: Filter,
}

/// Transactions of Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transactions {
    /// `exactly.once.support`, default `requested`.
    pub support: ExactlyOnce,
    /// `transaction.boundary`, default `poll`.
    pub boundary: TransactionBoundary,
    /// `transaction.boundary.interval.ms`, where it is given.
    pub interval_ms: Option<u64>,
}

/// Where Kafka Connect keeps its position, for a take-over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    /// `offsets.storage.topic` of the connector, else `offset.storage.topic` of
    /// the worker.
    pub topic: Option<String>,
    /// `offset.storage.file.filename` of the worker.
    pub file: Option<PathBuf>,
}

/// Where keep-alives move the slot, Debezium has heartbeats also where none are
/// asked for, since only a record takes a position to Kafka.
const FORCED_INTERVAL_MS: u64 = 600_000;

pub(crate) fn heartbeat(scope: &mut Scope<'_>, flush: LsnFlushMode) -> Heartbeat {
    const NAME: &str = "topic.heartbeat.name";
    let topic = scope.given(NAME).unwrap_or_else(|| {
        let part = |name: &str| scope.text_or_default(name);
        let source = scope.given("topic.prefix").unwrap_or_default();
        format!("{}{}{source}", part("topic.heartbeat.prefix"), part("topic.delimiter"))
    });
    if scope.given(NAME).is_some_and(|name| Kind::Name.problem(&name).is_some()) {
        scope.refuse(NAME, format!("it is no topic; write {}", Kind::Name.expected()));
    }
    let mut interval_ms = Some(scope.count("heartbeat.interval.ms")).filter(|ms| *ms > 0);
    if interval_ms.is_none() && flush == LsnFlushMode::ConnectorAndDriver {
        interval_ms = Some(FORCED_INTERVAL_MS);
        let note = "with a heartbeat every 600000 ms, as in Debezium; write heartbeat.interval.ms \
                    for another time";
        scope.tell("lsn.flush.mode", note);
    }
    let heartbeat =
        Heartbeat { interval_ms, topic, action_query: scope.given("heartbeat.action.query") };
    if heartbeat.action_query.is_some() && heartbeat.interval_ms.is_none() {
        scope.ignore(
            "heartbeat.action.query",
            "there are no heartbeats; write heartbeat.interval.ms for some",
        );
    }
    heartbeat
}

pub(crate) fn errors(scope: &mut Scope<'_>) -> Errors {
    const PROCESSING: &str = "event.processing.failure.handling.mode";
    let tolerance = scope.choice("errors.tolerance", Tolerance::parse);
    if tolerance == Tolerance::All {
        scope.tell("errors.tolerance", "but events are parked where Debezium loses them");
    }
    let processing = scope.choice(PROCESSING, FailureHandling::parse);
    if processing != FailureHandling::Fail {
        scope.tell(PROCESSING, "but events are parked where Debezium loses them");
    }
    let replication = scope.given_number("errors.deadletterqueue.topic.replication.factor");
    Errors {
        tolerance,
        retry_timeout_ms: scope.number("errors.retry.timeout").try_into().ok(),
        retry_delay_max_ms: scope.count("errors.retry.delay.max.ms"),
        log: scope.boolean("errors.log.enable"),
        processing,
        dead_letter_topic: scope.given("errors.deadletterqueue.topic.name"),
        dead_letter_replication: replication.and_then(|copies| copies.try_into().ok()),
    }
}

pub(crate) fn queue(scope: &mut Scope<'_>) -> Queue {
    let positive = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
    let (size, batch) = (scope.number("max.queue.size"), scope.number("max.batch.size"));
    if size <= batch && (scope.has("max.queue.size") || scope.has("max.batch.size")) {
        let name = if scope.has("max.queue.size") { "max.queue.size" } else { "max.batch.size" };
        scope.refuse(
            name,
            format!(
                "a queue of {size} is not larger than a batch of {batch}; write a larger \
                 max.queue.size or a smaller max.batch.size"
            ),
        );
    }
    Queue {
        max_events: scope.given_number("max.queue.size").and_then(positive),
        max_bytes: scope.given_number("max.queue.size.in.bytes").and_then(positive),
    }
}

pub(crate) fn messages(scope: &mut Scope<'_>) -> Messages {
    Messages { prefixes: filters::filter(scope, "message.prefix") }
}

pub(crate) fn transactions(scope: &mut Scope<'_>) -> Transactions {
    let boundary = scope.choice("transaction.boundary", TransactionBoundary::parse);
    if boundary == TransactionBoundary::Connector {
        scope.refuse(
            "transaction.boundary",
            "Debezium's connector defines no boundaries; write poll or interval",
        );
    }
    Transactions {
        support: scope.choice("exactly.once.support", ExactlyOnce::parse),
        boundary,
        interval_ms: scope
            .given_number("transaction.boundary.interval.ms")
            .and_then(|ms| ms.try_into().ok()),
    }
}
