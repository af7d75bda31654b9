//! Those who have old rows leave beside the pipeline, and whether they could.

use std::future::pending;

use tokio::task::JoinHandle;
use tokio_postgres::Client;
use walpost_event::error_chain;
use walpost_postgres::Database;
use walpost_relay::{CheckResult, Outcome};

use crate::config::Pruners;

/// What of them is told to the one who asks.
type Checked = Result<(), String>;

impl Pruners {
    /// They go on until they are aborted, at whatever moment.
    pub(crate) fn start(self) -> Vec<JoinHandle<()>> {
        let mut tasks = Vec::new();
        if let Some(pruner) = self.deliveries {
            tasks.push(tokio::spawn(async move { pruner.run(pending()).await }));
        }
        if let Some((database, pruner)) = self.inbox {
            tasks.push(tokio::spawn(async move {
                pruner.run(|| connect(&database), pending()).await;
            }));
        }
        if let Some((database, pruner)) = self.idempotency {
            tasks.push(tokio::spawn(async move {
                pruner.run(|| connect(&database), pending()).await;
            }));
        }
        tasks
    }

    /// Whether each could do its work. Changes nothing. A problem is a warning,
    /// since a pipeline runs without.
    pub(crate) async fn check(&self) -> Vec<CheckResult> {
        let mut results = Vec::new();
        if let Some(pruner) = &self.deliveries {
            let checked = pruner.check().await.map_err(|error| error_chain(&error));
            results.push(result("retention of deliveries", checked));
        }
        if let Some((database, pruner)) = &self.inbox {
            let checked: Checked = async {
                let client = connect(database).await?;
                pruner.check(&client).await.map_err(|error| error_chain(&error))
            }
            .await;
            results.push(result("retention of the inbox", checked));
        }
        if let Some((database, pruner)) = &self.idempotency {
            let checked: Checked = async {
                let client = connect(database).await?;
                pruner.check(&client).await.map_err(|error| error_chain(&error))
            }
            .await;
            results.push(result("retention of idempotency keys", checked));
        }
        results
    }
}

async fn connect(database: &Database) -> Result<Client, String> {
    database.connect().await.map_err(|error| error_chain(&error))
}

fn result(name: &'static str, checked: Checked) -> CheckResult {
    match checked {
        Ok(()) => CheckResult {
            name,
            outcome: Outcome::Ok,
            detail: "old rows can leave".to_owned(),
            next_step: None,
        },
        // Its text has the next step in it.
        Err(detail) => CheckResult { name, outcome: Outcome::Warn, detail, next_step: None },
    }
}
