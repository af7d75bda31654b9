//! Whole days leave the outbox, and no event is lost by it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::task::JoinHandle;
use walpost_relay::{Initial, LostSlot, Pruned, RetentionConfig, make_days, prunable, prune};
use walpost_testkit::{SharedPostgres, postgres, postgres_of, until};

use crate::{
    proven::{PROVEN, proven},
    retention::{pruned, retention, run},
    rig::{Rig, SOON, stop},
};

/// Noon (UTC) so many days ago.
fn noon(days_ago: u32) -> String {
    format!(
        "(date_trunc('day', now() at time zone 'UTC') - interval '{days_ago} days' \
         + interval '12 hours') at time zone 'UTC'"
    )
}

/// An event of that day.
pub(crate) fn event(aggregate: &str, value: &str, days_ago: u32) -> String {
    format!(
        "insert into walpost.outbox (aggregatetype, aggregateid, type, payload, created_at) \
         values ('order', '{aggregate}', 'Placed', '{value}', {});",
        noon(days_ago)
    )
}

/// On a server, with partitions of these days.
pub(crate) async fn days(server: &'static SharedPostgres, days_ago: &[u32]) -> Rig {
    let mut rig = Rig::partitioned(server).await;
    rig.config.settle_ms = 0;
    for days in days_ago {
        let make = format!("select walpost.make_day(({} at time zone 'UTC')::date)", noon(*days));
        let made: String = rig.client.query_one(&make, &[]).await.unwrap().get(0);
        assert_eq!(made, "made");
    }
    rig
}

/// How many partitions these days have in a table.
pub(crate) async fn partitions(rig: &Rig, table: &str, days_ago: &[u32]) -> usize {
    let mut found = 0;
    for days in days_ago {
        let there = format!(
            "select count(*) from pg_inherits where inhparent = 'walpost.{table}'::regclass and \
             inhrelid = to_regclass('walpost.outbox_' || to_char({} at time zone 'UTC', \
             'YYYYMMDD'))",
            noon(*days)
        );
        found += rig.count(&there).await as usize;
    }
    found
}

pub(crate) async fn counted(rig: &Rig, retention: &RetentionConfig) -> Pruned {
    prunable(&rig.database, &rig.config, "id", retention).await.unwrap().remove(0)
}

const DEFAULT: &str = "select count(*) from walpost.outbox_default";
const OUTBOX: &str = "select count(*) from walpost.outbox";
const KEYS: &str = "select count(*) from walpost.outbox_key";

