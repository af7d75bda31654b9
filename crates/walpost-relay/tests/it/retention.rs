//! Rows leave the outbox, and no event is lost by it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio_postgres::{Client, error::SqlState};
use walpost_postgres::Database;
use walpost_relay::{
    LostSlot, Pruned, RelayConfig, RelayError, RetentionConfig, RunningRelay, prunable, prune,
};
use walpost_testkit::{Seeded, until};

use crate::{
    proven::proven,
    rig::{Rig, SOON, stop},
};

pub(crate) fn retention() -> RetentionConfig {
    let mut retention = RetentionConfig::default();
    (retention.batch_rows, retention.pause_ms) = (50, 0);
    retention
}

/// An event of a month ago.
pub(crate) fn old(aggregate: &str, value: &str) -> String {
    format!(
        "insert into walpost.outbox (aggregatetype, aggregateid, type, payload, created_at) \
         values ('order', '{aggregate}', 'Placed', '{value}', now() - interval '30 days')"
    )
}

pub(crate) async fn run(rig: &Rig, sql: &str) {
    rig.client.batch_execute(sql).await.unwrap();
}

/// A pass over the only table; and others, as long as the server ends the
/// session, which it does where nobody says anything for a second while a
/// partition is locked.
pub(crate) async fn pruned(rig: &Rig, retention: &RetentionConfig) -> Pruned {
    let mut ended = Vec::new();
    for _ in 0..5 {
        let mut last = None;
        let tell = |pruned: &Pruned| last = Some(pruned.clone());
        match prune(&rig.database, &rig.config, "id", retention, tell).await {
            Ok(done) => {
                let [mut done] = <[Pruned; 1]>::try_from(done).unwrap();
                ended.iter().for_each(|before| add(&mut done, before));
                return done;
            }
            Err(error) => {
                assert!(was_ended(&error), "{error:?}");
                ended.extend(last);
            }
        }
    }
    panic!("no pass came to its end");
}

/// Whether the server ended the session, in which nobody said anything.
pub(crate) fn was_ended(error: &RelayError) -> bool {
    let RelayError::Sql { source, .. } = error else { return false };
    source.code().is_none_or(|code| *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT)
}

/// What another pass has had leave.
pub(crate) fn add(done: &mut Pruned, other: &Pruned) {
    done.rows += other.rows;
    done.partitions += other.partitions;
    done.archived_rows += other.archived_rows;
    done.archived_partitions += other.archived_partitions;
}

async fn counted(rig: &Rig, retention: &RetentionConfig) -> Pruned {
    prunable(&rig.database, &rig.config, "id", retention).await.unwrap().remove(0)
}

const OUTBOX: &str = "select count(*) from walpost.outbox";
const ARCHIVE: &str = "select count(*) from walpost.outbox_archive";

#[tokio::test]
async fn only_what_is_old_and_proven_leaves_and_parked_rows_that_nothing_else_keeps_stay() {
    let mut rig = Rig::new().await;
    rig.config.max_event_bytes = 20_000;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    for value in ["2", "3", "4"] {
        run(&rig, &old("a", value)).await;
    }
    // Parked with its contents, and parked without.
    rig.world.never("5");
    run(&rig, &old("b", "5")).await;
    run(&rig, &old("c", &format!("\"{}\"", "x".repeat(30_000)))).await;
    proven(&rig, 6).await;
    rig.world.hold(true);
    run(&rig, &old("a", "6")).await;
    let found = counted(&rig, &retention()).await;
    assert_eq!((found.rows, found.not_proven, found.parked), (4, 1, 1), "{found:?}");
    assert_eq!(rig.count(OUTBOX).await, 7, "counting changes nothing");
    // Somebody looks at one of them.
    let other = rig.database.connect().await.unwrap();
    let lock = "begin; select from walpost.outbox where payload = '3' for update";
    other.batch_execute(lock).await.unwrap();
    assert_eq!(pruned(&rig, &retention()).await.rows, 3);
    other.batch_execute("rollback").await.unwrap();
    assert_eq!(pruned(&rig, &retention()).await.rows, 1);
    let left = "select string_agg(left(payload::text, 3), ' ' order by seq) from walpost.outbox";
    let left: String = rig.client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, "1 \"xx 6");
    rig.world.hold(false);
    proven(&rig, 3).await;
    assert_eq!(pruned(&rig, &retention()).await.rows, 1);
    let discard = "update walpost.parked set requested = 'discard' where reason = 'oversize'";
    run(&rig, discard).await;
    let open = "select count(*) from walpost.parked where state = 'open'";
    until(SOON, "the row is discarded", async || rig.count(open).await == 1).await;
    assert_eq!(pruned(&rig, &retention()).await.rows, 1);
    assert_eq!(rig.world.values(), ["1", "2", "3", "4", "6"]);
    stop(relay).await;
}

#[tokio::test]
async fn rows_are_in_the_outbox_or_in_the_archive_however_often_it_is_interrupted() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    let rows = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload, created_at) \
                select 'order', 'a', 'Placed', to_jsonb(n), now() - interval '30 days' \
                from generate_series(1, 2000) n";
    run(&rig, rows).await;
    proven(&rig, 2000).await;
    let mut retention = retention();
    (retention.archive_days, retention.batch_rows) = (30, 7);
    let mut left = 2000;
    for round in 0.. {
        let pass = prune(&rig.database, &rig.config, "id", &retention, |_| {});
        let whole = tokio::time::timeout(Duration::from_millis(20 + 5 * round), pass).await;
        // The server may still be at it.
        rig.unlocked("walpost retention").await;
        let (outbox, archive) = (rig.count(OUTBOX).await, rig.count(ARCHIVE).await);
        assert_eq!(outbox + archive, 2000);
        assert!(outbox <= left);
        left = outbox;
        if let Ok(done) = whole
            && outbox == 0
        {
            done.unwrap();
            break;
        }
    }
    let same = "select count(distinct id) from walpost.outbox_archive where payload is not null";
    assert_eq!(rig.count(same).await, 2000);
    run(
        &rig,
        "update walpost.outbox_archive set archived_at = now() - interval '31 days' \
               where (payload #>> '{}')::int <= 500",
    )
    .await;
    assert_eq!(counted(&rig, &retention).await.archived_rows, 500);
    let done = pruned(&rig, &retention).await;
    assert_eq!((done.rows, done.archived_rows), (0, 500));
    assert_eq!(rig.count(ARCHIVE).await, 1500);
    stop(relay).await;
}

