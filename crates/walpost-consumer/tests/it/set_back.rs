//! A database that is older than the group: a restored dump, or a standby that
//! lagged behind and was promoted.

use walpost_consumer::{Consumer, FirstStart, OnReset};

use crate::support::{Effects, World, each, ids, on_postgres, run, stop_committed};

/// Everything that a transaction of the consumer writes.
const TABLES: [&str; 7] = [
    "effect",
    "walpost.position",
    "walpost.done",
    "walpost.consumer",
    "walpost.consumer_parked",
    "walpost.consumer_reset",
    "walpost.consumer_again",
];
const EACH: usize = 50;

/// Keeps the committed state, as a dump does.
async fn keep(world: &World) {
    let mut sql = "drop schema if exists kept cascade; create schema kept; ".to_owned();
    for table in TABLES {
        let name = table.trim_start_matches("walpost.");
        sql += &format!("create table kept.{name} as table {table}; ");
    }
    world.client.batch_execute(&sql).await.unwrap();
}

/// Goes back to the kept state and ends every session, as another server would.
async fn go_back(world: &World) {
    let mut sql = "begin; ".to_owned();
    for table in TABLES {
        let name = table.trim_start_matches("walpost.");
        sql += &format!(
            "lock table {table}; delete from {table}; \
             insert into {table} overriding system value table kept.{name}; "
        );
    }
    sql += "select pg_terminate_backend(pid, 5000) from pg_stat_activity \
            where datname = current_database() and pid <> pg_backend_pid(); commit";
    world.client.batch_execute(&sql).await.unwrap();
}

fn consumer(world: &World) -> Consumer<Effects> {
    world.consumer().max_batch_events(20).handler(Effects).unwrap()
}

/// Publishes `EACH` events to both partitions.
async fn publish(world: &World, prefix: &str) -> Vec<String> {
    let events = ids(prefix, 2 * EACH);
    world.publish(0, &events[..EACH]).await;
    world.publish(1, &events[EACH..]).await;
    events
}

/// Runs until both partitions are at their ends; returns how many effects were
/// made, and how many resets were carried out.
async fn drain(world: &World, end: usize) -> (u64, u64) {
    let mut running = run(consumer(world));
    let end = i64::try_from(end).unwrap();
    let status = running
        .until("the ends of both partitions", |status| {
            status.partitions.len() == 2
                && status.partitions.values().all(|one| one.next_offset == Some(end))
        })
        .await;
    stop_committed(running).await;
    (status.counts.applied, status.counts.resets)
}

