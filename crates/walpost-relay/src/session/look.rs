//! What a start checks and finds, before it makes a slot or sends anything.

use std::{sync::Arc, time::Duration};

use walpost_postgres::Database;
use walpost_router::RouterConfig;

use super::{Found, There};
use crate::{
    checkpoint::{
        Checkpoint, CheckpointStore, InitialState, Watched, new_generation, note_unlogged,
    },
    config::{Initial, RelayConfig},
    error::RelayError,
    history,
    id_space::{Begins, IdSpaceTable, IdSpaces},
    parked::Parked,
    sql::Sql,
    start::{self, SlotFate},
    status::StatusReporter,
    wal::{
        ReplicationClient, ServerIdentity,
        charset::Charset,
        membership,
        preflight::{self, Server},
        publication, relations,
        slot::{self, Slot},
        snapshot::declare_loads,
    },
};

pub(super) async fn connect_to(
    database: &Database,
    config: &RelayConfig,
) -> Result<(Sql, Database), RelayError> {
    let limit = Duration::from_millis(config.statement_timeout_ms);
    let (client, database) = database.connect_to_one().await?;
    Ok((Sql::new(Arc::new(client), limit), database))
}

/// What a start refuses before it makes a slot or sends anything; for `check`.
/// Creates nothing.
pub(crate) async fn refusals(
    database: &Database,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Result<(), RelayError> {
    let (found, there, _) = look(database, config, router, None).await?;
    if there.slot.is_none() && there.fate == SlotFate::Fits {
        slot::has_room(&found.sql, config).await?;
    }
    declarable(&found, config).await?;
    if found.stored {
        Parked::fits(found.sql, config, &found.checkpoint, &found.checkpoints).await?;
    }
    Ok(())
}

/// The rows that would be loaded can be read as they would be.
async fn declarable(found: &Found, config: &RelayConfig) -> Result<(), RelayError> {
    let stored = match &found.checkpoint.initial {
        InitialState::Publish { boundary } | InitialState::Recover { boundary, .. } => {
            Some(boundary.as_str())
        }
        InitialState::Creating if config.initial == Some(Initial::Publish) => None,
        _ => return Ok(()),
    };
    let attempt = "trying to read the rows of the initial load";
    let slow = found.sql.within_ms(config.slot_timeout_ms);
    let charset = Charset::find(&slow, &found.database).await?;
    slow.batch(attempt, "begin isolation level repeatable read read only").await?;
    let declared = declare_loads(&slow, config, stored, found.recovering(), &charset).await;
    declared.map(drop).and(slow.batch(attempt, "rollback").await)
}

/// Checks, and finds what there is. The start of a relay, which has a `status`, creates
/// the publication where it may.
pub(super) async fn look(
    given: &Database,
    config: &RelayConfig,
    router: &RouterConfig,
    status: Option<&StatusReporter>,
) -> Result<(Found, There, ReplicationClient), RelayError> {
    let (sql, database) = connect_to(given, config).await?;
    // A checkpoint is worth nothing before it is on disk; waiting for a
    // synchronous standby could mean waiting for ourselves.
    let settings = "set synchronous_commit = local; set statement_timeout = 0; \
                    set idle_session_timeout = 0";
    sql.batch("setting up the session", settings).await?;
    let server = checked(&sql, config, router, status.is_some()).await?;
    let mut replication = replication(&database, config).await?;
    let identity = replication.identify().await?;
    server.expect(&identity)?;
    let mut checkpoints = CheckpointStore::new(sql.clone(), config);
    // The slot first: it follows the checkpoint, so read in this order it
    // can only be ahead if somebody else moved it.
    let mut slot = slot::inspect(&sql, &config.slot).await?;
    let checkpoint = checkpoints.read().await?;
    if slot.is_none() && checkpoint.is_some() && slot::inspect(&sql, &config.slot).await?.is_some()
    {
        // Somebody made the first start between the two.
        return Err(RelayError::TakenOver { pipeline: config.pipeline.clone() });
    }
    let publication = membership::read(&sql, config).await?;
    if let Some(slot) = &mut slot {
        slot.note_gap(checkpoint.as_ref(), publication.as_ref());
        not_moved_meanwhile(config, slot, checkpoint.as_ref(), &checkpoints).await?;
    }
    let noted = checkpoint.as_ref().and_then(|row| row.publication.clone());
    checkpoints.expect_publication(publication, noted);
    let facts = relations::read(&sql, config, &[]).await?;
    let before = checkpoint.as_ref().and_then(|row| row.relations.as_ref());
    let (version, tables) = (server.version, facts.named(&config.tables).collect());
    let has_deletes = publication::has_deletes(&sql, config).await? == Some(true);
    checkpoints.expect_relations(Watched::new(&database, config, version, before, &facts));
    if let Some(status) = status {
        show(status, &server, slot.as_ref());
    }
    let mut left_at = None;
    if let Some(checkpoint) = &checkpoint {
        checkpoint.feed.expect_wal(config)?;
        history::same_cluster(checkpoint, config, &server)?;
        left_at = start::same_past(checkpoint, config, identity.timeline, &mut replication).await?;
    }
    slot::owned_by_no_other(&sql, config, &server.system_id).await?;
    let fate = start::slot_fits(slot.as_ref(), checkpoint.as_ref(), config, given)?;
    start::rows_decided(&sql, config, checkpoint.as_ref(), slot.as_ref()).await?;
    let begins = Begins::of(checkpoint.as_ref(), slot.as_ref(), config);
    let spaces = id_spaces(&sql, config, &router.event_id, begins, status.is_some()).await?;
    let found = Found {
        spaces,
        stored: checkpoint.is_some(),
        checkpoint: checkpoint.unwrap_or_else(|| first_checkpoint(config, &identity)),
        left_at,
        database,
        sql,
        server,
        tables,
        partitioned: facts.partitioned(),
        has_deletes,
        identity,
        checkpoints,
        new_slot: None,
        has_sink: false,
    };
    Ok((found, There { slot, fate }, replication))
}

async fn replication(
    database: &Database,
    config: &RelayConfig,
) -> Result<ReplicationClient, RelayError> {
    let (timeout_ms, max_event_bytes) = (config.wal_sender_timeout_ms, config.max_event_bytes);
    Ok(ReplicationClient::connect(database, timeout_ms, max_event_bytes).await?)
}

fn show(status: &StatusReporter, server: &Server, slot: Option<&Slot>) {
    status.update(|status| {
        status.written = server.wal;
        status.system_id = Some(server.system_id.clone());
        status.confirmed = slot.and_then(|slot| slot.confirmed).unwrap_or(server.wal);
    });
}

/// What streaming needs. Of a table that is unlogged the row of a relay says so, also
/// behind the refusal.
async fn checked(
    sql: &Sql,
    config: &RelayConfig,
    router: &RouterConfig,
    is_start: bool,
) -> Result<Server, RelayError> {
    let checked = preflight::run(sql, config, router, is_start).await;
    if checked.is_err() && is_start {
        // Before `walpost migrate` there is no row.
        drop(note_unlogged(sql, config).await);
    }
    checked
}

/// The id space of each table, which a start makes where it is missing.
async fn id_spaces(
    sql: &Sql,
    config: &RelayConfig,
    id_column: &str,
    begins: Begins,
    is_kept: bool,
) -> Result<IdSpaces, RelayError> {
    let table = IdSpaceTable::new(config);
    if is_kept {
        return table.ensure(sql, config, id_column, begins).await;
    }
    table.try_ensure(sql, config, id_column, begins).await?;
    table.read(sql).await
}

fn first_checkpoint(config: &RelayConfig, identity: &ServerIdentity) -> Checkpoint {
    let ServerIdentity { system_id, timeline, .. } = identity;
    Checkpoint::new(new_generation(), system_id, *timeline, &config.slot)
}

/// The gap that was found is none of rows that were moved between two looks.
async fn not_moved_meanwhile(
    config: &RelayConfig,
    slot: &Slot,
    before: Option<&Checkpoint>,
    checkpoints: &CheckpointStore,
) -> Result<(), RelayError> {
    if slot.lost.as_deref() != Some(membership::BROKEN) {
        return Ok(());
    }
    let now = checkpoints.read().await?.map(|row| row.publication);
    if now == before.map(|row| row.publication.clone()) {
        return Ok(());
    }
    Err(RelayError::PublicationChanged { pipeline: config.pipeline.clone() })
}
