use super::{
    Kind::{Boolean, OneOf, Text},
    Rule, alias, honoured, ignored, removed,
};
use crate::choices::Choice;
use walpost_encode::connect::{EmptyArray, NameAdjustment, NullField};

const MISSING: &[&str] = &["error", "ignore"];
const OPERATION: &[&str] = &["warn", "error", "fatal"];
const TRACING: &str = "Walpost makes no spans, as a worker without OpenTelemetry; placed as a \
                       header, the column of the context goes on";

/// Of `io.debezium.transforms.outbox.EventRouter`.
pub(super) const RULES: &[Rule] = &[
    honoured("table.field.event.id", Text, "id", "column of the header id")
        .always_sets("router", "event_id"),
    honoured("table.field.event.key", Text, "aggregateid", "column of the record's key")
        .always_sets("router", "event_key"),
    ignored(
        "table.field.event.type",
        Text,
        "type",
        "Debezium reads it nowhere; the type becomes a header by table.fields.additional.placement",
    ),
    honoured("table.field.event.payload", Text, "payload", "column of the value")
        .always_sets("router", "event_payload"),
    honoured(
        "table.field.event.timestamp",
        Text,
        "",
        "column of the record's time, timestamp or, on which Debezium fails, timestamptz; else \
         the time of handling",
    )
    .always_sets("router", "event_timestamp"),
    honoured(
        "table.field.event.schema.version",
        Text,
        "",
        "column of the version of the value's schema, where there is an envelope",
    ),
    honoured(
        "table.fields.additional.placement",
        Text,
        "",
        "further columns, as column:placement[:alias] with placement header, envelope or partition",
    )
    .always_sets("router", "additional_placement"),
    honoured(
        "table.field.additional.missing",
        OneOf(MISSING),
        "error",
        "a row without such a column: error parks it, ignore leaves the placement out",
    )
    .makes("router", "additional_missing"),
    alias("table.fields.additional.error.on.missing", Boolean, "table.field.additional.missing")
        .makes("router", "additional_missing"),
    honoured(
        "table.op.invalid.behavior",
        OneOf(OPERATION),
        "warn",
        "an UPDATE of the outbox: warn and error log it, fatal ends the process behind what came \
         before; one of the primary key is a new event, as in Debezium",
    )
    .sets("router", "invalid_operation"),
    honoured(
        "table.expand.json.payload",
        Boolean,
        "false",
        "a payload of JSON becomes a structure",
    ),
    honoured(
        "table.json.payload.null.behavior",
        OneOf(NullField::NAMES),
        "ignore",
        "then: members that are null",
    ),
    honoured(
        "table.json.payload.empty.array.behavior",
        OneOf(EmptyArray::NAMES),
        "ignore",
        "then: members that are []",
    ),
    honoured("route.by.field", Text, "aggregatetype", "column that names the topic")
        .always_sets("router", "route_by_field"),
    honoured(
        "route.topic.regex",
        Text,
        "(?<routedByValue>.*)",
        "matched against the whole of that column",
    )
    .sets("router", "topic_regex"),
    honoured(
        "route.topic.replacement",
        Text,
        "outbox.event.${routedByValue}",
        "the topic, in Java's syntax of replacements",
    )
    .sets("router", "topic_replacement"),
    honoured(
        "route.tombstone.on.empty.payload",
        Boolean,
        "false",
        "a payload that is NULL or blank gives a record without a value",
    )
    .sets("router", "tombstone_on_empty_payload"),
    ignored("tracing.span.context.field", Text, "tracingspancontext", TRACING),
    ignored("tracing.operation.name", Text, "debezium-read", TRACING),
    ignored("tracing.with.context.field.only", Boolean, "true", TRACING),
    honoured(
        "field.name.adjustment.mode",
        OneOf(NameAdjustment::NAMES),
        "none",
        "names of members that Avro does not allow, where the payload is expanded; an event \
         with such a member is parked, for Debezium writes null for it",
    ),
    removed("table.field.payload", "table.field.event.payload"),
    removed("table.field.payload.id", "table.field.event.key"),
    removed("table.field.payload.type", "table.field.event.type"),
    removed("table.field.schema.version", "table.field.event.schema.version"),
    removed("table.field.event.payload.id", "table.field.event.key"),
    removed("debezium.op.invalid.behavior", "table.op.invalid.behavior"),
    removed("debezium.expand.json.payload", "table.expand.json.payload"),
];
