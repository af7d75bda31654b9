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
    attempt::{Fate, ToFinish},
    finisher::{STATEMENT_TIMEOUT, again},
    turn::{FREE_PART, Pause, Seen},
    upkeep::Upkeep,
};
use crate::{
    Order, StoreError,
    failpoint::Failpoint,
    rate::Bucket,
    store::{Ask, Claim, Claimed, Line, Room, Unread},
};

/// Between two claims whose cause is that somebody says there is something.
const WAKE_GAP: Duration = Duration::from_millis(5);
/// Of those that are looked at because others are behind them.
const BEYOND_MIN: u32 = 64;
const BEYOND_MAX: u32 = 1_000;
/// What a processor has while it runs.
pub(super) struct Running {
    shared: Arc<Shared>,
    ends: mpsc::Sender<ToFinish>,
    jobs: JoinSet<()>,
    session: Option<Client>,
    upkeep: Upkeep,
    /// What is claimed and not read, while that is so.
    unread: Option<Unread>,
    claimed: Option<Instant>,
    /// Of the destination's rate.
    bucket: Option<Bucket>,
    /// Of the breaker, in which the last claim was permitted.
    era: u64,
    /// Whether the last claim took all that it could: there may be more.
    was_full: bool,
    /// Whether somebody has said since that there may be something.
    is_woken: bool,
    /// How many are looked at beyond those that there is room for.
    beyond: u32,
    failures: u32,
    not_before: Option<Instant>,
}

