//! A database whose outbox is polled, and pollers on it.

use std::time::Duration;

use walpost_encode::{Encoder, Encoding};
use walpost_relay::{
    Outcome, Phase, PollingConfig, PollingRelay, Requeue, Requeued, RunningRelay, check_polling,
};
use walpost_testkit::until;

use crate::{
    rig::{Rig, SOON, phase},
    sink::World,
};

pub(crate) struct Polled {
    pub(crate) rig: Rig,
    pub(crate) polling: PollingConfig,
}

impl Polled {
    /// With the columns that `check` asks for.
    pub(crate) async fn new() -> Self {
        Self::on(Rig::new().await).await
    }

    /// The same on a rig.
    pub(crate) async fn on(rig: Rig) -> Self {
        let polled = Self::without_columns_on(rig);
        for _ in 0..2 {
            polled.mend().await;
        }
        polled
    }

    pub(crate) async fn without_columns() -> Self {
        Self::without_columns_on(Rig::new().await)
    }

    fn without_columns_on(rig: Rig) -> Self {
        let mut polling = PollingConfig::default();
        polling.poll_interval_ms = 10;
        polling.retry_delays = vec![Duration::from_millis(40)];
        Self { rig, polling }
    }

    pub(crate) async fn checked(&self, name: &str) -> (Outcome, String, Option<String>) {
        let Rig { database, config, router, .. } = &self.rig;
        let results = check_polling(database, config, &self.polling, router).await;
        let found = results.iter().find(|result| result.name == name);
        let result = found.unwrap_or_else(|| panic!("no check {name:?} in {results:?}"));
        (result.outcome, result.detail.clone(), result.next_step.clone())
    }

    /// Does what `check` says is to be done.
    pub(crate) async fn mend(&self) {
        for name in ["outbox table", "partial index"] {
            let Rig { database, config, router, client, .. } = &self.rig;
            let results = check_polling(database, config, &self.polling, router).await;
            let Some(result) = results.into_iter().find(|result| result.name == name) else {
                continue;
            };
            let Some(next_step) = result.next_step else { continue };
            let ddl = next_step.split('`').nth(1).unwrap();
            for statement in ddl.split("; ") {
                client.batch_execute(statement).await.unwrap();
            }
        }
    }

    pub(crate) fn start(&self) -> RunningRelay {
        self.start_into(&self.rig.world)
    }

    pub(crate) fn start_into(&self, world: &World) -> RunningRelay {
        let encoding = Encoding { key: Encoder::Raw, value: Encoder::Raw };
        let Rig { database, config, router, .. } = &self.rig;
        let relay = PollingRelay::new(
            database.clone(),
            config.clone(),
            self.polling.clone(),
            router.clone(),
            encoding,
        );
        let world = world.clone();
        relay.unwrap().start(async move || world.connect().await)
    }

    pub(crate) async fn polling(&self) -> RunningRelay {
        let relay = self.start();
        phase(&relay, &Phase::Streaming).await;
        relay
    }

    /// How many rows are in a state.
    pub(crate) async fn count(&self, status: &str) -> i64 {
        self.rig
            .count(&format!("select count(*) from walpost.outbox where status = '{status}'"))
            .await
    }

    pub(crate) async fn reaches(&self, status: &str, count: i64) {
        until(SOON, &format!("{count} rows {status}"), async || self.count(status).await == count)
            .await;
    }

    /// Status and attempts of the row with this payload.
    pub(crate) async fn row(&self, value: &str) -> (String, i32) {
        let sql = "select status, attempts from walpost.outbox where payload = $1::text::jsonb";
        let row = self.rig.client.query_one(sql, &[&value]).await.unwrap();
        (row.get(0), row.get(1))
    }

    pub(crate) async fn requeue(&self, which: Requeue, dry_run: bool) -> Vec<Requeued> {
        let mut requeued = Vec::new();
        let Rig { database, config, .. } = &self.rig;
        let told = |rows: Vec<Requeued>| requeued.extend(rows);
        walpost_relay::requeue(database, config, &self.polling, &which, dry_run, told)
            .await
            .unwrap();
        requeued
    }
}
