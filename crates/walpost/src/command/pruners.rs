//! Those who have old rows leave beside the pipeline, and whether they could.

use std::{error::Error, future::pending};

use tokio::task::JoinHandle;
use tokio_postgres::Client;
use walpost_event::error_chain;
use walpost_relay::{CheckResult, Outcome};

use crate::{
    command::grants::with_role,
    config::{Placed, Pruners},
};

impl Pruners {
    /// They go on until they are aborted, at whatever moment.
    pub(crate) fn start(self) -> Vec<JoinHandle<()>> {
        let mut tasks = Vec::new();
        if let Some(Placed { pruner, database, .. }) = self.deliveries {
            tasks.push(tokio::spawn(async move {
                pruner.run(|| database.connect(), pending()).await;
            }));
        }
        if let Some(Placed { pruner, database, .. }) = self.inbox {
            tasks.push(tokio::spawn(async move {
                pruner.run(|| database.connect(), pending()).await;
            }));
        }
        if let Some(Placed { pruner, database, .. }) = self.idempotency {
            tasks.push(tokio::spawn(async move {
                pruner.run(|| database.connect(), pending()).await;
            }));
        }
        tasks
    }

    /// Whether each could do its work, but for those beside a pipeline whose
    /// database is away. Changes nothing. A problem is a warning, since a pipeline
    /// runs without.
    pub(crate) async fn check(&self, is_connected: bool) -> Vec<CheckResult> {
        let mut results = Vec::new();
        if let Some(one) = self.deliveries.as_ref().filter(|one| one.is_reached(is_connected)) {
            let checked = one.check(async |pruner, client| pruner.check(client).await);
            results.push(result("retention of deliveries", checked.await));
        }
        if let Some(one) = self.inbox.as_ref().filter(|one| one.is_reached(is_connected)) {
            let checked = one.check(async |pruner, client| pruner.check(client).await);
            results.push(result("retention of the inbox", checked.await));
        }
        if let Some(one) = self.idempotency.as_ref().filter(|one| one.is_reached(is_connected)) {
            let checked = one.check(async |pruner, client| pruner.check(client).await);
            results.push(result("retention of idempotency keys", checked.await));
        }
        results
    }
}

impl<P> Placed<P> {
    /// Of what is in the pipeline's database nothing can be said while that is away.
    fn is_reached(&self, is_connected: bool) -> bool {
        is_connected || self.is_elsewhere
    }

    async fn check<E: Error + 'static>(
        &self,
        check: impl AsyncFnOnce(&P, &Client) -> Result<(), E>,
    ) -> Result<(), String> {
        let connected = self.database.connect().await;
        let client = connected.map_err(|error| error_chain(&error))?;
        let checked = check(&self.pruner, &client).await;
        checked.map_err(|error| with_role(&error_chain(&error), &self.database))
    }
}

fn result(name: &'static str, checked: Result<(), String>) -> CheckResult {
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
