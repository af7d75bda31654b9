//! An outbox that is polled by several programs, and their deaths.

use std::process::Command;

use tokio_postgres::Client;
use walpost_testkit::{
    Committed, Process, Published, Seeded, create_topic, judge, local::Kafka, read_all, until,
};
use walpost_tests::{LIMIT, POLLED_COLUMNS, Shop, Writer, rises_to, walpost_binary};

/// Pollers at once.
const POLLERS: usize = 4;
/// Kills by default, and with `WALPOST_TEST_POLLING=full`.
const KILLS: usize = 12;
const KILLS_FULL: usize = 200;
/// Rows of a claim: the most that one kill can repeat.
const CLAIM_MAX_EVENTS: u64 = 100;

const SETTINGS: [(&str, &str); 5] = [
    ("WALPOST_PIPELINE_SOURCE", "polling"),
    ("WALPOST_POLLING_POLL_INTERVAL_MS", "20"),
    ("WALPOST_POLLING_CLAIM_MAX_EVENTS", "100"),
    ("WALPOST_POLLING_CLAIM_MAX_AGGREGATES", "10"),
    ("WALPOST_POLLING_AGGREGATE_MAX_EVENTS", "20"),
];

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

const PUBLISHED: &str = "select count(*) from walpost.outbox where status = 'PUBLISHED'";
const UNPUBLISHED: &str = "select count(*) from walpost.outbox where status <> 'PUBLISHED'";

async fn all_are_published(client: &Client) {
    let rows = number(client, "select count(*) from walpost.outbox").await;
    rises_to(rows, "rows published", async || number(client, PUBLISHED).await).await;
}

/// Transactions that commit long after they have written, and after many others
/// that began later.
async fn commit_late(shop: &Shop, transactions: usize) {
    let client = shop.connect().await;
    for late in 0..transactions {
        let mut writer = shop.connect().await;
        let open = writer.transaction().await.unwrap();
        let insert = format!(
            "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
             values ('order', 'late-{late}', 'Placed', '1'), ('order', 'late-{late}', 'Placed', '2')"
        );
        open.batch_execute(&insert).await.unwrap();
        let before = number(&client, PUBLISHED).await;
        until(LIMIT, "rows that overtake", async || {
            number(&client, PUBLISHED).await >= before + 50
        })
        .await;
        open.commit().await.unwrap();
    }
}

#[tokio::test]
async fn killed_pollers_lose_and_reorder_nothing_and_repeat_no_more_than_their_claims() {
    let is_full = std::env::var("WALPOST_TEST_POLLING").is_ok_and(|value| value == "full");
    let kills = if is_full { KILLS_FULL } else { KILLS };
    let mut seeded = Seeded::new(u64::from(std::process::id()));
    let shop = Shop::open(6).await;
    let client = shop.connect().await;
    client.batch_execute(POLLED_COLUMNS).await.unwrap();
    let mut pollers: Vec<Process> = (0..POLLERS).map(|_| shop.relay_with(&SETTINGS)).collect();
    let writers = [Writer::start(&shop, 0).await, Writer::start(&shop, 1).await];
    let killing = async {
        for _ in 0..kills {
            let target = number(&client, PUBLISHED).await + 1 + seeded.below(150) as i64;
            until(LIMIT, "progress", async || number(&client, PUBLISHED).await >= target).await;
            let one = seeded.below(POLLERS);
            pollers[one].kill();
            pollers[one] = shop.relay_with(&SETTINGS);
        }
    };
    tokio::join!(killing, commit_late(&shop, kills / 2));
    for writer in writers {
        writer.stop().await;
    }
    all_are_published(&client).await;
    drop(pollers);
    let report = shop.judge_published().await;
    println!("{kills} kills: {report}");
    report.assert_at_least_once();
    let copies_max = kills as u64 * CLAIM_MAX_EVENTS;
    assert!(report.published_twice <= copies_max, "at most {copies_max} copies: {report}");
}

#[tokio::test]
#[ignore = "deep: pauses pollers for half a minute"]
async fn pollers_that_wake_beside_their_successors_reorder_nothing() {
    let shop = Shop::open(6).await;
    let client = shop.connect().await;
    client.batch_execute(POLLED_COLUMNS).await.unwrap();
    let mut settings = SETTINGS.to_vec();
    settings.push(("WALPOST_POLLING_SEND_TIMEOUT_MS", "1000"));
    settings.push(("WALPOST_POLLING_CLAIM_TIMEOUT_MS", "6000"));
    let pollers = [shop.relay_with(&settings), shop.relay_with(&settings)];
    let writer = Writer::start(&shop, 0).await;
    let progress = async |rows: i64| {
        let target = number(&client, PUBLISHED).await + rows;
        until(LIMIT, "progress", async || number(&client, PUBLISHED).await >= target).await;
    };
    progress(100).await;
    for paused in [0, 1] {
        pollers[paused].pause();
        progress(400).await;
        let now = client.query_one("select clock_timestamp()::text", &[]).await.unwrap();
        // What it has begun is older, and nobody else is slow.
        let held = format!(
            "select count(*) from pg_stat_activity where datname = current_database() \
             and xact_start <= '{}'",
            now.get::<_, String>(0)
        );
        until(LIMIT, "its claim is given up", async || number(&client, &held).await == 0).await;
        pollers[paused].resume();
        progress(100).await;
    }
    writer.stop().await;
    all_are_published(&client).await;
    let report = shop.judge_published().await;
    println!("{report}");
    report.assert_at_least_once();
    drop(pollers);
}

