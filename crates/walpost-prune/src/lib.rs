//! Has old rows leave beside whatever a process does: the loop behind the
//! `Pruner` of `walpost-inbox`, of `walpost-idempotency` and of `walpost-webhook`.
//!
//! Each of them says what leaves, part by part, as a [`Pruning`]. Here is when:
//!
//! - [`pass()`] is once over all parts. Each batch is a transaction of its own, with
//!   a pause behind it, and may be dropped at any await.
//! - [`run()`] is pass after pass, each over a connection of its own, also behind one
//!   that failed.
//!
//! Whatever is asked of the server is asked in a batch, which ends within 35 s, so
//! that a server that says nothing, or whoever has locked a table, holds up no
//! process.
//!
//! Of one kind and schema no two batches run at the same moment, in whatever
//! process: an advisory lock is held for as long as each lasts. Whoever finds it
//! taken leaves the rest of its pass to the other one.

mod pass;
mod run;

use std::time::Duration;

use tokio_postgres::Transaction;

pub use crate::{
    pass::{Pass, pass},
    run::run,
};

/// Between two passes, unless set.
const EVERY: Duration = Duration::from_secs(3_600);
const EVERY_MIN: Duration = Duration::from_secs(1);
const EVERY_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Behind a batch, unless set; and at most.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What leaves, and what is said of it.
pub trait Pruning {
    /// What leaves apart from the other.
    type Part: Copy + Send + 'static;
    /// How much of each has left.
    type Pruned: Default;
    /// Why it did not.
    type Error: std::error::Error + 'static;

    /// In this order.
    const PARTS: &'static [Self::Part];
    /// Names the lock, with the schema.
    const KIND: &'static str;

    /// Of the tables.
    fn schema(&self) -> &str;

    /// What a whole batch has. After a smaller one a part is done.
    fn batch_rows(&self) -> u32;

    /// Has a batch leave, once nothing forbids it; how many rows it had. An error
    /// takes back all of the batch.
    fn batch(
        &self,
        tx: &Transaction<'_>,
        part: Self::Part,
    ) -> impl Future<Output = Result<u64, Self::Error>> + Send;

    /// Notes and counts a batch that is committed.
    fn count(&self, pruned: &mut Self::Pruned, part: Self::Part, rows: u64);

    /// Says what a pass has done, where that is worth it.
    fn tell(&self, pass: &Pass<Self::Pruned>);

    /// Counts a pass that failed, and says that it is made again after so long.
    fn tell_failure(&self, error: &str, retry_in_seconds: u64);

    /// What PostgreSQL or the connection said.
    fn failed(&self, error: &tokio_postgres::Error) -> Self::Error;

    /// It said nothing.
    fn unanswered(&self, detail: String) -> Self::Error;
}

/// How often, and how gently.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Pace {
    every: Duration,
    pause: Duration,
}

impl Default for Pace {
    /// Every hour, with 100 ms behind each batch.
    fn default() -> Self {
        Self { every: EVERY, pause: PAUSE }
    }
}

impl Pace {
    /// Between two passes: a second to seven days.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every.clamp(EVERY_MIN, EVERY_MAX);
        self
    }

    /// Behind each batch: up to a minute.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause.min(PAUSE_MAX);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_stays_within_its_bounds() {
        let hasty = Pace::default().every(Duration::ZERO).pause(Duration::ZERO);
        assert_eq!((hasty.every, hasty.pause), (EVERY_MIN, Duration::ZERO));
        let idle = Pace::default().every(Duration::MAX).pause(Duration::MAX);
        assert_eq!((idle.every, idle.pause), (EVERY_MAX, PAUSE_MAX));
    }
}
