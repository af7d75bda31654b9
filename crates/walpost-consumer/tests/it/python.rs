//! The consumer in Python of the examples, on the same tables and in the same
//! group.

use std::{collections::BTreeMap, path::Path};

use walpost_consumer::{
    Event, Handler, HandlerError, SliceError,
    tokio_postgres::{Transaction, types::ToSql},
};
use walpost_testkit::{self as testkit, Process};

use crate::support::{LIMIT, World, each, ids, run};

/// That of Debian, which has the packages.
const INTERPRETER: &str = "/usr/bin/python3";

/// What the example writes.
struct Ships;

impl Handler for Ships {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        self.handle_slice(tx, std::slice::from_ref(event)).await.map_err(SliceError::into_inner)
    }

    async fn handle_slice(&self, tx: &Transaction<'_>, events: &[Event]) -> Result<(), SliceError> {
        let ids: Vec<&str> = events.iter().map(Event::id).collect();
        let parts: Vec<i32> = events.iter().map(Event::partition).collect();
        let offsets: Vec<i64> = events.iter().map(Event::offset).collect();
        let insert = "insert into python_shipment (event_id, part, off) \
                      select * from unnest($1::text[], $2::int[], $3::bigint[])";
        tx.execute(insert, &[&ids, &parts, &offsets]).await?;
        Ok(())
    }
}

async fn world(partitions: i32) -> World {
    let world = World::new(partitions).await;
    let schema = std::fs::read_to_string(example().join("schema.sql")).unwrap();
    world.client.batch_execute(&schema).await.unwrap();
    world
}

fn example() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/python-consumer"))
}

fn python(world: &World) -> Process {
    let environment = [
        ("KAFKA", testkit::kafka().bootstrap()),
        ("DATABASE", world.database.url()),
        ("TOPICS", &world.topic),
        ("CONSUMER", &world.name),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ];
    Process::start(INTERPRETER, [example().join("consumer.py")], environment)
}

async fn shipments(world: &World) -> BTreeMap<String, i64> {
    let rows = world.client.query("select event_id, count(*) from python_shipment group by 1", &[]);
    rows.await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Publishes 60 new events to two partitions, with copies of `known` before
/// and behind them, in the other partition as well. Returns all events.
async fn publish(world: &World, prefix: &str, mut known: Vec<String>) -> Vec<String> {
    let events = ids(prefix, 60);
    world.publish(0, known.iter().step_by(7)).await;
    world.publish(0, &events[..30]).await;
    world.publish(1, &events[30..]).await;
    world.publish(1, known.iter().step_by(5)).await;
    world.publish(1, events.iter().step_by(3)).await;
    known.extend(events);
    known
}

/// Waits until all records are behind the stored offsets.
async fn until_done(world: &World, process: Option<&Process>) {
    let ends = testkit::end_offsets(testkit::kafka().bootstrap(), &world.topic).await;
    let end: i64 = ends.iter().sum();
    testkit::until(LIMIT, "the end of the topic", async || {
        if let Some(process) = process {
            assert!(process.is_running(), "{}", process.log());
        }
        world.stored().await == end
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs Python with two modules"]
async fn rust_and_python_take_a_group_over_from_each_other() {
    let world = world(2).await;
    let mut all = publish(&world, "a", Vec::new()).await;
    let running = run(world.consumer().handler(Ships).unwrap());
    until_done(&world, None).await;
    running.stop().await.unwrap();

    let process = python(&world);
    all = publish(&world, "b", all).await;
    until_done(&world, Some(&process)).await;
    assert!(process.terminate(LIMIT).success(), "{}", process.log());

    all = publish(&world, "c", all).await;
    let mut running = run(world.consumer().handler(Ships).unwrap());
    until_done(&world, None).await;

    // Side by side, then the other alone, which is killed.
    let process = python(&world);
    testkit::until(LIMIT, "a partition for each", async || {
        assert!(process.is_running(), "{}", process.log());
        process.log().contains("claimed ")
    })
    .await;
    running.until_running(1).await;
    all = publish(&world, "d", all).await;
    until_done(&world, Some(&process)).await;
    running.stop().await.unwrap();
    all = publish(&world, "e", all).await;
    until_done(&world, Some(&process)).await;
    process.kill();

    all = publish(&world, "f", all).await;
    let running = run(world.consumer().handler(Ships).unwrap());
    until_done(&world, None).await;
    running.stop().await.unwrap();
    assert_eq!(all.len(), 360);
    assert_eq!(shipments(&world).await, each(&all, 1));
    assert_eq!(world.number("select count(*) from walpost.consumer_reset").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs Python with two modules"]
async fn a_python_consumer_that_is_paused_is_overtaken_and_refused() {
    let world = world(1).await;
    world.publish(0, ["a"]).await;
    let running = run(world.consumer().handler(Ships).unwrap());
    until_done(&world, None).await;
    running.stop().await.unwrap();

    let zombie = python(&world);
    // Its handler waits for this lock, and is paused there.
    let mut lock = world.database.connect().await;
    let locked = lock.transaction().await.unwrap();
    locked.batch_execute("lock table python_shipment in access exclusive mode").await.unwrap();
    world.publish(0, ids("b", 20)).await;
    world
        .until_number(
            "select count(*) from pg_stat_activity where datname = current_database() \
             and wait_event_type = 'Lock' and query like 'insert into python_shipment%'",
            1,
        )
        .await;
    zombie.pause();
    locked.rollback().await.unwrap();

    let running = run(world.consumer().handler(Ships).unwrap());
    world.until_number("select count(*) from python_shipment", 21).await;
    zombie.resume();
    testkit::until(LIMIT, "a zombie that was refused", async || {
        zombie.log().contains("again: SQLSTATE")
    })
    .await;
    world.publish(0, ids("c", 20)).await;
    world.until_number("select count(*) from python_shipment", 41).await;
    running.stop().await.unwrap();
    zombie.terminate(LIMIT);
    let all: Vec<String> =
        ["a".to_owned()].into_iter().chain(ids("b", 20)).chain(ids("c", 20)).collect();
    assert_eq!(shipments(&world).await, each(&all, 1));
}

/// Rust has made the chosen event and died; below where the reset began nothing
/// else is to be made again, although effects were once.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs Python with two modules"]
async fn a_python_consumer_leaves_a_replay_of_chosen_events_alone() {
    let world = world(1).await;
    let events = ids("a", 20);
    world.publish(0, &events).await;
    let reset = |mode: &'static str, chosen: Option<Vec<i64>>| {
        let world = &world;
        async move {
            let reset = "select walpost.operator_reset($1, $2, 0, 0, $3, $4, null, null, null, \
                         'me', 'why')";
            let parameters: [&(dyn ToSql + Sync); 4] = [&world.name, &world.topic, &mode, &chosen];
            world.client.query_one(reset, &parameters).await.unwrap();
        }
    };
    let rust = async || {
        let running = run(world.consumer().handler(Ships).unwrap());
        until_done(&world, None).await;
        running.stop().await.unwrap();
    };
    rust().await;
    reset("rerun", None).await;
    rust().await;
    reset("chosen", Some(vec![0])).await;
    world.client.execute("delete from walpost.consumer_again", &[]).await.unwrap();
    world.tamper("next_offset = 1").await;
    let process = python(&world);
    testkit::until(LIMIT, "an end", async || !process.is_running()).await;
    assert!(process.log().contains("which is for Rust alone"), "{}", process.log());
    assert_eq!(shipments(&world).await, each(&events, 2));
}
