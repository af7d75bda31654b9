//! Two owners of one partition.

use tokio_postgres::Client;
use walpost_testkit as testkit;

use crate::support::{Effects, World, each, ids, run};

pub(crate) async fn claim(client: &Client) -> i64 {
    let sql = "select epoch from walpost.claim((select id from walpost.position), \
               (select group_id from walpost.position), (select cluster_id from walpost.position), \
               (select topic_id from walpost.position))";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

async fn begin(client: &Client, epoch: i64, old: i64, new: i64) -> Result<(), String> {
    let sql = format!(
        "select walpost.batch_begin((select id from walpost.position), {epoch}, {old}, {new}, '{{}}', \
         null)"
    );
    let state = |error: tokio_postgres::Error| error.code().unwrap().code().to_owned();
    client.batch_execute(&sql).await.map_err(state)
}

#[tokio::test]
pub(crate) async fn a_batch_of_an_older_epoch_or_of_another_offset_is_refused() {
    let world = World::new(1).await;
    world.publish(0, ids("a", 10)).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(10).await;
    running.stop().await.unwrap();
    let client = &world.client;
    let zombie = claim(client).await;
    let owner = claim(client).await;
    assert_eq!(owner, zombie + 1);
    client.batch_execute("begin").await.unwrap();
    assert_eq!(begin(client, zombie, 10, 20).await, Err("WP001".to_owned()));
    client.batch_execute("rollback; begin").await.unwrap();
    assert_eq!(begin(client, owner, 9, 20).await, Err("WP001".to_owned()));
    client.batch_execute("rollback; begin isolation level repeatable read").await.unwrap();
    assert_eq!(begin(client, owner, 10, 20).await, Err("WP003".to_owned()));
    client.batch_execute("rollback; begin").await.unwrap();
    assert_eq!(begin(client, owner, 10, 20).await, Ok(()));
    let early = client.batch_execute("commit").await.unwrap_err();
    assert_eq!(early.code().unwrap().code(), "WP004");
}

#[tokio::test]
pub(crate) async fn a_predecessor_that_holds_the_fence_is_ended() {
    let world = World::new(1).await;
    world.publish(0, ids("a", 10)).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(10).await;
    running.stop().await.unwrap();

    let paused = world.database.connect().await;
    let epoch = claim(&paused).await;
    paused.batch_execute("begin").await.unwrap();
    begin(&paused, epoch, 10, 20).await.unwrap();
    paused
        .batch_execute("insert into effect (event_id, part, off) values ('ghost', 0, 10)")
        .await
        .unwrap();

    world.publish(0, ids("b", 10)).await;
    let mut running = run(world.consumer().claim_timeout_ms(1000).handler(Effects).unwrap());
    running.until_applied(10).await;
    assert!(paused.batch_execute("commit").await.is_err());
    running.stop().await.unwrap();
    let all: Vec<String> = ids("a", 10).into_iter().chain(ids("b", 10)).collect();
    assert_eq!(world.effects().await, each(&all, 1));
}

#[tokio::test]
pub(crate) async fn a_member_whose_partition_was_claimed_gives_it_up_and_claims_again() {
    let world = World::new(1).await;
    world.publish(0, ids("a", 10)).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(10).await;
    testkit::until(crate::support::LIMIT, "an idle row", async || {
        world.number("select count(*) from walpost.position where known = '{10}'").await == 1
    })
    .await;
    claim(&world.client).await;
    world.publish(0, ids("b", 10)).await;
    let status = running.until_applied(20).await;
    assert!(status.counts.claims >= 2, "{status:?}");
    running.stop().await.unwrap();
    let all: Vec<String> = ids("a", 10).into_iter().chain(ids("b", 10)).collect();
    assert_eq!(world.effects().await, each(&all, 1));
}