impl Running {
    pub(super) fn new(shared: Arc<Shared>, ends: mpsc::Sender<ToFinish>) -> Self {
        let bucket = shared.settings.rate.map(|rate| Bucket::new(rate, Instant::now()));
        Self {
            shared,
            ends,
            jobs: JoinSet::new(),
            session: None,
            upkeep: Upkeep::default(),
            unread: None,
            claimed: None,
            bucket,
            era: 0,
            was_full: false,
            is_woken: false,
            beyond: 0,
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
        self.shared.look_at_secrets().await;
        let room = self.room();
        let worked = match timeout(STATEMENT_TIMEOUT, self.work(room)).await {
            Ok(worked) => worked,
            Err(_) => Err(StoreError::Unavailable {
                attempted: "claiming deliveries",
                detail: format!("no answer in {STATEMENT_TIMEOUT:?}"),
            }),
        };
        self.give_back().await;
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

    /// How much to claim now.
    fn room(&mut self) -> Room {
        let (seen, era) = self.seen();
        self.era = era;
        Room {
            deliveries: seen.deliveries(),
            retries: self.shared.retry_room() as u32,
            bytes: seen.bytes_free,
            is_empty: self.jobs.is_empty(),
        }
    }

    /// What counts now, and the breaker's era.
    fn seen(&self) -> (Seen, u64) {
        let (now, settings) = (Instant::now(), &self.shared.settings);
        let (permit, era) = self.shared.gate.permit();
        let since = |bound: Duration| {
            let since = self.claimed.map(|claimed| now.saturating_duration_since(claimed));
            since.map_or(Duration::ZERO, |since| bound.saturating_sub(since))
        };
        // One at a time waits for each end, and goes at once behind it.
        let gap = if settings.order == Order::All { Duration::ZERO } else { WAKE_GAP };
        // Some at once, where they come fast: each claim is a statement.
        let tokens_in = self.bucket.map_or(Duration::ZERO, |bucket| {
            bucket.wait(now, (bucket.most() / FREE_PART as u32).max(1))
        });
        let seen = Seen {
            claimed: self.jobs.len(),
            claimed_max: settings.claimed_max(),
            bytes_free: self.shared.bytes_free(),
            bytes_max: settings.in_flight_max_bytes,
            batch: settings.pace.batch,
            poll: settings.pace.poll,
            poll_in: since(settings.pace.poll),
            woken_in: since(gap),
            was_full: self.was_full,
            is_woken: self.is_woken,
            tokens: self.bucket.map_or(u32::MAX, |bucket| bucket.tokens(now)),
            tokens_in,
            permit,
            is_gone: self.shared.standing.is_gone(),
            unread_for: self.shared.secrets.look_in(now),
            failed_for: self.not_before.map(|at| at.saturating_duration_since(now)),
        };
        (seen, era)
    }

    async fn work(&mut self, room: Room) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let settings = &shared.settings;
        let (deliveries, name) = (&settings.deliveries, &*settings.name);
        let (order, on_head_failure) = (settings.order, settings.on_head_failure);
        let line = Line { order, on_head_failure, beyond: self.beyond };
        let client = shared.session(&mut self.session).await?;
        if !self.upkeep.keep_up(&shared, client, line).await? {
            self.was_full = true;
            return Ok(());
        }
        if room.deliveries == 0 {
            return Ok(());
        }
        let ask = Ask { room, line, lease: settings.lease, claimed_by: &settings.claimed_by };
        self.claimed = Some(Instant::now());
        let look = shared.standing.look();
        self.is_woken = false;
        let claimed = deliveries.claim(client, name, &ask).await?;
        shared.standing.seen(look, claimed.is_disabled);
        self.was_full = claimed.is_full || (claimed.is_cut && claimed.blocked > 0);
        shared.has_retries.store(claimed.has_retries, Ordering::Relaxed);
        self.beyond = beyond(self.beyond, room, &claimed);
        if let Some(bucket) = &mut self.bucket {
            bucket.take(Instant::now(), claimed.len() as u32);
        }
        if claimed.len() == 0 {
            return Ok(());
        }
        Failpoint::Claimed.reached();
        let mut claims = claimed.claims;
        if !claimed.unread.lapsed.is_empty() {
            let unread = self.unread.insert(claimed.unread);
            claims.extend(deliveries.read(client, unread).await?);
            self.unread = None;
        }
        self.start(claims);
        Ok(())
    }

    /// What is claimed and cannot be read is somebody's turn again at once.
    async fn give_back(&mut self) {
        let Some(Unread { lapsed, deadline }) = self.unread.take() else { return };
        for unsent in lapsed {
            let fate = Fate::Unsent(unsent);
            // Nobody receives only where the processor was dropped.
            let _ = self.ends.send(ToFinish { fate, deadline }).await;
        }
    }

    fn start(&mut self, claims: Vec<Claim>) {
        for claim in claims {
            let is_retry = claim.lapsed.attempt > 1;
            let weight = Weight::of(&self.shared, claim.message.body.len(), is_retry);
            let pass = self.shared.gate.pass(self.era);
            let attempt = Arc::clone(&self.shared).attempt((claim, pass), self.ends.clone());
            self.jobs.spawn(async move {
                attempt.await;
                drop(weight);
            });
        }
    }

    /// Until there may be something to do.
    pub(super) async fn wait(&mut self) {
        let Pause { at_most, claimed } = self.seen().0.pause();
        let shared = Arc::clone(&self.shared);
        let is_heavy = || shared.bytes_free() < shared.settings.in_flight_max_bytes / FREE_PART;
        let until_free = async {
            let most = claimed.unwrap_or_default();
            while self.jobs.len() > most || (!self.jobs.is_empty() && is_heavy()) {
                self.jobs.join_next().await;
            }
        };
        select! {
            () = until_free, if claimed.is_some() => {}
            () = shared.wake.notified(), if !self.is_woken => self.is_woken = true,
            () = sleep(at_most) => {}
        }
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

/// Of those that were looked at many were behind others: look further.
fn beyond(before: u32, room: Room, claimed: &Claimed) -> u32 {
    if claimed.is_cut && (claimed.len() as u64) < u64::from(room.deliveries) {
        return (before * 2).clamp(BEYOND_MIN, BEYOND_MAX);
    }
    if claimed.blocked == 0 { 0 } else { before }
}

impl Shared {
    /// How many more bytes of bodies may be claimed.
    fn bytes_free(&self) -> usize {
        self.settings.in_flight_max_bytes.saturating_sub(self.bytes.load(Ordering::Relaxed))
    }

    /// How many more retries may be claimed.
    fn retry_room(&self) -> usize {
        self.settings.retries_max().saturating_sub(self.retries.load(Ordering::Relaxed))
    }
}

/// What a claim takes while it lasts.
struct Weight {
    shared: Arc<Shared>,
    /// Of its body.
    bytes: usize,
    is_retry: bool,
}

impl Weight {
    fn of(shared: &Arc<Shared>, bytes: usize, is_retry: bool) -> Self {
        shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        shared.retries.fetch_add(usize::from(is_retry), Ordering::Relaxed);
        Self { shared: Arc::clone(shared), bytes, is_retry }
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        let shared = &self.shared;
        shared.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        shared.retries.fetch_sub(usize::from(self.is_retry), Ordering::Relaxed);
        // More of them wait for room, and there is some.
        let has_room = shared.retry_room() >= (shared.settings.retries_max() / FREE_PART).max(1);
        if self.is_retry && has_room && shared.has_retries.load(Ordering::Relaxed) {
            shared.wake.notify_one();
        }
    }
}
