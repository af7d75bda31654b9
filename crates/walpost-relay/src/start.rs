//! Whether a start can go on from the slot and the checkpoint that it finds.
//! Changes nothing: `run` looks here before it acts, `check` instead of it.

use std::{slice, time::Duration};

use tokio_postgres::types::Type;
use walpost_event::Lsn;
use walpost_postgres::Database;

use crate::{
    check::overlap,
    checkpoint::{Checkpoint, InitialState},
    config::{Initial, RelayConfig, TableName},
    error::RelayError,
    history, moves, recovery,
    retention::ReaderFeed,
    sql::Sql,
    wal::{
        ReplicationClient, membership, preflight,
        relations::{self, Noted},
        rights,
        slot::{self, Slot},
        snapshot::until_writers_ended,
    },
};

/// What a start does with the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotFate {
    /// It is the pipeline's, or is to be its first.
    Fits,
    /// It is lost, and another one takes its place.
    Replaced,
}

/// Slot and checkpoint fit each other and this pipeline.
pub(crate) fn slot_fits(
    slot: Option<&Slot>,
    checkpoint: Option<&Checkpoint>,
    config: &RelayConfig,
    database: &Database,
) -> Result<SlotFate, RelayError> {
    if let Some(row) = checkpoint
        && recovery::is_wanted(slot, row, config)
    {
        slot.map_or(Ok(()), |slot| slot::check_kind(slot, config, database.dbname()))?;
        return Ok(SlotFate::Replaced);
    }
    // A first start that died makes its slot anew.
    let checkpoint = checkpoint.filter(|row| row.initial != InitialState::Creating);
    let fits = match (slot, checkpoint) {
        (Some(slot), checkpoint) => {
            slot::check(slot, config, database.dbname())?;
            let position = slot.confirmed.unwrap_or(Lsn::ZERO);
            checkpoint.map_or(Ok(()), |row| history::not_ahead(row, config, position))
        }
        (None, Some(checkpoint)) => Err(history::slot_gone(checkpoint, config)),
        (None, None) if config.create_slot => Ok(()),
        (None, None) => Err(RelayError::prerequisite(
            format!("slot {:?} does not exist", config.slot),
            format!(
                "set create_slot = true, or create it with \
                 `select pg_create_logical_replication_slot('{}', 'pgoutput')`",
                config.slot
            ),
        )),
    };
    fits.map(|()| SlotFate::Fits)
}

/// The server's timeline `now` has the checkpoint in its past. From where on
/// what is read back does not count, if the checkpoint is not behind that.
pub(crate) async fn same_past(
    checkpoint: &Checkpoint,
    config: &RelayConfig,
    now: u32,
    replication: &mut ReplicationClient,
) -> Result<Option<Lsn>, RelayError> {
    let history = replication.history(now).await?;
    if checkpoint.timeline != now {
        let left_at = history::continued(checkpoint, config, now, history.as_deref())?;
        tracing::warn!(
            before = checkpoint.timeline,
            now,
            %left_at,
            confirmed = %checkpoint.confirmed,
            "the server was promoted or restored; everything published up to the checkpoint is \
             in its history, so the relay goes on"
        );
    }
    Ok(history::left_at(checkpoint, now, history.as_deref()))
}

/// It is said what becomes of the rows that are in the outbox tables already,
/// and they can be read where that is needed. None if they are published first.
pub(crate) async fn rows_decided(
    sql: &Sql,
    config: &RelayConfig,
    checkpoint: Option<&Checkpoint>,
    slot: Option<&Slot>,
) -> Result<Option<String>, RelayError> {
    let said = |what: &str| Ok(Some(what.to_owned()));
    match checkpoint.map(|row| &row.initial) {
        Some(InitialState::Done) => {
            added_decided(sql, config, checkpoint).await?;
            return said("done");
        }
        Some(InitialState::Publish { .. }) => {
            rights::readable(sql, &config.tables).await?;
            return said("rows from before the slot are still to be published");
        }
        Some(InitialState::Recreating(_) | InitialState::Recover { .. }) => {
            rights::readable(sql, &config.tables).await?;
            return said("rows that the lost slot has not brought are still to be published");
        }
        Some(InitialState::Creating) => {}
        None => unknown_to_moves(sql, config).await?,
    }
    overlap::none(sql, config, &config.tables, ReaderFeed::Wal).await?;
    if config.initial == Some(Initial::Skip) {
        return said("rows from before the slot are left, as initial = \"skip\" says");
    }
    rights::readable(sql, &config.tables).await?;
    // Of a start that died the choice was made, or the table was empty.
    let table = match checkpoint {
        None => preflight::first_table_with_rows(sql, config).await?,
        Some(_) => None,
    };
    match (table, slot, config.initial) {
        (None, ..) => said("no rows from before the slot need a choice"),
        (Some(_), None, Some(_)) => Ok(None),
        (Some(table), None, None) => Err(RelayError::prerequisite(
            format!("table {table} holds rows that no slot has seen"),
            "say what to do with them: initial = \"publish\" publishes them first, \
             initial = \"skip\" leaves them",
        )),
        (Some(table), Some(_), initial) => Err(existing_slot(&table, config, initial)),
    }
}

/// A pipeline of the same name has given or got rows: they would be taken for
/// this one's.
async fn unknown_to_moves(sql: &Sql, config: &RelayConfig) -> Result<(), RelayError> {
    for table in &config.tables {
        let past = moves::history::of_table(sql, &config.schema, table).await?;
        if past.iter().any(|past| past.pipeline == config.pipeline) {
            return Err(RelayError::prerequisite(
                format!(
                    "pipeline {:?} has no checkpoint, and rows of table {table} were moved to or \
                     from an earlier pipeline of that name",
                    config.pipeline
                ),
                "give this pipeline another name",
            ));
        }
    }
    Ok(())
}

