//! The table of checkouts, and the one transaction of a step.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tokio_postgres::{Client, Error, Row, Transaction};
use walpost_event::error_chain;
use walpost_idempotency::http::TxError;
use walpost_outbox::{NewEvent, OutboxTable, walpost_contracts::Contracts, write};

use crate::{
    Failed,
    checkout::{Change, Checkout, Order, State},
    failpoint::Failpoint,
};

/// `due_at` is when somebody has to look again, whoever comes or not; null once
/// there is nothing more to look for.
pub(crate) const TABLES: &str = "
    select pg_advisory_xact_lock(5001);
    create table if not exists checkout (
        id text primary key,
        customer text not null,
        sku text not null,
        city text not null,
        amount_cents bigint not null,
        card text not null,
        state text not null,
        charge_key text not null,
        shipment_key text not null,
        charge text,
        shipment text,
        created_at timestamptz not null default clock_timestamp(),
        announced_at timestamptz,
        due_at timestamptz);
    create index if not exists checkout_due on checkout (due_at) where due_at is not null";

/// The provider's part of a refund is what the event says.
const REFUND_DUE: &str = include_str!("../../../docs/events/checkout/refund-due.md");
/// Aggregate type of the events.
const AGGREGATE: &str = "checkout";

const COLUMNS: &str = "id, sku, city, amount_cents, card, state, charge_key, shipment_key, \
                       charge, shipment, \
                       extract(epoch from clock_timestamp() - created_at)::float8, \
                       extract(epoch from clock_timestamp() - announced_at)::float8";

/// A checkout that a request asks for.
#[derive(Clone, Debug)]
pub(crate) struct NewCheckout {
    pub(crate) id: String,
    pub(crate) customer: String,
    pub(crate) order: Order,
    pub(crate) charge_key: String,
    pub(crate) shipment_key: String,
}

/// Rows of checkouts, and the outbox beside them. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    outbox: OutboxTable,
    abandoned_after: Duration,
}

/// What the provider is asked for.
#[derive(Serialize)]
struct RefundDue<'a> {
    reference: &'a str,
    charge: &'a str,
    amount_cents: i64,
    reason: &'static str,
}

impl Table {
    pub(crate) fn new(abandoned_after: Duration) -> Result<Self, Failed> {
        let contracts = Contracts::parse([("refund-due.md".into(), REFUND_DUE.to_owned())])?;
        let outbox = OutboxTable::default().with_contracts(Arc::new(contracts));
        Ok(Self { outbox, abandoned_after })
    }

    /// The checkout of a request: a new row, or the one that a run before this one
    /// has made.
    pub(crate) async fn begin(
        &self,
        tx: &Transaction<'_>,
        new: &NewCheckout,
    ) -> Result<Checkout, TxError> {
        let insert = "insert into checkout (id, customer, sku, city, amount_cents, card, state, \
                      charge_key, shipment_key, due_at) \
                      values ($1, $2, $3, $4, $5, $6, $7, $8, $9, \
                      clock_timestamp() + $10 * interval '1 second') \
                      on conflict (id) do nothing";
        let (order, due) = (&new.order, self.abandoned_after.as_secs_f64());
        tx.execute(
            insert,
            &[
                &new.id,
                &new.customer,
                &order.sku,
                &order.city,
                &order.amount_cents,
                &order.card,
                &State::Accepted.name(),
                &new.charge_key,
                &new.shipment_key,
                &due,
            ],
        )
        .await?;
        Failpoint::Written.reached();
        Ok(load(tx, &new.id).await?)
    }

