//! Whether deliveries can be made and sent.

use std::collections::BTreeSet;

use walpost_event::error_chain;
use walpost_postgres::Database;
use walpost_relay::{CheckResult, Outcome, RelayError};
use walpost_webhook::DestinationBacklog;

use crate::{
    command::{cells::cell, grants::with_role},
    config::Webhooks,
};

/// The tables, and each destination with its secrets; nothing is sent.
pub(super) async fn check(database: &Database, webhooks: &Webhooks) -> Vec<CheckResult> {
    let mut results = vec![tables(database, webhooks).await];
    results.extend(unconfigured(database, webhooks).await);
    for (name, problem) in webhooks.try_requests().await {
        results.push(match problem {
            None => CheckResult {
                name: "destination",
                outcome: Outcome::Ok,
                detail: format!("{name}: a request can be made"),
                next_step: None,
            },
            Some(problem) => CheckResult {
                name: "destination",
                outcome: Outcome::Fail,
                detail: format!("{name}: no request can be made: {problem}"),
                next_step: Some(format!(
                    "mend [destination.{name}]; its deliveries wait meanwhile, and no attempt is counted"
                )),
            },
        });
    }
    results
}

/// Destinations that something waits for, and that nothing here sends to. Where they cannot
/// be read the row of the tables says why.
async fn unconfigured(database: &Database, webhooks: &Webhooks) -> Vec<CheckResult> {
    let Ok(client) = database.connect().await else { return Vec::new() };
    let Ok(seen) = webhooks.deliveries().backlog(&client).await else { return Vec::new() };
    let configured: BTreeSet<String> = webhooks.names().map(str::to_owned).collect();
    let left = seen.iter().filter(|each| each.is_unconfigured(Some(&configured)));
    let result = |each: &DestinationBacklog| {
        let DestinationBacklog { destination, pending, held, .. } = each;
        let name = cell(destination);
        CheckResult {
            name: "destination",
            outcome: Outcome::Warn,
            detail: format!(
                "{name}: not configured here, and {pending} pending and {held} held for it wait"
            ),
            next_step: Some(format!(
                "configure [destination.{name}] again, unless another pipeline has it, or give \
                 them up: `walpost webhook list --destination {name}` has their ids, `walpost \
                 webhook settle ID --failed` ends one"
            )),
        }
    };
    left.map(result).collect()
}

async fn tables(database: &Database, webhooks: &Webhooks) -> CheckResult {
    let (outcome, detail, next_step) = match webhooks.connector(database).connect().await {
        Ok(_) => (Outcome::Ok, "can be created".to_owned(), None),
        Err(RelayError::Prerequisite { problem, remedy }) => (Outcome::Fail, problem, Some(remedy)),
        Err(error) => (Outcome::Fail, error_chain(&error), None),
    };
    let detail = with_role(&detail, database);
    CheckResult { name: "deliveries", outcome, detail, next_step }
}
