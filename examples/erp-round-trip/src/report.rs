//! What both databases say.

use std::fmt;

use stand::{End, Failed, Figures};
use tokio_postgres::Client;
use walpost_postgres::Database;

const FINANCE: &str = "select count(*) filter (where status <> 'open'), \
    count(*) filter (where status = 'refunded'), \
    count(*) filter (where status = 'paid' and id % 25 = 0), \
    (select count(*) from finance_outbox), \
    (select count(*) from finance_outbox where delivery_status = 'delivered') from invoices";
const LOGISTICS: &str = "select coalesce(sum(shipments), 0)::bigint, \
    coalesce(sum(cancelled), 0)::bigint, count(*) filter (where shipments > 1) \
    from (select count(*) shipments, count(*) filter (where state = 'cancelled') cancelled \
    from shipment group by invoice_id) s";

pub(crate) struct Report {
    finance: Client,
    logistics: Client,
    wanted: i64,
}

/// Finance is asked first, so no shipment is counted without its invoice for long.
pub(crate) struct Counts {
    wanted: i64,
    paid: i64,
    refunded: i64,
    to_refund: i64,
    events: i64,
    delivered: i64,
    shipments: i64,
    cancelled: i64,
    twice: i64,
}

impl Report {
    pub(crate) async fn new(
        finance: &Database,
        logistics: &Database,
        wanted: i64,
    ) -> Result<Self, Failed> {
        let (finance, logistics) = (finance.connect().await?, logistics.connect().await?);
        Ok(Self { finance, logistics, wanted })
    }

    pub(crate) async fn so_far(&self) -> Result<Counts, Failed> {
        let finance = self.finance.query_one(FINANCE, &[]).await?;
        let logistics = self.logistics.query_one(LOGISTICS, &[]).await?;
        Ok(Counts {
            wanted: self.wanted,
            paid: finance.get(0),
            refunded: finance.get(1),
            to_refund: finance.get(2),
            events: finance.get(3),
            delivered: finance.get(4),
            shipments: logistics.get(0),
            cancelled: logistics.get(1),
            twice: logistics.get(2),
        })
    }
}

impl Counts {
    pub(crate) fn figures(&self) -> Figures {
        Figures { now: self.to_string(), last: self.last_line(), end: self.end() }
    }

    fn end(&self) -> End {
        End::of(self.twice > 0, self.is_complete())
    }

    /// Each invoice is paid, finance knows that logistics knows, and it has done
    /// its work.
    fn is_complete(&self) -> bool {
        self.paid >= self.wanted
            && self.to_refund == 0
            && self.delivered == self.events
            && (self.shipments, self.cancelled) == (self.paid, self.refunded)
    }

    fn last_line(&self) -> String {
        let Self { wanted, paid, refunded, delivered, shipments, cancelled, twice, .. } = self;
        match self.end() {
            End::Done => format!(
                "done: {paid} invoices paid, {refunded} refunded, {delivered} events delivered, \
                 {shipments} shipments, {cancelled} cancelled, none twice"
            ),
            End::GoesOn => format!(
                "stopped: {paid} of {wanted} invoices paid, {delivered} events delivered, \
                 {shipments} shipments, none twice; the next start goes on from here"
            ),
            End::Broken => format!("BROKEN: of {paid} invoices {twice} have two shipments"),
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { paid, refunded, events, delivered, shipments, cancelled, twice, .. } = self;
        write!(
            f,
            "finance: {paid:>5} paid {refunded:>4} refunded {delivered:>5} of {events:>5} events \
             delivered   logistics: {shipments:>5} shipments {cancelled:>4} cancelled {twice} twice"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(twice: i64, shipments: i64) -> Counts {
        Counts {
            wanted: 25,
            paid: 25,
            refunded: 1,
            to_refund: 0,
            events: 26,
            delivered: 26,
            shipments,
            cancelled: 1,
            twice,
        }
    }

    #[test]
    fn a_second_shipment_breaks_it_however_far_it_is() {
        assert_eq!(of(0, 25).end(), End::Done);
        assert_eq!(of(0, 24).end(), End::GoesOn);
        for broken in [of(1, 26), of(1, 25), of(1, 3)] {
            assert_eq!(broken.end(), End::Broken, "{broken}");
            let line = "BROKEN: of 25 invoices 1 have two shipments";
            assert_eq!(broken.last_line(), line);
        }
    }
}
