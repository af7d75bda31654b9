//! The judge over both databases.

use std::collections::BTreeSet;

use walpost_testkit::until;

use crate::stage::{LIMIT, Side, Stage};

/// What is still to come at finance: to be paid, refunded or delivered.
const OPEN: &str = "select (select count(*) from finance_outbox where \
    delivery_status <> 'delivered') + (select count(*) from invoices where status = 'open' \
    or status = 'paid' and id % 25 = 0)";
const DONE: &str = "select count(*) from walpost.inbox where processing_state = 'succeeded'";
const EVENTS: &str = "select count(*) from finance_outbox";
pub(crate) const PAID: &str = "select count(*) from invoices where status <> 'open'";

/// Of each row of the outbox: its key, and whether it says all that it should of
/// one that was delivered.
const OUTBOX: &str = "select idempotency_key, delivery_status = 'delivered' \
    and delivery_attempts > 0 and last_attempt_at >= created_at \
    and delivered_at >= created_at from finance_outbox";
/// The keys that the invoices' states speak of.
const OWED: &str = "select 'invoice.paid:' || id || ':' || payment_id from invoices \
    where status in ('paid', 'refunded') union all \
    select 'invoice.refunded:' || id || ':' || payment_id from invoices \
    where status = 'refunded'";
const SHIPMENTS: &str = "select idempotency_key, state from shipment";
const INBOX: &str = "select event_id from walpost.inbox where processing_state = 'succeeded'";
const COPIES: &str = "select (select count(*) from walpost.webhook_attempt) - \
    (select count(*) from finance_outbox)";

impl Stage {
    /// Waits until so many invoices are paid and all is done, and compares.
    pub(crate) async fn all_is_done_once(&self, invoices: i64) {
        until(LIMIT, "the end of everything", async || {
            let finance = (
                self.number(Side::Finance, PAID).await,
                self.look(Side::Finance, OPEN).await.map(|rows| rows[0].get::<_, i64>(0)),
            );
            finance == (invoices, Some(0))
                && self.number(Side::Logistics, DONE).await
                    == self.number(Side::Finance, EVENTS).await
        })
        .await;
        let rows = async |side, sql| self.look(side, sql).await.unwrap();
        let outbox = rows(Side::Finance, OUTBOX).await;
        let marked = |row: &&tokio_postgres::Row| row.get::<_, Option<bool>>(1) == Some(true);
        assert_eq!(outbox.iter().filter(marked).count(), outbox.len(), "rows that say all");
        let keys = |rows: &[tokio_postgres::Row]| -> Vec<String> {
            let mut keys: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
            keys.sort();
            keys
        };
        let owed = keys(&rows(Side::Finance, OWED).await);
        assert_eq!(keys(&outbox), owed, "one event for each change of state");
        assert_eq!(keys(&rows(Side::Logistics, INBOX).await), owed, "each is known once");
        let shipments = rows(Side::Logistics, SHIPMENTS).await;
        let (paid, refunded): (Vec<_>, Vec<_>) =
            owed.into_iter().partition(|key| key.starts_with("invoice.paid:"));
        assert_eq!(keys(&shipments), paid, "one shipment for each payment");
        let cancelled = shipments.iter().filter(|row| row.get::<_, &str>(1) == "cancelled");
        let cancelled: BTreeSet<String> = cancelled
            .map(|row| row.get::<_, &str>(0).replace("invoice.paid:", "invoice.refunded:"))
            .collect();
        assert_eq!(cancelled, refunded.into_iter().collect(), "those of refunds, and no others");
    }

    /// Attempts beside the one that each event takes. Without any, nothing was sent
    /// twice, and nothing is shown.
    pub(crate) async fn attempts_beyond_the_first(&self) -> i64 {
        self.number(Side::Finance, COPIES).await
    }
}
