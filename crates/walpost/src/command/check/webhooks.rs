//! Whether deliveries can be made and sent.

use walpost_event::error_chain;
use walpost_postgres::Database;
use walpost_relay::{CheckResult, Outcome, RelayError};

use crate::{command::grants::with_role, config::Webhooks};

/// The tables, and each destination with its secrets; nothing is sent.
pub(super) async fn check(database: &Database, webhooks: &Webhooks) -> Vec<CheckResult> {
    let mut results = vec![tables(database, webhooks).await];
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
                    "mend [destination.{name}]; deliveries wait meanwhile and are tried again"
                )),
            },
        });
    }
    results
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
