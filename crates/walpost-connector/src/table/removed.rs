use super::{Rule, refused, removed};

/// What older versions of Debezium had.
pub(super) const RULES: &[Rule] = &[
    removed("database.server.name", "topic.prefix"),
    removed("schema.whitelist", "schema.include.list"),
    removed("schema.blacklist", "schema.exclude.list"),
    removed("table.whitelist", "table.include.list"),
    removed("table.blacklist", "table.exclude.list"),
    removed("column.whitelist", "column.include.list"),
    removed("column.blacklist", "column.exclude.list"),
    removed("slot.drop_on_stop", "slot.drop.on.stop"),
    removed("toasted.value.placeholder", "unavailable.value.placeholder"),
    removed("truncate.handling.mode", "skipped.operations"),
    removed("sanitize.field.names", "field.name.adjustment.mode"),
    removed("transaction.topic", "topic.transaction"),
    removed("heartbeat.topics.prefix", "topic.heartbeat.prefix"),
    removed("rows.fetch.size", "snapshot.fetch.size"),
    removed("snapshot.custom.class", "snapshot.mode"),
    refused("database.whitelist", "there is one database; remove it, and write database.dbname"),
    refused("database.blacklist", "there is one database; remove it"),
    refused("database.history*", "PostgreSQL needs no history of schemas; remove it"),
    refused("source.struct.version", "Debezium has no other form of it any more; remove it"),
];
