//! `walpost run` with destinations, killed again and again under load, with
//! receivers that refuse some requests and lose some of their answers. Apart from
//! `faults`, so that they do not run beside those.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod camel_case;
mod outbox;
mod retention;

use std::{collections::BTreeSet, path::Path};

use walpost_migrate::{Migrator, Set};
use walpost_testkit::{Process, postgres, until};
use walpost_tests::{
    LIMIT, POLLED_COLUMNS, Receiver, Shop, Writer,
    chaos::{WebhookSetting, webhook_blows, webhooks},
    rises_to, seeded, walpost_binary,
};

const RECEIVER: &str = env!("CARGO_BIN_EXE_walpost-test-receiver");

const KILLS: usize = 6;
const LOST_PERCENT: usize = 5;
/// One of each fault.
const ROUNDS: usize = 8;

/// Of destinations that are tried again soon, and whose claims end soon after a
/// kill.
const FOR_ALL: [&str; 6] = [
    "sink.kind=webhook",
    "destination.allow_http=true",
    "destination.allow_private_networks=true",
    "destination.retry_waits=50ms",
    "destination.retry_limit=1000",
    "destination.timeout_ms=1000",
];

/// Of pollers whose claims end soon after a kill.
const POLLING: [&str; 3] = [
    "polling.poll_interval_ms=20",
    "polling.send_timeout_ms=1000",
    "polling.claim_timeout_ms=6000",
];

fn start(shop: &Shop, receivers: [&Receiver; 2], source: &str) -> Process {
    let mut sets: Vec<String> = FOR_ALL.map(str::to_owned).to_vec();
    sets.push("destination.lease_ms=6000".to_owned());
    sets.push(format!("destination.orders.url={}", receivers[0].url()));
    sets.push("destination.orders.events=Pla*".to_owned());
    sets.push(format!("destination.audit.url={}", receivers[1].url()));
    sets.push("destination.audit.key=delivery".to_owned());
    sets.push(format!("destination.nothing.url={}", receivers[1].url()));
    sets.push("destination.nothing.events=Cancelled".to_owned());
    sets.push(format!("pipeline.source={source}"));
    sets.extend(POLLING.map(str::to_owned));
    let args = sets.iter().flat_map(|set| ["--set", set]);
    shop.walpost(["run"].into_iter().chain(args))
}

async fn each_event_arrives(source: &str) {
    let mut seeded = seeded();
    let shop = Shop::without_topic(postgres()).await;
    let mut client = shop.connect().await;
    Migrator::new().set(Set::Webhook).migrate(&mut client).await.unwrap();
    if source == "polling" {
        client.batch_execute(POLLED_COLUMNS).await.unwrap();
    }
    let seeds = [seeded.below(1_000) as u64, seeded.below(1_000) as u64];
    let orders = Receiver::start(seeds[0], LOST_PERCENT).await;
    let audit = Receiver::start(seeds[1], LOST_PERCENT).await;
    let mut running = start(&shop, [&orders, &audit], source);
    if source == "native" {
        shop.slot_made().await;
    }
    let writer = Writer::start(&shop, 0).await;
    for _ in 0..KILLS {
        let target = orders.seen().len() + 1 + seeded.below(300);
        until(LIMIT, "progress between two kills", async || orders.seen().len() >= target).await;
        running.kill();
        running = start(&shop, [&orders, &audit], source);
    }
    let written = writer.stop().await;
    // What was rolled back is no event.
    let tx = client.transaction().await.unwrap();
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                  values ('order', 'never', 'Placed', '{}')";
    tx.execute(insert, &[]).await.unwrap();
    tx.rollback().await.unwrap();
    let delivered = "select count(*) from walpost.webhook_delivery where state = 'delivered'";
    let count = async |sql: &str| -> i64 { client.query_one(sql, &[]).await.unwrap().get(0) };
    rises_to(2 * written, "deliveries", async || count(delivered).await).await;
    assert!(running.terminate(LIMIT).success(), "{}", running.log());
    assert_eq!(count("select count(*) from walpost.webhook_delivery").await, 2 * written);
    let committed: BTreeSet<String> =
        shop.committed().await.into_iter().map(|event| event.id).collect();
    assert_eq!(committed.len() as i64, written);
    let seen = orders.seen();
    assert_eq!(seen.keys().cloned().collect::<BTreeSet<_>>(), committed);
    let copies: u64 = seen.values().map(|count| count - 1).sum();
    assert!(copies > 0, "no answer was lost: nothing was tried");
    let audited: BTreeSet<String> = committed.iter().map(|id| format!("{id}:audit")).collect();
    assert_eq!(audit.seen().into_keys().collect::<BTreeSet<_>>(), audited);
    println!("{written} events, {copies} copies at the first receiver");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_senders_and_lost_answers_lose_no_event_and_make_no_second_delivery() {
    each_event_arrives("native").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_pollers_make_no_second_delivery_of_what_they_claim_again() {
    each_event_arrives("polling").await;
}

/// What `cargo xtask chaos webhook` runs at full size, in small: so the harness
/// stays true.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: takes a minute"]
async fn a_few_rounds_of_chaos_lose_no_webhook_and_apply_none_twice() {
    let mut seeded = seeded();
    let setting = WebhookSetting {
        walpost: walpost_binary(),
        receiver: RECEIVER.into(),
        seed: seeded.number(),
        folder: Path::new(env!("CARGO_TARGET_TMPDIR")).join("webhooks"),
        keep: false,
        progress: false,
    };
    let outcome = Box::pin(webhooks(setting, &webhook_blows(ROUNDS, &mut seeded))).await;
    assert_eq!(outcome.violations(), [""; 0], "{outcome:#?}");
}
