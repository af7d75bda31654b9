use super::{
    Kind::{Boolean, List, Name, Number, OneOf, Regexes, Text},
    Rule, honoured, ignored, only,
};
use crate::choices::Choice;
use walpost_encode::connect::{
    BinaryHandling, DecimalHandling, HstoreHandling, IntervalHandling, NameAdjustment,
    TimePrecision,
};

const REFRESH: &[&str] = &["columns_diff", "columns_diff_exclude_unchanged_toast"];

/// What a column becomes.
pub(super) const RULES: &[Rule] = &[
    honoured(
        "time.precision.mode",
        OneOf(TimePrecision::NAMES),
        "adaptive",
        "what dates and times are in keys, headers and envelopes",
    ),
    honoured(
        "decimal.handling.mode",
        OneOf(DecimalHandling::NAMES),
        "precise",
        "what numeric and money are",
    ),
    honoured("binary.handling.mode", OneOf(BinaryHandling::NAMES), "bytes", "what bytea is"),
    honoured(
        "interval.handling.mode",
        OneOf(IntervalHandling::NAMES),
        "numeric",
        "what interval is",
    ),
    honoured("hstore.handling.mode", OneOf(HstoreHandling::NAMES), "json", "what hstore is"),
    honoured("money.fraction.digits", Number(0, 255), "2", "digits of money behind the point"),
    honoured(
        "field.name.adjustment.mode",
        OneOf(NameAdjustment::NAMES),
        "none",
        "how names of columns become legal in Avro: additional placements go by these names; \
         columns of the event's own id, key, payload, route and time have to keep theirs",
    ),
    honoured(
        "schema.name.adjustment.mode",
        OneOf(NameAdjustment::NAMES),
        "none",
        "how names of schemas become legal in Avro",
    ),
    honoured(
        "include.unknown.datatypes",
        Boolean,
        "false",
        "columns of a type that Debezium does not know: their text as bytes, else no such column",
    ),
    ignored(
        "unavailable.value.placeholder",
        Text,
        "__debezium_unavailable_value",
        "rows that are inserted have all their values in the WAL",
    ),
    ignored(
        "schema.refresh.mode",
        OneOf(REFRESH),
        "columns_diff",
        "the stream tells the columns of each table",
    ),
    ignored("include.schema.changes", Boolean, "true", "PostgreSQL tells of none, as in Debezium"),
    ignored("include.schema.comments", Boolean, "false", "no comment reaches a record"),
    ignored("message.key.columns", Text, "", "the router takes the key from table.field.event.key"),
    ignored(
        "tombstones.on.delete",
        Boolean,
        "true",
        "the router drops deletes and their tombstones",
    ),
    ignored(
        "skip.messages.without.change",
        Boolean,
        "false",
        "it is about updates, which are no events",
    ),
    honoured(
        "column.propagate.source.type",
        Regexes,
        "",
        "adds the column's type to the schema: refused where a converter writes schemas, else \
         without effect",
    ),
    honoured(
        "datatype.propagate.source.type",
        Regexes,
        "",
        "adds the column's type to the schema: refused where a converter writes schemas, else \
         without effect",
    ),
    only(
        "converters",
        "",
        &[""],
        "it names Java classes that change values; remove them, and store what the record should \
         have",
    ),
    only("post.processors", "", &[""], "it names Java classes that change values; remove them"),
    only(
        "sourceinfo.struct.maker",
        "io.debezium.connector.postgresql.PostgresSourceInfoStructMaker",
        &["io.debezium.connector.postgresql.PostgresSourceInfoStructMaker"],
        "it names a Java class; remove it",
    ),
    honoured(
        "skipped.operations",
        List,
        "t",
        "operations that are no events, of c, u, d, t and none; with c nothing is published",
    ),
    only(
        "provide.transaction.metadata",
        "false",
        &["false"],
        "Walpost writes no records of begin and end of every transaction; write false, and see \
         the header walpost-position",
    ),
    ignored("topic.transaction", Text, "transaction", "Walpost writes no records of transactions"),
    ignored(
        "transaction.metadata.factory",
        Text,
        "io.debezium.pipeline.txmetadata.DefaultTransactionMetadataFactory",
        "Walpost writes no records of transactions",
    ),
    ignored(
        "topic.naming.strategy",
        Text,
        "io.debezium.schema.SchemaTopicNamingStrategy",
        "the router names the topic",
    ),
    honoured(
        "topic.delimiter",
        Name,
        ".",
        "stands between the parts of the name of the heartbeats' topic, and of the table's in \
         names of schemas; the router names the others",
    ),
    ignored("topic.cache.size", Text, "10000", "the router has a cache of its own"),
    honoured(
        "extended.headers.enabled",
        Boolean,
        "true",
        "the headers __debezium.context.*; see walpost.debezium.version",
    ),
];
