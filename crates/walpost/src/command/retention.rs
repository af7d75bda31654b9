use std::time::Duration;

use metrics::counter;
use tokio::sync::watch;
use walpost_event::error_chain;
use walpost_postgres::Database;
use walpost_relay::{
    Phase, PipelineStatus, Pruned, RelayConfig, RelayError, RetentionConfig, prune, prune_parked,
};

/// From the start of the process to the first pass.
const FIRST: Duration = Duration::from_secs(60);

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
        let mut before = 0;
        let tell = |pruned: &Pruned| {
            // Each table is counted from its first row on.
            let since = pruned.rows.checked_sub(before).unwrap_or(pruned.rows);
            removed.increment(since);
            before = pruned.rows;
        };
        let pruned = async {
            let tables = prune(database, relay, id_column, retention, tell).await?;
            let settled = prune_parked(database, relay, id_column, retention).await?;
            Ok::<_, RelayError>((tables, settled))
        };
        match pruned.await {
            Ok((tables, settled)) => {
                counter!("walpost_retention_parked_removed_total", &label).increment(settled);
                if settled > 0 {
                    tracing::info!(settled, "retention: settled parked events are deleted");
                }
                for Pruned { table, rows, archived_rows, .. } in tables {
                    tracing::info!(%table, rows, archived_rows, "retention: old rows have left");
                }
            }
            Err(error) => {
                counter!("walpost_retention_failures_total", &label).increment(1);
                tracing::error!(
                    error = error_chain(&error),
                    retry_in_minutes = self.retention.interval_minutes,
                    "retention: rows stay in the outbox"
                );
            }
        }
    }
}
