//! What the databases of the shop, the provider and the warehouse say of each
//! checkout, whatever the programs say.

use std::collections::BTreeMap;

use tokio_postgres::Client;
use walpost_testkit::until;

use crate::world::{LIMIT, World};

/// Of one checkout, by its customer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) state: String,
    pub(crate) charges: i64,
    pub(crate) refunds: i64,
    pub(crate) shipments: i64,
}

/// How a checkout may end.
pub(crate) fn shipped() -> Trace {
    trace("shipped", 1, 0, 1)
}

pub(crate) fn refunded() -> Trace {
    trace("refund_due", 1, 1, 0)
}

pub(crate) fn trace(state: &str, charges: i64, refunds: i64, shipments: i64) -> Trace {
    Trace { state: state.to_owned(), charges, refunds, shipments }
}

pub(crate) struct Oracle {
    shop: Client,
    payment: Client,
    warehouse: Client,
}

impl Oracle {
    pub(crate) async fn new(world: &World) -> Self {
        Self {
            shop: world.database("shop").await,
            payment: world.database("payment").await,
            warehouse: world.database("warehouse").await,
        }
    }

    pub(crate) fn of(shop: Client, payment: Client, warehouse: Client) -> Self {
        Self { shop, payment, warehouse }
    }

    /// One for each customer; a charge, a refund or a shipment of no checkout of
    /// ours, and a second checkout of a customer, end the test.
    pub(crate) async fn traces(&self) -> BTreeMap<String, Trace> {
        let charges = counts(&self.payment, "charge").await;
        let refunds = counts(&self.payment, "refund").await;
        let shipments = counts(&self.warehouse, "shipment").await;
        // Ours last: none of theirs is older than our row of it.
        let select = "select id, customer, state from checkout";
        let mut customers = BTreeMap::new();
        let mut traces = BTreeMap::new();
        for row in self.shop.query(select, &[]).await.unwrap() {
            let (id, customer): (String, String) = (row.get(0), row.get(1));
            let of = |counts: &BTreeMap<String, i64>| counts.get(&id).copied().unwrap_or(0);
            let trace = trace(row.get(2), of(&charges), of(&refunds), of(&shipments));
            assert_eq!(traces.insert(customer.clone(), trace), None, "{customer} has two");
            customers.insert(id, customer);
        }
        for reference in charges.keys().chain(refunds.keys()).chain(shipments.keys()) {
            assert!(customers.contains_key(reference), "nobody here knows {reference}");
        }
        traces
    }

    pub(crate) async fn trace(&self, customer: &str) -> Trace {
        self.traces().await.remove(customer).unwrap_or_default()
    }

    /// Waits until the checkout has come to this.
    pub(crate) async fn until(&self, customer: &str, expected: &Trace) {
        until(LIMIT, &format!("{customer}: {expected:?}"), async || {
            let now = self.trace(customer).await;
            assert!(now.charges <= 1 && now.refunds <= 1 && now.shipments <= 1, "{now:?}");
            assert!(now.refunds + now.shipments <= 1, "{now:?}");
            now == *expected
        })
        .await;
    }

    pub(crate) async fn refund_events(&self) -> i64 {
        let count = "select count(*) from walpost.outbox where type = 'RefundDue'";
        self.shop.query_one(count, &[]).await.unwrap().get(0)
    }
}

async fn counts(client: &Client, table: &str) -> BTreeMap<String, i64> {
    let select = format!("select reference, count(*) from {table} group by 1");
    let rows = client.query(&select, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}
