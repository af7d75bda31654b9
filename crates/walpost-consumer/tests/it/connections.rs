//! Partitions and lanes share a bounded number of connections.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio_postgres::{Client, types::ToSql};
use walpost_consumer::{
    Builder, Database, Event, Handler, HandlerError, tokio_postgres::Transaction,
};

use crate::{
    member::{self, Harm},
    support::{Effects, LIMIT, World, each, effect, ids, run},
};

const NAME: &str = "shares";

/// A consumer whose sessions can be told from all others.
fn consumer(world: &World, connections: usize) -> Builder {
    let mut config = world.database.config();
    config.application_name(NAME);
    world.consumer().database(Database::config(config)).max_connections(connections)
}

/// Counts the consumer's sessions until it is dropped.
struct Sessions {
    most: Arc<AtomicI64>,
    task: tokio::task::JoinHandle<()>,
}

impl Sessions {
    async fn watch(world: &World) -> Self {
        let client: Client = world.database.connect().await;
        let most = Arc::new(AtomicI64::new(0));
        let seen = Arc::clone(&most);
        let task = tokio::spawn(async move {
            let count = "select count(*) from pg_stat_activity \
                         where datname = current_database() and application_name = $1";
            loop {
                let row = client.query_one(count, &[&NAME]).await.unwrap();
                seen.fetch_max(row.get(0), Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        Self { most, task }
    }

    fn most(self) -> i64 {
        self.task.abort();
        self.most.load(Ordering::Relaxed)
    }
}

/// Publishes so many events to each partition.
async fn publish(world: &World, partitions: i32, count: usize) -> Vec<String> {
    let mut events = Vec::new();
    for partition in 0..partitions {
        let part = ids(&format!("p{partition}-"), count);
        world.publish(partition, &part).await;
        events.extend(part);
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_partitions_share_three_connections() {
    let world = World::new(40).await;
    let events = publish(&world, 40, 5).await;
    let sessions = Sessions::watch(&world).await;
    let mut running = run(consumer(&world, 3).handler(Effects).unwrap());
    running.until_applied(200).await;
    running.until_running(40).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
    let most = sessions.most();
    assert!((1..=3).contains(&most), "{most} sessions");
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_share_two_connections() {
    let world = World::new(4).await;
    let mut events = Vec::new();
    for partition in 0..4 {
        let part = ids(&format!("p{partition}-"), 40);
        let keyed: Vec<(&str, &str)> =
            part.iter().enumerate().map(|(n, id)| (["a", "b", "c", "d"][n % 4], &**id)).collect();
        world.publish_keyed(partition, &keyed).await;
        events.extend(part);
    }
    let sessions = Sessions::watch(&world).await;
    let mut running = run(consumer(&world, 2).lanes(8).handler(Effects).unwrap());
    running.until_applied(160).await;
    running
        .until("the ends", |status| {
            status.partitions.values().all(|one| one.next_offset == Some(40))
        })
        .await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
    assert!(sessions.most() <= 2);
}

/// Takes long over the events of the first partition.
struct Slow;

impl Handler for Slow {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        if event.partition() == 0 {
            tx.batch_execute("select pg_sleep(0.02)").await?;
        }
        effect(tx, event).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_partition_starves_no_other() {
    let world = World::new(3).await;
    for (partition, count) in [(0, 400), (1, 20), (2, 20)] {
        world.publish(partition, ids(&format!("p{partition}-"), count)).await;
    }
    let running =
        run(consumer(&world, 2).max_batch_events(1).max_batch_bytes(1024).handler(Slow).unwrap());
    world.until_number("select count(*) from effect where part > 0", 40).await;
    let first = world.number("select count(*) from effect where part = 0").await;
    running.stop().await.unwrap();
    assert!(first < 100, "{first} effects of the slow partition before 40 of the others");
}

/// What fails waits without a connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_waits_holds_no_connection() {
    let world = World::new(2).await;
    world.publish(0, ["bad"]).await;
    let good = ids("good", 50);
    world.publish(1, &good).await;
    let handler = crate::support::Ask(|event: &Event| match event.id() {
        "bad" => Err(HandlerError::transient("not yet")),
        _ => Ok(()),
    });
    let running = run(consumer(&world, 2).max_batch_events(1).handler(handler).unwrap());
    world.until_number("select count(*) from effect where part = 1", 50).await;
    world.publish(1, ["later"]).await;
    world.until_number("select count(*) from effect where part = 1", 51).await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: waits for the session of a paused member"]
async fn a_paused_member_blocks_no_claim_of_one_with_two_connections() {
    let world = World::new(6).await;
    let mut events = publish(&world, 6, 1).await;
    let victim = member::start(&world, Harm::PausesInHandlerOf("pause"));
    world.until_number("select count(*) from effect", 6).await;
    world.publish(3, ["pause"]).await;
    events.push("pause".to_owned());
    member::until_paused(&victim).await;
    let mut running = run(consumer(&world, 2).handler(Effects).unwrap());
    running.until_running(6).await;
    for partition in 0..6 {
        let id = format!("late{partition}");
        world.publish(partition, [&id]).await;
        events.push(id);
    }
    world.until_number("select count(*) from effect", 13).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: a thousand partitions"]
async fn a_thousand_partitions_share_the_default_and_none_starves() {
    let world = World::new(1_000).await;
    let sessions = Sessions::watch(&world).await;
    let mut config = world.database.config();
    config.application_name(NAME);
    let builder = world.consumer().database(Database::config(config));
    let mut running = run(builder.handler(Effects).unwrap());
    let events = publish(&world, 1_000, 5).await;
    tokio::time::timeout(LIMIT, running.until_applied(5_000)).await.unwrap();
    running.until_running(1_000).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
    let most = sessions.most();
    assert!(most <= 20, "{most} sessions");
}

/// Effects of the events by key, as another server lacks them.
async fn forget(world: &World, tables: &[&str]) {
    for table in tables {
        world.client.batch_execute(&format!("delete from {table}")).await.unwrap();
    }
}

/// Behind a pooler no session ends when another server takes over.
#[tokio::test(flavor = "multi_thread")]
async fn the_offset_follows_no_lane_whose_effects_are_not_there() {
    let world = World::new(1).await;
    let builder = world.consumer().lanes(2).commit_interval_ms(3_000);
    let mut running = run(builder.handler(Effects).unwrap());
    running.until_running(1).await;
    let events = ids("a", 20);
    world.publish(0, &events[..10]).await;
    running.until_applied(10).await;
    assert_eq!(world.stored().await, 0, "it follows later");
    forget(&world, &["effect", "walpost.done", "walpost.consumer_lane"]).await;
    world.publish(0, &events[10..]).await;
    world.until_number("select count(*) from effect", 20).await;
    world.until_number("select next_offset from walpost.position", 20).await;
    running.stop().await.unwrap();
    let once: BTreeMap<String, i64> = each(&events, 1);
    assert_eq!(world.effects().await, once);
}

#[tokio::test]
async fn lanes_hold_counts_the_transactions_of_the_claim_alone() {
    let world = World::new(1).await;
    world
        .client
        .batch_execute(
            "insert into walpost.position (consumer, topic, part, group_id, cluster_id, topic_id, \
             epoch, next_offset) values ('c', 't', 0, 'g', 'k', 'i', 7, 0)",
        )
        .await
        .unwrap();
    let id: i32 =
        world.client.query_one("select id from walpost.position", &[]).await.unwrap().get(0);
    let hold = async |count: i64| {
        let values: [&(dyn ToSql + Sync); 2] = [&id, &count];
        world.client.execute("select walpost.lanes_hold($1, 7, $2)", &values).await
    };
    let work = format!(
        "begin isolation level read committed; select walpost.lane_work({id}, 7); \
         select walpost.batch_end('{id}:7'); commit"
    );
    hold(0).await.unwrap();
    for count in 1..=3 {
        let error = hold(count).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "WP001", "{count}");
        world.client.batch_execute(&work).await.unwrap();
        hold(count).await.unwrap();
    }
    let rolled_back = work.replace("; commit", "; rollback");
    world.client.batch_execute(&rolled_back).await.unwrap();
    hold(4).await.unwrap_err();
}
