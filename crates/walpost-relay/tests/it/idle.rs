//! A quiet outbox beside a table that makes all the WAL.

use std::time::{Duration, Instant};

use tokio::time::MissedTickBehavior;
use tokio_postgres::Client;
use walpost_relay::RelayConfig;
use walpost_testkit::{local::Postgres, until};

use crate::rig::{Rig, SOON, stop};

const MB: i64 = 1 << 20;
/// Of other WAL, while the bounds are looked at.
const STEADY_MB_PER_S: u64 = 20;
/// Above the slot's position while the WAL comes at that rate: three seconds'
/// worth.
const UNCONFIRMED_MAX_MB: i64 = 60;
/// Kept by the slot meanwhile: the server notes every 15 s where decoding may
/// begin.
const KEPT_MAX_MB: i64 = 20 * 20;

/// How long and how large, `WALPOST_TEST_IDLE=full` or for every day, and how
/// long the burst may be followed: for every day beside other tests, which take
/// the server's processors.
fn size() -> (Duration, i64, Duration) {
    match std::env::var("WALPOST_TEST_IDLE").as_deref() {
        Ok("full") => (Duration::from_secs(60), 2048, Duration::from_secs(5)),
        _ => (Duration::from_secs(6), 256, Duration::from_secs(25)),
    }
}

/// About a megabyte of WAL in one transaction.
const MEGABYTE: &str = "insert into busy select repeat('x', 7400) from generate_series(1, 140)";

struct Distance {
    unconfirmed: i64,
    kept: i64,
}

async fn distance(rig: &Rig) -> Distance {
    let row = rig
        .client
        .query_one(
            "select pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::int8, \
             pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8 \
             from pg_replication_slots where slot_name = $1",
            &[&rig.config.slot],
        )
        .await
        .unwrap();
    Distance { unconfirmed: row.get(0), kept: row.get(1) }
}

async fn written(client: &Client, since: &str) -> i64 {
    let query = format!("select pg_wal_lsn_diff(pg_current_wal_lsn(), '{since}')::int8");
    client.query_one(&query, &[]).await.unwrap().get(0)
}

/// Writes at a steady rate, and no less than that in all; the largest distances
/// seen.
async fn steadily(rig: &Rig, writer: &Client, lasting: Duration, least: i64) -> Distance {
    let mut pace = tokio::time::interval(Duration::from_millis(1000 / STEADY_MB_PER_S));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut worst = Distance { unconfirmed: 0, kept: 0 };
    let since = rig.lsn("select pg_current_wal_lsn()::text").await.to_string();
    let began = Instant::now();
    while began.elapsed() < lasting || written(writer, &since).await < least {
        pace.tick().await;
        writer.batch_execute(MEGABYTE).await.unwrap();
        let now = distance(rig).await;
        worst.unconfirmed = worst.unconfirmed.max(now.unconfirmed);
        worst.kept = worst.kept.max(now.kept);
    }
    worst
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn beside_a_busy_table_little_is_kept_and_a_burst_is_followed_in_seconds() {
    let (lasting, burst_mb, follow) = size();
    let server = Postgres::builder().throwaway().start().unwrap();
    let mut rig = Rig::on_local(Box::leak(Box::new(server))).await;
    rig.config.checkpoint_interval_ms = RelayConfig::new("default").checkpoint_interval_ms;
    let relay = rig.streaming().await;
    let writer = rig.database.connect().await.unwrap();
    let busy = "create table busy (filler text); \
                alter table busy alter column filler set storage plain";
    writer.batch_execute(busy).await.unwrap();

    // As much as half the rate brings, or the bounds say nothing.
    let least = lasting.as_secs() as i64 * 10 * MB;
    let mut worst = steadily(&rig, &writer, lasting, least).await;
    // A relay that got no processor for seconds has to do it again, for longer, and
    // one that does not follow never does.
    for _ in 0..2 {
        if worst.unconfirmed > UNCONFIRMED_MAX_MB * MB {
            let again = steadily(&rig, &writer, 3 * lasting, 3 * least).await;
            worst = Distance { kept: worst.kept.max(again.kept), ..again };
        }
    }
    assert!(worst.unconfirmed <= UNCONFIRMED_MAX_MB * MB, "{} MB", worst.unconfirmed / MB);
    assert!(worst.kept <= KEPT_MAX_MB * MB, "{} MB", worst.kept / MB);

    let before = rig.lsn("select pg_current_wal_lsn()::text").await.to_string();
    let burst_began = Instant::now();
    while written(&writer, &before).await < burst_mb * MB {
        writer.batch_execute(MEGABYTE).await.unwrap();
    }
    let (burst_took, ended) = (burst_began.elapsed(), Instant::now());
    let behind_it = rig.lsn("select pg_current_wal_insert_lsn()::text").await;
    let behind = distance(&rig).await.unconfirmed;
    let confirmed = async || rig.slot_position().await >= behind_it;
    until(follow, "the confirmed position behind the burst", confirmed).await;
    let confirmed_after = ended.elapsed();
    let restart = format!(
        "select restart_lsn::text from pg_replication_slots where slot_name = '{}'",
        rig.config.slot
    );
    let freed = async || rig.lsn(&restart).await >= behind_it;
    until(
        (follow + Duration::from_secs(25)).saturating_sub(ended.elapsed()),
        "the WAL freed",
        freed,
    )
    .await;
    println!(
        "{lasting:?}: at most {} MB unconfirmed, {} MB kept; burst of {burst_mb} MB in \
         {burst_took:?}, {} MB unconfirmed at its end; confirmed after {confirmed_after:?}, freed \
         after {:?}",
        worst.unconfirmed / MB,
        worst.kept / MB,
        behind / MB,
        ended.elapsed()
    );

    rig.insert("a", &["1"]).await;
    let landed = async || rig.world.values() == ["1"];
    until(SOON, "the event behind it", landed).await;
    stop(relay).await;
}
