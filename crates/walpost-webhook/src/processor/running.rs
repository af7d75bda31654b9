use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::{
    select,
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_postgres::Client;

use super::{
    Shared,
    attempt::ToFinish,
    finisher::{STATEMENT_TIMEOUT, again, tell},
};
use crate::{
    Failure, Outcome, StoreError,
    failpoint::Failpoint,
    metrics::What,
    store::{Claim, End, Ended},
};

/// Between two looks for claims whose leases have ended, and for deliveries of a
/// destination that is disabled.
const UPKEEP: Duration = Duration::from_millis(500);
/// How many of them at once.
const UPKEEP_MAX: u32 = 1_000;
/// Once this part of what may be claimed is free there is a new claim, if the last
/// one took all that it could.
const FREE_PART: usize = 4;

/// What a processor has while it runs.
pub(super) struct Running {
    shared: Arc<Shared>,
    ends: mpsc::Sender<ToFinish>,
    jobs: JoinSet<()>,
    session: Option<Client>,
    registered: bool,
    claimed: Option<Instant>,
    kept_up: Option<Instant>,
    /// Whether the last claim took all that it could: there may be more.
    was_full: bool,
    failures: u32,
    not_before: Option<Instant>,
}

impl Running {
    pub(super) fn new(shared: Arc<Shared>, ends: mpsc::Sender<ToFinish>) -> Self {
        Self {
            shared,
            ends,
            jobs: JoinSet::new(),
            session: None,
            registered: false,
            claimed: None,
            kept_up: None,
            was_full: false,
            failures: 0,
            not_before: None,
        }
    }

    /// Claims as much as there is room for, where that is due.
    pub(super) async fn turn(&mut self) -> Result<(), StoreError> {
        self.reap();
        if self.not_before.is_some_and(|not_before| Instant::now() < not_before) {
            return Ok(());
        }
        let limit = self.limit();
        let worked = match timeout(STATEMENT_TIMEOUT, self.work(limit)).await {
            Ok(worked) => worked,
            Err(_) => Err(StoreError::Unavailable {
                attempted: "claiming deliveries",
                detail: format!("no answer in {STATEMENT_TIMEOUT:?}"),
            }),
        };
        match worked {
            Ok(()) => {
                self.failures = 0;
                self.not_before = None;
                Ok(())
            }
            Err(error) if error.is_transient() => {
                self.session = None;
                self.was_full = false;
                self.failures = self.failures.saturating_add(1);
                self.not_before = Some(Instant::now() + again(self.failures));
                // At 5 s each: every minute.
                if self.failures == 1 || self.failures.is_multiple_of(12) {
                    tracing::warn!(%error, failures = self.failures, "claiming failed");
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// How many deliveries to claim now.
    fn limit(&self) -> u32 {
        let pace = &self.shared.settings.pace;
        let room = self.shared.settings.claimed_max();
        let free = room.saturating_sub(self.jobs.len());
        if self.is_gone() {
            return 0;
        }
        let is_due = self.poll_in().is_zero();
        let has_room = self.was_full && free >= (room / FREE_PART).max(1);
        if is_due || has_room { pace.batch.min(free as u32) } else { 0 }
    }

    async fn work(&mut self, limit: u32) -> Result<(), StoreError> {
        let settings = &self.shared.settings;
        let (deliveries, name) = (&settings.deliveries, &*settings.name);
        let client = self.shared.session(&mut self.session).await?;
        if !self.registered {
            deliveries.register(client, name).await?;
            self.registered = true;
        }
        if self.kept_up.is_none_or(|at| at.elapsed() >= UPKEEP) {
            self.kept_up = Some(Instant::now());
            lapse(&self.shared, client).await?;
            deliveries.hold(client, name, UPKEEP_MAX).await?;
        }
        if limit == 0 {
            return Ok(());
        }
        let terms = (settings.lease, &*settings.claimed_by);
        self.claimed = Some(Instant::now());
        let claims = deliveries.claim(client, name, limit, terms).await?;
        self.was_full = claims.len() >= limit as usize;
        self.start(claims);
        Ok(())
    }

    fn start(&mut self, claims: Vec<Claim>) {
        if claims.is_empty() {
            return;
        }
        Failpoint::Claimed.reached();
        for claim in claims {
            self.jobs.spawn(Arc::clone(&self.shared).attempt(claim, self.ends.clone()));
        }
    }

    /// Until there may be something to do.
    pub(super) async fn wait(&mut self) {
        let room = self.shared.settings.claimed_max();
        let has_none = self.jobs.len() >= room;
        let is_gone = self.is_gone();
        let pause = match self.not_before {
            Some(not_before) => not_before.saturating_duration_since(Instant::now()),
            None if has_none || is_gone => UPKEEP,
            None => self.poll_in().min(UPKEEP),
        };
        let pause = pause.max(Duration::from_millis(1));
        let busy = if self.was_full { room - (room / FREE_PART).max(1) } else { room - 1 };
        let waits_for_room = (self.was_full || has_none) && !is_gone && self.not_before.is_none();
        let until_free = async {
            while self.jobs.len() > busy {
                self.jobs.join_next().await;
            }
        };
        select! {
            () = until_free, if waits_for_room => {}
            () = sleep(pause) => {}
        }
    }

    /// Whether the destination has said so and its row does not yet.
    fn is_gone(&self) -> bool {
        self.shared.gone.load(Ordering::SeqCst) > 0
    }

    fn poll_in(&self) -> Duration {
        let poll = self.shared.settings.pace.poll;
        self.claimed.map_or(Duration::ZERO, |claimed| poll.saturating_sub(claimed.elapsed()))
    }

    fn reap(&mut self) {
        while let Some(ended) = self.jobs.try_join_next() {
            if let Err(error) = ended {
                // Its delivery waits for its lease.
                tracing::error!(panicked = error.is_panic(), "an attempt broke off");
            }
        }
    }

    /// Ends what was begun; then nobody sends to the finisher any more.
    pub(super) async fn drain(mut self) {
        while self.jobs.join_next().await.is_some() {}
        self.reap();
    }
}

/// Ends claims whose leases have ended: nobody knows what became of them.
async fn lapse(shared: &Shared, client: &mut Client) -> Result<(), StoreError> {
    let deliveries = &shared.settings.deliveries;
    let failed =
        |error: tokio_postgres::Error| deliveries.error("ending lapsed claims", "sender", &error);
    let tx = client.transaction().await.map_err(failed)?;
    let lapsed = deliveries.lapsed(&tx, &shared.settings.name, UPKEEP_MAX).await?;
    if lapsed.is_empty() {
        return Ok(());
    }
    let outcome = Outcome::Unanswered { failure: Failure::LeaseExpired, sent: true };
    let ended: Vec<Ended> = lapsed
        .into_iter()
        .map(|lapsed| shared.judged(lapsed, End::without_call(outcome, String::new())))
        .collect();
    let held = deliveries.finish(&tx, &ended).await?;
    tx.commit().await.map_err(failed)?;
    shared.metrics.add(What::Stuck, held.len() as u64);
    for each in &ended {
        tell(shared, each, held.contains(&each.lapsed.claim()));
    }
    Ok(())
}
