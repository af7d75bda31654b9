//! Four pipelines over one outbox, killed, while a tenant moves between two of
//! them.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use tokio::task::JoinHandle;
use walpost_outbox::{NewEvent, OutboxTable, write};
use walpost_testkit::{Process, Seeded, kafka, until};
use walpost_tests::{LIMIT, Shop, Writer, seeded, walpost_binary};

const PIPELINES: usize = 4;
const KILLS: usize = 4;

fn filter(pipeline: usize) -> String {
    format!("aggregateid like '{pipeline}-%'")
}

fn name(shop: &Shop, pipeline: usize) -> String {
    format!("{}_{pipeline}", shop.name)
}

fn relay(shop: &Shop, pipeline: usize) -> Process {
    let (name, filter) = (name(shop, pipeline), filter(pipeline));
    let slot = format!("walpost_{name}");
    shop.relay_with(&[
        ("WALPOST_PIPELINE_NAME", &name),
        ("WALPOST_PIPELINE_SLOT", &slot),
        ("WALPOST_PIPELINE_ROW_FILTER", &filter),
    ])
}

/// Writes to one aggregate of tenant 0, in transactions that stay open while
/// others commit.
struct Slow {
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Slow {
    async fn start(shop: &Shop) -> Self {
        let (mut client, look) = (shop.connect().await, shop.connect().await);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, seq) = (stop.clone(), AtomicI64::new(0));
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                let committed = async || -> i64 {
                    let count = "select count(*) from shop_order";
                    look.query_one(count, &[]).await.unwrap().get(0)
                };
                let before = committed().await;
                let tx = client.transaction().await.unwrap();
                for part in 0..2 {
                    let seq = seq.fetch_add(1, Ordering::Relaxed);
                    let event = NewEvent::new("order", "0-slow", "Placed")
                        .json(&serde_json::json!({ "seq": seq }))
                        .unwrap();
                    write(&tx, &OutboxTable::default(), &event).await.unwrap();
                    // A move keeps the others from writing while it waits for us.
                    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(1);
                    while part == 0
                        && committed().await < before + 40
                        && tokio::time::Instant::now() < deadline
                    {
                        tokio::task::yield_now().await;
                    }
                }
                tx.commit().await.unwrap();
            }
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
    }
}

async fn rows(shop: &Shop, sql: &str) -> i64 {
    shop.connect().await.query_one(sql, &[]).await.unwrap().get(0)
}

async fn progress(shop: &Shop, seeded: &mut Seeded) {
    let count = "select count(*) from walpost.outbox";
    let target = rows(shop, count).await + 1 + seeded.below(400) as i64;
    until(LIMIT, "progress", async || rows(shop, count).await >= target).await;
}

async fn all_started(shop: &Shop) {
    let started =
        "select count(*) from walpost.checkpoint where initial = 'done' and recovery is null";
    until(LIMIT, "all slots", async || rows(shop, started).await == PIPELINES as i64).await;
}

/// Tenant 0 from `from` to `to`, as `walpost pipeline move` does it; again while
/// the writers leave it no moment.
fn move_tenant(shop: &Shop, from: (usize, &str), to: (usize, &str)) {
    let arguments = |yes: bool| {
        let mut command = Command::new(walpost_binary());
        command.env("WALPOST_POSTGRES_URL", shop.database.url()).args([
            "pipeline",
            "move",
            "--kafka",
            kafka().bootstrap(),
            "--from",
            &name(shop, from.0),
            "--filter-from",
            from.1,
            "--to",
            &name(shop, to.0),
            "--filter-to",
            to.1,
        ]);
        if yes {
            command.args(["--yes", "--lock-timeout-ms", "20000"]);
        }
        // The writers go on meanwhile.
        let output = tokio::task::block_in_place(|| command.output()).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        text
    };
    assert!(arguments(false).contains("nothing was done; --yes does it"));
    assert!(arguments(true).contains("moved, as number"));
}

async fn crossed(shop: &Shop, moves: i64) {
    let crossed = "select count(*) from walpost.move where crossed_at is not null";
    until(LIMIT, "the boundary is crossed", async || rows(shop, crossed).await == moves).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: kills for half a minute"]
async fn four_pipelines_over_one_table_with_kills_and_moves_lose_repeat_and_reorder_nothing() {
    let mut seeded = seeded();
    let shop = Shop::open(6).await;
    let mut relays: Vec<Process> = (0..PIPELINES).map(|pipeline| relay(&shop, pipeline)).collect();
    all_started(&shop).await;
    let mut writers = Vec::new();
    for number in 0..PIPELINES {
        writers.push(Writer::start(&shop, number).await);
    }
    let slow = Slow::start(&shop).await;
    let rest = format!("{} or {}", filter(0), filter(1));
    for round in 0..2 {
        for _ in 0..KILLS / 2 {
            progress(&shop, &mut seeded).await;
            let pipeline = seeded.below(PIPELINES);
            relays[pipeline].kill();
            relays[pipeline] = relay(&shop, pipeline);
        }
        progress(&shop, &mut seeded).await;
        // The giver is behind, and dies again after the move; so does the receiver.
        let (giver, receiver) = if round == 0 { (0, 1) } else { (1, 0) };
        relays[giver].kill();
        progress(&shop, &mut seeded).await;
        match round {
            0 => move_tenant(&shop, (0, "false"), (1, &rest)),
            _ => move_tenant(&shop, (1, &filter(1)), (0, &filter(0))),
        }
        progress(&shop, &mut seeded).await;
        relays[receiver].kill();
        relays[receiver] = relay(&shop, receiver);
        relays[giver] = relay(&shop, giver);
        progress(&shop, &mut seeded).await;
        for pipeline in [giver, receiver] {
            relays[pipeline].kill();
            relays[pipeline] = relay(&shop, pipeline);
        }
        crossed(&shop, round + 1).await;
    }
    for writer in writers {
        writer.stop().await;
    }
    slow.stop().await;
    let committed = shop.committed().await.len();
    until(LIMIT, "all is published", async || shop.published().await.len() >= committed).await;
    let report = shop.judge_published().await;
    println!("{report}");
    report.assert_exactly_once();
    drop(relays);
}