/// The first hundred events are applied and kept; then `reset` happens, and four
/// times as many follow.
async fn restored_to_before(reset: impl AsyncFnOnce(&World)) {
    let world = World::new(2).await;
    let mut events = publish(&world, "a").await;
    drain(&world, EACH).await;
    keep(&world).await;
    reset(&world).await;
    for prefix in ["b", "c", "d", "e"] {
        events.extend(publish(&world, prefix).await);
    }
    drain(&world, 5 * EACH).await;
    go_back(&world).await;
    assert_eq!(drain(&world, 5 * EACH).await, (8 * EACH as u64, 0));
    assert_eq!(world.effects().await, each(&events, 1));
    assert_eq!(drain(&world, 5 * EACH).await, (0, 0), "a restart finds its own marker");
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_to_before_a_reset_by_kafkas_tool_nothing_is_lost() {
    restored_to_before(async |world| world.reset(&["--to-earliest"]).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_to_before_a_reset_by_the_operator_nothing_is_lost() {
    restored_to_before(async |world| world.operate("rerun", 0).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_to_an_earlier_offset_nothing_is_lost() {
    restored_to_before(async |_| {}).await;
}

/// The database goes back under members at work, also behind a reset.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_to_a_standby_that_lagged_loses_and_repeats_nothing() {
    let world = World::new(2).await;
    let mut events = publish(&world, "a").await;
    let mut running = run(consumer(&world));
    running.until_applied(2 * EACH as u64).await;
    keep(&world).await;
    events.extend(publish(&world, "b").await);
    running.until_applied(4 * EACH as u64).await;
    world.operate("rerun", 0).await.unwrap();
    events.extend(publish(&world, "c").await);
    running.until_applied(8 * EACH as u64).await;
    go_back(&world).await;
    world.until_number("select count(*) from effect", 6 * EACH as i64).await;
    assert_eq!(world.effects().await, each(&events, 1));
    stop_committed(running).await;
    assert_eq!(world.committed(0).await.0, Some(3 * EACH as i64));
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_to_before_the_first_claim_halts_with_both_ways_out() {
    let world = World::new(2).await;
    keep(&world).await;
    let mut events = publish(&world, "a").await;
    drain(&world, EACH).await;
    go_back(&world).await;
    let late = publish(&world, "b").await;
    events.extend(late.iter().cloned());
    for first_start in [FirstStart::Earliest, FirstStart::Latest] {
        let consumer = world.consumer().first_start(first_start).handler(Effects).unwrap();
        let reason = run(consumer).end().await.unwrap_err().to_string();
        for part in ["older than the group", "--to-offset 0", "--to-offset 50", "restore a newer"] {
            assert!(reason.contains(part), "{part:?} is not in {reason}");
        }
    }
    assert_eq!(world.effects().await.len(), 0);
    let place = |part: i32| format!("{}:{part}", world.topic);
    world.reset_topic(&place(0), &["--to-offset", "0"]).await;
    world.reset_topic(&place(1), &["--to-offset", "50"]).await;
    assert_eq!(drain(&world, 2 * EACH).await, (3 * EACH as u64, 0));
    let lost = &events[EACH..2 * EACH];
    let kept: Vec<String> = events.iter().filter(|event| !lost.contains(event)).cloned().collect();
    assert_eq!(world.effects().await, each(&kept, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_to_before_what_the_topic_has_halts_with_both_ways_out() {
    let world = World::new(1).await;
    let events = ids("a", 100);
    world.publish(0, &events[..50]).await;
    let mut running = run(consumer(&world));
    running.until_applied(50).await;
    stop_committed(running).await;
    keep(&world).await;
    world.publish(0, &events[50..]).await;
    let mut running = run(consumer(&world));
    running.until_applied(50).await;
    stop_committed(running).await;
    world.delete_records(0, 80).await;
    go_back(&world).await;
    for _ in 0..2 {
        let reason = run(consumer(&world)).end().await.unwrap_err().to_string();
        for part in ["older than the group", "offsets 50 to 79", "restore a newer", ", 80, 'skip')"]
        {
            assert!(reason.contains(part), "{part:?} is not in {reason}");
        }
        assert_eq!(world.committed(0).await.0, Some(100), "the evidence stays");
    }
    world.client.batch_execute("begin").await.unwrap();
    let skip = "select walpost.reset_partition($1, $2, 0, 80, 'skip')";
    world.client.execute(skip, &[&world.name, &world.topic]).await.unwrap();
    world.client.batch_execute("commit").await.unwrap();
    let mut running = run(consumer(&world));
    running.until_applied(20).await;
    stop_committed(running).await;
    let left = [&events[..50], &events[80..]].concat();
    assert_eq!(world.effects().await, each(&left, 1));
}

/// A reset by the tool that comes after the restore is a wish.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_after_a_restore_is_honoured() {
    let world = World::new(2).await;
    let mut events = publish(&world, "a").await;
    drain(&world, EACH).await;
    keep(&world).await;
    events.extend(publish(&world, "b").await);
    drain(&world, 2 * EACH).await;
    go_back(&world).await;
    world.reset(&["--to-offset", "20"]).await;
    let consumer = world.consumer().on_reset(OnReset::Rerun).handler(Effects).unwrap();
    let mut running = run(consumer);
    running.until_applied(160).await;
    stop_committed(running).await;
    let mut expected = each(&events, 1);
    for event in events[20..EACH].iter().chain(&events[EACH + 20..2 * EACH]) {
        expected.insert(event.clone(), 2);
    }
    assert_eq!(world.effects().await, expected);
}

#[test]
#[ignore = "deep: pg_dump and pg_restore of a PostgreSQL 15"]
fn a_dump_of_before_a_reset_is_restored_and_nothing_is_lost() {
    on_postgres(15, a_restored_dump_loses_nothing);
}

#[tokio::main]
async fn a_restored_dump_loses_nothing() {
    for is_by_kafkas_tool in [true, false] {
        let world = World::new(2).await;
        let mut events = publish(&world, "a").await;
        drain(&world, EACH).await;
        let dump = world.database.dump().await;
        match is_by_kafkas_tool {
            true => world.reset(&["--to-earliest"]).await,
            false => world.operate("rerun", 0).await.unwrap(),
        }
        for prefix in ["b", "c", "d", "e"] {
            events.extend(publish(&world, prefix).await);
        }
        drain(&world, 5 * EACH).await;
        dump.restore(&world.database);
        assert_eq!(world.effects().await.len(), 2 * EACH, "it went back");
        drain(&world, 5 * EACH).await;
        assert_eq!(world.effects().await, each(&events, 1));
    }
}
