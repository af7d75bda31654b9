//! Looks at the slot every two seconds, on a thread and a session of its own:
//! also while the pipeline waits, stands by, or hangs.

pub(crate) mod budget;
mod look;

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::{
    sync::oneshot,
    time::{MissedTickBehavior, interval, timeout},
};
use walpost_event::error_chain;
use walpost_postgres::Database;

use self::{
    budget::{BudgetLevel, WalBudget, cause},
    look::{Look, SlotLook},
};
use crate::{
    clock::now_us,
    config::RelayConfig,
    error::RelayError,
    metrics::SlotMetrics,
    sight::{ParkedSight, SlotSight},
    sql::Sql,
    status::{Phase, StatusReporter},
};

/// Between two looks at the slot.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Bound on each statement.
const STATEMENT_MAX: Duration = Duration::from_secs(5);
/// Bound on a new session.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Looks at the slot for each count of the parked events, which takes more.
const LOOKS_PER_COUNT: u32 = 5;

/// Looks until dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    _alive: oneshot::Sender<Infallible>,
}

struct Watcher {
    database: Database,
    config: RelayConfig,
    status: StatusReporter,
    metrics: SlotMetrics,
    level: BudgetLevel,
    parked: Option<ParkedSight>,
}

impl Watch {
    /// Begins to look, once the pipeline knows that it is at the right server.
    ///
    /// # Panics
    /// If the operating system gives no thread.
    pub(crate) fn start(database: Database, config: RelayConfig, status: StatusReporter) -> Self {
        let (alive, over) = oneshot::channel();
        let span = tracing::Span::current();
        std::thread::Builder::new()
            .name(format!("watch-{}", config.pipeline))
            .spawn(move || {
                let _entered = span.entered();
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = match runtime {
                    Ok(runtime) => runtime,
                    Err(error) => return tracing::error!(%error, "nobody looks at the slot"),
                };
                let metrics = SlotMetrics::new(&config.pipeline);
                let level = BudgetLevel::default();
                let watcher = Watcher { database, config, status, metrics, level, parked: None };
                runtime.block_on(async {
                    tokio::select! {
                        _ = over => {}
                        () = watcher.run() => {}
                    }
                });
                // A look-up of a name may hang, and nobody waits for it.
                runtime.shutdown_background();
            })
            .expect("a thread for the watch");
        Self { _alive: alive }
    }
}

impl Watcher {
    async fn run(mut self) {
        let mut status = self.status.subscribe();
        if status.wait_for(|status| status.system_id.is_some()).await.is_err() {
            return;
        }
        loop {
            let Err(error) = self.session().await;
            // Who cannot look tells nobody much: the pipeline has the same
            // trouble, or says more.
            tracing::debug!(error = error_chain(&error), "cannot look at the slot");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    async fn session(&mut self) -> Result<Infallible, RelayError> {
        let attempt = "opening a session to look at the slot";
        let client = timeout(CONNECT_MAX, self.database.connect())
            .await
            .map_err(|_| RelayError::SqlTimeout { attempt, limit: CONNECT_MAX })??;
        let sql = Sql::new(Arc::new(client), STATEMENT_MAX);
        let settings = "set default_transaction_read_only = on; set statement_timeout = 5000; \
                        set idle_session_timeout = 0";
        sql.batch("setting up the session", settings).await?;
        let look = Look::new(sql, &self.config);
        let mut ticks = interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.parked = Some(look.parked().await?);
            for _ in 0..LOOKS_PER_COUNT {
                ticks.tick().await;
                let system_id = self.status.current().system_id.unwrap_or_default();
                let slot = look.slot(&system_id).await?;
                self.note(&look, slot).await;
            }
        }
    }

    async fn note(&mut self, look: &Look, slot: SlotLook) {
        let SlotLook { mut sight, keep_bytes } = slot;
        sight.parked = self.parked;
        let retained = sight.retained_bytes();
        let budget = retained.and_then(|retained| {
            WalBudget::new(retained, self.config.wal_budget_bytes, keep_bytes)
        });
        sight.budget = budget.map(|budget| budget.after(self.level));
        self.metrics.sighted(&sight);
        if let Some(budget) = sight.budget {
            self.tell(look, &sight, budget).await;
        }
        self.status.update(|status| {
            // The process of our last session is gone, and its number free.
            if status.phase == Phase::Standby
                && status.own_walsender.is_none()
                && sight.active_pid != status.walsender
            {
                status.walsender = None;
            }
            status.slot = Some(sight);
        });
    }

    /// One line for each level that is reached or left.
    async fn tell(&mut self, look: &Look, sight: &SlotSight, budget: WalBudget) {
        let before = std::mem::replace(&mut self.level, budget.level);
        let WalBudget { retained_bytes, limit_bytes, level, .. } = budget;
        let (percent, set_by) = (budget.percent(), budget.set_by.as_str());
        let slot = &self.config.slot;
        if level < before {
            return tracing::info!(
                slot,
                retained_bytes,
                limit_bytes,
                set_by,
                "the WAL kept for the slot is down to {percent} % of its budget"
            );
        }
        if level == before {
            return;
        }
        // Who may not see it goes without.
        let open = look.oldest_transaction().await.ok().flatten();
        let cause = cause(&self.status.current(), sight, open.as_deref(), now_us());
        let (why, next_step) = (cause.why, cause.next_step);
        let invalidation_bytes = sight.invalidation_bytes;
        if level >= BudgetLevel::ThreeQuarters {
            tracing::error!(
                slot,
                retained_bytes,
                limit_bytes,
                set_by,
                invalidation_bytes,
                why,
                next_step,
                "the WAL kept for the slot has reached {percent} % of its budget"
            );
        } else {
            tracing::warn!(
                slot,
                retained_bytes,
                limit_bytes,
                set_by,
                invalidation_bytes,
                why,
                next_step,
                "the WAL kept for the slot has reached {percent} % of its budget"
            );
        }
    }
}