async fn old_days_leave(server: &'static SharedPostgres) {
    let rig = days(server, &[30, 20, 14, 10, 1]).await;
    let relay = rig.streaming().await;
    for (value, days_ago) in [("1", 30), ("2", 30), ("3", 20), ("4", 14), ("5", 10), ("6", 0)] {
        run(&rig, &event("a", value, days_ago)).await;
    }
    let key = "update walpost.outbox set idempotency_key = payload::text; \
               insert into walpost.outbox_key select payload::text, id, created_at \
               from walpost.outbox";
    run(&rig, key).await;
    // A day without a partition, which no second one may bring one beside.
    run(&rig, &event("a", "7", 40)).await;
    proven(&rig, 7).await;
    assert_eq!(rig.count(DEFAULT).await, 1);
    let found = counted(&rig, &retention()).await;
    assert_eq!((found.partitions, found.rows, found.held_partitions), (2, 4, 0), "{found:?}");
    let done = pruned(&rig, &retention()).await;
    assert_eq!((done.partitions, done.rows, done.busy_partitions), (2, 4, 0), "{done:?}");
    assert_eq!(partitions(&rig, "outbox", &[30, 20]).await, 0);
    // Of the day that is fourteen days ago a part is younger.
    assert_eq!(partitions(&rig, "outbox", &[14, 10, 1, 0]).await, 4);
    assert_eq!((rig.count(OUTBOX).await, rig.count(DEFAULT).await), (3, 0));
    assert_eq!(rig.count(KEYS).await, 3, "their keys have left with them");
    // An event of a day that has left is published like any other, and keeps its
    // key until it leaves.
    let keyed = format!(
        "insert into walpost.outbox (aggregatetype, aggregateid, type, payload, created_at, \
         idempotency_key) values ('order', 'a', 'Placed', '8', {}, 'late')",
        noon(30)
    );
    run(&rig, &keyed).await;
    proven(&rig, 4).await;
    assert_eq!((rig.count(DEFAULT).await, rig.count(KEYS).await), (1, 4));
    rig.world.hold(true);
    let held = event("a", "9", 30);
    run(&rig, &held).await;
    assert_eq!(pruned(&rig, &retention()).await.rows, 1);
    assert_eq!(rig.count(KEYS).await, 3);
    rig.world.hold(false);
    assert_eq!(rig.landed(9).await, ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn old_days_leave_as_a_whole_and_others_stay_on_postgres_14() {
    old_days_leave(postgres_of(14)).await;
}

#[tokio::test]
async fn old_days_leave_as_a_whole_and_others_stay_on_postgres_18() {
    old_days_leave(postgres_of(18)).await;
}

#[tokio::test]
async fn a_row_that_has_to_stay_holds_its_day_and_no_other() {
    let mut rig = days(postgres(), &[30, 29, 28]).await;
    rig.config.max_event_bytes = 20_000;
    let relay = rig.streaming().await;
    run(&rig, &event("a", "1", 30)).await;
    // Parked with its contents left out, which the row alone has.
    run(&rig, &event("b", &format!("\"{}\"", "x".repeat(30_000)), 29)).await;
    run(&rig, &event("a", "2", 29)).await;
    proven(&rig, 3).await;
    rig.world.hold(true);
    run(&rig, &event("a", "3", 28)).await;
    let found = counted(&rig, &retention()).await;
    assert_eq!((found.partitions, found.held_partitions), (1, 2), "{found:?}");
    assert_eq!((found.rows, found.not_proven, found.parked), (1, 1, 1), "{found:?}");
    let done = pruned(&rig, &retention()).await;
    assert_eq!((done.partitions, done.held_partitions, done.rows), (1, 2, 1), "{done:?}");
    assert_eq!(rig.count(OUTBOX).await, 3, "a day stays as a whole");
    rig.world.hold(false);
    proven(&rig, 3).await;
    assert_eq!(pruned(&rig, &retention()).await.partitions, 1);
    let discard = "update walpost.parked set requested = 'discard' where reason = 'oversize'";
    run(&rig, discard).await;
    let open = "select count(*) from walpost.parked where state = 'open'";
    until(SOON, "the row is discarded", async || rig.count(open).await == 0).await;
    assert_eq!(pruned(&rig, &retention()).await.partitions, 1);
    assert_eq!(partitions(&rig, "outbox", &[30, 29, 28]).await, 0);
    assert_eq!(rig.world.values(), ["1", "2", "3"]);
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn a_pipeline_that_is_stopped_holds_a_day_until_its_row_is_deleted() {
    let rig = days(postgres_of(15), &[30]).await;
    let mut other = rig.beside("other", "true").await;
    other.config.row_filter = None;
    other.config.allow_overlap = true;
    let (relay, stopped) = (rig.streaming().await, other.streaming().await);
    stop(stopped).await;
    run(&rig, &event("a", "1", 30)).await;
    let both = format!("{PROVEN} and pipeline = 'shop'");
    until(SOON, "one has proven it", async || rig.count(&both).await == 1).await;
    let done = pruned(&rig, &retention()).await;
    assert_eq!((done.partitions, done.held_partitions), (0, 1), "{done:?}");
    run(&rig, "delete from walpost.checkpoint where pipeline = 'other'").await;
    assert_eq!(pruned(&rig, &retention()).await.partitions, 1);
    stop(relay).await;
}

#[tokio::test]
async fn with_row_filters_each_pipeline_has_its_own_rows_leave_and_the_last_one_the_day() {
    let rig = days(postgres_of(18), &[30, 29]).await;
    run(&rig, "alter table walpost.outbox add column tenant text").await;
    let mut a = rig.beside("a", "tenant = 'a'").await;
    let mut b = rig.beside("b", "tenant = 'b'").await;
    (a.config.initial, b.config.initial) = (Some(Initial::Publish), Some(Initial::Publish));
    let relays = [a.streaming().await, b.streaming().await];
    for (tenant, value, days_ago) in [("a", "1", 30), ("b", "2", 30), ("a", "3", 29)] {
        let tenants = event(tenant, value, days_ago)
            .replace("payload,", "tenant, payload,")
            .replace("'Placed',", &format!("'Placed', '{tenant}',"));
        run(&rig, &tenants).await;
    }
    let seen = format!("{PROVEN} and pipeline = tenant");
    until(SOON, "both have proven theirs", async || rig.count(&seen).await == 3).await;
    let found = counted(&a, &retention()).await;
    assert_eq!((found.partitions, found.rows), (1, 2), "{found:?}");
    let done = pruned(&a, &retention()).await;
    assert_eq!((done.partitions, done.rows), (1, 2), "{done:?}");
    assert_eq!(rig.count(OUTBOX).await, 1, "the other pipeline's row");
    // All that is left of the day is the other one's own.
    let done = pruned(&b, &retention()).await;
    assert_eq!((done.partitions, done.rows), (1, 1), "{done:?}");
    assert_eq!(partitions(&rig, "outbox", &[30, 29]).await, 0);
    assert_eq!(
        (a.world.values(), b.world.values()),
        (vec!["1".into(), "3".into()], vec!["2".into()])
    );
    for relay in relays {
        stop(relay).await;
    }
}

/// Writes events of a day until it is told to stop; how many. Whoever waited for
/// something that does not end would fail.
async fn write_day(
    rig: &Rig,
    aggregate: &'static str,
    days_ago: u32,
    ended: &Arc<AtomicBool>,
) -> (JoinHandle<usize>, Arc<AtomicUsize>) {
    let client = rig.database.connect().await.unwrap();
    let (ended, count) = (ended.clone(), Arc::new(AtomicUsize::new(0)));
    let written = count.clone();
    let writing = tokio::spawn(async move {
        client.batch_execute("set lock_timeout = '5s'").await.unwrap();
        while !ended.load(Ordering::Relaxed) {
            let value = count.load(Ordering::Relaxed).to_string();
            client.batch_execute(&event(aggregate, &value, days_ago)).await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
        count.load(Ordering::Relaxed)
    });
    (writing, written)
}

/// A reader whose transaction never ends keeps days from leaving, and writers
/// wait for it no longer than we do, those of the very day too.
#[tokio::test]
async fn a_long_reader_keeps_days_and_holds_no_writer_up() {
    let rig = days(postgres(), &[30, 29]).await;
    let relay = rig.streaming().await;
    run(&rig, &event("c", "1", 30)).await;
    proven(&rig, 1).await;
    let reader = rig.database.connect().await.unwrap();
    reader.batch_execute("begin; select from walpost.outbox").await.unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let (young, of_today) = write_day(&rig, "a", 0, &ended).await;
    let (old, of_the_day) = write_day(&rig, "b", 29, &ended).await;
    let retention = retention();
    let pass = prune(&rig.database, &rig.config, "id", &retention, |_| {});
    // Each is locked against writers while we wait for the reader.
    let locked = "select count(*) from pg_locks where mode = 'ShareRowExclusiveLock' and granted \
                  and relation in (select relid from pg_partition_tree('walpost.outbox'))";
    let seen = until(SOON, "a lock on a day", async || rig.count(locked).await > 0);
    let (done, ()) = tokio::join!(pass, seen);
    let done = done.unwrap().remove(0);
    // Of the day that is written to, a row may not be proven.
    let stays = done.busy_partitions + done.held_partitions;
    assert_eq!((done.partitions, stays, done.busy_partitions > 0), (0, 2, true), "{done:?}");
    let days = make_days(&rig.database, "walpost").await.unwrap();
    assert!(days.made.is_empty(), "{days:?}");
    for written in [of_today, of_the_day] {
        let before = written.load(Ordering::Relaxed);
        until(SOON, "writers go on", async || written.load(Ordering::Relaxed) > before + 5).await;
    }
    ended.store(true, Ordering::Relaxed);
    let all = 1 + young.await.unwrap() + old.await.unwrap();
    reader.batch_execute("commit").await.unwrap();
    assert_eq!(rig.landed(all).await.len(), all);
    proven(&rig, all as i64).await;
    assert_eq!(pruned(&rig, &retention).await.partitions, 2);
    stop(relay).await;
}

/// Somebody inserts into a day that is about to leave.
#[tokio::test]
async fn an_event_that_commits_late_holds_its_day() {
    let rig = days(postgres(), &[30]).await;
    let relay = rig.streaming().await;
    run(&rig, &event("a", "1", 30)).await;
    proven(&rig, 1).await;
    let late = rig.database.connect().await.unwrap();
    late.batch_execute(&format!("begin; {}", event("b", "2", 30))).await.unwrap();
    assert_eq!(counted(&rig, &retention()).await.partitions, 1, "nobody sees it yet");
    let done = pruned(&rig, &retention()).await;
    assert_eq!((done.partitions, done.busy_partitions), (0, 1), "{done:?}");
    rig.world.hold(true);
    late.batch_execute("commit").await.unwrap();
    assert_eq!(pruned(&rig, &retention()).await.held_partitions, 1);
    rig.world.hold(false);
    proven(&rig, 2).await;
    assert_eq!(pruned(&rig, &retention()).await.partitions, 1);
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn a_slot_that_is_lost_after_days_have_left_is_recovered_from_those_that_stay() {
    for major in [14, 18] {
        let mut rig = days(postgres_of(major), &[30, 29]).await;
        rig.config.on_lost_slot = LostSlot::Recover;
        let relay = rig.streaming().await;
        run(&rig, &event("a", "1", 30)).await;
        proven(&rig, 1).await;
        stop(relay).await;
        rig.released().await;
        run(&rig, &event("a", "2", 29)).await;
        run(&rig, &event("a", "3", 0)).await;
        let done = pruned(&rig, &retention()).await;
        assert_eq!((done.partitions, done.held_partitions), (1, 1), "{done:?}");
        let drop = format!("select pg_drop_replication_slot('{}')", rig.config.slot);
        run(&rig, &drop).await;
        let relay = rig.streaming().await;
        run(&rig, &event("a", "4", 29)).await;
        assert_eq!(rig.landed(4).await, ["1", "2", "3", "4"]);
        proven(&rig, 3).await;
        assert_eq!(pruned(&rig, &retention()).await.partitions, 1);
        stop(relay).await;
        assert_eq!(rig.world.values(), ["1", "2", "3", "4"]);
    }
}
