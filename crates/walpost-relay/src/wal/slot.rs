use std::time::Duration;

use serde_json::Value;
use tokio_postgres::{
    error::SqlState,
    types::{PgLsn, ToSql, Type},
};
use walpost_event::Lsn;

use super::{client::ReplicationClient, membership, quote_identifier, relations::Noted};
use crate::{
    checkpoint::{Checkpoint, InitialState},
    config::RelayConfig,
    error::RelayError,
    sql::Sql,
};

/// What the server says of a replication slot.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) plugin: Option<String>,
    pub(crate) database: Option<String>,
    pub(crate) temporary: bool,
    pub(crate) active_pid: Option<i32>,
    pub(crate) confirmed: Option<Lsn>,
    /// Why it does not bring everything any more, where that is so.
    pub(crate) lost: Option<String>,
}

impl Slot {
    /// It is as good as lost where the publication has other object ids than the
    /// checkpoint: what was committed in between it does not bring.
    pub(crate) fn note_gap(&mut self, checkpoint: Option<&Checkpoint>, ids: Option<&Value>) {
        let row = checkpoint.filter(|row| row.initial != InitialState::Creating);
        if !membership::is_unbroken(row.and_then(|row| row.publication.as_ref()), ids) {
            self.lost.get_or_insert_with(|| membership::BROKEN.to_owned());
        }
        let was_unlogged =
            |row: &Checkpoint| row.relations.as_ref().is_some_and(Noted::was_unlogged);
        if row.is_some_and(was_unlogged) {
            self.lost.get_or_insert_with(|| UNLOGGED.to_owned());
        }
    }
}

/// Of a slot whose stream lacks what was inserted while a table was unlogged.
const UNLOGGED: &str = "table_was_unlogged";

/// A slot that was just created, and the snapshot of everything before it.
///
/// The snapshot lives until the next command on the connection that made it.
pub(crate) struct NewSlot {
    pub(crate) consistent: Lsn,
    pub(crate) snapshot: String,
}

/// Between two looks at what slot creation waits for.
const WAIT_REPORT: Duration = Duration::from_secs(5);

/// Reads the slot's row, `None` if there is no such slot.
pub(crate) async fn inspect(sql: &Sql, name: &str) -> Result<Option<Slot>, RelayError> {
    // The reason is told since PostgreSQL 17; before, a primary had no other.
    let query = "select plugin::text, database::text, temporary, active_pid, confirmed_flush_lsn, \
                 case when wal_status = 'lost' \
                 then coalesce(to_jsonb(s) ->> 'invalidation_reason', 'wal_removed') end \
                 from pg_replication_slots s where slot_name = $1";
    let row = sql.opt("reading the replication slot", query, &[(&name, Type::TEXT)]).await?;
    Ok(row.map(|row| Slot {
        plugin: row.get(0),
        database: row.get(1),
        temporary: row.get(2),
        active_pid: row.get(3),
        confirmed: row.get::<_, Option<PgLsn>>(4).map(|lsn| Lsn::from(u64::from(lsn))),
        lost: row.get(5),
    }))
}

/// Checks that an existing slot can be streamed from by this pipeline.
pub(crate) fn check(slot: &Slot, config: &RelayConfig, dbname: &str) -> Result<(), RelayError> {
    check_kind(slot, config, dbname)?;
    slot.lost.as_deref().map_or(Ok(()), |reason| Err(lost(slot, config, reason)))
}

/// Checks that an existing slot is of the kind that a pipeline has, also if it
/// is lost.
pub(crate) fn check_kind(
    slot: &Slot,
    config: &RelayConfig,
    dbname: &str,
) -> Result<(), RelayError> {
    let name = &config.slot;
    match slot.plugin.as_deref() {
        Some("pgoutput") => {}
        Some(plugin) => {
            return Err(RelayError::prerequisite(
                format!("slot {name:?} decodes with {plugin}, not with pgoutput"),
                format!(
                    "name another by pipeline.slot, or drop the slot once nothing needs it: \
                     select pg_drop_replication_slot('{name}')"
                ),
            ));
        }
        None => {
            return Err(RelayError::prerequisite(
                format!("slot {name:?} is a physical slot"),
                "name another by pipeline.slot; walpost needs a logical one",
            ));
        }
    }
    if slot.database.as_deref() != Some(dbname) {
        return Err(RelayError::prerequisite(
            format!(
                "slot {name:?} belongs to database {:?}, not to {dbname:?}",
                slot.database.as_deref().unwrap_or_default()
            ),
            "name another by pipeline.slot, or connect to that database",
        ));
    }
    if slot.temporary {
        return Err(RelayError::prerequisite(
            format!("slot {name:?} is temporary and vanishes with its session"),
            "name another by pipeline.slot",
        ));
    }
    Ok(())
}

