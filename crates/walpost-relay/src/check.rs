//! What `walpost check` looks at before a pipeline streams.
//!
//! Long because it is one list of all that a start needs, in its order.

pub(crate) mod advice;
pub(crate) mod filters;
pub(crate) mod overlap;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_postgres::error::SqlState;
use walpost_event::error_chain;
use walpost_postgres::Database;
use walpost_router::{Router, RouterConfig};

use crate::{
    checkpoint::{Checkpoint, CheckpointStore, InitialState},
    config::{RelayConfig, TableName},
    dead_letters,
    error::RelayError,
    history,
    id_space::{Begins, IdSpaceTable},
    marking,
    polling::declared_unique,
    recovery,
    relay::is_final,
    session, snapshot_modes,
    sql::Sql,
    start::{self, SlotFate},
    wal::{
        ReplicationClient, failover, membership,
        preflight::{self, Server},
        publication,
        relations::{self, Attached, how_to_publish},
        rights::{self, Of},
        row_filter,
        slot::{self, Slot},
        stream_columns,
    },
};

/// One thing that a pipeline needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// What was looked at, in a few words.
    pub name: &'static str,
    /// What was found.
    pub outcome: Outcome,
    /// What it is, or what is wrong.
    pub detail: String,
    /// What to do, where something is wrong.
    pub next_step: Option<String>,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it has to be.
    Ok,
    /// It works, but somebody should look.
    Warn,
    /// The pipeline would not start.
    Fail,
}

const OWN_TABLES: &str = "walpost's tables";
const OUTBOX: &str = "outbox table";
const TABLES: &str = "rows of the tables";
const PUBLICATION: &str = "publication";

