use std::sync::Arc;

use walpost_postgres::Database;
use walpost_router::{Router, RouterConfig};

use crate::{
    checkpoint::CheckpointStore,
    config::RelayConfig,
    convert::describe,
    error::RelayError,
    sql::Sql,
    wal::{preflight, slot},
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

/// Looks at everything that [`Relay::start`](crate::Relay::start) would need.
/// Creates, takes and moves nothing. A check that cannot be made because an
/// earlier one failed is left out.
pub async fn check(
    database: &Database,
    config: &RelayConfig,
    router: &RouterConfig,
) -> Vec<CheckResult> {
    let mut results = Vec::new();
    let settings = config
        .validate()
        .and_then(|()| Router::new(router.clone()).map(|_| ()).map_err(|error| describe(&error)));
    results.push(match settings {
        Ok(()) => ok("configuration", format!("pipeline {:?}", config.pipeline)),
        Err(problem) => fail("configuration", problem, "mend the setting"),
    });
    if let Err(error) = database_checks(database, config, router, &mut results).await {
        results.push(failed("database", &error));
    }
    results
}

async fn database_checks(
    database: &Database,
    config: &RelayConfig,
    router: &RouterConfig,
    results: &mut Vec<CheckResult>,
) -> Result<(), RelayError> {
    let client = Arc::new(database.connect().await?);
    results.push(ok("connection", database.to_string()));
    let server = preflight::server(&client).await?;
    results.push(ok("server", format!("{}, wal_level logical", server.version_text())));
    step(results, "replication right", preflight::rights(&client).await);
    step(results, "walpost's tables", preflight::own_tables(&client, config).await);
    for table in &config.tables {
        step(results, "outbox table", preflight::columns(&client, table, router).await);
    }
    step(results, "publication", preflight::publication_found(&client, config).await);
    if results.iter().any(|result| result.name == "walpost's tables" && is_fail(result)) {
        return Ok(());
    }
    let limit = std::time::Duration::from_millis(config.statement_timeout_ms);
    let checkpoint = CheckpointStore::new(Sql::new(client.clone(), limit), config).read().await?;
    results.push(match &checkpoint {
        Some(row) => ok("checkpoint", format!("published up to {}", row.confirmed)),
        None => ok("checkpoint", "none yet: the first start".to_owned()),
    });
    results.push(slot_check(&client, database, config, checkpoint.is_some()).await?);
    Ok(())
}

async fn slot_check(
    client: &tokio_postgres::Client,
    database: &Database,
    config: &RelayConfig,
    started_before: bool,
) -> Result<CheckResult, RelayError> {
    let name = "slot";
    let Some(slot) = slot::inspect(client, &config.slot).await? else {
        if started_before {
            let problem = format!("slot {:?} is gone", config.slot);
            return Ok(fail(name, problem, "see what `walpost run` says about it"));
        }
        if config.create_slot {
            return Ok(ok(name, format!("{:?} will be created", config.slot)));
        }
        let problem = format!("slot {:?} does not exist", config.slot);
        return Ok(fail(name, problem, "create it, or set create_slot = true"));
    };
    if let Err(error) = slot::check(&slot, config, database.dbname()) {
        return Ok(failed(name, &error));
    }
    let position = slot.confirmed.unwrap_or_default();
    Ok(match slot.active_pid {
        Some(pid) => CheckResult {
            name,
            outcome: Outcome::Warn,
            detail: format!("{:?} at {position}, in use by process {pid}", config.slot),
            next_step: Some("a relay started now stands by until that one is gone".to_owned()),
        },
        None => ok(name, format!("{:?} at {position}", config.slot)),
    })
}

fn step(results: &mut Vec<CheckResult>, name: &'static str, step: Result<String, RelayError>) {
    results.push(match step {
        Ok(detail) => ok(name, detail),
        Err(error) => failed(name, &error),
    });
}

fn is_fail(result: &CheckResult) -> bool {
    result.outcome == Outcome::Fail
}

fn ok(name: &'static str, detail: String) -> CheckResult {
    CheckResult { name, outcome: Outcome::Ok, detail, next_step: None }
}

fn fail(name: &'static str, detail: String, next_step: &str) -> CheckResult {
    CheckResult { name, outcome: Outcome::Fail, detail, next_step: Some(next_step.to_owned()) }
}

fn failed(name: &'static str, error: &RelayError) -> CheckResult {
    match error {
        RelayError::Prerequisite { problem, remedy } => fail(name, problem.clone(), remedy),
        error => fail(name, describe(error), "see the message of the server"),
    }
}
