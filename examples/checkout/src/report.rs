//! What the tables of all three say: ours, the provider's and the warehouse's.

use std::{collections::BTreeMap, fmt};

use stand::{End, Figures, Stand};
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
    /// The first of these, in words.
    first_wrong: Option<String>,
}

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
        Ok(Self {
            shop: shop.connect().await?,
            payment: stand.named("payment").connect().await?,
            warehouse: stand.named("warehouse").connect().await?,
            wanted,
        })
    }

    pub(crate) async fn so_far(&self) -> Result<Counts, Failed> {
        let mut counts = Counts { wanted: self.wanted, ..Counts::default() };
        for (id, trace) in self.traces().await? {
            counts.add(&id, &trace);
        }
        Ok(counts)
    }

    /// Ours first: theirs may be ahead then, and never behind. Theirs against their
    /// order in time: no refund or shipment is seen without its charge.
    async fn traces(&self) -> Result<BTreeMap<String, Trace>, Failed> {
        let mut traces: BTreeMap<String, Trace> = BTreeMap::new();
        for row in self.shop.query("select id, state from checkout", &[]).await? {
            traces.entry(row.get(0)).or_default().state = row.get(1);
        }
        let refunds = "select reference, count(*) from refund group by 1";
        for row in self.payment.query(refunds, &[]).await? {
            traces.entry(row.get(0)).or_default().refunds = row.get(1);
        }
        let shipments = "select reference, count(*) from shipment group by 1";
        for row in self.warehouse.query(shipments, &[]).await? {
            traces.entry(row.get(0)).or_default().shipments = row.get(1);
        }
        let charges = "select reference, count(*) from charge group by 1";
        for row in self.payment.query(charges, &[]).await? {
            traces.entry(row.get(0)).or_default().charges = row.get(1);
        }
        Ok(traces)
    }
}

impl Counts {
    fn add(&mut self, id: &str, trace: &Trace) {
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
            _ => {
                self.wrong += 1;
                self.first_wrong.get_or_insert_with(|| {
                    let state = if state.is_empty() { "unknown to us" } else { state };
                    format!(
                        "{id} is {state}, with {charges} charges, {refunds} refunds, {shipments} \
                         shipments"
                    )
                });
            }
        }
    }

    fn ended(&self) -> u64 {
        self.shipped + self.refunded + self.uncharged
    }

    pub(crate) fn figures(&self) -> Figures {
        Figures { now: self.to_string(), last: self.last_line(), end: self.end() }
    }

    fn end(&self) -> End {
        let is_complete = self.ended() >= self.wanted && self.ended() == self.checkouts;
        End::of(self.charged_twice + self.wrong > 0, is_complete)
    }

    fn last_line(&self) -> String {
        let Self { checkouts, shipped, refunded, uncharged, charged_twice, wrong, .. } = self;
        let figures = format!("{checkouts} checkouts, {shipped} shipped, {refunded} refunded");
        let uncharged = match uncharged {
            0 => String::new(),
            uncharged => format!(", {uncharged} not charged"),
        };
        match self.end() {
            End::Done => format!("done: {figures}{uncharged}, none charged twice"),
            End::GoesOn => {
                let on_their_way = checkouts.saturating_sub(self.ended());
                format!(
                    "stopped: {figures}{uncharged}, {on_their_way} on their way, none charged \
                     twice; the next start goes on"
                )
            }
            End::Broken => format!(
                "BROKEN: of {checkouts} checkouts {charged_twice} charged twice, {wrong} wrong: {}",
                self.first_wrong.as_deref().unwrap_or_default()
            ),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(traces: &[(&str, i64, i64, i64)]) -> Counts {
        let mut counts = Counts { wanted: 2, ..Counts::default() };
        for (state, charges, refunds, shipments) in traces.iter().copied() {
            counts.add("c", &Trace { state: state.to_owned(), charges, refunds, shipments });
        }
        counts
    }

    #[test]
    fn one_that_is_charged_or_shipped_wrongly_breaks_it_however_far_it_is() {
        let shipped = ("shipped", 1, 0, 1);
        assert_eq!(of(&[]).end(), End::GoesOn);
        assert_eq!(of(&[shipped]).end(), End::GoesOn);
        assert_eq!(of(&[shipped, ("charged", 1, 0, 1)]).end(), End::GoesOn);
        for done in [shipped, ("refund_due", 1, 1, 0), ("declined", 0, 0, 0)] {
            assert_eq!(of(&[shipped, done]).end(), End::Done, "{done:?}");
        }
        let wrong = [
            ("charged", 2, 0, 0),
            ("shipped", 2, 0, 1),
            ("shipped", 1, 0, 2),
            ("shipped", 1, 1, 1),
            ("shipped", 1, 0, 0),
            ("refund_due", 1, 2, 0),
            ("declined", 1, 0, 0),
            ("", 0, 0, 1),
        ];
        for wrong in wrong {
            assert_eq!(of(&[wrong]).end(), End::Broken, "{wrong:?}");
            let counts = of(&[shipped, shipped, wrong]);
            assert_eq!(counts.end(), End::Broken, "{wrong:?}");
            assert!(counts.last_line().starts_with("BROKEN: of "), "{}", counts.last_line());
        }
        let line = of(&[shipped, ("charged", 2, 0, 1), ("", 0, 0, 1)]).last_line();
        let wrong = "BROKEN: of 2 checkouts 1 charged twice, 2 wrong: c is charged, with 2 charges, \
                     0 refunds, 1 shipments";
        assert_eq!(line, wrong);
        let stray = of(&[("", 0, 0, 1)]).last_line();
        assert!(stray.ends_with("c is unknown to us, with 0 charges, 0 refunds, 1 shipments"));
    }
}
