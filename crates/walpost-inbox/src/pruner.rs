//! Old events leave beside whatever the process does.

use std::time::Duration;

use metrics::{Counter, counter, describe_counter};
use tokio_postgres::{Client, Transaction};
use walpost_prune::{Pace, Pass, Pruning};

use crate::{
    Error, Inbox, Prune, Pruned,
    prune::{ATTEMPTED, Part},
};

/// Has old events leave now and then, as [`Inbox::prune`] does once.
///
/// Each batch is a transaction of its own with a pause behind it. Where several
/// processes have a pruner of one schema, no two of these transactions run at the
/// same moment, though one may in another's pause: who finds another's leaves the
/// rest to that process until its own next time.
///
/// ```no_run
/// use walpost_inbox::{Database, Prune, Pruner};
///
/// # async fn example(terminated: impl Future<Output = ()>) -> Result<(), Box<dyn std::error::Error>> {
/// let database = Database::config("host=localhost user=app dbname=shop".parse()?);
/// let connect = || async { database.open().await.map(|(client, _)| client) };
/// // Payloads after 30 days, rows after 90.
/// Pruner::new(Prune::new(30, 90)).run(connect, terminated).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Pruner {
    inbox: Inbox,
    prune: Prune,
    pace: Pace,
}

/// A pruner, and what it counts.
struct Work<'a> {
    inbox: &'a Inbox,
    prune: &'a Prune,
    payloads: Counter,
    rows: Counter,
    failures: Counter,
}

impl Pruner {
    /// Of the schema `walpost`, every hour, with 100 ms between two transactions.
    pub fn new(prune: Prune) -> Self {
        Self { inbox: Inbox::new(), prune, pace: Pace::default() }
    }

    /// Of another schema.
    pub fn inbox(mut self, inbox: Inbox) -> Self {
        self.inbox = inbox;
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

    /// Whether it could do its work: the tables, the rights, and the window in
    /// which keys are remembered. Changes nothing.
    ///
    /// # Errors
    /// As [`Inbox::prune`].
    pub async fn check(&self, client: &Client) -> Result<(), Error> {
        self.inbox.check_window(client, &self.prune).await?;
        let none = self.prune.none();
        for part in Part::ALL {
            self.inbox.step(client, part, &none).await?;
        }
        Ok(())
    }

    /// Once, on this connection. It may be dropped at any await.
    ///
    /// # Errors
    /// As [`Inbox::prune`]. What left before stays so.
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
        let label = [("schema", pruner.inbox.schema().to_owned())];
        Self {
            inbox: &pruner.inbox,
            prune: &pruner.prune,
            payloads: counter!("walpost_inbox_pruned_payloads_total", &label),
            rows: counter!("walpost_inbox_pruned_rows_total", &label),
            failures: counter!("walpost_inbox_prune_failures_total", &label),
        }
    }
}

impl Pruning for Work<'_> {
    type Part = Part;
    type Pruned = Pruned;
    type Error = Error;

    const PARTS: &'static [Part] = &Part::ALL;
    const KIND: &'static str = "walpost inbox retention";

    fn schema(&self) -> &str {
        self.inbox.schema()
    }

    fn batch_rows(&self) -> u32 {
        self.prune.batch_rows
    }

    async fn batch(&self, tx: &Transaction<'_>, part: Part) -> Result<u64, Error> {
        self.inbox.check_window(tx, self.prune).await?;
        self.inbox.step(tx, part, self.prune).await
    }

    fn count(&self, pruned: &mut Pruned, part: Part, rows: u64) {
        match part {
            Part::Payloads => {
                pruned.payloads += rows;
                self.payloads.increment(rows);
            }
            Part::Rows => {
                pruned.rows += rows;
                self.rows.increment(rows);
            }
        }
    }

    fn tell(&self, pass: &Pass<Pruned>) {
        let Pruned { payloads, rows } = pass.pruned;
        if payloads + rows > 0 {
            tracing::info!(payloads, rows, "old events have left the inbox");
        }
        if pass.yielded {
            tracing::debug!("another process prunes the inbox");
        }
    }

    fn tell_failure(&self, error: &str, retry_in_seconds: u64) {
        self.failures.increment(1);
        tracing::error!(error, retry_in_seconds, "old events stay in the inbox");
    }

    fn failed(&self, error: &tokio_postgres::Error) -> Error {
        self.inbox.failed(ATTEMPTED, "pruner", error)
    }

    fn unanswered(&self, detail: String) -> Error {
        Error::Unavailable { attempted: ATTEMPTED, detail }
    }
}

fn describe() {
    describe_counter!("walpost_inbox_pruned_payloads_total", "Payloads that a pruner has nulled");
    describe_counter!("walpost_inbox_pruned_rows_total", "Rows that a pruner has deleted");
    describe_counter!("walpost_inbox_prune_failures_total", "Passes of a pruner that failed");
}
