//! What no key of ours says of a pipeline: its filters, its snapshots, its slot and
//! its heartbeats, as the connector has them.

use walpost_connector::{Connector, LsnFlushMode, OffsetMismatch, SnapshotMode};
use walpost_relay::{
    Heartbeat, RelayConfig, SelectOverride, SkippedOperations, Snapshot, StreamOrigin, TableName,
};

/// Completes the configuration of a connector's pipeline. `has_own_prefixes`:
/// `pipeline.message_prefixes` was set, and says which messages are events.
pub(crate) fn complete(connector: &Connector, has_own_prefixes: bool, config: &mut RelayConfig) {
    config.heartbeat = heartbeat(connector);
    config.snapshot = snapshot(connector);
    if connector.transforms.decodes_messages() && !has_own_prefixes {
        config.message_prefixes = Vec::new();
        config.message_filter = Some(connector.messages.prefixes.clone());
    }
    config.columns = connector.tables.columns.clone();
    // Debezium knows domains.
    config.base_types = false;
    config.skipped =
        SkippedOperations { insert: connector.skipped.insert, update: connector.skipped.update };
    config.signal_table = connector
        .tables
        .signals
        .as_ref()
        .map(|signals| TableName { schema: signals.schema.clone(), name: signals.table.clone() });
    // Under their own names, rows of partitions that are made later would be
    // events from the next start on only, so nobody gets that without asking.
    config.publish_via_partition_root = connector.publication.via_partition_root.unwrap_or(true);
    config.stream_origin = connector.slot.origin.as_deref().map(|origin| match origin {
        "none" => StreamOrigin::None,
        _ => StreamOrigin::Any,
    });
    config.confirm_slot = connector.progress.flush != LsnFlushMode::Manual;
    config.drop_slot_on_stop = connector.slot.drop_on_stop;
    config.accept_advanced_slot = matches!(
        connector.progress.mismatch,
        OffsetMismatch::TrustSlot | OffsetMismatch::TrustGreaterLsn
    );
}

fn heartbeat(connector: &Connector) -> Option<Heartbeat> {
    let theirs = &connector.heartbeat;
    Some(Heartbeat {
        interval_ms: theirs.interval_ms?,
        topic: theirs.topic.clone(),
        server_name: connector.topic_prefix.clone(),
        action_query: theirs.action_query.as_ref().map(|query| query.expose().to_owned()),
    })
}

/// What is published first is a key of ours, and so is what becomes of a slot
/// that is lost.
fn snapshot(connector: &Connector) -> Snapshot {
    let theirs = &connector.snapshot;
    let mut snapshot = Snapshot::default();
    snapshot.stream = match theirs.mode {
        SnapshotMode::InitialOnly => false,
        SnapshotMode::ConfigurationBased => theirs.configuration.stream,
        SnapshotMode::Always
        | SnapshotMode::Initial
        | SnapshotMode::NoData
        | SnapshotMode::WhenNeeded => true,
    };
    snapshot.each_start = theirs.mode == SnapshotMode::Always;
    snapshot.tables = theirs.tables.clone();
    let overrides = theirs.overrides.iter().filter_map(|of_table| {
        let table = of_table.table.parse().ok()?;
        Some(SelectOverride { table, statement: of_table.statement.expose().to_owned() })
    });
    snapshot.overrides = overrides.collect();
    snapshot
}

/// Properties whose names of tables cannot be read, with why and what to write.
pub(super) fn unreadable(connector: &Connector) -> impl Iterator<Item = (String, String)> {
    let names = connector.snapshot.overrides.iter().map(|of_table| &of_table.table);
    names.filter(|name| name.parse::<TableName>().is_err()).map(|name| {
        let property = format!("snapshot.select.statement.overrides.{name}");
        (
            property,
            "it names no table; write schema.table, each part in double quotes if it has a dot"
                .to_owned(),
        )
    })
}