fn lost(slot: &Slot, config: &RelayConfig, reason: &str) -> RelayError {
    let name = &config.slot;
    let why = match reason {
        membership::BROKEN => &membership::what_happened(config),
        UNLOGGED => "an outbox table was unlogged for a while",
        "wal_removed" => "the server removed WAL that it still needed (max_slot_wal_keep_size)",
        "idle_timeout" => "the server gave up on it for being idle (idle_replication_slot_timeout)",
        "wal_level_insufficient" => "the server ran with a wal_level below logical",
        "rows_removed" => "the server removed catalog rows that it still needed",
        _ => "the server has invalidated it",
    };
    RelayError::prerequisite(
        format!(
            "slot {name:?} is lost: {why}; events committed since {} were not all read",
            slot.confirmed.unwrap_or_default()
        ),
        format!(
            "run `walpost slot recover`, which says whether the outbox table still has what is \
             missing and has the next start publish it; or publish it yourself, drop the slot \
             (select pg_drop_replication_slot('{name}')), delete the pipeline's row in \
             {}.checkpoint and start with initial = \"publish\", which publishes the whole \
             table again, or \"skip\"",
            config.schema
        ),
    )
}

/// The server has room for one more slot: a temporary one that keeps no WAL is
/// created and dropped. Where that is refused for another reason, nothing is known.
pub(crate) async fn has_room(sql: &Sql, config: &RelayConfig) -> Result<(), RelayError> {
    let attempt = "looking for a free replication slot";
    let trial = "select pg_drop_replication_slot(slot_name) from \
                 pg_create_physical_replication_slot('walpost_check_' || pg_backend_pid(), \
                 false, true)";
    match sql.query(attempt, trial, &[]).await {
        Err(RelayError::Sql { source, .. })
            if source.code() == Some(&SqlState::CONFIGURATION_LIMIT_EXCEEDED) =>
        {
            Err(RelayError::prerequisite(
                format!(
                    "slot {:?} cannot be created: all replication slots are in use",
                    config.slot
                ),
                "drop a slot that nothing reads, or raise max_replication_slots and restart \
                 PostgreSQL",
            ))
        }
        Err(error) if error.is_transient() => Err(error),
        _ => Ok(()),
    }
}

/// No other pipeline of this schema has its checkpoint on the slot: what one of
/// the two confirms, the other would never see.
pub(crate) async fn owned_by_no_other(
    sql: &Sql,
    config: &RelayConfig,
    system_id: &str,
) -> Result<(), RelayError> {
    let (slot, pipeline) = (&config.slot, &config.pipeline);
    let table = format!("{}.checkpoint", quote_identifier(&config.schema));
    // A row of another cluster speaks of that one's slot.
    let query = format!(
        "select pipeline from {table} where slot = $1 and pipeline <> $2 and system_id = $3 \
         order by pipeline limit 1"
    );
    let parameters = [
        (slot as &(dyn ToSql + Sync), Type::TEXT),
        (pipeline as _, Type::TEXT),
        (&system_id as _, Type::TEXT),
    ];
    let Some(row) = sql.opt("looking for the slot's pipeline", &query, &parameters).await? else {
        return Ok(());
    };
    let owner: &str = row.get(0);
    Err(RelayError::prerequisite(
        format!("slot {slot:?} belongs to pipeline {owner:?}, and this is pipeline {pipeline:?}"),
        format!(
            "name another by pipeline.slot, or run under the name {owner:?}; to hand the slot over for good, \
             stop pipeline {owner:?} and delete its row in {table}"
        ),
    ))
}

/// Before there is a slot to hold, a lock keeps a second process from making one,
/// or from switching the source. It goes with the session. Whether it was free.
pub(crate) async fn lock_first_start(sql: &Sql, config: &RelayConfig) -> Result<bool, RelayError> {
    let lock = "select pg_try_advisory_lock(hashtext('walpost first start'), hashtext($1))";
    let pipeline = [(&config.pipeline as _, Type::TEXT)];
    Ok(sql.one("locking the first start", lock, &pipeline).await?.get(0))
}

