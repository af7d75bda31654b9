//! What a processor does beside its claims: it makes its destination known, and looks now
//! and then for what nobody else ends, holds or lets go.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use super::{
    LEASE_MARGIN, Shared,
    finisher::{read_committed, tell},
};
use crate::{
    Failure, Order, Outcome, StoreError,
    metrics::What,
    store::{End, Ended, Line, Looked},
};

/// Between two looks for claims whose leases have ended, and for deliveries of a
/// destination that is disabled.
pub(super) const UPKEEP: Duration = Duration::from_millis(500);
/// How many of them at once.
const UPKEEP_MAX: u32 = 1_000;
/// Between two looks for deliveries of transactions that began before all went in order.
const ADOPT: Duration = Duration::from_secs(60);
/// Between two looks at what older snapshots have left behind, and at how many of those
/// that wait for others.
const LOOK: Duration = Duration::from_secs(2);
const LOOK_MAX: u32 = 200;

/// When what was done last.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    registered: bool,
    /// How far those were looked at that wait for others.
    looked: Looked,
    /// When last, once all were.
    looked_at: Option<Instant>,
    adopted: Option<Instant>,
    kept_up: Option<Instant>,
}

impl Upkeep {
    /// Does what is due. False where that is not done, and nothing may be claimed before.
    pub(super) async fn keep_up(
        &mut self,
        shared: &Shared,
        client: &mut Client,
        line: Line,
    ) -> Result<bool, StoreError> {
        let (deliveries, name) = (&shared.settings.deliveries, &*shared.settings.name);
        if !self.registered {
            deliveries.register(client, name, line).await?;
            self.registered = true;
        }
        self.look(shared, client, line).await?;
        if line.order == Order::All && self.adopted.is_none_or(|at| at.elapsed() >= ADOPT) {
            let adopted = deliveries.adopt(client, name, UPKEEP_MAX).await?;
            self.adopted = (adopted < u64::from(UPKEEP_MAX)).then(Instant::now);
            // What has no order yet may come before all that has one.
            if self.adopted.is_none() {
                return Ok(false);
            }
        }
        if self.kept_up.is_none_or(|at| at.elapsed() >= UPKEEP) {
            self.kept_up = Some(Instant::now());
            lapse(shared, client).await?;
            let look = shared.standing.look();
            let is_disabled = deliveries.is_disabled(client, name).await?;
            shared.standing.seen(look, is_disabled);
            deliveries.hold(client, name, UPKEEP_MAX).await?;
            note_breaker(shared, client).await?;
        }
        Ok(true)
    }

    /// Mends now and then what transactions with older snapshots have not seen: lets those
    /// go that wait for what is done, at the start all of them, and has rows of outboxes
    /// say what became of their deliveries.
    async fn look(
        &mut self,
        shared: &Shared,
        client: &Client,
        line: Line,
    ) -> Result<(), StoreError> {
        if self.looked_at.is_some_and(|at| at.elapsed() < LOOK) {
            return Ok(());
        }
        let (deliveries, name) = (&shared.settings.deliveries, &*shared.settings.name);
        let is_first = self.looked_at.is_none();
        while deliveries.mark_again(client, UPKEEP_MAX).await? >= u64::from(UPKEEP_MAX) {}
        match line.order {
            Order::Key => {
                let limit = if is_first { UPKEEP_MAX } else { LOOK_MAX };
                loop {
                    let ask = (line, limit, self.looked);
                    self.looked = deliveries.let_passed_go(client, name, ask).await?;
                    if !is_first || self.looked == Looked::default() {
                        break;
                    }
                }
            }
            Order::None | Order::All if is_first => {
                while deliveries.let_all_go(client, name, UPKEEP_MAX).await?
                    >= u64::from(UPKEEP_MAX)
                {}
            }
            Order::None | Order::All => {}
        }
        self.looked_at = Some(Instant::now());
        Ok(())
    }
}

/// Says where operators look whether the breaker is open: a while longer than that lasts, for
/// a probe and its answer, so that it ends by itself where this process does.
async fn note_breaker(shared: &Shared, client: &Client) -> Result<(), StoreError> {
    if !shared.gate.has_changed() {
        return Ok(());
    }
    let settings = &shared.settings;
    let open_for = shared.gate.open_for().map(|wait| wait + settings.client.timeout + LEASE_MARGIN);
    let noted = settings.deliveries.note_breaker(client, &settings.name, open_for).await;
    if noted.is_err() {
        shared.gate.is_to_be_noted();
    }
    noted
}

/// Ends claims whose leases have ended: nobody knows what became of them.
async fn lapse(shared: &Shared, client: &mut Client) -> Result<(), StoreError> {
    let deliveries = &shared.settings.deliveries;
    let failed =
        |error: tokio_postgres::Error| deliveries.error("ending lapsed claims", "sender", &error);
    let mut tx = read_committed(client).await.map_err(failed)?;
    let lapsed = deliveries.lapsed(&tx, &shared.settings.name, UPKEEP_MAX).await?;
    if lapsed.is_empty() {
        return Ok(());
    }
    let outcome = Outcome::Unanswered { failure: Failure::LeaseExpired, sent: true };
    let ended: Vec<Ended> = lapsed
        .into_iter()
        .map(|lapsed| shared.judged(lapsed, End::without_call(outcome, String::new())))
        .collect();
    let held = deliveries.finish(&tx, &ended).await?.held;
    // Of the breaker whoever ends an attempt tells.
    if shared.may_alert(&ended, false) {
        shared.alert(&mut tx, &ended, &held, false).await?;
    }
    tx.commit().await.map_err(failed)?;
    shared.metrics.add(What::Stuck, held.len() as u64);
    for each in &ended {
        tell(shared, each, held.contains(&each.lapsed.claim()));
    }
    Ok(())
}
