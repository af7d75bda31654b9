use super::{
    Kind::{Boolean, Class, List, Name, Number, OneOf, Patterns, Text},
    Rule, honoured, ignored,
    kind::{COUNT, LONG, POSITIVE},
    mapped, refused,
};
use crate::choices::{Choice, ExactlyOnce, TransactionBoundary};

const CONNECTOR_CLASSES: &[&str] =
    &["io.debezium.connector.postgresql.PostgresConnector", "PostgresConnector", "Postgres"];
const RELOAD: &[&str] = &["none", "restart"];

/// What Kafka Connect itself reads of a connector.
pub(super) const RULES: &[Rule] = &[
    honoured("name", Text, "", "name of the connector and of its pipeline")
        .always_sets("pipeline", "name"),
    honoured("connector.class", OneOf(CONNECTOR_CLASSES), "", "has to be that of PostgreSQL"),
    ignored("connector.plugin.version", Text, "", "Walpost is of one version"),
    ignored("tasks.max", POSITIVE, "1", "there is always one task, as in Debezium"),
    ignored("tasks.max.enforce", Boolean, "true", "there is always one task"),
    ignored(
        "config.action.reload",
        OneOf(RELOAD),
        "restart",
        "placeholders are replaced at the start, and nothing tells of a change",
    ),
    honoured("transforms", List, "", "aliases of transforms, in the order in which they act"),
    honoured("transforms.*", Text, "", "the transforms, see below"),
    honoured("predicates", List, "", "aliases of conditions of transforms"),
    honoured("predicates.*", Text, "", "the conditions, see below"),
    honoured("key.converter", Class, "", "the bytes of keys, and so the partition"),
    honoured("key.converter.*", Text, "", "options of that converter, see below"),
    honoured("value.converter", Class, "", "the bytes of values"),
    honoured("value.converter.*", Text, "", "options of that converter, see below"),
    honoured(
        "header.converter",
        Class,
        "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        "the bytes of headers",
    ),
    honoured("header.converter.*", Text, "", "options of that converter, see below"),
    mapped(
        "exactly.once.support",
        OneOf(ExactlyOnce::NAMES),
        "requested",
        "sink.publish: required is \"transactional\"",
    )
    .makes("sink", "publish"),
    mapped(
        "transaction.boundary",
        OneOf(TransactionBoundary::NAMES),
        "poll",
        "sink.transaction_interval_ms: Walpost ends transactions by time",
    ),
    mapped("transaction.boundary.interval.ms", LONG, "", "sink.transaction_interval_ms")
        .sets("sink", "transaction_interval_ms"),
    mapped("offsets.storage.topic", Name, "", "the topic of which a take-over reads the position"),
    honoured("topic.creation.groups", List, "", "aliases of groups of topics"),
    honoured("topic.creation.*", Text, "", "the groups, see below"),
    honoured("producer.override.*", Text, "", "settings of the producer, see below"),
    ignored("consumer.override.*", Text, "", "a source has no consumer"),
    ignored("admin.override.*", Text, "", "topics are made through the producer's connection"),
    refused(
        "topics",
        "that is of a sink connector; remove it, a row names its topic by route.by.field",
    ),
    refused("topics.regex", "that is of a sink connector; remove it"),
    refused(
        "debezium.*",
        "that is how Debezium Server names it; write what follows debezium.source., and what \
         follows debezium. of transforms",
    ),
    honoured(
        "walpost.debezium.version",
        Text,
        "3.7",
        "the version of Debezium whose context headers are sent: none up to 3.1, three from 3.2, \
         four from 3.4; Debezium does not read it",
    ),
];

/// Of a group of topics, behind its alias.
pub(crate) const TOPIC_GROUP: &[Rule] = &[
    honoured("include", Patterns, "", "the topics of the group; of the group default all"),
    honoured("exclude", Patterns, "", "topics that are not of the group"),
    honoured(
        "partitions",
        Number(-1, i32::MAX as i64),
        "",
        "partitions of a new topic, -1 for the brokers' default; the group default needs it",
    ),
    honoured(
        "replication.factor",
        Number(-1, i16::MAX as i64),
        "",
        "copies of a new topic, -1 for the brokers' default; the group default needs it",
    ),
    honoured("retention.ms", Number(-1, i64::MAX), "", "setting of a new topic"),
    honoured("min.insync.replicas", COUNT, "", "setting of a new topic"),
    honoured("*", Text, "", "any other setting of a new topic"),
];
