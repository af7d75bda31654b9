use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_postgres::{Client, Error as PgError, IsolationLevel, Transaction};
use walpost_event::{RetrySchedule, jitter};

use super::{
    Shared,
    attempt::{Fate, ToFinish},
};
use crate::{
    Order, StoreError, Verdict,
    failpoint::Failpoint,
    metrics::What,
    store::{BOUNDS, Ended, Finished, Lapsed},
};

/// How many ends one statement writes down.
const BATCH_MAX: usize = 256;
/// Longest time for a statement, beyond which its connection is given up.
pub(super) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Writes ends of attempts down: those that come while it writes go together.
pub(super) struct Finisher {
    shared: Arc<Shared>,
    received: mpsc::Receiver<ToFinish>,
    session: Option<Client>,
}

impl Finisher {
    pub(super) fn new(shared: Arc<Shared>, received: mpsc::Receiver<ToFinish>) -> Self {
        Self { shared, received, session: None }
    }

    /// Until nobody sends any more.
    pub(super) async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while self.received.recv_many(&mut batch, BATCH_MAX).await > 0 {
            let deadline = batch.iter().map(|each| each.deadline).max();
            let deadline = deadline.unwrap_or_else(Instant::now);
            let (mut ended, mut unsent) = (Vec::new(), Vec::new());
            for each in batch.drain(..) {
                match each.fate {
                    Fate::Ended(one) => ended.push(one),
                    Fate::Unsent(one) => unsent.push(one),
                }
            }
            if !ended.is_empty() {
                self.finish(&ended, deadline).await;
            }
            if !unsent.is_empty() {
                self.give_back(&unsent).await;
            }
            self.wake();
        }
    }

    /// Writes a batch down; where that is refused, its ends one by one, so that one
    /// that cannot be written takes no other with it.
    async fn finish(&mut self, ended: &[Ended], deadline: Instant) {
        let gone = ended.iter().filter(|each| each.verdict == Verdict::Disable).count();
        let is_disabled = match self.write_down(ended, deadline).await {
            Ok(is_disabled) => is_disabled,
            // Without a session it was not the statement that was refused.
            Err(error) if error.is_transient() || ended.len() == 1 || self.session.is_none() => {
                lost(&self.shared, &error, ended.len());
                false
            }
            Err(_) => {
                let mut is_disabled = false;
                for one in ended.chunks(1) {
                    match self.write_down(one, deadline).await {
                        Ok(disabled) => is_disabled |= disabled,
                        Err(error) => lost(&self.shared, &error, 1),
                    }
                }
                is_disabled
            }
        };
        self.shared.standing.written(gone, is_disabled);
    }

    /// Whoever was behind them may go.
    fn wake(&self) {
        if self.shared.settings.order != Order::None {
            self.shared.wake.notify_one();
        }
    }

    /// Gives claims back, once: what is not given back waits for its lease.
    async fn give_back(&mut self, unsent: &[Lapsed]) {
        let given = async {
            let client = self.shared.session(&mut self.session).await?;
            self.shared.settings.deliveries.give_back(client, unsent).await
        };
        let given = timeout(STATEMENT_TIMEOUT, given).await;
        let destination = &*self.shared.settings.name;
        match given {
            Ok(Ok(given)) => {
                self.shared.metrics.add(What::GivenBack, given);
                tracing::info!(destination, claims = unsent.len(), given, "given back unsent");
            }
            Ok(Err(error)) => {
                self.session = None;
                tracing::warn!(destination, %error, claims = unsent.len(), "not given back");
            }
            Err(_) => {
                self.session = None;
                tracing::warn!(destination, claims = unsent.len(), "not given back in time");
            }
        }
    }

    /// Tries until they are written down, or none of their leases holds. Whether
    /// their destination is disabled.
    async fn write_down(&mut self, ended: &[Ended], deadline: Instant) -> Result<bool, StoreError> {
        let mut failures = 0;
        loop {
            let written = async {
                let finished = write(&self.shared, &mut self.session, ended).await?;
                if failures == 0 || finished.held.len() == ended.len() {
                    return Ok(finished);
                }
                // It may have been the answer alone that was lost.
                with_earlier(&self.shared, &mut self.session, (ended, finished)).await
            };
            let error = match timeout(STATEMENT_TIMEOUT, written).await {
                Ok(Ok(finished)) => {
                    Failpoint::Finished.reached();
                    for each in ended {
                        let is_held = finished.held.contains(&each.lapsed.claim());
                        tell(&self.shared, each, is_held);
                    }
                    return Ok(finished.is_disabled);
                }
                Ok(Err(error)) => error,
                Err(_) => StoreError::Unavailable {
                    attempted: "ending deliveries",
                    detail: format!("no answer in {STATEMENT_TIMEOUT:?}"),
                },
            };
            if !error.is_transient() {
                return Err(error);
            }
            self.session = None;
            failures += 1;
            let pause = again(failures);
            if Instant::now() + pause >= deadline {
                return Err(error);
            }
            tracing::warn!(%error, failures, "ending deliveries failed; trying again");
            sleep(pause).await;
        }
    }
}

