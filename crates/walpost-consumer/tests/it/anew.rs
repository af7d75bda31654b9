//! A topic that is deleted and created anew under its name.

use walpost_testkit::Process;

use crate::{
    member::{self, Harm},
    support::{Effects, World, each, ids, run},
};

/// Ends by a panic, with the reason of a partition that halted.
async fn until_halted(member: &Process) -> String {
    member::until_dead(member).await;
    let log = member.log();
    let halted = log.lines().find(|line| line.contains("the partition is halted"));
    let halted = halted.unwrap_or_else(|| panic!("nothing has halted: {log}"));
    halted.replace("\\\"", "\"")
}

/// The reason names what happened, and the statement in it is the way on.
async fn read_from_its_start(world: &World, reason: &str, events: u64) {
    assert!(reason.contains("was deleted and created anew"), "{reason}");
    let statement = reason.split(": run ").nth(1).and_then(|rest| rest.split(" on the").next());
    let deleted = world.client.execute(statement.unwrap(), &[]).await.unwrap();
    assert_eq!(deleted, 1, "{reason}");
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(events).await;
    running.stop().await.unwrap();
}

/// A member that has applied as many events as the topic has, and is paused; what
/// it finds when it wakes is a topic of that name with `count` others.
async fn wakes_to_another_topic(harm: Harm, lanes: usize, count: usize) {
    let world = World::new(1).await;
    let (before, after) = (ids("a", 10), ids("b", count));
    let member = member::start_with_lanes(&world, lanes, harm);
    world.publish(0, &before).await;
    if let Harm::Nothing = harm {
        let applied = "select count(*) from walpost.position where next_offset = 10";
        world.until_number(applied, 1).await;
        member.pause();
    }
    member::until_paused(&member).await;
    world.create_anew(1).await;
    world.publish(0, &after).await;
    member.resume();
    let reason = until_halted(&member).await;
    assert_eq!(world.effects().await, each(&before, 1), "{reason}");
    read_from_its_start(&world, &reason, count as u64).await;
    assert_eq!(world.effects().await, each(&[before, after].concat(), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_paused_in_its_handler_applies_nothing_of_a_topic_created_meanwhile() {
    wakes_to_another_topic(Harm::PausesInHandlerOf("a9"), 1, 25).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_paused_without_events_applies_nothing_of_a_topic_created_meanwhile() {
    wakes_to_another_topic(Harm::Nothing, 1, 25).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_paused_with_lanes_applies_nothing_of_a_topic_created_meanwhile() {
    wakes_to_another_topic(Harm::Nothing, 4, 25).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_paused_at_the_end_of_a_topic_notices_another_one_of_the_same_length() {
    wakes_to_another_topic(Harm::Nothing, 1, 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_shorter_because_the_topic_is_another_one_is_not_said_to_be_lost() {
    wakes_to_another_topic(Harm::PausesInHandlerOf("a9"), 1, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_of_the_topic_that_was_deleted_is_no_start_in_the_new_one() {
    let world = World::new(1).await;
    let before = ids("a", 10);
    world.publish(0, &before).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(10).await;
    running.stop().await.unwrap();
    let (offset, marker) = world.committed(0).await;
    assert_eq!(offset, Some(10));

    world.create_anew(1).await;
    let after = ids("b", 20);
    world.publish(0, &after).await;
    // A commit that was under way when the topic was deleted.
    world.commit(0, 10, &marker).await;
    let consumer = || world.consumer().handler(Effects).unwrap();
    let error = run(consumer()).end().await.unwrap_err().to_string();
    assert!(error.contains("delete the row"), "{error}");
    let delete = "delete from walpost.position";
    world.client.batch_execute(delete).await.unwrap();
    let mut running = run(consumer());
    running
        .until("the end", |status| {
            status.partitions.values().all(|one| one.next_offset == Some(20))
                && !status.partitions.is_empty()
        })
        .await;
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&[before, after].concat(), 1));

    // Nor is it a wish when it comes later still.
    world.commit(0, 10, &marker).await;
    let mut running = run(consumer());
    let status = running.until_running(1).await;
    assert_eq!(status.counts.resets, 0);
    running.stop().await.unwrap();
    assert_eq!(world.committed(0).await.0, Some(20));
}
