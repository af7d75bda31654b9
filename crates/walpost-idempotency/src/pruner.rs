//! Expired requests leave beside whatever the process does.

use std::{fmt, pin::pin, time::Duration};

use metrics::{Counter, counter, describe_counter};
use tokio::{
    select,
    time::{sleep, timeout},
};
use tokio_postgres::{Client, IsolationLevel, types::Type};

use crate::{
    Error, Idempotency, Pruned,
    operator::{BATCH_ROWS_MAX, PRUNING, Part},
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
    "select pg_try_advisory_xact_lock(hashtext('walpost idempotency retention'), hashtext($1))";

/// Has expired requests leave now and then, as [`Idempotency::prune`] does once.
///
/// Each batch is a transaction of its own with a pause behind it. Where several
/// processes have a pruner of one schema, no two of these transactions run at the
/// same moment, though one may in another's pause: who finds another's leaves the
/// rest to that process until its own next time. Needs
/// the feature `pruner`, which `axum` brings along.
///
/// ```no_run
/// use walpost_idempotency::{Pruner, tokio_postgres::{self, NoTls}};
///
/// # async fn example(terminated: impl Future<Output = ()>) {
/// let connect = || async {
///     let (client, connection) =
///         tokio_postgres::connect("host=localhost user=app dbname=shop", NoTls).await?;
///     tokio::spawn(connection);
///     Ok::<_, tokio_postgres::Error>(client)
/// };
/// Pruner::new().run(connect, terminated).await;
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Pruner {
    idempotency: Idempotency,
    batch_rows: u32,
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
    responses: Counter,
    rows: Counter,
    failures: Counter,
}

impl Default for Pruner {
    fn default() -> Self {
        Self::new()
    }
}

impl Pruner {
    /// Of the schema `walpost`, every hour, 1,000 rows a transaction, with 100 ms
    /// between two of them.
    pub fn new() -> Self {
        Self { idempotency: Idempotency::new(), batch_rows: 1_000, every: EVERY, pause: PAUSE }
    }

    /// Of another schema.
    pub fn idempotency(mut self, idempotency: Idempotency) -> Self {
        self.idempotency = idempotency;
        self
    }

    /// Rows of one transaction: 1 to 100,000.
    pub fn batch_rows(mut self, batch_rows: u32) -> Self {
        self.batch_rows = batch_rows.clamp(1, BATCH_ROWS_MAX);
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

    /// Whether it could do its work: the table and the rights. Changes nothing.
    ///
    /// # Errors
    /// As [`Idempotency::prune`].
    pub async fn check(&self, client: &Client) -> Result<(), Error> {
        for part in Part::ALL {
            self.idempotency.prune_step(client, part, 0).await?;
        }
        Ok(())
    }

    /// Once, on this connection. It may be dropped at any await.
    ///
    /// # Errors
    /// As [`Idempotency::prune`]. What left before stays so.
    pub async fn pass(&self, client: &mut Client) -> Result<Pass, Error> {
        let counters = Counters::of(self.idempotency.schema());
        let mut pass = Pass::default();
        for part in Part::ALL {
            loop {
                let Some(left) = self.batch(client, part).await? else {
                    return Ok(Pass { yielded: true, ..pass });
                };
                match part {
                    Part::Responses => {
                        pass.pruned.responses += left;
                        counters.responses.increment(left);
                    }
                    Part::Rows => {
                        pass.pruned.rows += left;
                        counters.rows.increment(left);
                    }
                }
                if left < u64::from(self.batch_rows) {
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
    pub async fn run<C, F, E>(&self, mut connect: C, shutdown: impl Future<Output = ()>)
    where
        C: FnMut() -> F,
        F: Future<Output = Result<Client, E>>,
        E: fmt::Display,
    {
        describe();
        let failures = Counters::of(self.idempotency.schema()).failures;
        let mut shutdown = pin!(shutdown);
        loop {
            let passed = select! {
                biased;
                () = &mut shutdown => return,
                passed = self.connect_and_pass(&mut connect) => passed,
            };
            let wait = match passed {
                Ok(()) => self.every,
                Err(reason) => {
                    failures.increment(1);
                    let wait = self.every.min(SOON);
                    let retry_in_seconds = wait.as_secs();
                    tracing::error!(reason, retry_in_seconds, "expired requests stay");
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

    async fn connect_and_pass<F, E>(&self, connect: &mut impl FnMut() -> F) -> Result<(), String>
    where
        F: Future<Output = Result<Client, E>>,
        E: fmt::Display,
    {
        let mut client = connect().await.map_err(|error| error.to_string())?;
        let pass = self.pass(&mut client).await.map_err(|error| error.to_string())?;
        let Pruned { responses, rows } = pass.pruned;
        if responses + rows > 0 {
            tracing::info!(responses, rows, "expired requests have left");
        }
        if pass.yielded {
            tracing::debug!("another process prunes requests");
        }
        Ok(())
    }

    /// One transaction; `None` where another process is in one.
    async fn batch(&self, client: &mut Client, part: Part) -> Result<Option<u64>, Error> {
        let done = timeout(BATCH_TIMEOUT, self.batch_alone(client, part)).await;
        done.unwrap_or_else(|_| {
            let detail = format!("no answer in {BATCH_TIMEOUT:?}");
            Err(Error::Unavailable { attempted: PRUNING, detail })
        })
    }

    async fn batch_alone(&self, client: &mut Client, part: Part) -> Result<Option<u64>, Error> {
        let failed = |error| self.idempotency.failed_as("pruner", PRUNING, &error);
        let begun = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
        let tx = begun.start().await.map_err(failed)?;
        tx.batch_execute(LIMITS).await.map_err(failed)?;
        let schema = [(&self.idempotency.schema() as _, Type::TEXT)];
        if !tx.query_typed_one(ALONE, &schema).await.map_err(failed)?.get::<_, bool>(0) {
            return Ok(None);
        }
        let left = self.idempotency.prune_step(&tx, part, self.batch_rows).await?;
        tx.commit().await.map_err(failed)?;
        Ok(Some(left))
    }
}

impl Counters {
    fn of(schema: &str) -> Self {
        let label = [("schema", schema.to_owned())];
        Self {
            responses: counter!("walpost_idempotency_pruned_responses_total", &label),
            rows: counter!("walpost_idempotency_pruned_rows_total", &label),
            failures: counter!("walpost_idempotency_prune_failures_total", &label),
        }
    }
}

fn describe() {
    describe_counter!(
        "walpost_idempotency_pruned_responses_total",
        "Expired responses of which a pruner has kept that they are gone"
    );
    describe_counter!(
        "walpost_idempotency_pruned_rows_total",
        "Expired requests that a pruner has deleted"
    );
    describe_counter!("walpost_idempotency_prune_failures_total", "Passes of a pruner that failed");
}
