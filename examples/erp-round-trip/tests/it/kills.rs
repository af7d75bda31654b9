//! Either side is killed: at any moment, and at each point that has a name.

use walpost_testkit::{covers_points, until};
use walpost_tests::seeded;

use crate::stage::{LIMIT, POLLING_INBOX, Side, Stage, WAL_INLINE, Way};

const INVOICES: i64 = 300;
const KILLS: usize = 6;
const MORE_MOST: usize = 30;

/// Where the round trip can be cut, in its order, and which side passes it. Not
/// the first time, so that others are on their way; a second claim is all that
/// there has to be, as one takes at most as many as may be under way; ends are
/// written down several at a time, so of these a second one is all that is certain.
const POINTS: [(Side, &str); 6] = [
    (Side::Finance, "after_claim@2:kill"),
    (Side::Finance, "before_bytes@3:kill"),
    (Side::Logistics, "before_receipt@3:kill"),
    (Side::Logistics, "after_receipt@3:kill"),
    (Side::Finance, "after_answer@3:kill"),
    (Side::Finance, "after_finish@2:kill"),
];
/// Enough to come to each point.
const INVOICES_OF_POINT: i64 = 25;

/// Kills of one side, of the other and of both in turn, under load.
async fn killed_again_and_again(way: Way) {
    let mut seeded = seeded();
    let mut stage = Stage::open(way).await;
    stage.start(Side::Logistics, 0, None);
    stage.start(Side::Finance, INVOICES, None);
    for kill in 0..KILLS {
        stage.progress(1 + seeded.below(MORE_MOST) as i64, INVOICES).await;
        if kill % 3 != 0 {
            stage.start(Side::Logistics, 0, None);
        }
        if kill % 3 != 1 {
            stage.start(Side::Finance, INVOICES, None);
        }
    }
    // Whether a kill has met a request is chance; those at points do.
    stage.all_is_done_once(INVOICES).await;
    stage.end().await;
}

async fn killed_at_each_point(way: Way) {
    let mut stage = Stage::open(way).await;
    let mut invoices = 0;
    for (side, point) in POINTS {
        invoices += INVOICES_OF_POINT;
        for one in [Side::Logistics, Side::Finance] {
            stage.start(one, invoices, (one == side).then_some(point));
        }
        until(LIMIT, point, async || !stage.process(side).is_running()).await;
        stage.process(side).killed(LIMIT);
    }
    stage.start(Side::Logistics, 0, None);
    stage.start(Side::Finance, invoices, None);
    stage.all_is_done_once(invoices).await;
    assert!(stage.attempts_beyond_the_first().await > 0, "nothing was sent twice");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_side_is_killed_again_and_again_each_payment_from_the_wal_ships_once() {
    killed_again_and_again(WAL_INLINE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_side_is_killed_again_and_again_each_polled_payment_ships_once() {
    killed_again_and_again(POLLING_INBOX).await;
}

#[test]
fn the_round_trip_is_killed_at_each_point_that_there_is() {
    let killed = POINTS.iter().map(|(_, point)| point.split('@').next().unwrap());
    covers_points(killed, walpost_webhook::failpoints());
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_each_point_of_the_round_trip_each_payment_from_the_wal_ships_once() {
    killed_at_each_point(WAL_INLINE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_each_point_of_the_round_trip_each_polled_payment_ships_once() {
    killed_at_each_point(POLLING_INBOX).await;
}