const WRITERS: usize = 3;

/// Writes old events, some in transactions that end long after they began.
async fn write(client: Client, writer: usize, ended: Arc<AtomicBool>) -> usize {
    let mut chance = Seeded::new(writer as u64);
    let mut written = 0;
    while !ended.load(Ordering::Relaxed) {
        client.batch_execute("begin").await.unwrap();
        for _ in 0..1 + chance.below(5) {
            let value = format!("\"w{writer}:{written:06}\"");
            client.batch_execute(&old(&format!("w{writer}"), &value)).await.unwrap();
            written += 1;
        }
        let late_ms = if chance.chance(10) { chance.below(300) } else { chance.below(4) };
        let end = format!("select pg_sleep({late_ms} / 1000.0); commit");
        client.batch_execute(&end).await.unwrap();
    }
    written
}

/// Prunes again and again, and is given up half-way each time.
async fn prune_on(database: Database, relay: RelayConfig, ended: Arc<AtomicBool>) -> u64 {
    let mut chance = Seeded::new(7);
    let mut rows = 0;
    while !ended.load(Ordering::Relaxed) {
        let (before, retention) = (rows, retention());
        let tell = |pruned: &Pruned| rows = before + pruned.rows;
        let pass = prune(&database, &relay, "id", &retention, tell);
        // As long as none has been cut behind its first rows, they may take long.
        let most_ms = if before == 0 { 2_000 } else { 200 };
        let limit = Duration::from_millis(5 + chance.below(most_ms) as u64);
        // It may be interrupted, or find that the one before is not gone yet.
        let _ = tokio::time::timeout(limit, pass).await;
    }
    rows
}

async fn killed(rig: &Rig, mut relay: RunningRelay) {
    relay.stop();
    let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity where pid in \
                (select active_pid from pg_replication_slots where database = current_database())";
    rig.count(kill).await;
    drop(tokio::time::timeout(SOON, relay.finished()).await.expect("it ends"));
    rig.released().await;
}

#[tokio::test]
async fn pruned_under_load_with_kills_and_lost_slots_no_event_is_lost_or_repeated() {
    let mut rig = Rig::new().await;
    rig.config.on_lost_slot = LostSlot::Recover;
    rig.config.start_timeout_ms = None;
    (rig.config.drain_timeout_ms, rig.config.settle_ms) = (100, 0);
    let mut relay = rig.streaming().await;
    // Young, so it stays: a table that is empty is no ground for a recovery.
    rig.insert("young", &["\"young\""]).await;
    let ended = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let client = rig.database.connect().await.unwrap();
        writers.push(tokio::spawn(write(client, writer, ended.clone())));
    }
    let stopped = Arc::new(AtomicBool::new(false));
    let (database, config) = (rig.database.clone(), rig.config.clone());
    let pruner = tokio::spawn(prune_on(database, config, stopped.clone()));
    for round in 1..=8 {
        let next = rig.world.count() + 150;
        until(SOON, "progress", async || rig.world.count() >= next).await;
        killed(&rig, relay).await;
        if round % 2 == 0 {
            let drop = format!("select pg_drop_replication_slot('{}')", rig.config.slot);
            run(&rig, &drop).await;
        }
        relay = rig.streaming().await;
    }
    ended.store(true, Ordering::Relaxed);
    let mut written = Vec::new();
    for writer in writers {
        written.push(writer.await.unwrap());
    }
    let all: usize = 1 + written.iter().sum::<usize>();
    until(SOON, "all events", async || rig.world.count() >= all).await;
    // Those that are leave meanwhile.
    let open = "select count(*) from walpost.outbox, walpost.checkpoint \
                where not pg_visible_in_snapshot(xid, (proven ->> 'snapshot')::pg_snapshot)";
    until(SOON, "every row is proven", async || rig.count(open).await == 0).await;
    stopped.store(true, Ordering::Relaxed);
    assert!(pruner.await.unwrap() > 0, "rows left under load");
    until(SOON, "the last rows leave", async || {
        drop(prune(&rig.database, &rig.config, "id", &retention(), |_| {}).await);
        rig.count(OUTBOX).await == 1
    })
    .await;
    let mut landed: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let (young, old): (Vec<_>, Vec<_>) =
        rig.world.values().into_iter().partition(|value| value == "\"young\"");
    assert_eq!(young.len(), 1);
    for value in old {
        let writer = value[2..3].parse().unwrap();
        landed.entry(writer).or_default().push(value);
    }
    for (writer, count) in written.into_iter().enumerate() {
        let expected: Vec<String> = (0..count).map(|n| format!("\"w{writer}:{n:06}\"")).collect();
        let landed = &landed[&writer];
        let differs = landed.iter().zip(&expected).position(|(one, other)| one != other);
        assert_eq!((differs, landed.len()), (None, count), "of writer {writer}");
    }
    stop(relay).await;
}
