//! What has arrived leaves beside whatever the process does.

use std::time::Duration;

use metrics::{Counter, counter, describe_counter};
use tokio_postgres::{Client, Transaction};
use walpost_prune::{Pace, Pass, Pruning};

use crate::{
    Deliveries, Prune, Pruned, StoreError,
    store::{PRUNING, Part},
};

/// Has deliveries that arrived a while ago leave now and then, as
/// [`Deliveries::prune`] does once.
///
/// Each batch is a transaction of its own with a pause behind it. Where several
/// processes have a pruner of one schema, no two of these transactions run at the
/// same moment, though one may in another's pause: who finds another's leaves the
/// rest to that process until its own next time.
///
/// ```no_run
/// use walpost_postgres::Database;
/// use walpost_webhook::{Prune, Pruner};
///
/// # async fn example(terminated: impl Future<Output = ()>) -> Result<(), Box<dyn std::error::Error>> {
/// let database = Database::parse("postgres://app@db.internal/shop")?;
/// // To the archive after 30 days, deleted after 365.
/// Pruner::new(Prune::default()).run(|| database.connect(), terminated).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Pruner {
    deliveries: Deliveries,
    prune: Prune,
    pace: Pace,
}

/// A pruner, and what it counts.
struct Work<'a> {
    deliveries: &'a Deliveries,
    prune: &'a Prune,
    archived: Counter,
    deleted: Counter,
    failures: Counter,
}

impl Pruner {
    /// Of the schema `walpost`, every hour, with 100 ms between two transactions.
    /// The role has to be a `pruner`.
    pub fn new(prune: Prune) -> Self {
        Self { deliveries: Deliveries::new(), prune, pace: Pace::default() }
    }

    /// Of other tables.
    pub fn deliveries(mut self, deliveries: Deliveries) -> Self {
        self.deliveries = deliveries;
        self
    }

    /// Between two passes: a second to seven days.
    pub fn every(mut self, every: Duration) -> Self {
        self.pace = self.pace.every(every);
        self
    }

    /// Behind each transaction: up to a minute.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pace = self.pace.pause(pause);
        self
    }

    /// Whether it could do its work: the days, the tables and the rights. Changes
    /// nothing.
    ///
    /// # Errors
    /// As [`Deliveries::prune`].
    pub async fn check(&self, client: &Client) -> Result<(), StoreError> {
        self.prune.check()?;
        let none = self.prune.none();
        for part in Part::ALL {
            self.deliveries.prune_step(client, part, &none).await?;
        }
        Ok(())
    }

    /// Once, on this connection. It may be dropped at any await.
    ///
    /// # Errors
    /// As [`Deliveries::prune`]. What left before stays so.
    pub async fn pass(&self, client: &mut Client) -> Result<Pass<Pruned>, StoreError> {
        walpost_prune::pass(&Work::of(self), self.pace, client).await
    }

    /// Passes, the first one at once, until `shutdown` is ready; each opens a
    /// connection. What goes wrong is logged and counted, and tried again within a
    /// minute.
    pub async fn run<C, F, E>(&self, connect: C, shutdown: impl Future<Output = ()>)
    where
        C: FnMut() -> F,
        F: Future<Output = Result<Client, E>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        describe();
        walpost_prune::run(&Work::of(self), self.pace, connect, shutdown).await;
    }
}

impl<'a> Work<'a> {
    fn of(pruner: &'a Pruner) -> Self {
        let label = [("schema", pruner.deliveries.schema().to_owned())];
        Self {
            deliveries: &pruner.deliveries,
            prune: &pruner.prune,
            archived: counter!("walpost_webhook_archived_total", &label),
            deleted: counter!("walpost_webhook_deleted_total", &label),
            failures: counter!("walpost_webhook_prune_failures_total", &label),
        }
    }
}

impl Pruning for Work<'_> {
    type Part = Part;
    type Pruned = Pruned;
    type Error = StoreError;

    const PARTS: &'static [Part] = &Part::ALL;
    const KIND: &'static str = "walpost webhook retention";

    fn schema(&self) -> &str {
        self.deliveries.schema()
    }

    fn batch_rows(&self) -> u32 {
        self.prune.batch_rows
    }

    async fn batch(&self, tx: &Transaction<'_>, part: Part) -> Result<u64, StoreError> {
        self.prune.check()?;
        self.deliveries.prune_step(tx, part, self.prune).await
    }

    fn count(&self, pruned: &mut Pruned, part: Part, rows: u64) {
        pruned.add(part, rows);
        match part {
            Part::Delivered => self.archived.increment(rows),
            Part::Archived => self.deleted.increment(rows),
        }
    }

    fn tell(&self, pass: &Pass<Pruned>) {
        let Pruned { archived, deleted } = pass.pruned;
        if archived + deleted > 0 {
            tracing::info!(archived, deleted, "deliveries that arrived have left");
        }
        if pass.yielded {
            tracing::debug!("another process prunes deliveries");
        }
    }

    fn tell_failure(&self, error: &str, retry_in_seconds: u64) {
        self.failures.increment(1);
        tracing::error!(error, retry_in_seconds, "deliveries that arrived stay");
    }

    fn failed(&self, error: &tokio_postgres::Error) -> StoreError {
        self.deliveries.error(PRUNING, "pruner", error)
    }

    fn unanswered(&self, detail: String) -> StoreError {
        StoreError::Unavailable { attempted: PRUNING, detail }
    }
}

fn describe() {
    describe_counter!("walpost_webhook_archived_total", "Deliveries that a pruner has archived");
    describe_counter!("walpost_webhook_deleted_total", "Deliveries that a pruner has deleted");
    describe_counter!("walpost_webhook_prune_failures_total", "Passes of a pruner that failed");
}