/// Their leases will end.
fn lost(shared: &Shared, error: &StoreError, deliveries: usize) {
    shared.metrics.add(What::Lost, deliveries as u64);
    tracing::error!(%error, deliveries, "ends of attempts were not written down");
}

/// In one transaction with the destination's end, where that wants nothing more
/// and says so to a claim that still held.
async fn write(
    shared: &Shared,
    session: &mut Option<Client>,
    ended: &[Ended],
) -> Result<Finished, StoreError> {
    let client = shared.session(session).await?;
    let deliveries = &shared.settings.deliveries;
    let gone = ended.iter().filter(|each| each.verdict == Verdict::Disable);
    let gone: Vec<_> = gone.map(|each| each.lapsed.claim()).collect();
    // Looked at once: when it opens later, the next end tells it.
    let opened = shared.gate.has_opened();
    let may_alert = shared.may_alert(ended, opened);
    if gone.is_empty() && !may_alert {
        return deliveries.finish_alone(client, ended).await;
    }
    let failed =
        |error: tokio_postgres::Error| deliveries.error("ending deliveries", "sender", &error);
    let mut tx = read_committed(client).await.map_err(failed)?;
    let mut finished = deliveries.finish(&tx, ended).await?;
    // Whoever has lost its claim has no say any more.
    if gone.iter().any(|claim| finished.held.contains(claim)) {
        deliveries.gone(&tx, &shared.settings.name).await?;
        finished.is_disabled = true;
    }
    if may_alert {
        shared.alert(&mut tx, ended, &finished.held, opened).await?;
    }
    tx.commit().await.map_err(failed)?;
    if opened {
        shared.gate.told();
    }
    Ok(finished)
}

/// The same, with what an earlier attempt has written down.
async fn with_earlier(
    shared: &Shared,
    session: &mut Option<Client>,
    (ended, mut finished): (&[Ended], Finished),
) -> Result<Finished, StoreError> {
    let client = shared.session(session).await?;
    let earlier = shared.settings.deliveries.finished(client, ended).await?;
    finished.held.extend(earlier.held);
    finished.is_disabled |= earlier.is_disabled;
    Ok(finished)
}

/// What ends a delivery has to see who was found behind it meanwhile, whatever the
/// database's default is.
pub(super) async fn read_committed(client: &mut Client) -> Result<Transaction<'_>, PgError> {
    let begin = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
    let tx = begin.start().await?;
    tx.batch_execute(BOUNDS).await?;
    Ok(tx)
}

/// Counts an end, and says it.
pub(super) fn tell(shared: &Shared, ended: &Ended, held: bool) {
    let Ended { lapsed, end, verdict } = ended;
    let (delivery, attempt, outcome) = (lapsed.id, lapsed.attempt, end.outcome);
    let destination = &*shared.settings.name;
    let detail = Some(&*end.detail).filter(|detail| !detail.is_empty());
    if !held {
        shared.metrics.add(What::Lost, 1);
        tracing::warn!(destination, delivery, attempt, %outcome, "the claim was given up");
        return;
    }
    match verdict {
        Verdict::Delivered => shared.metrics.add(What::Delivered, 1),
        Verdict::Retry { wait, .. } => {
            tracing::warn!(destination, delivery, attempt, %outcome, detail, ?wait, "failed; tried again");
        }
        Verdict::Failed => {
            shared.metrics.add(What::Exhausted, 1);
            tracing::error!(destination, delivery, attempt, %outcome, detail, "failed for good");
        }
        Verdict::Held => {
            shared.metrics.add(What::Unknown, 1);
            tracing::error!(destination, delivery, attempt, %outcome, detail, "unknown");
        }
        Verdict::Disable => {
            shared.metrics.add(What::Disabled, 1);
            tracing::error!(destination, delivery, "the destination is gone: disabled");
        }
    }
}

/// Between attempts to reach the database.
pub(super) fn again(failures: u32) -> Duration {
    let pauses = RetrySchedule::backoff(Duration::from_millis(100), Duration::from_secs(5));
    pauses.delay(failures, jitter()).unwrap_or_default()
}

impl Shared {
    /// The session in its place, opened where there is none.
    pub(super) async fn session<'a>(
        &self,
        place: &'a mut Option<Client>,
    ) -> Result<&'a mut Client, StoreError> {
        if place.as_ref().is_none_or(Client::is_closed) {
            *place = None;
            let connected = self.database.connect().await.map_err(|error| {
                let (attempted, detail) = ("connecting", error.to_string());
                match error.is_transient() {
                    true => StoreError::Unavailable { attempted, detail },
                    false => StoreError::Refused { attempted, detail },
                }
            })?;
            *place = Some(connected);
        }
        Ok(place.as_mut().expect("it was filled"))
    }
}
