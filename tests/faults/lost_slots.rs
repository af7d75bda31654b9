use walpost_testkit::{Process, Seeded, until};
use walpost_tests::{LIMIT, Shop, Writer, seeded};

use crate::CONSUMER;

/// Slots that are lost, each with kills of the relay that replaces it.
const LOSSES: usize = 5;
const KILLS_WITHIN: usize = 3;
/// Steps of a recovery, each true from then on: the row has another generation,
/// there is another slot, the row has its snapshot, nothing is left.
const STEPS: [&str; 4] = [
    "generation <> $1",
    "generation <> $1 and slot in (select slot_name from pg_replication_slots)",
    "generation <> $1 and (recovery is null or recovery ->> 'snapshot' is not null)",
    "generation <> $1 and recovery is null",
];

async fn count(shop: &Shop, sql: &str) -> i64 {
    shop.connect().await.query_one(sql, &[]).await.unwrap().get(0)
}

fn relay(shop: &Shop) -> Process {
    shop.relay_with(&[("WALPOST_PIPELINE_ON_LOST_SLOT", "recover")])
}

async fn drop_slot(shop: &Shop) {
    let client = shop.connect().await;
    let slot = format!("walpost_{}", shop.name);
    let free = format!(
        "select count(*) from pg_replication_slots where slot_name = '{slot}' and not active"
    );
    until(LIMIT, "the slot is free", async || {
        client.query_one(&free, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    let drop = format!("select pg_drop_replication_slot('{slot}')");
    client.batch_execute(&drop).await.unwrap();
}

async fn progress(shop: &Shop, seeded: &mut Seeded) {
    let effects = "select count(*) from effect";
    let target = count(shop, effects).await + 1 + seeded.below(300) as i64;
    until(LIMIT, "progress", async || count(shop, effects).await >= target).await;
}

async fn step(shop: &Shop, step: &str, before: i64) {
    let client = shop.connect().await;
    let query = format!("select count(*) from walpost.checkpoint where {step}");
    until(LIMIT, step, async || {
        client.query_one(&query, &[&before]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
}

#[tokio::test]
#[ignore = "deep: kills for a minute"]
async fn slots_lost_again_and_again_with_kills_at_any_step_lose_and_repeat_nothing() {
    let mut seeded = seeded();
    let shop = Shop::open(6).await;
    let mut running = relay(&shop);
    let consumer = shop.consumer(CONSUMER, &[]);
    shop.slot_made().await;
    let writers = [Writer::start(&shop, 0).await, Writer::start(&shop, 1).await];
    for _ in 0..LOSSES {
        progress(&shop, &mut seeded).await;
        running.kill();
        drop_slot(&shop).await;
        let before = count(&shop, "select generation from walpost.checkpoint").await;
        for _ in 0..seeded.below(KILLS_WITHIN + 1) {
            running = relay(&shop);
            step(&shop, STEPS[seeded.below(STEPS.len())], before).await;
            running.kill();
        }
        running = relay(&shop);
        step(&shop, STEPS[3], before).await;
    }
    let mut written = 0;
    for writer in writers {
        written += writer.stop().await;
    }
    shop.effects_reach(written).await;
    let report = shop.judge().await;
    println!("{report}");
    report.assert_exactly_once();
    shop.assert_effects_in_order().await;
    drop((running, consumer));
}
