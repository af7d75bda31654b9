//! Forgetting effects beside the partitions, a bounded piece at a time.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use tokio_postgres::types::Type;

use crate::{
    Error, Retention,
    database_error::how_to_use,
    kafka::kept,
    metrics,
    partition::Fatal,
    pool::{Lease, NoConnection, Pool},
    report::report,
    settings::Settings,
    sql::Sql,
    tell::tell,
};

/// Between two passes over the table.
const INTERVAL_MS: u64 = 3_600_000;
/// After a pass that failed.
const FAILED_INTERVAL_MS: u64 = 60_000;
/// Pages of one transaction: 2 MiB, about 15,000 effects.
const PAGES: i32 = 256;
/// Between two transactions: 20 MiB are looked at in a second at most.
const PAUSE_MS: u64 = 100;

/// Runs until it is dropped.
pub(crate) struct Pruner {
    task: JoinHandle<()>,
}

/// What it works with.
pub(crate) struct Pruning {
    pub(crate) settings: Settings,
    pub(crate) sql: Sql,
    pub(crate) pool: Pool,
    pub(crate) fatal: Fatal,
}

enum Failed {
    /// Effects would be forgotten too early.
    TooShort(String),
    /// It may pass.
    Now(String),
}

impl Pruner {
    /// `None` where effects are remembered for ever.
    pub(crate) fn start(pruning: Pruning) -> Option<Self> {
        let retention = pruning.settings.retention?;
        Some(Self { task: tokio::spawn(pruning.run(retention)) })
    }
}

impl Drop for Pruner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pruning {
    async fn run(self, retention: Retention) {
        let settings = Arc::new(self.settings.clone());
        loop {
            let wait_ms = match self.pass(&settings, retention).await {
                Ok(pruned) => {
                    tracing::debug!(pruned, "looked for effects that need not be remembered");
                    INTERVAL_MS
                }
                Err(Failed::TooShort(problem)) => {
                    let setting = "retention".to_owned();
                    return self.fatal.report(Error::Setting { setting, problem });
                }
                Err(Failed::Now(reason)) => {
                    tell!(warn, { reason = reason }, "old effects stay, trying again");
                    FAILED_INTERVAL_MS
                }
            };
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
    }

    /// Once over the whole table. Dropped half-way it leaves nothing behind.
    async fn pass(&self, settings: &Arc<Settings>, retention: Retention) -> Result<u64, Failed> {
        let lease = self.lease().await?;
        let consumer = settings.consumer.as_str();
        let rows = lease.query_typed(&self.sql.positions, &[(&consumer, Type::TEXT)]).await;
        let rows = rows.map_err(failed)?;
        lease.give_back();
        let ids: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
        let partitions: Vec<(String, i32)> =
            rows.iter().map(|row| (row.get(1), row.get(2))).collect();
        let asking = Arc::clone(settings);
        let asked =
            tokio::task::spawn_blocking(move || kept(&asking, &asking.topics, &partitions)).await;
        let asked = asked.unwrap_or_else(|error| Err(error.to_string()));
        let (topics, lows) = asked.map_err(Failed::Now)?;
        retention.check(&topics).map_err(Failed::TooShort)?;
        // Of a partition that Kafka does not have nothing is said, so nothing leaves.
        let known = ids.into_iter().zip(lows).filter_map(|(id, low)| Some((id, low?)));
        let (ids, lows): (Vec<i32>, Vec<i64>) = known.unzip();
        self.prune(&ids, &lows, retention).await
    }

    async fn lease(&self) -> Result<Lease, Failed> {
        self.pool.lease().await.map_err(|error: NoConnection| Failed::Now(error.to_string()))
    }

    async fn prune(&self, ids: &[i32], lows: &[i64], retention: Retention) -> Result<u64, Failed> {
        let (consumer, days) = (self.settings.consumer.as_str(), f64::from(retention.keep_days()));
        let counter = metrics::pruned(consumer);
        let (mut page, mut pruned) = (0_i64, 0);
        loop {
            let lease = self.lease().await?;
            let row = lease
                .query_typed_one(
                    &self.sql.prune,
                    &[
                        (&consumer, Type::TEXT),
                        (&ids, Type::INT4_ARRAY),
                        (&lows, Type::INT8_ARRAY),
                        (&days, Type::FLOAT8),
                        (&page, Type::INT8),
                        (&PAGES, Type::INT4),
                    ],
                )
                .await
                .map_err(failed)?;
            lease.give_back();
            let Some(rows) = row.get::<_, Option<i64>>(0) else { return Ok(pruned) };
            counter.increment(rows.unsigned_abs());
            pruned += rows.unsigned_abs();
            page += i64::from(PAGES);
            tokio::time::sleep(Duration::from_millis(PAUSE_MS)).await;
        }
    }
}

fn failed(error: tokio_postgres::Error) -> Failed {
    let how = match error.code().map(|code| code.code()) {
        Some("42501") => "grant delete on done to the role, or leave retention out".into(),
        _ => how_to_use(&error),
    };
    Failed::Now(format!("{}; {how}", report(&error)))
}
