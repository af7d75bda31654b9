//! What has arrived leaves beside whatever the process does.

use std::{pin::pin, time::Duration};

use metrics::{Counter, counter, describe_counter};
use tokio::{
    select,
    time::{sleep, timeout},
};
use tokio_postgres::{Client, IsolationLevel, types::Type};
use walpost_event::error_chain;
use walpost_postgres::Database;

use crate::{
    Deliveries, Prune, Pruned, StoreError,
    store::{PRUNING, Part},
};

/// Between two passes, unless set.
const EVERY: Duration = Duration::from_secs(3_600);
const EVERY_MIN: Duration = Duration::from_secs(1);
const EVERY_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Between a pass that failed and the next one, at most.
const SOON: Duration = Duration::from_secs(60);
/// Behind a transaction, unless set; and at most.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Of one transaction; the server gives it up a little earlier.
const BATCH_TIMEOUT: Duration = Duration::from_secs(35);
const LIMITS: &str = "set local statement_timeout = '30s'; set local lock_timeout = '1s'";
/// For as long as the transaction lasts, so that it works through a pooler.
const ALONE: &str =
    "select pg_try_advisory_xact_lock(hashtext('walpost webhook retention'), hashtext($1))";

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
/// Pruner::new(database, Prune::default()).run(terminated).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Pruner {
    database: Database,
    deliveries: Deliveries,
    prune: Prune,
    every: Duration,
    pause: Duration,
}

/// What a pass has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pass {
    /// What has left.
    pub pruned: Pruned,
    /// Another process was found at work, and the rest was left to it.
    pub yielded: bool,
}

/// What a pruner counts.
struct Counters {
    archived: Counter,
    deleted: Counter,
    failures: Counter,
}

impl Pruner {
    /// Of the schema `walpost`, every hour, with 100 ms between two transactions.
    /// The role has to be a `pruner`.
    pub fn new(database: Database, prune: Prune) -> Self {
        Self { database, deliveries: Deliveries::new(), prune, every: EVERY, pause: PAUSE }
    }

    /// Of other tables.
    pub fn deliveries(mut self, deliveries: Deliveries) -> Self {
        self.deliveries = deliveries;
        self
    }

    /// Between two passes: a second to seven days.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every.clamp(EVERY_MIN, EVERY_MAX);
        self
    }

    /// Behind each transaction: up to a minute.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause.min(PAUSE_MAX);
        self
    }

    /// Whether it could do its work: the days, the tables and the rights. Changes
    /// nothing.
    ///
    /// # Errors
    /// As [`Deliveries::prune`]; when the server cannot be reached.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.prune.check()?;
        let client = self.connect().await?;
        for part in Part::ALL {
            self.deliveries.prune_step(&client, part, &self.prune.none()).await?;
        }
        Ok(())
    }

    /// Once. It may be dropped at any await.
    ///
    /// # Errors
    /// As [`Deliveries::prune`]; when the server cannot be reached. What left
    /// before stays so.
    pub async fn pass(&self) -> Result<Pass, StoreError> {
        self.prune.check()?;
        let counters = Counters::of(self.deliveries.schema());
        let mut client = self.connect().await?;
        let mut pass = Pass::default();
        for part in Part::ALL {
            loop {
                let Some(left) = self.batch(&mut client, part).await? else {
                    return Ok(Pass { yielded: true, ..pass });
                };
                pass.pruned.add(part, left);
                match part {
                    Part::Delivered => counters.archived.increment(left),
                    Part::Archived => counters.deleted.increment(left),
                }
                if left < u64::from(self.prune.batch_rows) {
                    break;
                }
                sleep(self.pause).await;
            }
        }
        Ok(pass)
    }

    /// Passes, the first one at once, until `shutdown` is ready; each opens a
    /// connection. What goes wrong is logged and counted, and tried again within a
    /// minute.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) {
        describe();
        let failures = Counters::of(self.deliveries.schema()).failures;
        let mut shutdown = pin!(shutdown);
        loop {
            let passed = select! {
                biased;
                () = &mut shutdown => return,
                passed = self.pass() => passed,
            };
            let wait = match passed {
                Ok(pass) => {
                    told(pass);
                    self.every
                }
                Err(error) => {
                    failures.increment(1);
                    let wait = self.every.min(SOON);
                    let (error, retry_in_seconds) = (error_chain(&error), wait.as_secs());
                    tracing::error!(error, retry_in_seconds, "deliveries that arrived stay");
                    wait
                }
            };
            select! {
                biased;
                () = &mut shutdown => return,
                () = sleep(wait) => {}
            }
        }
    }

    async fn connect(&self) -> Result<Client, StoreError> {
        self.database.connect().await.map_err(|error| {
            let (attempted, detail) = (PRUNING, error_chain(&error));
            match error.is_transient() {
                true => StoreError::Unavailable { attempted, detail },
                false => StoreError::Refused { attempted, detail },
            }
        })
    }

    /// One transaction; `None` where another process is in one.
    async fn batch(&self, client: &mut Client, part: Part) -> Result<Option<u64>, StoreError> {
        let done = timeout(BATCH_TIMEOUT, self.batch_alone(client, part)).await;
        done.unwrap_or_else(|_| {
            let detail = format!("no answer in {BATCH_TIMEOUT:?}");
            Err(StoreError::Unavailable { attempted: PRUNING, detail })
        })
    }

    async fn batch_alone(
        &self,
        client: &mut Client,
        part: Part,
    ) -> Result<Option<u64>, StoreError> {
        let failed = |error| self.deliveries.error(PRUNING, "pruner", &error);
        let begun = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
        let tx = begun.start().await.map_err(failed)?;
        tx.batch_execute(LIMITS).await.map_err(failed)?;
        let schema = [(&self.deliveries.schema() as _, Type::TEXT)];
        if !tx.query_typed_one(ALONE, &schema).await.map_err(failed)?.get::<_, bool>(0) {
            return Ok(None);
        }
        let left = self.deliveries.prune_step(&tx, part, &self.prune).await?;
        tx.commit().await.map_err(failed)?;
        Ok(Some(left))
    }
}

impl Counters {
    fn of(schema: &str) -> Self {
        let label = [("schema", schema.to_owned())];
        Self {
            archived: counter!("walpost_webhook_archived_total", &label),
            deleted: counter!("walpost_webhook_deleted_total", &label),
            failures: counter!("walpost_webhook_prune_failures_total", &label),
        }
    }
}

fn told(pass: Pass) {
    let Pruned { archived, deleted } = pass.pruned;
    if archived + deleted > 0 {
        tracing::info!(archived, deleted, "deliveries that arrived have left");
    }
    if pass.yielded {
        tracing::debug!("another process prunes deliveries");
    }
}

fn describe() {
    describe_counter!("walpost_webhook_archived_total", "Deliveries that a pruner has archived");
    describe_counter!("walpost_webhook_deleted_total", "Deliveries that a pruner has deleted");
    describe_counter!("walpost_webhook_prune_failures_total", "Passes of a pruner that failed");
}
