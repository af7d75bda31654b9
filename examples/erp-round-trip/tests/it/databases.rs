//! Either database crashes, again and again, while invoices are paid.

use walpost_testkit::until;

use crate::{
    books::PAID,
    stage::{LIMIT, POLLING_INBOX, Side, Stage, WAL_INLINE, Way, paid},
};

/// Amid which a database crashes.
const FLOOD: i64 = 100;
const MORE: i64 = 10;

async fn crashed(way: Way) {
    let mut stage = Stage::open(way).await;
    stage.start(Side::Logistics, 0, None);
    stage.start(Side::Finance, 0, None);
    let mut invoices = 0;
    for side in [Side::Finance, Side::Logistics, Side::Logistics, Side::Finance] {
        let before = invoices;
        invoices += FLOOD;
        let payer = stage.payer(invoices);
        until(LIMIT, "a payment", async || stage.number(Side::Finance, PAID).await > before).await;
        stage.progress(MORE, invoices).await;
        let failed = stage.failures().await;
        stage.server(side, |postgres| postgres.stop_immediate().unwrap()).await;
        match side {
            // Payments wait for their database.
            Side::Finance => {
                stage.server(side, |postgres| postgres.start().unwrap()).await;
                paid(payer).await;
            }
            Side::Logistics => {
                paid(payer).await;
                // Also where the flood had shipped.
                invoices += MORE;
                stage.pay(invoices).await;
                until(LIMIT, "answers of 503", async || stage.failures().await > failed).await;
                stage.server(side, |postgres| postgres.start().unwrap()).await;
            }
        }
    }
    stage.all_is_done_once(invoices).await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_database_crashes_each_payment_from_the_wal_ships_once() {
    crashed(WAL_INLINE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_database_crashes_each_polled_payment_ships_once() {
    crashed(POLLING_INBOX).await;
}