    /// Makes a step, with its event where it has one, unless somebody else was
    /// first; the row as it then is.
    pub(crate) async fn step(
        &self,
        tx: &Transaction<'_>,
        checkout: &Checkout,
        change: &Change,
    ) -> Result<(Checkout, bool), TxError> {
        let update = "update checkout set state = $3, charge = coalesce($4, charge), \
                      shipment = coalesce($5, shipment), \
                      announced_at = case $3 when 'charging' then clock_timestamp() \
                                             else announced_at end, \
                      due_at = clock_timestamp() + $6 * interval '1 second' \
                      where id = $1 and state = $2";
        let (from, to) = (checkout.state.name(), change.to());
        let due = to.is_watched().then_some(self.abandoned_after.as_secs_f64());
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&checkout.id, &from, &to.name(), &change.charge(), &change.shipment(), &due];
        let is_ours = tx.execute(update, &parameters).await? == 1;
        let now = load(tx, &checkout.id).await?;
        if is_ours && let Some(reason) = change.refund_reason() {
            self.order_refund(tx, &now, reason).await?;
        }
        Failpoint::Written.reached();
        Ok((now, is_ours))
    }

    /// One event for a checkout, ever: its key is unique.
    async fn order_refund(
        &self,
        tx: &Transaction<'_>,
        checkout: &Checkout,
        reason: &'static str,
    ) -> Result<(), TxError> {
        let refused = |detail| TxError::Database { detail, is_transient: false };
        let charge = checkout.charge.as_deref();
        let charge = charge.ok_or_else(|| refused("a refund without a charge".to_owned()))?;
        let (reference, amount_cents) = (&*checkout.id, checkout.order.amount_cents);
        let due = RefundDue { reference, charge, amount_cents, reason };
        let event = NewEvent::new(AGGREGATE, reference, "RefundDue")
            .idempotency_key(format!("refund:{reference}"));
        let event = event.json(&due).map_err(|error| refused(error_chain(&error)))?;
        write(tx, &self.outbox, &event).await.map_err(|error| refused(error_chain(&error)))?;
        Ok(())
    }

    /// Checkouts that somebody has to look at, which nobody else then does for a
    /// while.
    pub(crate) async fn claim_due(
        &self,
        client: &Client,
        most: i64,
    ) -> Result<Vec<Checkout>, TxError> {
        let claim = format!(
            "update checkout set due_at = clock_timestamp() + $1 * interval '1 second' \
             where id in (select id from checkout where due_at <= clock_timestamp() \
                          order by due_at limit $2 for update skip locked) \
             returning {COLUMNS}"
        );
        let due = self.abandoned_after.as_secs_f64();
        let rows = client.query(&claim, &[&due, &most]).await?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    /// Looks again after as long as it is old, or, behind `last`, never.
    pub(crate) async fn look_later(
        &self,
        client: &Client,
        checkout: &Checkout,
        last: Duration,
    ) -> Result<(), TxError> {
        let update = "update checkout set due_at = clock_timestamp() + $2 * interval '1 second' \
                      where id = $1 and state = 'not_charged'";
        let due = (checkout.age < last).then_some(checkout.age.as_secs_f64());
        client.execute(update, &[&checkout.id, &due]).await?;
        Ok(())
    }
}

async fn load(tx: &Transaction<'_>, id: &str) -> Result<Checkout, Error> {
    let select = format!("select {COLUMNS} from checkout where id = $1");
    read(&tx.query_one(&select, &[&id]).await?)
}

fn read(row: &Row) -> Result<Checkout, Error> {
    let since = |column: usize| -> Result<Option<Duration>, Error> {
        let seconds: Option<f64> = row.try_get(column)?;
        Ok(seconds.map(|seconds| Duration::from_secs_f64(seconds.max(0.0))))
    };
    let state: &str = row.try_get(5)?;
    Ok(Checkout {
        id: row.try_get(0)?,
        order: Order {
            sku: row.try_get(1)?,
            city: row.try_get(2)?,
            amount_cents: row.try_get(3)?,
            card: row.try_get(4)?,
        },
        state: State::of(state).expect("the table has states of ours"),
        charge_key: row.try_get(6)?,
        shipment_key: row.try_get(7)?,
        charge: row.try_get(8)?,
        shipment: row.try_get(9)?,
        age: since(10)?.unwrap_or_default(),
        announced: since(11)?,
    })
}