/// Creates the slot and exports the snapshot of everything before it.
///
/// Waits for every transaction that is running now, and says for which.
pub(crate) async fn create(
    replication: &mut ReplicationClient,
    sql: &Sql,
    config: &RelayConfig,
    server_version: u32,
) -> Result<NewSlot, RelayError> {
    // A failover slot survives the promotion of a standby; the option is new
    // in PostgreSQL 17, as is its syntax in 15.
    let options = if server_version >= 170_000 {
        "(SNAPSHOT 'export', FAILOVER true)"
    } else {
        "EXPORT_SNAPSHOT"
    };
    let command = format!(
        "CREATE_REPLICATION_SLOT {} LOGICAL pgoutput {options}",
        quote_identifier(&config.slot)
    );
    create_by(&command, replication, sql, config).await
}

/// Creates a slot that goes with its session, likewise.
pub(crate) async fn create_temporary(
    replication: &mut ReplicationClient,
    sql: &Sql,
    config: &RelayConfig,
) -> Result<NewSlot, RelayError> {
    let name = format!("walpost_switch_{:08x}", uuid::Uuid::new_v4().as_u64_pair().0 as u32);
    create_named(&name, replication, sql, config).await
}

/// The same under this name.
pub(crate) async fn create_named(
    name: &str,
    replication: &mut ReplicationClient,
    sql: &Sql,
    config: &RelayConfig,
) -> Result<NewSlot, RelayError> {
    let command = format!(
        "CREATE_REPLICATION_SLOT {} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT",
        quote_identifier(name)
    );
    create_by(&command, replication, sql, config).await
}

async fn create_by(
    command: &str,
    replication: &mut ReplicationClient,
    sql: &Sql,
    config: &RelayConfig,
) -> Result<NewSlot, RelayError> {
    let limit = Duration::from_millis(config.slot_timeout_ms);
    let rows = {
        let created = tokio::time::timeout(limit, replication.query_unbounded(command));
        tokio::pin!(created);
        loop {
            tokio::select! {
                rows = &mut created => break rows,
                () = tokio::time::sleep(WAIT_REPORT) => report_waiting(sql, config).await,
            }
        }
    };
    let rows = rows.map_err(|_| {
        RelayError::prerequisite(
            format!(
                "slot {:?} was not ready within {} s: it waits for transactions that were \
                 running when it was created",
                config.slot,
                limit.as_secs()
            ),
            "end them (the log names them) or raise slot_timeout_ms",
        )
    })??;
    let column = |index: usize| rows.first()?.get(index)?.clone();
    let consistent = column(1).and_then(|text| text.parse().ok());
    match (consistent, column(2)) {
        (Some(consistent), Some(snapshot)) => Ok(NewSlot { consistent, snapshot }),
        _ => Err(RelayError::Source(crate::error::SourceError::Protocol(
            "CREATE_REPLICATION_SLOT without a position or snapshot".into(),
        ))),
    }
}

/// Drops a slot that nobody streams from. It may be gone by now: a session that was
/// still making it, as of a relay that was killed, takes it along.
pub(crate) async fn drop(sql: &Sql, name: &str) -> Result<(), RelayError> {
    let query = "select pg_drop_replication_slot($1)";
    let dropped = sql.query("dropping the orphaned slot", query, &[(&name, Type::NAME)]).await;
    match dropped {
        Err(RelayError::Sql { source, .. })
            if source.code() == Some(&SqlState::UNDEFINED_OBJECT) =>
        {
            Ok(())
        }
        dropped => dropped.map(|_| ()),
    }
}

async fn report_waiting(sql: &Sql, config: &RelayConfig) {
    let query = "select pid, coalesce(application_name, ''), coalesce(state, ''), \
               extract(epoch from clock_timestamp() - xact_start)::int8 \
               from pg_stat_activity where backend_xid is not null and pid <> pg_backend_pid() \
               order by xact_start limit 3";
    match sql.query("looking for open transactions", query, &[]).await {
        Ok(rows) if rows.is_empty() => {
            tracing::info!(slot = config.slot, "creating the slot");
        }
        Ok(rows) => {
            for row in rows {
                tracing::warn!(
                    slot = config.slot,
                    pid = row.get::<_, i32>(0),
                    application = row.get::<_, &str>(1),
                    state = row.get::<_, &str>(2),
                    running_s = row.get::<_, i64>(3),
                    "creating the slot waits for a transaction"
                );
            }
        }
        Err(error) => tracing::debug!(%error, "cannot tell what slot creation waits for"),
    }
}
