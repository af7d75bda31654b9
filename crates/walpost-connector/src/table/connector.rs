use super::{
    Kind::{Boolean, Name, Number, OneOf, Regexes, SlotName, Text},
    Rule, alias, honoured, ignored,
    kind::{COUNT, LONG, POSITIVE},
    mapped, refused,
};
use crate::choices::{AutoCreate, Choice, LsnFlushMode, OffsetMismatch};

const TIMEOUT_ACTIONS: &[&str] = &["fail", "warn", "ignore"];

/// The slot, the publication, and how far they are.
pub(super) const RULES: &[Rule] = &[
    honoured("topic.prefix", Name, "", "names the source: heartbeats, offsets, context headers"),
    honoured("slot.name", SlotName, "debezium", "the replication slot")
        .always_sets("pipeline", "slot"),
    honoured(
        "slot.drop.on.stop",
        Boolean,
        "false",
        "drop the slot at an orderly stop: events until the next start are lost",
    ),
    mapped(
        "slot.failover",
        Boolean,
        "false",
        "a slot with FAILOVER from PostgreSQL 17 on, whatever it says",
    ),
    honoured(
        "slot.stream.params",
        Text,
        "",
        "options of START_REPLICATION as key=value;key=value: origin alone",
    ),
    mapped("slot.max.retries", Number(-1, i32::MAX as i64), "6", "trying for ever"),
    mapped("slot.retry.delay.ms", LONG, "10000", "Walpost's own waits between attempts"),
    ignored("create.slot.command.timeout", COUNT, "90", "pipeline.slot_timeout_ms is the bound"),
    honoured("publication.name", Text, "dbz_publication", "the publication; used as it is found")
        .always_sets("pipeline", "publication"),
    mapped(
        "publication.autocreate.mode",
        OneOf(AutoCreate::NAMES),
        "all_tables",
        "pipeline.create_publication: disabled is false; else a missing one is made of the outbox \
         alone, and only inserts",
    )
    .makes("pipeline", "create_publication"),
    honoured(
        "publish.via.partition.root",
        Boolean,
        "false",
        "rows of partitions under the name of their table, where Walpost makes the publication; \
         not given, it is true",
    ),
    ignored(
        "replica.identity.autoset.values",
        Text,
        "",
        "rows that are inserted need no replica identity",
    ),
    ignored(
        "status.update.interval.ms",
        POSITIVE,
        "10000",
        "the server hears of the position with each checkpoint: pipeline.checkpoint_interval_ms",
    ),
    honoured(
        "lsn.flush.mode",
        OneOf(LsnFlushMode::NAMES),
        "connector",
        "which positions the slot is told; manual tells none, and WAL grows",
    ),
    alias("flush.lsn.source", Boolean, "lsn.flush.mode"),
    ignored(
        "lsn.flush.timeout.ms",
        LONG,
        "30000",
        "a position that was not taken is sent with the next one",
    ),
    ignored(
        "lsn.flush.timeout.action",
        OneOf(TIMEOUT_ACTIONS),
        "fail",
        "a position that was not taken is sent with the next one",
    ),
    honoured(
        "offset.mismatch.strategy",
        OneOf(OffsetMismatch::NAMES),
        "no_validation",
        "what holds where the slot and a stored position differ",
    ),
    alias("slot.seek.to.known.offset.on.start", Boolean, "offset.mismatch.strategy"),
    alias("internal.slot.seek.to.known.offset.on.start", Boolean, "offset.mismatch.strategy"),
    ignored("xmin.fetch.interval.ms", LONG, "0", "Walpost does not go by xmin"),
    honoured(
        "message.prefix.include.list",
        Regexes,
        "",
        "prefixes of logical messages that are events; all where neither list is given",
    )
    .makes("pipeline", "message_prefixes"),
    honoured(
        "message.prefix.exclude.list",
        Regexes,
        "",
        "prefixes of logical messages that are none",
    ),
    refused("internal.*", "it is for Debezium's own tests; remove it"),
];
