use walpost_testkit::until;
use walpost_tests::{LIMIT, Shop, Writer, wake_beside_successor};

/// Relays that are paused under load and woken beside their successor.
const ZOMBIES: usize = 2;

/// `publish` is the mode of all relays.
async fn woken_zombies(publish: &str) -> walpost_testkit::Report {
    let shop = Shop::open(6).await;
    // A successor that is slow keeps the slot when the other one wakes.
    let settings =
        [("WALPOST_SINK_PUBLISH", publish), ("WALPOST_PIPELINE_WAL_SENDER_TIMEOUT_MS", "10000")];
    let start = || shop.relay_with(&settings);
    let mut relay = start();
    shop.slot_made().await;
    let writer = Writer::start(&shop, 0).await;
    for _ in 0..ZOMBIES {
        progress(&shop, &writer).await;
        let successor =
            wake_beside_successor(&relay, start, async || progress(&shop, &writer).await).await;
        // It would be the next to take over.
        relay.kill();
        relay = successor;
    }
    let written = writer.stop().await;
    until(LIMIT, "every event in the topic", async || {
        let published = shop.published().await;
        let ids: std::collections::HashSet<_> = published.iter().map(|one| &one.id).collect();
        ids.len() as i64 >= written
    })
    .await;
    shop.judge_published().await
}

/// Waits until a good deal more is written, and the relay has confirmed some of
/// it.
async fn progress(shop: &Shop, writer: &Writer) {
    let client = shop.connect().await;
    let confirmed = async || -> String {
        let sql = "select confirmed_lsn::text from walpost.checkpoint";
        client.query_one(sql, &[]).await.unwrap().get(0)
    };
    let (written, before) = (writer.written(), confirmed().await);
    until(LIMIT, "progress of relay and writer", async || {
        writer.written() >= written + 200 && confirmed().await != before
    })
    .await;
}

#[tokio::test]
#[ignore = "deep: pauses relays for half a minute"]
async fn transactional_relays_that_wake_beside_their_successors_repeat_nothing() {
    let report = woken_zombies("transactional").await;
    report.assert_exactly_once();
}

#[tokio::test]
#[ignore = "deep: pauses relays for half a minute"]
async fn idempotent_relays_that_wake_beside_their_successors_lose_and_reorder_nothing() {
    let report = woken_zombies("idempotent").await;
    // What they had on their way may come a second time: said in the promise.
    println!("{report}");
    report.assert_at_least_once();
    assert_eq!(report.reordered, 0, "{report}");
}
