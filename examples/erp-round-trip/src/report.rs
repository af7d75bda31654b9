//! What both databases say.

use std::fmt;

use stand::Failed;
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

/// The last line.
pub(crate) struct AtTheEnd(Counts);

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

    pub(crate) async fn at_the_end(&self) -> Result<AtTheEnd, Failed> {
        Ok(AtTheEnd(self.so_far().await?))
    }
}

impl Counts {
    /// Each invoice is paid, finance knows that logistics knows, and it has done
    /// its work.
    pub(crate) fn is_complete(&self) -> bool {
        self.paid >= self.wanted
            && self.to_refund == 0
            && self.delivered == self.events
            && (self.shipments, self.cancelled) == (self.paid, self.refunded)
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

impl fmt::Display for AtTheEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(counts) = self;
        let Counts { wanted, paid, refunded, delivered, shipments, cancelled, twice, .. } = counts;
        match (counts.is_complete(), *twice) {
            (true, 0) => write!(
                f,
                "done: {paid} invoices paid, {refunded} refunded, {delivered} events delivered, \
                 {shipments} shipments, {cancelled} cancelled, none twice"
            ),
            (_, 0) => write!(
                f,
                "stopped: {paid} of {wanted} invoices paid, {delivered} events delivered, \
                 {shipments} shipments, none twice; the next start goes on from here"
            ),
            _ => write!(f, "BROKEN: of {paid} invoices {twice} have two shipments"),
        }
    }
}
