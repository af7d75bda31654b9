//! What leaves in these tests: rows of a table `old`, two in a batch, with one
//! batch that goes wrong.

use std::{fmt, future::pending, sync::Mutex};

use tokio::sync::Notify;
use tokio_postgres::{Transaction, error::SqlState};
use walpost_prune::{Pass, Pruning};

pub(crate) const BATCH_ROWS: u32 = 2;

/// What becomes of a batch once its rows are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A statement of it is refused.
    Refused,
    /// The server ends its session.
    Ended,
    /// It waits until it is dropped.
    Stuck,
}

#[derive(Debug, Default)]
pub(crate) struct Old {
    /// Which batch goes wrong, from 0, and how.
    fault: Option<(usize, Fault)>,
    is_stuck: Notify,
    seen: Mutex<Seen>,
}

/// What was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) batches: usize,
    /// Rows of each batch that was committed.
    pub(crate) counted: Vec<u64>,
    /// What passes have done, with whether they left the rest to another.
    pub(crate) passes: Vec<(u64, bool)>,
    /// Errors, with the seconds until the next pass.
    pub(crate) failures: Vec<(String, u64)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Refused(Option<SqlState>),
    Unanswered,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(code) => write!(f, "refused: {:?}", code.as_ref().map(SqlState::code)),
            Self::Unanswered => f.write_str("unanswered"),
        }
    }
}

impl std::error::Error for Failure {}

impl Old {
    pub(crate) fn with(batch: usize, fault: Fault) -> Self {
        Self { fault: Some((batch, fault)), ..Self::default() }
    }

    /// Waits for the batch that is [`Fault::Stuck`].
    pub(crate) async fn stuck(&self) {
        self.is_stuck.notified().await;
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

impl Pruning for Old {
    type Part = ();
    type Pruned = u64;
    type Error = Failure;

    const PARTS: &'static [()] = &[()];
    const KIND: &'static str = "rows of a test";

    fn schema(&self) -> &str {
        "public"
    }

    fn batch_rows(&self) -> u32 {
        BATCH_ROWS
    }

    async fn batch(&self, tx: &Transaction<'_>, (): ()) -> Result<u64, Failure> {
        let failed = |error: tokio_postgres::Error| self.failed(&error);
        let delete = format!(
            "delete from old where id in (select id from old order by id limit {BATCH_ROWS})"
        );
        let rows = tx.execute(&delete, &[]).await.map_err(failed)?;
        let batch = {
            let mut seen = self.seen.lock().unwrap();
            seen.batches += 1;
            seen.batches - 1
        };
        match self.fault.filter(|(at, _)| *at == batch) {
            None => {}
            Some((_, Fault::Refused)) => {
                tx.batch_execute("select 1 / 0").await.map_err(failed)?;
            }
            Some((_, Fault::Ended)) => {
                let end = "select pg_terminate_backend(pg_backend_pid())";
                tx.batch_execute(end).await.map_err(failed)?;
            }
            Some((_, Fault::Stuck)) => {
                self.is_stuck.notify_one();
                pending::<()>().await;
            }
        }
        Ok(rows)
    }

    fn count(&self, pruned: &mut u64, (): (), rows: u64) {
        *pruned += rows;
        self.seen.lock().unwrap().counted.push(rows);
    }

    fn tell(&self, pass: &Pass<u64>) {
        self.seen.lock().unwrap().passes.push((pass.pruned, pass.yielded));
    }

    fn tell_failure(&self, error: &str, retry_in_seconds: u64) {
        self.seen.lock().unwrap().failures.push((error.to_owned(), retry_in_seconds));
    }

    fn failed(&self, error: &tokio_postgres::Error) -> Failure {
        Failure::Refused(error.code().cloned())
    }

    fn unanswered(&self, _: String) -> Failure {
        Failure::Unanswered
    }
}
