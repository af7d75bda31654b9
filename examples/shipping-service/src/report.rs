//! What the tables say: how many orders have how many shipments.

use std::fmt;

use stand::{End, Figures};
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
}

impl Counts {
    pub(crate) fn figures(&self) -> Figures {
        Figures { now: self.to_string(), last: self.last_line(), end: self.end() }
    }

    /// Done where every order is there, and shipped.
    fn end(&self) -> End {
        let is_complete = self.orders >= self.wanted && self.shipped == self.orders;
        End::of(self.twice > 0, is_complete)
    }

    fn last_line(&self) -> String {
        let Self { wanted, orders, shipped, twice } = self;
        match self.end() {
            End::Done => format!("done: {orders} orders, {shipped} shipped, none twice"),
            End::GoesOn => format!(
                "stopped: {orders} of {wanted} orders, {shipped} shipped, none twice; \
                 the next start goes on from here"
            ),
            End::Broken => format!("BROKEN: of {orders} orders {twice} were shipped twice"),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_shipment_breaks_it_however_far_it_is() {
        let of = |shipped, twice| Counts { wanted: 9, orders: 9, shipped, twice };
        assert_eq!(of(9, 0).end(), End::Done);
        assert_eq!(of(8, 0).end(), End::GoesOn);
        for broken in [of(9, 1), of(8, 1)] {
            assert_eq!(broken.end(), End::Broken, "{broken}");
            assert_eq!(broken.last_line(), "BROKEN: of 9 orders 1 were shipped twice");
        }
    }
}
