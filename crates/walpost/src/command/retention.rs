use std::time::Duration;

use metrics::counter;
use tokio::sync::watch;
use walpost_event::error_chain;
use walpost_postgres::Database;
use walpost_relay::{
    Phase, PipelineStatus, Pruned, RelayConfig, RelayError, RetentionConfig, TableName, make_days,
    prune, prune_parked,
};

/// From the start of the process to the first pass.
const FIRST: Duration = Duration::from_secs(60);
/// Between two looks whether the days that come have a partition: often, as each
/// of them may find the table locked.
const DAYS: Duration = Duration::from_secs(3_600);

/// Makes partitions for the days that come, whether or not old ones leave.
pub(crate) async fn days(
    database: Database,
    relay: RelayConfig,
    status: watch::Receiver<PipelineStatus>,
) {
    let outbox = TableName { schema: relay.schema.clone(), name: "outbox".to_owned() };
    if !relay.tables.contains(&outbox) {
        return;
    }
    tokio::time::sleep(FIRST).await;
    loop {
        if status.borrow().phase == Phase::Streaming {
            match make_days(&database, &relay.schema).await {
                Ok(days) => days.log(),
                Err(error) => tracing::warn!(
                    error = error_chain(&error),
                    "partitions of the outbox are made later"
                ),
            }
        }
        tokio::time::sleep(DAYS).await;
    }
}

/// Has old rows leave the outbox now and then, while the pipeline publishes.
pub(crate) struct Retention {
    pub(crate) database: Database,
    pub(crate) relay: RelayConfig,
    pub(crate) id_column: String,
    pub(crate) retention: RetentionConfig,
}

impl Retention {
    /// Goes on for ever. What goes wrong is said, and tried again at the next
    /// time.
    pub(crate) async fn run(self, status: watch::Receiver<PipelineStatus>) {
        let interval = Duration::from_secs(60 * u64::from(self.retention.interval_minutes));
        tokio::time::sleep(FIRST.min(interval)).await;
        loop {
            // One that stands by leaves it to the other.
            if status.borrow().phase == Phase::Streaming {
                self.pass().await;
            }
            tokio::time::sleep(interval).await;
        }
    }

    async fn pass(&self) {
        let Self { database, relay, id_column, retention } = self;
        let label = [("pipeline", relay.pipeline.clone())];
        let removed = counter!("walpost_retention_removed_total", &label);
        let partitions = counter!("walpost_retention_partitions_total", &label);
        let mut before = (0, 0);
        let tell = |pruned: &Pruned| {
            // Each table is counted from its first row on.
            let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
            removed.increment(since(pruned.rows, before.0));
            partitions.increment(since(pruned.partitions, before.1));
            before = (pruned.rows, pruned.partitions);
        };
        match prune(database, relay, id_column, retention, tell).await {
            Ok(tables) => tables.iter().for_each(told),
            Err(error) => self.failed(&error, "retention: rows stay in the outbox"),
        }
        match prune_parked(database, relay, id_column, retention).await {
            Ok(settled) => {
                counter!("walpost_retention_parked_removed_total", &label).increment(settled);
                if settled > 0 {
                    tracing::info!(settled, "retention: settled parked events are deleted");
                }
            }
            Err(error) => self.failed(&error, "retention: settled parked events stay"),
        }
    }

    fn failed(&self, error: &RelayError, what: &str) {
        let label = [("pipeline", self.relay.pipeline.clone())];
        counter!("walpost_retention_failures_total", &label).increment(1);
        let retry_in_minutes = self.retention.interval_minutes;
        tracing::error!(error = error_chain(error), retry_in_minutes, "{what}");
    }
}

fn told(pruned: &Pruned) {
    let Pruned { table, rows, archived_rows, partitions, archived_partitions, .. } = pruned;
    tracing::info!(
        %table, rows, archived_rows, partitions, archived_partitions,
        "retention: old rows have left"
    );
    let (held, busy) = (pruned.held_partitions, pruned.busy_partitions);
    if held + busy > 0 {
        tracing::info!(
            %table, held, busy,
            "retention: old partitions stay, with a row that may not leave, or locked by somebody"
        );
    }
    if pruned.is_not_owner {
        tracing::warn!(
            %table,
            "retention: rows leave one by one, as the role does not own the partitioned table"
        );
    }
}
