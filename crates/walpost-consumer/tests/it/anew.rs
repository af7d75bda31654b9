//! A topic that is deleted and created anew under its name.

use crate::support::{Effects, World, each, ids, run, stop_committed};

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_of_the_topic_that_was_deleted_is_no_start_in_the_new_one() {
    let world = World::new(1).await;
    let before = ids("a", 10);
    world.publish(0, &before).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(10).await;
    stop_committed(running).await;
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
    stop_committed(running).await;
    assert_eq!(world.committed(0).await.0, Some(20));
}
