use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use walpost_testkit::{Seeded, until};

use super::{
    super::moments::some_moment,
    blows::WebhookBlow,
    load::Load,
    outcome::{Facts, WebhookOutcome},
    stage::{Side, Stage},
};
use crate::LIMIT;

/// Most effects between two faults.
const EFFECTS_MOST: usize = 120;
const MOMENT_MOST: Duration = Duration::from_millis(20);
const SAY_EVERY: Duration = Duration::from_secs(3);
/// For everything to arrive behind the last fault.
const END: Duration = Duration::from_secs(180);

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct WebhookSetting {
    /// The program `walpost`.
    pub walpost: PathBuf,
    /// The program `walpost-test-receiver`.
    pub receiver: PathBuf,
    /// Of everything random.
    pub seed: u64,
    /// For logs and, of a violation, the evidence; emptied first.
    pub folder: PathBuf,
    /// Whether the logs stay also when nothing is wrong.
    pub keep: bool,
    /// Whether to say on stderr how far it is.
    pub progress: bool,
}

/// A run between its begin and its end.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) stage: Stage,
    pub(super) seeded: Seeded,
}

/// One fault in each round, under load; both destinations get each event.
///
/// # Panics
/// When nothing arrives within a minute of a fault, and when the servers do not
/// do as they are told. The logs are kept then.
pub async fn webhooks(setting: WebhookSetting, blows: &[WebhookBlow]) -> WebhookOutcome {
    let (began, mut said) = (Instant::now(), Instant::now());
    let seeded = Seeded::new(setting.seed);
    let mut run = Run { stage: Stage::set(setting).await, seeded };
    let load = Load::start(run.stage.sender_url());
    let mut counts = BTreeMap::new();
    for (number, blow) in (1..).zip(blows) {
        run.some_progress().await;
        if run.stage.setting.progress && said.elapsed() >= SAY_EVERY {
            said = Instant::now();
            eprintln!("chaos: round {number}: {blow}");
        }
        run.strike(*blow).await;
        *counts.entry(*blow).or_default() += 1;
    }
    load.stop().await;
    let arrived = run.at_the_end().await;
    let orderly = run.stage.terminate().await;
    let facts = run.facts().await;
    let took = began.elapsed();
    let outcome = WebhookOutcome::of(&facts, counts, arrived, orderly, took);
    outcome.conclude(&run.stage.setting, &facts);
    outcome
}

impl Run {
    /// Waits until a random number of effects more is there, and for a random
    /// moment.
    async fn some_progress(&mut self) {
        self.stage.assert_running();
        let effects = "select count(*) from effect";
        let mut target = None;
        let more = 1 + self.seeded.below(EFFECTS_MOST) as i64;
        until(LIMIT, "progress between two faults", async || {
            let Some(now) = self.stage.number(Side::Receiver, effects).await else { return false };
            now >= *target.get_or_insert(now + more)
        })
        .await;
        some_moment(&mut self.seeded, MOMENT_MOST).await;
    }

    /// Whether everything has arrived and is processed, in time.
    async fn at_the_end(&self) -> bool {
        let open = "select (select count(*) from walpost.outbox) * 2 - (select count(*) from \
                    walpost.webhook_delivery where state = 'delivered')";
        let pending = "select count(*) from walpost.inbox where processing_state <> 'succeeded'";
        let began = Instant::now();
        while began.elapsed() < END {
            let left = (
                self.stage.number(Side::Sender, open).await,
                self.stage.number(Side::Receiver, pending).await,
            );
            if left == (Some(0), Some(0)) {
                return true;
            }
            super::super::moments::pass(Duration::from_millis(100)).await;
        }
        eprintln!("chaos: the end was not reached; {}", self.stage.trouble());
        false
    }

    async fn facts(&self) -> Facts {
        let sender = async |sql: &str| self.stage.look(Side::Sender, sql).await.expect("it runs");
        let committed = sender("select id::text from walpost.outbox").await;
        let effects = "select source, event_id from effect order by n";
        let effects = self.stage.look(Side::Receiver, effects).await.expect("it runs");
        let sums = "select count(*), coalesce(sum(n), 0)::bigint from (select delivery, count(*) n \
                    from walpost.webhook_attempt group by delivery) a";
        let sums = sender(sums).await;
        let rows = sender("select count(*) from walpost.webhook_delivery").await;
        Facts {
            committed: committed.iter().map(|row| row.get(0)).collect(),
            effects: effects.iter().map(|row| (row.get(0), row.get(1))).collect(),
            deliveries: rows[0].get::<_, i64>(0).unsigned_abs(),
            attempts: sums[0].get::<_, i64>(1).unsigned_abs(),
        }
    }
}