/// Looks at everything that [`Relay::start`](crate::Relay::start) would need.
/// Creates, takes and moves nothing: statements that would are rolled back. A check that cannot be made because an
/// earlier one failed is left out.
pub async fn check(
    database: &Database,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Vec<CheckResult> {
    let mut results = Vec::new();
    let settings = config.validate().and_then(|()| {
        let router = Router::new(router.clone()).map_err(|error| error_chain(&error))?;
        dead_letters::apart(config, &router)
    });
    results.push(match settings {
        Ok(()) => ok("configuration", format!("pipeline {:?}", config.pipeline)),
        Err(problem) => fail("configuration", problem, "mend the setting"),
    });
    match database_checks(database, config, router, &mut results).await {
        Ok(Start::Checked) => {
            results.extend(start_check(database, config, router, &results).await);
        }
        Ok(Start::EndsAtOnce) => {}
        Err(error) => results.push(failed("database", &error)),
    }
    results
}

/// What a start does.
enum Start {
    /// All that is checked.
    Checked,
    /// Nothing, as the rows are published and nothing is streamed.
    EndsAtOnce,
}

/// Makes the checks of a start, by its own code: whatever it refuses is told, even if no
/// check above has found it. What may heal by itself is no refusal.
async fn start_check(
    database: &Database,
    config: &RelayConfig,
    router: &RouterConfig,
    results: &[CheckResult],
) -> Option<CheckResult> {
    let error = session::refusals(database, config, router).await.err()?;
    let found = failed("start", &error);
    let is_told = |result: &CheckResult| {
        result.outcome == Outcome::Fail
            && (found.detail.contains(&result.detail) || result.detail.contains(&found.detail))
    };
    (is_final(&error) && !results.iter().any(is_told)).then_some(found)
}

async fn database_checks(
    database: &Database,
    config: &RelayConfig,
    router: &RouterConfig,
    results: &mut Vec<CheckResult>,
) -> Result<Start, RelayError> {
    let limit = Duration::from_millis(config.statement_timeout_ms);
    let began = Instant::now();
    let (client, database) = database.connect_to_one().await?;
    let (sql, database) = (Sql::new(Arc::new(client), limit), &database);
    results.push(ok("connection", database.to_string()));
    let server = preflight::server(&sql).await?;
    results.push(ok("server", format!("{}, wal_level logical", server.version_text())));
    table_checks(&sql, &server, config, router, results).await;
    let application = database.config().get_application_name().unwrap_or("walpost");
    results.extend(advice::settings(&sql, application).await?);
    if config.snapshot.stream && !has_failed(results, OUTBOX) {
        results.extend(advice::recovery(&sql, config).await?);
    }
    if has_failed(results, OWN_TABLES) {
        return Ok(Start::Checked);
    }
    // The slot first, as it follows the checkpoint.
    let mut slot = slot::inspect(&sql, &config.slot).await?;
    let checkpoint = CheckpointStore::new(sql.clone(), config).read().await?;
    let publication = membership::read(&sql, config).await?;
    if let Some(slot) = &mut slot {
        slot.note_gap(checkpoint.as_ref(), publication.as_ref());
    }
    let took_messages = checkpoint.as_ref().is_some_and(|row| row.has_messages);
    results.extend(advice::untaken_messages(config, took_messages));
    results.push(checkpoint_check(checkpoint.as_ref(), config, &server));
    if !has_failed(results, OUTBOX) {
        let begins = Begins::of(checkpoint.as_ref(), slot.as_ref(), config);
        results.extend(id_space_check(&sql, config, &router.event_id, begins).await?);
    }
    if checkpoint.as_ref().is_some_and(|row| row.feed.expect_wal(config).is_err()) {
        // It has no slot then, and nothing is wrong with that.
        return Ok(Start::Checked);
    }
    if !config.snapshot.stream
        && checkpoint.as_ref().is_some_and(|row| row.initial == InitialState::Done)
    {
        let detail = "the rows are published, and nothing is streamed: a start ends at once";
        results.push(ok("first start", detail.to_owned()));
        return Ok(Start::EndsAtOnce);
    }
    let found = replication_check(database, config, &server, checkpoint.as_ref()).await;
    results.push(advice::direct(&sql, began, found.as_ref().err()).await?);
    step(results, "replication connection", found);
    let (slot, checkpoint) = (slot.as_ref(), checkpoint.as_ref());
    if !has_failed(results, OUTBOX) && !has_failed(results, TABLES) {
        results.extend(attached_check(&sql, config, checkpoint).await?);
    }
    // A publication that is named wrongly is not one that was dropped.
    let is_told = publication.is_none() && has_failed(results, PUBLICATION);
    let has_gap = slot.is_some_and(|slot| slot.lost.as_deref() == Some(membership::BROKEN));
    if !(is_told && has_gap) {
        results.push(slot_check(&sql, database, config, &server, slot, checkpoint).await);
    }
    if let Some(found) = failover::obstacle(&sql, &config.slot, server.version).await? {
        let (detail, next_step) = (found.problem, Some(found.remedy));
        results.push(CheckResult { name: "failover", outcome: Outcome::Warn, detail, next_step });
    }
    rows_check(&sql, config, checkpoint, slot, results).await;
    Ok(Start::Checked)
}

/// Whether something decides what becomes of the rows that are there.
async fn rows_check(
    sql: &Sql,
    config: &RelayConfig,
    checkpoint: Option<&Checkpoint>,
    slot: Option<&Slot>,
    results: &mut Vec<CheckResult>,
) {
    let is_first = checkpoint.is_none_or(|row| row.initial != InitialState::Done);
    if is_first || !has_failed(results, OUTBOX) {
        let decided = match start::rows_decided(sql, config, checkpoint, slot).await {
            Ok(Some(said)) => Ok(said),
            Ok(None) => snapshot_modes::preview(sql, config).await,
            Err(error) => Err(error),
        };
        if is_first || decided.is_err() {
            step(results, if is_first { "first start" } else { TABLES }, decided);
        }
    }
}

/// Whether a start gives the events of each table one source.
async fn id_space_check(
    sql: &Sql,
    config: &RelayConfig,
    id_column: &str,
    begins: Begins,
) -> Result<Vec<CheckResult>, RelayError> {
    let name = "id space";
    let table = IdSpaceTable::new(config);
    if let Err(error) = table.try_ensure(sql, config, id_column, begins).await {
        return Ok(vec![failed(name, &error)]);
    }
    let ambiguous = table.ambiguous(sql, config, id_column).await?;
    if ambiguous.is_empty() {
        return Ok(vec![ok(name, format!("scope {}", table.scope()))]);
    }
    let names: Vec<String> = ambiguous.iter().map(TableName::to_string).collect();
    let detail = format!(
        "source_header is off, and ids of tables {} are not globally unique: in one topic equal \
         ids are one event for consumers",
        names.join(", ")
    );
    let next_step = "set pipeline.source_header = true before the first publication, or route the \
                     tables to different topics";
    Ok(vec![warn(name, detail, next_step)])
}

/// Partitions with rows that no stream has brought.
async fn attached_check(
    sql: &Sql,
    config: &RelayConfig,
    checkpoint: Option<&Checkpoint>,
) -> Result<Vec<CheckResult>, RelayError> {
    let Some(noted) = checkpoint.and_then(|row| row.relations.as_ref()) else {
        return Ok(Vec::new());
    };
    let facts = relations::read(sql, config, &noted.tables()).await?;
    let found = relations::attached(&sql.within_ms(config.slot_timeout_ms), noted, &facts).await?;
    let warning = |part: &Attached| {
        let Attached { name, table, .. } = part;
        let detail = format!(
            "partition {name} of {table} holds rows that it may have had before it was attached, \
             which no stream brings: they are not published, and not pruned"
        );
        warn("attached partitions", detail, &how_to_publish(name, table))
    };
    Ok(found.iter().map(warning).collect())
}

/// Whether a start can go on from the slot.
async fn slot_check(
    sql: &Sql,
    database: &Database,
    config: &RelayConfig,
    server: &Server,
    slot: Option<&Slot>,
    checkpoint: Option<&Checkpoint>,
) -> CheckResult {
    let owned = slot::owned_by_no_other(sql, config, &server.system_id).await;
    let fits = owned.and_then(|()| start::slot_fits(slot, checkpoint, config, database));
    let (Ok(SlotFate::Replaced), Some(row)) = (&fits, checkpoint) else {
        return match fits {
            Ok(_) => slot_found(slot, config, checkpoint.is_none()),
            Err(error) => failed("slot", &error),
        };
    };
    let next_step = match recovery::possible(sql, config, row).await {
        Ok(()) => "the next start replaces it, and publishes what is missing from the outbox table",
        Err(_) if slot.is_none() && config.drop_slot_on_stop => {
            "a stop has dropped it; the next start makes another one, and what was written since \
             is lost"
        }
        Err(error) => return failed("slot", &error),
    };
    warn("slot", format!("{:?} is lost", config.slot), next_step)
}

fn kinds(config: &RelayConfig) -> String {
    format!("of {} tables, each in the stream", config.tables.len())
}

/// Rights, tables and the publication.
async fn table_checks(
    sql: &Sql,
    server: &Server,
    config: &RelayConfig,
    router: &RouterConfig,
    results: &mut Vec<CheckResult>,
) {
    step(results, "replication right", preflight::rights(sql).await);
    step(results, OWN_TABLES, preflight::own_tables(sql, config).await);
    for table in &config.tables {
        step(results, OUTBOX, preflight::columns(sql, config, table, router).await);
        // A start that reads the table fails for it.
        if let Err(error) = rights::seen_whole(sql, table, Of::Table).await {
            let found = failed("row level security", &error);
            results.push(CheckResult { outcome: Outcome::Warn, ..found });
        }
    }
    results.extend(columns_named(sql, config, router).await);
    results.extend(ids_declared(sql, config, router).await);
    if !has_failed(results, OUTBOX) {
        step(
            results,
            TABLES,
            preflight::streamed(sql, config, router).await.map(|_| kinds(config)),
        );
    }
    if !config.snapshot.overrides.is_empty() {
        let fit = snapshot_modes::selects_fit(sql, config, router).await;
        step(results, "snapshot", fit.map(|()| "each SELECT has what the router needs".to_owned()));
    }
    step(results, PUBLICATION, publication_found(sql, server, config, router).await);
    if !has_failed(results, OWN_TABLES) {
        results.extend(filters::check(sql, config, &router.event_id).await);
    }
    if config.mark_published {
        let marked = marking::possible(sql, config).await;
        step(results, "marking", marked.map(|()| "published rows are marked".to_owned()));
    }
}

/// A column that is named and that no table has.
pub(crate) async fn columns_named(
    sql: &Sql,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Option<CheckResult> {
    match preflight::named_columns(sql, config, router).await {
        Ok(found) => found.map(|(detail, next_step)| warn(OUTBOX, detail, &next_step)),
        Err(error) => Some(failed(OUTBOX, &error)),
    }
}

/// Consumers, and the table of deliveries, take two events of one id for one event.
async fn ids_declared(
    sql: &Sql,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Option<CheckResult> {
    for table in &config.tables {
        // Of a table or column that is not there others tell.
        let Ok((is_not_null, is_unique)) = declared_unique(sql, table, &router.event_id).await
        else {
            continue;
        };
        if is_not_null && is_unique {
            continue;
        }
        let lacks = if is_unique { "not null" } else { "unique" };
        return Some(warn(
            OUTBOX,
            format!(
                "column {:?} of {table}, which router.event_id names, is not declared {lacks}: \
                 of several events with one id consumers apply the first alone",
                router.event_id
            ),
            "declare it unique and not null, or name such a column in router.event_id",
        ));
    }
    None
}

async fn publication_found(
    sql: &Sql,
    server: &Server,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Result<String, RelayError> {
    row_filter::supported(server, config)?;
    preflight::origin_supported(server, config)?;
    let found = publication::found(sql, config, router).await?;
    stream_columns::suffice(sql, server.version, config, router).await?;
    Ok(found)
}

/// The connection that a relay would stream on, and the timeline at its end.
async fn replication_check(
    database: &Database,
    config: &RelayConfig,
    server: &Server,
    checkpoint: Option<&Checkpoint>,
) -> Result<String, RelayError> {
    let mut replication =
        ReplicationClient::connect(database, config.wal_sender_timeout_ms, config.max_event_bytes)
            .await?;
    let identity = replication.identify().await?;
    server.expect(&identity)?;
    let now = identity.timeline;
    match checkpoint {
        Some(checkpoint) if checkpoint.timeline != now => {
            let history = replication.history(now).await?;
            let left_at = history::continued(checkpoint, config, now, history.as_deref())?;
            Ok(format!("timeline {now}, since {left_at}; everything published is in its history"))
        }
        _ => Ok(format!("timeline {now}")),
    }
}

fn checkpoint_check(
    checkpoint: Option<&Checkpoint>,
    config: &RelayConfig,
    server: &Server,
) -> CheckResult {
    let name = "checkpoint";
    let Some(checkpoint) = checkpoint else {
        return ok(name, "none yet: the first start".to_owned());
    };
    let fits = checkpoint.feed.expect_wal(config);
    match fits.and_then(|()| history::same_cluster(checkpoint, config, server)) {
        Ok(()) => ok(name, format!("published up to {}", checkpoint.confirmed)),
        Err(error) => failed(name, &error),
    }
}

fn slot_found(slot: Option<&Slot>, config: &RelayConfig, is_first: bool) -> CheckResult {
    let name = "slot";
    let Some(slot) = slot else {
        return ok(name, format!("{:?} will be created", config.slot));
    };
    let place = format!("{:?} at {}", config.slot, slot.confirmed.unwrap_or_default());
    let in_use = slot.active_pid.map(|pid| format!("{place}, in use by process {pid}"));
    match (in_use, is_first) {
        (Some(place), true) => warn(
            name,
            place,
            "if Debezium reads it, stop the connector and run `walpost take-over from-debezium`; \
             a relay started now stands by until that process is gone",
        ),
        (Some(place), false) => {
            warn(name, place, "a relay started now stands by until that one is gone")
        }
        (None, true) => warn(
            name,
            format!("{place}, where the first start begins"),
            "if Debezium has read from it, run `walpost take-over from-debezium` before the first \
             start; else what was published behind that comes again",
        ),
        (None, false) => ok(name, place),
    }
}

fn step(results: &mut Vec<CheckResult>, name: &'static str, step: Result<String, RelayError>) {
    results.push(match step {
        Ok(detail) => ok(name, detail),
        Err(error) => failed(name, &error),
    });
}

fn has_failed(results: &[CheckResult], name: &str) -> bool {
    results.iter().any(|result| result.name == name && result.outcome == Outcome::Fail)
}

fn ok(name: &'static str, detail: String) -> CheckResult {
    CheckResult { name, outcome: Outcome::Ok, detail, next_step: None }
}

fn warn(name: &'static str, detail: String, next_step: &str) -> CheckResult {
    CheckResult { name, outcome: Outcome::Warn, detail, next_step: Some(next_step.to_owned()) }
}

fn fail(name: &'static str, detail: String, next_step: &str) -> CheckResult {
    CheckResult { name, outcome: Outcome::Fail, detail, next_step: Some(next_step.to_owned()) }
}

pub(crate) fn failed(name: &'static str, error: &RelayError) -> CheckResult {
    match error {
        RelayError::Prerequisite { problem, remedy } => fail(name, problem.clone(), remedy),
        RelayError::Sql { source, .. }
            if source.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) =>
        {
            fail(name, error_chain(error), "let an owner grant the role what it is denied")
        }
        error => fail(name, error_chain(error), "see the message of the server"),
    }
}
