//! Takes a checkout from step to step, until it has ended or nobody answers.
//! Each request's run does that, and so does the sweeper for those that nobody
//! comes back for.

use tokio_postgres::Client;
use walpost_idempotency::http::{Run, TxError};

use crate::{
    Settings,
    checkout::{Change, Checkout, Next, State},
    failpoint::Failpoint,
    others::{Found, Payment, Reply, Warehouse},
    table::Table,
};

/// What a checkout is carried out with. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    pub(crate) settings: Settings,
    pub(crate) table: Table,
    pub(crate) payment: Payment,
    pub(crate) warehouse: Warehouse,
}

/// In whose transactions steps are written down.
pub(crate) enum By<'a> {
    /// In phases of a run under its lease.
    Run(&'a Run),
    /// In plain ones.
    Sweeper(&'a mut Client),
}

/// How far it came.
pub(crate) enum Ended {
    /// There is nothing more to do.
    Done(Checkout),
    /// Somebody has not answered; it is gone on with by whoever comes next.
    Later(Checkout),
}

impl Shop {
    /// Two may do this at once: each call outside has a key or is made by the one
    /// who wrote it down first, and each step is made from the state it was decided
    /// in, by one.
    pub(crate) async fn advance(
        &self,
        mut by: By<'_>,
        mut checkout: Checkout,
    ) -> Result<Ended, TxError> {
        loop {
            let change = match checkout.next(&self.settings) {
                Next::Nothing => return Ok(Ended::Done(checkout)),
                Next::Announce => {
                    let (now, is_ours) = by.step(self, checkout, Change::Announced).await?;
                    checkout = now;
                    // Whoever was second does not know whether the first has asked.
                    if !is_ours {
                        continue;
                    }
                    self.charge_once(&checkout).await
                }
                Next::Charge => self.charge(&checkout).await,
                Next::LookUp => self.look_up(&checkout).await,
                Next::Ship => self.ship(&checkout).await,
            };
            let Some(change) = change else { return Ok(Ended::Later(checkout)) };
            let is_withdrawn = change == Change::Withdrawn;
            (checkout, _) = by.step(self, checkout, change).await?;
            if is_withdrawn {
                return Ok(Ended::Later(checkout));
            }
        }
    }

    /// Looks for a charge that has come after the provider said there is none, and
    /// has it refunded.
    pub(crate) async fn audit(
        &self,
        client: &mut Client,
        checkout: Checkout,
    ) -> Result<Checkout, TxError> {
        debug_assert_eq!(checkout.state, State::NotCharged);
        match self.payment.look_up(&checkout).await {
            Found::Charge(charge) => {
                let change = Change::ChargedLate(charge);
                Ok(By::Sweeper(client).step(self, checkout, change).await?.0)
            }
            Found::Nothing | Found::Unknown => Ok(checkout),
        }
    }

    async fn charge(&self, checkout: &Checkout) -> Option<Change> {
        match self.payment.charge(checkout).await {
            Reply::Done(charge) => Some(Change::Charged(charge)),
            Reply::Refused => Some(Change::Declined),
            Reply::NotSent | Reply::Unknown => None,
        }
    }

    /// The same of a provider that knows no keys: what has not gone out may be
    /// asked for again, and nothing else.
    async fn charge_once(&self, checkout: &Checkout) -> Option<Change> {
        match self.payment.charge(checkout).await {
            Reply::Done(charge) => Some(Change::Charged(charge)),
            Reply::Refused => Some(Change::Declined),
            Reply::NotSent => Some(Change::Withdrawn),
            Reply::Unknown => None,
        }
    }

    async fn look_up(&self, checkout: &Checkout) -> Option<Change> {
        match self.payment.look_up(checkout).await {
            Found::Charge(charge) => Some(Change::Charged(charge)),
            Found::Nothing if checkout.is_settled(&self.settings) => Some(Change::NotCharged),
            Found::Nothing | Found::Unknown => None,
        }
    }

    async fn ship(&self, checkout: &Checkout) -> Option<Change> {
        match self.warehouse.ship(checkout).await {
            Reply::Done(shipment) => Some(Change::Shipped(shipment)),
            Reply::Refused => Some(Change::OutOfStock),
            Reply::NotSent | Reply::Unknown => None,
        }
    }
}

impl By<'_> {
    async fn step(
        &mut self,
        shop: &Shop,
        checkout: Checkout,
        change: Change,
    ) -> Result<(Checkout, bool), TxError> {
        let table = shop.table.clone();
        let done = match self {
            By::Run(run) => {
                let point = change.to().name();
                run.phase(point, |tx| {
                    Box::pin(async move { table.step(tx, &checkout, &change).await })
                })
                .await?
            }
            By::Sweeper(client) => {
                let tx = client.transaction().await?;
                let done = table.step(&tx, &checkout, &change).await?;
                tx.commit().await?;
                done
            }
        };
        Failpoint::Committed.reached();
        Ok(done)
    }
}
