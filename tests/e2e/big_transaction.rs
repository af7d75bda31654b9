//! One transaction of many rows: it is published as it was committed, and the
//! memory of the relay does not grow with it, nor with what its successor reads
//! back.

use std::time::Duration;

use walpost_testkit::{Process, Report, end_offsets, judge, kafka, until};
use walpost_tests::{LIMIT, Shop};

const RSS_LIMIT_MB: u64 = 128;
/// For a program without optimisation, beside other tests.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(300);

/// Writes `rows` events in one transaction; each aggregate has many. Returns a WAL
/// position at or before the commit record and behind all else.
async fn commit(shop: &Shop, rows: i64) -> String {
    let mut client = shop.connect().await;
    let tx = client.transaction().await.unwrap();
    let insert = format!(
        "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
         select 'order', 'customer-' || n % 1000, 'Placed', \
         jsonb_build_object('seq', n, 'note', repeat(md5(n::text), 8)) \
         from generate_series(1, {rows}) n"
    );
    tx.execute(&insert, &[]).await.unwrap();
    let position = tx.query_one("select pg_current_wal_insert_lsn()::text", &[]).await.unwrap();
    tx.commit().await.unwrap();
    position.get(0)
}

async fn records_reach(shop: &Shop, count: i64) {
    until(PUBLISHED_WITHIN, &format!("{count} records"), async || {
        end_offsets(kafka().bootstrap(), &shop.topic).await.iter().sum::<i64>() >= count
    })
    .await;
}

/// Waits until the whole transaction is behind the pipeline's checkpoint.
async fn is_done(shop: &Shop, before_commit: &str) {
    let client = shop.connect().await;
    let sql = format!(
        "select coalesce(bool_or(confirmed_lsn > '{before_commit}'), false) \
         from walpost.checkpoint where pipeline = '{}'",
        shop.name
    );
    until(PUBLISHED_WITHIN, "a checkpoint behind the transaction", async || {
        client.query_one(&sql, &[]).await.unwrap().get(0)
    })
    .await;
}

/// What the oracle says of outbox and topic.
async fn verdict(shop: &Shop) -> Report {
    judge(&shop.committed().await, &shop.published().await, None)
}

/// Fails when the process ever had more memory resident than it may.
fn assert_small(relay: &Process) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", relay.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kb: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    println!("peak RSS: {} MB", peak_kb / 1024);
    assert!(peak_kb <= RSS_LIMIT_MB * 1024, "{peak_kb} kB, more than {RSS_LIMIT_MB} MB");
}

#[tokio::test]
#[ignore = "deep: a transaction of 300,000 rows"]
async fn one_transaction_of_300_000_rows_takes_little_memory_and_nothing_of_it_comes_twice() {
    let rows = 300_000;
    let shop = Shop::open(6).await;
    let relay = shop.relay();
    shop.slot_made().await;
    let before_commit = commit(&shop, rows).await;
    is_done(&shop, &before_commit).await;
    assert_small(&relay);
    assert!(relay.terminate(LIMIT).success());
    let report = verdict(&shop).await;
    assert_eq!(report.committed, rows as u64);
    report.assert_exactly_once();
}

#[tokio::test]
#[ignore = "deep: a transaction of 300,000 rows"]
async fn a_kill_within_a_large_transaction_loses_and_repeats_none_of_it_and_costs_no_memory() {
    let rows = 200_000;
    let shop = Shop::open(6).await;
    let relay = shop.relay();
    shop.slot_made().await;
    let before_commit = commit(&shop, rows).await;
    records_reach(&shop, rows / 3).await;
    assert_small(&relay);
    relay.kill();

    let relay = shop.relay();
    is_done(&shop, &before_commit).await;
    assert_small(&relay);
    assert!(relay.terminate(LIMIT).success());
    let report = verdict(&shop).await;
    assert_eq!(report.committed, rows as u64);
    report.assert_exactly_once();
}