/// What a table holds that is an outbox table of the pipeline since this start
/// was not read, or passed by.
async fn added_decided(
    sql: &Sql,
    config: &RelayConfig,
    checkpoint: Option<&Checkpoint>,
) -> Result<(), RelayError> {
    let Some(before) = checkpoint.and_then(|row| row.publication.as_ref()) else { return Ok(()) };
    let added = match checkpoint.and_then(|row| row.relations.as_ref()) {
        Some(noted) => not_noted(sql, config, noted).await?,
        None => {
            let now = membership::read(sql, config).await?.unwrap_or_default();
            let names = membership::added(before, &now);
            let is_added = |table: &&TableName| names.contains(&&*table.quoted());
            config.tables.iter().filter(is_added).cloned().collect()
        }
    };
    overlap::none(sql, config, &added, ReaderFeed::Wal).await?;
    if config.initial == Some(Initial::Skip) {
        return Ok(());
    }
    for table in &added {
        if has_come(sql, config, table).await? {
            continue;
        }
        rights::readable(sql, slice::from_ref(table)).await?;
        if !preflight::has_rows(sql, config, table).await? {
            // The stream may have brought, and passed over, what nobody sees yet.
            let limit = Duration::from_millis(config.statement_timeout_ms);
            until_writers_ended(sql, table, limit).await?;
        }
        if preflight::has_rows(sql, config, table).await? {
            return Err(RelayError::prerequisite(
                format!(
                    "table {table} is new to pipeline {:?} and holds rows that it has not \
                     published",
                    config.pipeline
                ),
                "set initial = \"skip\" to leave those that the slot does not bring, and publish \
                 them with `walpost replay` if they are wanted; or take the table out of pipeline.tables and give it a pipeline \
                 of its own, with initial = \"publish\"",
            ));
        }
    }
    Ok(())
}

/// Whether a table has come since the tables were looked for, with a publication of
/// all tables: whatever is in it is in the stream, and was passed by nobody.
async fn has_come(sql: &Sql, config: &RelayConfig, table: &TableName) -> Result<bool, RelayError> {
    let Some(filter) = config.new_tables.as_ref().filter(|_| config.arrived.contains(table)) else {
        return Ok(false);
    };
    // Ids in the catalog are the lower halves.
    let query = "select p.puballtables and now.id - (now.id - a.xmin::text::int8) % 4294967296 >= \
                 $3::text::int8 from pg_publication p, pg_attribute a, \
                 (select pg_snapshot_xmax(pg_current_snapshot())::text::int8) now (id) \
                 where p.pubname = $1 and a.attrelid = to_regclass($2) and a.attnum = -1";
    let parameters = [
        (&config.publication as _, Type::TEXT),
        (&table.quoted() as _, Type::TEXT),
        (&filter.looked_at().to_string() as _, Type::TEXT),
    ];
    let row = sql.opt("looking when a table has come", query, &parameters).await?;
    Ok(row.is_some_and(|row| row.get::<_, Option<bool>>(0) == Some(true)))
}

/// Tables that are none of those that the pipeline has read, by their object ids. One
/// that had the name of such a table and is there under another may have got rows
/// since.
async fn not_noted(
    sql: &Sql,
    config: &RelayConfig,
    noted: &Noted,
) -> Result<Vec<TableName>, RelayError> {
    let known = noted.tables();
    let facts = relations::read(sql, config, &known).await?;
    let mut found = Vec::new();
    for (oid, table) in facts.named(&config.tables).filter(|(oid, _)| !known.contains(oid)) {
        let before = noted.table(&table.quoted());
        let is_read = |before: &u32| facts.named(&config.tables).any(|(oid, _)| oid == *before);
        let before = before.filter(|before| {
            config.initial != Some(Initial::Skip) && *before != oid && !is_read(before)
        });
        if let Some(name) = before.and_then(|before| facts.name(before)) {
            return Err(RelayError::prerequisite(
                format!(
                    "table {table} is another table than pipeline {:?} has read, which is called \
                     {name} now",
                    config.pipeline
                ),
                format!(
                    "name {name} in `tables` too, until what was inserted there is published; or, \
                     if nothing is inserted there any more, set initial = \"skip\", which leaves \
                     the rows that are in {table} already"
                ),
            ));
        }
        found.push(table);
    }
    Ok(found)
}

/// Of a slot that somebody else made nobody knows which rows it will bring.
fn existing_slot(table: &TableName, config: &RelayConfig, initial: Option<Initial>) -> RelayError {
    let name = &config.slot;
    let why = match initial {
        Some(Initial::Publish) => {
            "initial = \"publish\" needs a slot that walpost has created, for its snapshot"
        }
        _ => "`initial` does not say what becomes of those that the slot does not bring",
    };
    let create = if config.create_slot { "" } else { " and create_slot = true" };
    RelayError::prerequisite(
        format!(
            "slot {name:?} is there already, pipeline {:?} has no checkpoint, and table {table} \
             holds rows; {why}",
            config.pipeline
        ),
        format!(
            "to take the slot as it is, for instance from Debezium, set initial = \"skip\": what \
             was committed after its position is published, older rows are not; to publish \
             every row, drop the slot (`select pg_drop_replication_slot('{name}')`) and let \
             walpost create it, with initial = \"publish\"{create}"
        ),
    )
}
