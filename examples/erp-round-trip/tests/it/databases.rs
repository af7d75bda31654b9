//! Either database crashes, again and again, while invoices are paid.

use walpost_testkit::until;

use crate::stage::{LIMIT, POLLING_INBOX, Side, Stage, WAL_INLINE, Way};

const INVOICES: i64 = 400;
const MORE: i64 = 10;

async fn crashed(way: Way) {
    let mut stage = Stage::open(way).await;
    stage.start(Side::Logistics, 0, None);
    stage.start(Side::Finance, INVOICES, None);
    for side in [Side::Finance, Side::Logistics, Side::Logistics, Side::Finance] {
        stage.progress(MORE).await;
        let failed = stage.failures().await;
        stage.server(side, |postgres| postgres.stop_immediate().unwrap()).await;
        if side == Side::Logistics && way.mode == "inline" {
            until(LIMIT, "answers of 503", async || stage.failures().await > failed).await;
        }
        stage.server(side, |postgres| postgres.start().unwrap()).await;
    }
    stage.all_is_done_once(INVOICES).await;
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
