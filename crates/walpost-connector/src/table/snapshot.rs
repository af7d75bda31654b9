use super::{
    Kind::{Boolean, List, OneOf, Regexes, Sql, Text},
    Rule, honoured, ignored,
    kind::{COUNT, LONG, POSITIVE},
    mapped, only, refused,
};
use crate::choices::{Choice, SnapshotMode};

const ISOLATION: &[&str] =
    &["serializable", "repeatable_read", "read_committed", "read_uncommitted"];
const ORDER: &[&str] = &["ascending", "descending", "disabled"];
/// And two former names of modes, see `settings/snapshot.rs`.
const MODES: &[&str] = &[
    SnapshotMode::NAMES[0],
    SnapshotMode::NAMES[1],
    SnapshotMode::NAMES[2],
    SnapshotMode::NAMES[3],
    SnapshotMode::NAMES[4],
    SnapshotMode::NAMES[5],
    "never",
    "exported",
];

/// Which rows are read.
pub(super) const RULES: &[Rule] = &[
    honoured("schema.include.list", Regexes, "", "schemas that are read"),
    honoured("schema.exclude.list", Regexes, "", "schemas that are not read"),
    honoured("table.include.list", Regexes, "", "tables that are read, as schema.table"),
    honoured("table.exclude.list", Regexes, "", "tables that are not read"),
    honoured("table.ignore.builtin", Boolean, "true", "leave out PostgreSQL's own tables"),
    honoured("column.include.list", Regexes, "", "columns that are read, as schema.table.column"),
    honoured("column.exclude.list", Regexes, "", "columns that are not read"),
    refused(
        "column.mask.hash.*",
        "Walpost changes no data; write column.exclude.list to hide the column, or store it hashed",
    ),
    refused(
        "column.mask.with.*",
        "Walpost changes no data; write column.exclude.list to hide the column, or store it masked",
    ),
    refused(
        "column.truncate.to.*",
        "Walpost changes no data; write column.exclude.list to hide the column, or store it cut",
    ),
    honoured(
        "snapshot.mode",
        OneOf(MODES),
        "initial",
        "when rows that are in the tables already are published; never is no_data, and exported \
         initial",
    )
    .makes("pipeline", "initial"),
    mapped(
        "snapshot.mode.configuration.based.snapshot.data",
        Boolean,
        "false",
        "whether a start without a position publishes the rows",
    ),
    ignored(
        "snapshot.mode.configuration.based.snapshot.schema",
        Boolean,
        "false",
        "schemas are read as they are needed",
    ),
    mapped(
        "snapshot.mode.configuration.based.start.stream",
        Boolean,
        "false",
        "whether it goes on behind the rows",
    ),
    ignored(
        "snapshot.mode.configuration.based.snapshot.on.schema.error",
        Boolean,
        "false",
        "there is no history of schemas that could be missing",
    ),
    mapped(
        "snapshot.mode.configuration.based.snapshot.on.data.error",
        Boolean,
        "false",
        "whether a start whose position is gone publishes the rows",
    ),
    refused("snapshot.mode.custom.name", "it names a Java class; write another snapshot.mode"),
    honoured(
        "snapshot.include.collection.list",
        Regexes,
        "",
        "tables whose rows a snapshot publishes; all that are read where it is not given",
    ),
    honoured(
        "snapshot.select.statement.overrides",
        List,
        "",
        "tables whose rows a snapshot selects otherwise",
    ),
    honoured(
        "snapshot.select.statement.overrides.*",
        Sql,
        "",
        "the SELECT for the table that follows",
    ),
    mapped(
        "snapshot.isolation.mode",
        OneOf(ISOLATION),
        "serializable",
        "the slot's exported snapshot, whatever it says",
    ),
    only("snapshot.locking.mode", "none", &["none", "shared"], "it names a Java class; write none"),
    refused("snapshot.locking.mode.custom.name", "it names a Java class; remove it"),
    only(
        "snapshot.query.mode",
        "select_all",
        &["select_all"],
        "it names a Java class; write select_all",
    ),
    refused("snapshot.query.mode.custom.name", "it names a Java class; remove it"),
    ignored("snapshot.lock.timeout.ms", LONG, "10000", "a snapshot takes no lock"),
    ignored("snapshot.fetch.size", COUNT, "", "rows come as they are needed"),
    ignored("snapshot.delay.ms", LONG, "0", "nothing is gained by waiting"),
    ignored("streaming.delay.ms", LONG, "0", "nothing is gained by waiting"),
    ignored(
        "snapshot.max.threads",
        POSITIVE,
        "1",
        "tables are read one behind the other, in order",
    ),
    ignored(
        "snapshot.max.threads.multiplier",
        POSITIVE,
        "1",
        "tables are read one behind the other",
    ),
    ignored(
        "legacy.snapshot.max.threads",
        Boolean,
        "false",
        "tables are read one behind the other",
    ),
    ignored(
        "snapshot.tables.order.by.row.count",
        OneOf(ORDER),
        "disabled",
        "tables are read in the order of their names",
    ),
    ignored("query.fetch.size", COUNT, "0", "rows come as they are needed"),
    ignored("read.only", Boolean, "false", "it is about snapshots that a signal starts"),
    mapped(
        "signal.data.collection",
        Text,
        "",
        "no outbox: Walpost takes no signals, and a row in that table is an error when it comes",
    ),
    only(
        "signal.enabled.channels",
        "source",
        &["source", ""],
        "Walpost takes no signals; remove it, and publish rows again by `walpost replay`",
    ),
    ignored("signal.poll.interval.ms", LONG, "5000", "no signal is taken"),
    ignored("signal.emit.failure.max.retries", COUNT, "0", "no signal is taken"),
    ignored("signal.emit.failure.backoff.ms", LONG, "10000", "no signal is taken"),
    ignored("signal.file", Text, "file-signals.txt", "no signal is taken"),
    ignored("signal.kafka.*", Text, "", "no signal is taken"),
    ignored("signal.consumer.*", Text, "", "no signal is taken"),
    ignored("incremental.snapshot.*", Text, "", "no signal is taken that would start one"),
];
