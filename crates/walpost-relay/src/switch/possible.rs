//! What stands in the way of a switch, each with what to do.

use tokio_postgres::types::Type;

use super::{Desk, SourceSwitch};
use crate::{
    checkpoint::{Checkpoint, InitialState},
    config::{RelayConfig, TableName},
    error::RelayError,
    history,
    polling::{check_table, none_failed, polled, polling_sight},
    recovery,
    sql::Sql,
    wal::{membership, preflight, quote_identifier, row_filter, slot},
};

impl SourceSwitch {
    /// The WAL can be left for polling.
    pub(super) async fn can_leave_wal(
        &self,
        desk: &Desk,
        row: &Checkpoint,
    ) -> Result<(), RelayError> {
        let (sql, config) = (&desk.sql, &self.config);
        history::same_cluster(row, config, &desk.server)?;
        if let Some(topic) = &config.dead_letter_topic {
            return Err(RelayError::prerequisite(
                format!(
                    "dead_letter_topic is {topic:?}, and relays that poll write no dead letters"
                ),
                "take pipeline.dead_letter_topic out of the configuration",
            ));
        }
        has_streamed(row, config)?;
        check_table(sql, &desk.database, config, &self.polling, self.router.config()).await?;
        self.rows_can_be_parted(sql).await?;
        no_messages(row.has_messages, config)?;
        let mut slot = slot::inspect(sql, &config.slot).await?;
        let publication = membership::read(sql, config).await?;
        if let Some(slot) = &mut slot {
            slot.note_gap(Some(row), publication.as_ref());
        }
        match slot {
            Some(slot) => slot::check(&slot, config, desk.database.dbname())?,
            None => return Err(history::slot_gone(row, config)),
        }
        none_parked(sql, config).await
    }

    /// Polling can be left for the WAL.
    pub(super) async fn can_leave_polling(&self, desk: &Desk) -> Result<(), RelayError> {
        let (sql, config, router) = (&desk.sql, &self.config, self.router.config());
        if !config.create_slot {
            return Err(RelayError::prerequisite(
                "create_slot is false, and the switch needs a slot that it has made itself, for \
                 its snapshot",
                "set pipeline.create_slot = true for the switch",
            ));
        }
        preflight::run(sql, config, router, true).await?;
        check_table(sql, &desk.database, config, &self.polling, router).await?;
        self.rows_can_be_parted(sql).await?;
        none_failed(config, &polling_sight(&desk.database, config, &self.polling).await?)
    }

    /// A snapshot tells which rows belong to which source.
    async fn rows_can_be_parted(&self, sql: &Sql) -> Result<(), RelayError> {
        let (config, table) = (&self.config, polled(&self.config)?);
        if !recovery::columns(sql, table).await?.has_xid {
            return Err(RelayError::prerequisite(
                format!(
                    "table {table} has no column xid that would tell which rows the one source \
                     has published"
                ),
                format!(
                    "run `alter table {} add column xid xid8 not null default \
                     pg_current_xact_id()`, and switch when the pipeline has published what is \
                     there",
                    table.quoted()
                ),
            ));
        }
        if row_filter::of_publication(sql, &config.publication, table).await?.is_some() {
            return Err(RelayError::prerequisite(
                format!(
                    "publication {:?} has a row filter for table {table}, and polling reads the \
                     whole table",
                    config.publication
                ),
                "a pipeline that shares its table with others stays with the WAL",
            ));
        }
        own_transactions(sql, config, table).await
    }
}

async fn own_transactions(
    sql: &Sql,
    config: &RelayConfig,
    table: &TableName,
) -> Result<(), RelayError> {
    let foreign = format!(
        "select exists (select from {} where xid >= pg_snapshot_xmax(pg_current_snapshot()))",
        table.quoted()
    );
    let slow = sql.within_ms(config.slot_timeout_ms);
    let row = slow.one("checking the transaction ids of the outbox table", &foreign, &[]).await?;
    if !row.get::<_, bool>(0) {
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!("table {table} holds transaction ids of another cluster"),
        "once these rows are published, have them leave the table, or set their xid to \
         pg_current_xact_id()",
    ))
}

/// Everything from before the slot is published.
pub(super) fn has_streamed(row: &Checkpoint, config: &RelayConfig) -> Result<(), RelayError> {
    if row.initial == InitialState::Done {
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!("pipeline {:?} has not come to stream yet", config.pipeline),
        "let `walpost run` bring its first start, or the recovery of its slot, to an end",
    ))
}

/// Nobody sends messages, as far as the stream tells.
pub(super) fn no_messages(has_messages: bool, config: &RelayConfig) -> Result<(), RelayError> {
    let takes_none = config.message_prefixes.is_empty() && config.message_filter.is_none();
    if !has_messages || takes_none {
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!(
            "pipeline {:?} has published messages of pg_logical_emit_message, which are in the WAL \
             alone and which nobody can poll",
            config.pipeline
        ),
        "write rows instead, and set pipeline.message_prefixes = [] once no program sends messages",
    ))
}

/// No parked event waits to be sent on: polling would overtake it, and nobody
/// would send it on.
pub(super) async fn none_parked(sql: &Sql, config: &RelayConfig) -> Result<(), RelayError> {
    let query = format!(
        "select count(*) from {}.parked where pipeline = $1 and state in ('open', 'sending')",
        quote_identifier(&config.schema)
    );
    let pipeline = [(&config.pipeline as _, Type::TEXT)];
    let count: i64 = sql.one("counting parked events", &query, &pipeline).await?.get(0);
    if count == 0 {
        return Ok(());
    }
    Err(RelayError::prerequisite(
        format!(
            "{count} events of pipeline {:?} are parked, and only a relay that reads the WAL sends \
             them on",
            config.pipeline
        ),
        "see them with `walpost parked list`, start `walpost run` again to have them sent on with \
         `walpost parked retry`, or discard them, and switch then",
    ))
}
