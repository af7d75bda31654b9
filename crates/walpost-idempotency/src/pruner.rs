//! Expired requests leave beside whatever the process does.

use std::time::Duration;

use metrics::{Counter, counter, describe_counter};
use tokio_postgres::{Client, Transaction};
use walpost_prune::{Pace, Pass, Pruning};

use crate::{
    Error, Idempotency, Pruned,
    operator::{BATCH_ROWS_MAX, PRUNING, Part},
};

/// Has expired requests leave now and then, as [`Idempotency::prune`] does once.
///
/// Each batch is a transaction of its own with a pause behind it. Where several
/// processes have a pruner of one schema, no two of these transactions run at the
/// same moment, though one may in another's pause: who finds another's leaves the
/// rest to that process until its own next time. Needs the feature `pruner`, which
/// `axum` brings along.
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
    pace: Pace,
}

/// A pruner, and what it counts.
struct Work<'a> {
    idempotency: &'a Idempotency,
    batch_rows: u32,
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
    /// between two of them. When requests leave, their policies have said.
    pub fn new() -> Self {
        Self { idempotency: Idempotency::new(), batch_rows: 1_000, pace: Pace::default() }
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
        self.pace = self.pace.every(every);
        self
    }

    /// Behind each transaction: up to a minute.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pace = self.pace.pause(pause);
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
    pub async fn pass(&self, client: &mut Client) -> Result<Pass<Pruned>, Error> {
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
        let label = [("schema", pruner.idempotency.schema().to_owned())];
        Self {
            idempotency: &pruner.idempotency,
            batch_rows: pruner.batch_rows,
            responses: counter!("walpost_idempotency_pruned_responses_total", &label),
            rows: counter!("walpost_idempotency_pruned_rows_total", &label),
            failures: counter!("walpost_idempotency_prune_failures_total", &label),
        }
    }
}

impl Pruning for Work<'_> {
    type Part = Part;
    type Pruned = Pruned;
    type Error = Error;

    const PARTS: &'static [Part] = &Part::ALL;
    const KIND: &'static str = "walpost idempotency retention";

    fn schema(&self) -> &str {
        self.idempotency.schema()
    }

    fn batch_rows(&self) -> u32 {
        self.batch_rows
    }

    async fn batch(&self, tx: &Transaction<'_>, part: Part) -> Result<u64, Error> {
        self.idempotency.prune_step(tx, part, self.batch_rows).await
    }

    fn count(&self, pruned: &mut Pruned, part: Part, rows: u64) {
        match part {
            Part::Responses => {
                pruned.responses += rows;
                self.responses.increment(rows);
            }
            Part::Rows => {
                pruned.rows += rows;
                self.rows.increment(rows);
            }
        }
    }

    fn tell(&self, pass: &Pass<Pruned>) {
        let Pruned { responses, rows } = pass.pruned;
        if responses + rows > 0 {
            tracing::info!(responses, rows, "expired requests have left");
        }
        if pass.yielded {
            tracing::debug!("another process prunes requests");
        }
    }

    fn tell_failure(&self, error: &str, retry_in_seconds: u64) {
        self.failures.increment(1);
        tracing::error!(error, retry_in_seconds, "expired requests stay");
    }

    fn failed(&self, error: &tokio_postgres::Error) -> Error {
        self.idempotency.failed_as("pruner", PRUNING, error)
    }

    fn unanswered(&self, detail: String) -> Error {
        Error::Unavailable { attempted: PRUNING, detail }
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
