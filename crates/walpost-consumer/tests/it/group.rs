//! Partitions that move between members of the group.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer as _},
};
use tokio::sync::Semaphore;
use walpost_consumer::{Event, Handler, HandlerError, tokio_postgres::Transaction};
use walpost_testkit::{self as testkit, local};

use crate::support::{BRIEF_SESSION_MS, Effects, LIMIT, World, each, effect, ids, run};

const STRATEGY: &str = "partition.assignment.strategy";

/// Joins a second member under load, lets the first leave, and the second go
/// on alone.
async fn hand_over(setting: (&str, &str)) {
    let world = World::new(4).await;
    let consumer = || {
        let consumer = world.consumer().max_batch_events(20);
        consumer.kafka(setting.0, setting.1).handler(Effects).unwrap()
    };
    let events = ids("a", 8000);
    let publish = |range: std::ops::Range<usize>| {
        let (world, events) = (&world, &events);
        async move {
            for partition in 0..4 {
                let chunk = range.clone().filter(|n| n % 4 == partition).map(|n| &events[n]);
                world.publish(partition as i32, chunk).await;
            }
        }
    };
    publish(0..2000).await;
    let mut first = run(consumer());
    first.until_applied(100).await;
    publish(2000..4000).await;
    let mut second = run(consumer());
    second.until_running(2).await;
    first.until_running(2).await;
    publish(4000..6000).await;
    first.stop().await.unwrap();
    second.until_running(4).await;
    publish(6000..8000).await;
    world.until_number("select count(*) from effect", 8000).await;
    second.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
    assert_eq!(world.stored().await, 8000);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn partitions_move_one_by_one_under_the_cooperative_protocol() {
    hand_over((STRATEGY, "cooperative-sticky")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn partitions_move_under_the_eager_protocol() {
    hand_over((STRATEGY, "range")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_dropped_half_way_is_replaced() {
    let world = World::new(2).await;
    let events = ids("a", 2000);
    world.publish(0, &events[..1000]).await;
    world.publish(1, &events[1000..]).await;
    let consumer = || {
        let consumer = world.consumer().session_timeout_ms(BRIEF_SESSION_MS);
        consumer.max_batch_events(10).handler(Effects).unwrap()
    };
    let mut first = run(consumer());
    first.until_applied(100).await;
    first.abort().await;
    let second = run(consumer());
    world.until_number("select count(*) from effect", 2000).await;
    second.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn a_database_that_drops_its_connections_costs_no_effect() {
    let world = World::new(2).await;
    let events = ids("a", 3000);
    world.publish(0, &events[..1500]).await;
    world.publish(1, &events[1500..]).await;
    let running = run(world.consumer().max_batch_events(50).handler(Effects).unwrap());
    for at_least in [100, 1000, 2000] {
        testkit::until(LIMIT, "effects", async || {
            world.number("select count(*) from effect").await >= at_least
        })
        .await;
        world
            .client
            .execute(
                "select pg_terminate_backend(pid) from pg_stat_activity \
                 where datname = current_database() and pid <> pg_backend_pid()",
                &[],
            )
            .await
            .unwrap();
    }
    world.until_number("select count(*) from effect", 3000).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_move_in_a_group_of_the_new_protocol() {
    hand_over(("group.protocol", "consumer")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: a broker of its own"]
async fn a_broker_that_is_killed_and_comes_back_costs_no_effect() {
    let kafka = local::Kafka::builder().start().unwrap();
    let world = World::on(&kafka.bootstrap(), 2).await;
    let events = ids("a", 2000);
    world.publish(0, &events[..500]).await;
    world.publish(1, &events[500..1000]).await;
    let mut running = run(world.consumer().max_batch_events(20).handler(Effects).unwrap());
    running.until_applied(200).await;
    kafka.kill().unwrap();
    kafka.start().unwrap();
    world.publish(0, &events[1000..1500]).await;
    world.publish(1, &events[1500..]).await;
    world.until_number("select count(distinct event_id) from effect", 2000).await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}

/// Holds each of two partitions at a gate, and notes the session of each.
struct Gated(Arc<Gates>);

struct Gates {
    open: [Semaphore; 2],
    sessions: Mutex<BTreeMap<i32, i32>>,
}

impl Handler for Gated {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        let session = tx.query_one("select pg_backend_pid()", &[]).await?.get(0);
        self.0.sessions.lock().unwrap().insert(event.partition(), session);
        let gate = &self.0.open[event.partition() as usize];
        let _permit = gate.acquire().await.map_err(HandlerError::retry)?;
        effect(tx, event).await
    }
}

/// The group's state, and the partitions that each member has by its last answer.
fn members(world: &World) -> (String, Vec<BTreeSet<i32>>) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", testkit::kafka().bootstrap());
    let client: BaseConsumer = config.create().unwrap();
    let groups = client.fetch_group_list(Some(&world.name), LIMIT).unwrap();
    let group = groups.groups().first().unwrap();
    let mut members: Vec<_> =
        group.members().iter().map(|member| partitions(member.assignment())).collect();
    members.sort();
    (group.state().to_owned(), members)
}

/// Those of the one topic of an assignment: version, topics, the length of its
/// name, the name, partitions, their numbers.
fn partitions(assignment: Option<&[u8]>) -> BTreeSet<i32> {
    let number = |bytes: &[u8]| i32::from_be_bytes(bytes[..4].try_into().unwrap());
    match assignment {
        Some(bytes) if bytes.len() > 6 && number(&bytes[2..]) == 1 => {
            let name = usize::from(u16::from_be_bytes(bytes[6..8].try_into().unwrap()));
            let (count, numbers) = bytes[8 + name..].split_at(4);
            numbers.chunks_exact(4).take(number(count) as usize).map(number).collect()
        }
        _ => BTreeSet::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn a_partition_that_loses_its_session_takes_no_time_from_one_that_is_given_back() {
    let world = World::new(2).await;
    let events = ids("a", 80);
    world.publish(0, &events[..20]).await;
    world.publish(1, &events[20..40]).await;
    let open = [Semaphore::new(0), Semaphore::new(0)];
    let gates = Arc::new(Gates { open, sessions: Mutex::default() });
    let patient = || world.consumer().handler_timeout_ms(600_000).stop_timeout_ms(240_000);
    let mut first = run(patient().handler(Gated(Arc::clone(&gates))).unwrap());
    testkit::until(LIMIT, "both handlers", async || gates.sessions.lock().unwrap().len() == 2)
        .await;
    let mut second = run(patient().handler(Effects).unwrap());
    let mut before = Vec::new();
    testkit::until(LIMIT, "a partition that is to be given back", async || {
        let (state, members) = tokio::task::block_in_place(|| members(&world));
        before = members;
        state == "Stable" && before.iter().map(BTreeSet::len).eq([0, 1])
    })
    .await;
    let stays = *before[1].first().unwrap();
    let session = gates.sessions.lock().unwrap()[&stays];
    world.client.execute("select pg_terminate_backend($1)", &[&session]).await.unwrap();
    gates.open[stays as usize].add_permits(1);
    first.until("another claim of the one that stays", |status| status.counts.claims >= 3).await;
    let now = tokio::task::block_in_place(|| members(&world));
    assert_eq!(now, ("Stable".to_owned(), before), "the other one has its time");
    gates.open[1 - stays as usize].add_permits(1);
    first.until_running(1).await;
    second.until_running(1).await;
    world.publish(0, &events[40..60]).await;
    world.publish(1, &events[60..]).await;
    world.until_number("select count(*) from effect", 80).await;
    first.stop().await.unwrap();
    second.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&events, 1));
}
