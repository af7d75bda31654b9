use walpost_testkit::{Process, until};
use walpost_tests::{LIMIT, STOPS_AFTER_COMMIT, Shop, Writer};

use crate::CONSUMER;

/// Only behind that would the server end what a zombie has open, and nothing here
/// waits so long: whoever takes over has to end it.
const PATIENT: (&str, &str) = ("TEST_HANDLER_TIMEOUT_MS", "600000");

async fn is_paused(process: &Process) {
    until(LIMIT, "the consumer pauses", async || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid()));
        stat.is_ok_and(|stat| stat.rsplit(')').next().unwrap_or("").trim().starts_with('T'))
    })
    .await;
}

/// One consumer pauses itself at a point, a second takes over, the first wakes.
async fn a_zombie_changes_nothing(pause: (&str, &str)) {
    let shop = Shop::open(4).await;
    let _relay = shop.relay();
    shop.slot_made().await;
    let zombie = shop.consumer(CONSUMER, &[pause, PATIENT]);
    let writer = Writer::start(&shop, 0).await;
    is_paused(&zombie).await;
    let written = writer.stop().await;

    let applied = i64::try_from(shop.effects().await.len()).unwrap();
    let _successor = shop.consumer(CONSUMER, &[]);
    assert!(applied < written, "the zombie had everything");
    shop.effects_reach(applied + 1).await;
    shop.effects_reach(written).await;

    zombie.resume();
    let writer = Writer::start(&shop, 1).await;
    until(LIMIT, "500 more orders", async || writer.written() >= 500).await;
    let more = writer.stop().await;
    shop.effects_reach(written + more).await;
    let report = shop.judge().await;
    report.assert_at_least_once();
    assert_eq!(report.applied_twice, 0, "{report}");
    shop.assert_effects_in_order().await;
}

#[tokio::test]
async fn paused_in_its_handler() {
    a_zombie_changes_nothing(("TEST_STOP_IN_HANDLER", "120")).await;
}

#[tokio::test]
async fn paused_between_compare_and_set_and_commit() {
    a_zombie_changes_nothing(("WALPOST_FAILPOINT", "consumer/before_commit@3:stop")).await;
}

#[tokio::test]
async fn paused_after_its_commit() {
    a_zombie_changes_nothing(STOPS_AFTER_COMMIT).await;
}
