use walpost_testkit::{Seeded, until};
use walpost_tests::{LIMIT, Shop, Writer, seeded};

use crate::CONSUMER;

const KILLS: usize = 20;
/// So that a killed member is missed soon.
const SETTINGS: [(&str, &str); 1] = [("TEST_SESSION_TIMEOUT_MS", "3000")];

/// Waits until between 1 and 400 more effects are there: a random moment, and
/// progress between two kills.
async fn some_progress(shop: &Shop, seeded: &mut Seeded) {
    let client = shop.connect().await;
    let count = async || -> i64 {
        client.query_one("select count(*) from effect", &[]).await.unwrap().get(0)
    };
    let target = count().await + 1 + seeded.below(400) as i64;
    until(LIMIT, "progress between two kills", async || count().await >= target).await;
}

/// A mode for each life of the relay: what it fences off and what it reads back
/// is that of the life before.
const MODES: [&str; 3] = ["transactional", "idempotent", "transactional"];

#[tokio::test]
#[ignore = "deep: kills for minutes"]
async fn kills_with_another_mode_each_time_lose_and_repeat_nothing() {
    let mut seeded = seeded();
    let shop = Shop::open(6).await;
    let mut modes = MODES.iter().cycle();
    let mut start = || shop.relay_with(&[("WALPOST_SINK_PUBLISH", modes.next().unwrap())]);
    let mut relay = start();
    let consumer = shop.consumer(CONSUMER, &SETTINGS);
    shop.slot_made().await;
    let writer = Writer::start(&shop, 0).await;
    for _ in 0..KILLS / 2 {
        some_progress(&shop, &mut seeded).await;
        relay.kill();
        relay = start();
    }
    let written = writer.stop().await;
    shop.effects_reach(written).await;
    let report = shop.judge().await;
    println!("{report}");
    report.assert_exactly_once();
    shop.assert_effects_in_order().await;
    drop((relay, consumer));
}

#[tokio::test]
#[ignore = "deep: kills for minutes"]
async fn twenty_kills_of_each_lose_nothing_apply_nothing_twice_and_keep_order() {
    let mut seeded = seeded();
    let shop = Shop::open(6).await;
    let mut relay = shop.relay();
    let mut consumer = shop.consumer(CONSUMER, &SETTINGS);
    shop.slot_made().await;
    let writers = [Writer::start(&shop, 0).await, Writer::start(&shop, 1).await];
    let mut left = [KILLS, KILLS];
    while left != [0, 0] {
        some_progress(&shop, &mut seeded).await;
        let relay_next = left[1] == 0 || (left[0] > 0 && seeded.chance(50));
        if relay_next {
            relay.kill();
            relay = shop.relay();
            left[0] -= 1;
        } else {
            consumer.kill();
            consumer = shop.consumer(CONSUMER, &SETTINGS);
            left[1] -= 1;
        }
    }
    let mut written = 0;
    for writer in writers {
        written += writer.stop().await;
    }
    shop.effects_reach(written).await;
    let report = shop.judge().await;
    println!("{report}");
    report.assert_at_least_once();
    assert_eq!(report.applied_twice, 0, "{report}");
    assert_eq!(report.published_twice, 0, "{report}");
    shop.assert_effects_in_order().await;
    drop((relay, consumer));
}
