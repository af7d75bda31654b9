//! What the tables of all three say: ours, the provider's and the warehouse's.

use std::{collections::BTreeMap, fmt};

use stand::Stand;
use tokio_postgres::Client;
use walpost_postgres::Database;

use crate::Failed;

pub(crate) struct Report {
    shop: Client,
    payment: Client,
    warehouse: Client,
    wanted: u64,
}

/// Of all checkouts.
#[derive(Default)]
pub(crate) struct Counts {
    wanted: u64,
    checkouts: u64,
    shipped: u64,
    refunded: u64,
    /// Ended without a charge.
    uncharged: u64,
    charged_twice: u64,
    /// Shipped or refunded twice, both, or without a charge; or not as our own
    /// table says.
    wrong: u64,
}

/// The last line.
pub(crate) struct AtTheEnd(Counts);

/// What there is under the id of one checkout.
#[derive(Clone, Default)]
struct Trace {
    state: String,
    charges: i64,
    refunds: i64,
    shipments: i64,
}

impl Report {
    pub(crate) async fn open(stand: &Stand, shop: &Database, wanted: u64) -> Result<Self, Failed> {
        let of = |name: &str| stand.first().clone().with_dbname(name);
        Ok(Self {
            shop: shop.connect().await?,
            payment: of("payment").connect().await?,
            warehouse: of("warehouse").connect().await?,
            wanted,
        })
    }

    pub(crate) async fn so_far(&self) -> Result<Counts, Failed> {
        let mut counts = Counts { wanted: self.wanted, ..Counts::default() };
        for trace in self.traces().await?.values() {
            counts.add(trace);
        }
        Ok(counts)
    }

    pub(crate) async fn at_the_end(&self) -> Result<AtTheEnd, Failed> {
        Ok(AtTheEnd(self.so_far().await?))
    }

    /// Ours first: theirs may be ahead then, and never behind.
    async fn traces(&self) -> Result<BTreeMap<String, Trace>, Failed> {
        let mut traces: BTreeMap<String, Trace> = BTreeMap::new();
        for row in self.shop.query("select id, state from checkout", &[]).await? {
            traces.entry(row.get(0)).or_default().state = row.get(1);
        }
        let charges = "select reference, count(*) from charge group by 1";
        for row in self.payment.query(charges, &[]).await? {
            traces.entry(row.get(0)).or_default().charges = row.get(1);
        }
        let refunds = "select reference, count(*) from refund group by 1";
        for row in self.payment.query(refunds, &[]).await? {
            traces.entry(row.get(0)).or_default().refunds = row.get(1);
        }
        let shipments = "select reference, count(*) from shipment group by 1";
        for row in self.warehouse.query(shipments, &[]).await? {
            traces.entry(row.get(0)).or_default().shipments = row.get(1);
        }
        Ok(traces)
    }
}

impl Counts {
    fn add(&mut self, trace: &Trace) {
        let Trace { state, charges, refunds, shipments } = trace;
        self.checkouts += u64::from(!state.is_empty());
        self.charged_twice += u64::from(*charges > 1);
        match (&**state, *charges, *refunds, *shipments) {
            ("shipped", 1, 0, 1) => self.shipped += 1,
            ("refund_due", 1, 1, 0) => self.refunded += 1,
            ("declined" | "not_charged", 0, 0, 0) => self.uncharged += 1,
            // On its way; they may know more than we did a moment ago.
            ("refund_due" | "charged", 1, 0, 0) => {}
            ("accepted" | "charging", 0, 0, 0) => {}
            ("" | "accepted" | "charging" | "charged", 1, 0, 0 | 1) => {}
            ("" | "accepted" | "charging" | "charged", 1, 1, 0) => {}
            // A charge that came late, and is found by the sweeper.
            ("not_charged", 1, 0 | 1, 0) => {}
            _ => self.wrong += 1,
        }
    }

    fn ended(&self) -> u64 {
        self.shipped + self.refunded + self.uncharged
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.ended() >= self.wanted && self.ended() == self.checkouts
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on_their_way = self.checkouts.saturating_sub(self.ended() + self.wrong);
        let Self { checkouts, shipped, refunded, charged_twice, wrong, .. } = self;
        write!(
            f,
            "{checkouts:>6} checkouts {shipped:>6} shipped {refunded:>6} refunded \
             {on_their_way:>6} on their way {charged_twice:>3} charged twice {wrong:>3} wrong"
        )?;
        match self.uncharged {
            0 => Ok(()),
            uncharged => write!(f, " {uncharged:>6} not charged"),
        }
    }
}

impl fmt::Display for AtTheEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { checkouts, shipped, refunded, uncharged, charged_twice, wrong, .. } = self.0;
        if charged_twice + wrong > 0 {
            return write!(
                f,
                "BROKEN: of {checkouts} checkouts {charged_twice} charged twice, {wrong} wrong"
            );
        }
        let figures = format!("{checkouts} checkouts, {shipped} shipped, {refunded} refunded");
        let uncharged = match uncharged {
            0 => String::new(),
            uncharged => format!(", {uncharged} not charged"),
        };
        match self.0.is_complete() {
            true => write!(f, "done: {figures}{uncharged}, none charged twice"),
            false => {
                let on_their_way = checkouts.saturating_sub(self.0.ended());
                write!(
                    f,
                    "stopped: {figures}{uncharged}, {on_their_way} on their way, none charged \
                     twice; the next start goes on"
                )
            }
        }
    }
}
