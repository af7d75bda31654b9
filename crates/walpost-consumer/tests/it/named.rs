//! What holds for all members of a consumer: its group and its guard.

use walpost_consumer::{Builder, Guard, OnReset};
use walpost_testkit as testkit;

use crate::support::{Effects, World, each, ids, run};

async fn applied(consumer: Builder, count: u64) {
    let mut running = run(consumer.handler(Effects).unwrap());
    running.until_applied(count).await;
    running.stop().await.unwrap();
}

async fn refusal(consumer: Builder) -> String {
    run(consumer.handler(Effects).unwrap()).end().await.unwrap_err().to_string()
}

/// A second topic with `events`.
async fn another_topic(world: &World, events: &[String]) -> String {
    let topic = testkit::unique_name("invoices");
    testkit::create_topic(testkit::kafka().bootstrap(), &topic, 1, &[]).await;
    world.publish_to(&topic, events).await;
    topic
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn a_second_group_under_the_same_name_is_refused_until_the_name_is_moved() {
    let world = World::new(1).await;
    let (events, invoices) = (ids("a", 10), ids("b", 5));
    world.publish(0, &events).await;
    applied(world.consumer(), 10).await;

    let topic = another_topic(&world, &invoices).await;
    let group = testkit::unique_name("invoicing");
    for first_start in
        [walpost_consumer::FirstStart::Earliest, walpost_consumer::FirstStart::Latest]
    {
        let second = world.consumer().topics([topic.clone()]).group_id(&group);
        let text = refusal(second.first_start(first_start)).await;
        for part in ["works in group", &world.name, &group, "another name", "change_consumer("] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    }
    assert_eq!(world.effects().await, each(&events, 1));
    // The refused one leaves nothing that the other would stumble over.
    let both = world.consumer().topics([world.topic.clone(), topic.clone()]);
    applied(both.clone(), 5).await;

    // To be moved, with its effects.
    world.publish(0, ids("c", 3)).await;
    let moved = both.group_id(&group);
    let text = refusal(moved.clone()).await;
    let statement = text.split("run ").nth(1).and_then(|rest| rest.split(" on the").next());
    world.client.batch_execute(statement.unwrap()).await.unwrap();
    applied(moved, 3).await;
    let text = refusal(world.consumer()).await;
    assert!(text.contains(&format!("works in group {group}")), "{text}");
    let all = [events, invoices, ids("c", 3)].concat();
    assert_eq!(world.effects().await, each(&all, 1));
}

#[tokio::test]
async fn a_guard_that_changes_is_refused_until_that_is_said() {
    let world = World::new(1).await;
    let key = "create table payment (ref text constraint payment_ref_key unique)";
    world.client.batch_execute(key).await.unwrap();
    world.publish(0, ids("a", 10)).await;
    applied(world.consumer(), 10).await;

    let guard = Guard::business_key(["payment_ref_key"]);
    let guarded = || world.consumer().guard(guard.clone()).on_reset(OnReset::Fill);
    let text = refusal(guarded()).await;
    for part in ["rows of done", "business key", "change_consumer("] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    // Not while effects are to be made again that rows alone can tell.
    world.operate("rerun", 5).await.unwrap();
    let statement = text.split("run ").nth(1).and_then(|rest| rest.split(" on the").next());
    let error = world.client.batch_execute(statement.unwrap()).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "WP005");
    assert!(error.message().contains("until it has passed 10"), "{error}");
    applied(world.consumer(), 5).await;
    world.client.batch_execute(statement.unwrap()).await.unwrap();
    world.publish(0, ids("b", 3)).await;
    applied(guarded(), 3).await;
    let text = refusal(world.consumer()).await;
    assert!(text.contains("business key") && text.contains("change_consumer("), "{text}");
}

#[tokio::test]
async fn resets_that_need_rows_are_refused_under_another_guard() {
    let world = World::new(1).await;
    let key = "create table payment (ref text constraint payment_ref_key unique)";
    world.client.batch_execute(key).await.unwrap();
    let guard = Guard::business_key(["payment_ref_key"]);
    let guarded = world.consumer().guard(guard).on_reset(OnReset::Fill);
    let events = ids("a", 10);
    world.publish(0, &events).await;
    applied(guarded.clone(), 10).await;

    for mode in ["rerun", "chosen"] {
        let error = world.operate(mode, 5).await.expect_err(mode);
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "WP005", "{mode}: {error}");
        assert!(error.message().contains("business key"), "{mode}: {error}");
    }
    let by_statement = |mode: &str| {
        let (name, topic) = (&world.name, &world.topic);
        format!("select walpost.reset_partition('{name}', '{topic}', 0, 5, '{mode}')")
    };
    let error = world.client.batch_execute(&by_statement("rerun")).await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "WP005", "{error}");
    assert_eq!(world.stored().await, 10);
    assert_eq!(world.number("select count(*) from walpost.consumer_reset").await, 0);
    world.client.batch_execute(&by_statement("fill")).await.unwrap();
    assert_eq!(world.stored().await, 5);
}
