//! What the tables say: how many orders have how many shipments.

use std::fmt;

use tokio_postgres::Client;
use walpost_postgres::Database;

use crate::Failed;

pub(crate) struct Report {
    client: Client,
    wanted: i64,
}

/// Counted in one statement, so that the figures fit together.
pub(crate) struct Counts {
    wanted: i64,
    orders: i64,
    shipped: i64,
    twice: i64,
}

/// The last line.
pub(crate) struct AtTheEnd(Counts);

impl Report {
    pub(crate) async fn new(database: &Database, wanted: i64) -> Result<Self, Failed> {
        Ok(Self { client: database.connect().await?, wanted })
    }

    pub(crate) async fn so_far(&self) -> Result<Counts, Failed> {
        let counts = "select count(*), count(s.order_id), \
                      count(*) filter (where s.shipments > 1) \
                      from orders o left join (select order_id, count(*) as shipments \
                      from shipment group by order_id) s on s.order_id = o.id";
        let row = self.client.query_one(counts, &[]).await?;
        let (orders, shipped, twice) = (row.get(0), row.get(1), row.get(2));
        Ok(Counts { wanted: self.wanted, orders, shipped, twice })
    }

    pub(crate) async fn at_the_end(&self) -> Result<AtTheEnd, Failed> {
        Ok(AtTheEnd(self.so_far().await?))
    }
}

impl Counts {
    /// Every order is there, and shipped.
    pub(crate) fn is_complete(&self) -> bool {
        self.orders >= self.wanted && self.shipped == self.orders
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { orders, shipped, twice, .. } = self;
        let waiting = orders - shipped;
        write!(
            f,
            "{orders:>6} orders   {shipped:>6} shipped   {waiting:>4} on their way   \
             {twice} shipped twice"
        )
    }
}

impl fmt::Display for AtTheEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Counts { wanted, orders, shipped, twice }) = self;
        match (self.0.is_complete(), *twice) {
            (true, 0) => write!(f, "done: {orders} orders, {shipped} shipped, none twice"),
            (_, 0) => write!(
                f,
                "stopped: {orders} of {wanted} orders, {shipped} shipped, none twice; \
                 the next start goes on from here"
            ),
            _ => write!(f, "BROKEN: of {orders} orders {twice} were shipped twice"),
        }
    }
}
