use std::path::PathBuf;

use walpost_router::NameFilter;

use super::filters;
use crate::{
    choices::{ExactlyOnce, LsnFlushMode, TransactionBoundary},
    judge::Scope,
    secret::Secret,
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
    pub action_query: Option<Secret>,
}

/// Logical messages: which prefixes are events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Messages {
    /// `message.prefix.include.list` or `message.prefix.exclude.list`.
    pub prefixes: NameFilter,
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
    let action = scope.given("heartbeat.action.query");
    let heartbeat = Heartbeat { interval_ms, topic, action_query: action.map(Secret::new) };
    if heartbeat.action_query.is_some() && heartbeat.interval_ms.is_none() {
        scope.ignore(
            "heartbeat.action.query",
            "there are no heartbeats; write heartbeat.interval.ms for some",
        );
    }
    heartbeat
}

/// Bounds of `pipeline.in_flight_max_events`.
const IN_FLIGHT: (u64, u64) = (1, 100_000_000);

pub(crate) fn queue(scope: &mut Scope<'_>) {
    const SIZE: &str = "max.queue.size";
    const BYTES: &str = "max.queue.size.in.bytes";
    let (size, batch) = (scope.number(SIZE), scope.number("max.batch.size"));
    if size <= batch && (scope.has(SIZE) || scope.has("max.batch.size")) {
        let name = if scope.has(SIZE) { SIZE } else { "max.batch.size" };
        scope.refuse(
            name,
            format!(
                "a queue of {size} is not larger than a batch of {batch}; write a larger \
                 max.queue.size or a smaller max.batch.size"
            ),
        );
    }
    if let Some(events) = scope.given_number(SIZE).and_then(|size| u64::try_from(size).ok()) {
        scope.lay(SIZE, events.clamp(IN_FLIGHT.0, IN_FLIGHT.1));
    }
    if scope.has(BYTES) && scope.count(BYTES) == 0 {
        scope.ignore(BYTES, "it is 0, which is no bound; sink.queue_max_bytes has its own");
    } else if scope.given(BYTES).is_some() {
        scope.lay(BYTES, scope.count(BYTES));
    }
}

pub(crate) fn messages(scope: &mut Scope<'_>) -> Messages {
    Messages { prefixes: filters::filter(scope, "message.prefix") }
}

pub(crate) fn transactions(scope: &mut Scope<'_>) {
    const SUPPORT: &str = "exactly.once.support";
    let boundary: TransactionBoundary = scope.choice("transaction.boundary");
    if boundary == TransactionBoundary::Connector {
        scope.refuse(
            "transaction.boundary",
            "Debezium's connector defines no boundaries; write poll or interval",
        );
    }
    match scope.given_choice(SUPPORT) {
        Some(ExactlyOnce::Required) => scope.lay(SUPPORT, "transactional"),
        Some(ExactlyOnce::Requested) => {
            let note = "sink.publish = \"idempotent\", where nothing comes twice after a kill either; \
                        write required for transactions";
            scope.map(SUPPORT, note);
            scope.lay(SUPPORT, "idempotent");
        }
        None => {}
    }
}