fn poller(shop: &Shop, broker: &Kafka, more: &[(&str, &str)]) -> Process {
    let replacement = format!("{}.${{routedByValue}}", shop.name);
    let mut env = vec![
        ("WALPOST_POSTGRES_URL", shop.database.url()),
        ("WALPOST_PIPELINE_NAME", shop.name.as_str()),
        ("WALPOST_ROUTER_TOPIC_REPLACEMENT", replacement.as_str()),
        ("WALPOST_HTTP_LISTEN", ""),
        ("WALPOST_POLLING_SEND_TIMEOUT_MS", "1000"),
        ("WALPOST_POLLING_RETRY_DELAYS", "400ms,800ms"),
        ("WALPOST_POLLING_MAX_ATTEMPTS", "2"),
    ];
    env.extend_from_slice(&SETTINGS);
    env.extend_from_slice(more);
    Process::start(walpost_binary(), ["run", "--kafka", &broker.bootstrap()], env)
}

async fn insert(client: &Client, aggregate: &str) {
    let sql = format!(
        "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
         values ('order', '{aggregate}', 'Placed', '1'), ('order', '{aggregate}', 'Placed', '2')"
    );
    client.batch_execute(&sql).await.unwrap();
}

fn requeue(shop: &Shop, which: &str) -> String {
    let done = Command::new(walpost_binary())
        .args(["requeue", which, "--json", "--kafka", "unused:1"])
        .env("WALPOST_POSTGRES_URL", shop.database.url())
        .env("WALPOST_PIPELINE_NAME", &shop.name)
        .env("WALPOST_PIPELINE_SOURCE", "polling")
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[tokio::test]
#[ignore = "deep: a broker of its own"]
async fn a_topic_that_is_created_later_is_used_without_a_restart_and_what_waits_can_be_hurried() {
    let broker = Kafka::builder().start().unwrap();
    let shop = Shop::open(1).await;
    let client = shop.connect().await;
    client.batch_execute(POLLED_COLUMNS).await.unwrap();
    let settings =
        [("WALPOST_POLLING_RETRY_DELAYS", "4h"), ("WALPOST_POLLING_SEND_TIMEOUT_MS", "20000")];
    let relay = poller(&shop, &broker, &settings);
    insert(&client, "a").await;
    let waits = "select count(*) from walpost.outbox where status = 'NEW' and attempts = 1 \
                 and last_error like '%does not exist%'";
    until(LIMIT, "a row that waits for hours", async || number(&client, waits).await == 1).await;
    create_topic(&broker.bootstrap(), &shop.topic, 1, &[]).await;
    let mut aggregates = 0;
    until(LIMIT, "an aggregate published", async || {
        aggregates += 1;
        insert(&client, &format!("b{aggregates}")).await;
        number(&client, PUBLISHED).await > 0
    })
    .await;
    until(LIMIT, "every row published", async || {
        requeue(&shop, "--waiting");
        number(&client, UNPUBLISHED).await == 0
    })
    .await;
    drop(relay);
}

#[tokio::test]
#[ignore = "deep: a broker of its own"]
async fn without_brokers_attempts_grow_and_rows_wait_or_fail_as_configured_and_come_back() {
    let broker = Kafka::builder().start().unwrap();
    let shop = Shop::open(1).await;
    create_topic(&broker.bootstrap(), &shop.topic, 1, &[]).await;
    let client = shop.connect().await;
    client.batch_execute(POLLED_COLUMNS).await.unwrap();
    let waiting = poller(&shop, &broker, &[]);
    insert(&client, "a").await;
    until(LIMIT, "two rows published", async || number(&client, PUBLISHED).await == 2).await;
    broker.kill().unwrap();
    insert(&client, "b").await;
    let grown = "select count(*) from walpost.outbox where status = 'NEW' and attempts >= 3 \
                 and next_attempt_at is not null and last_error is not null";
    until(LIMIT, "more attempts than a row may have", async || number(&client, grown).await >= 1)
        .await;
    waiting.kill();
    let failing = poller(&shop, &broker, &[("WALPOST_POLLING_MAX_ATTEMPTS_APPLIES_TO", "all")]);
    let failed = "select count(*) from walpost.outbox where status = 'FAILED'";
    until(LIMIT, "a failed row", async || number(&client, failed).await >= 1).await;
    broker.start().unwrap();
    until(LIMIT, "rows requeued", async || {
        requeue(&shop, "--all");
        number(&client, UNPUBLISHED).await == 0
    })
    .await;
    let stamped = "select count(*) from walpost.outbox where published_at is not null";
    assert_eq!(number(&client, stamped).await, 4);
    drop(failing);
    let rows = client
        .query("select id::text, aggregateid from walpost.outbox order by seq", &[])
        .await
        .unwrap();
    let committed: Vec<Committed> =
        rows.iter().map(|row| Committed { id: row.get(0), aggregate: row.get(1) }).collect();
    let published: Vec<Published> = read_all(&broker.bootstrap(), &shop.topic)
        .await
        .iter()
        .map(|record| Published {
            id: record.header_text("id").unwrap_or_default().to_owned(),
            partition: record.partition,
            offset: record.offset,
        })
        .collect();
    judge(&committed, &published, None).assert_at_least_once();
}
