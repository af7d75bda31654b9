//! Records that Kafka has lost after their effects were made.

use std::path::Path;

use walpost_testkit::local;

use crate::support::{Effects, World, each, ids, run};

/// Removes the records at `offset` and later from the files of a broker that
/// does not run. Each batch is one record.
fn cut_log(kafka: &local::Kafka, topic: &str, offset: i64) {
    let home = kafka.log().parent().map(Path::to_owned).unwrap();
    let segment = home.join("data").join(format!("{topic}-0/00000000000000000000.log"));
    let bytes = std::fs::read(&segment).unwrap();
    let mut end = 0;
    while let Some(header) = bytes.get(end..end + 12) {
        let base = i64::from_be_bytes(header[..8].try_into().unwrap());
        if base >= offset {
            break;
        }
        end += 12 + u32::from_be_bytes(header[8..].try_into().unwrap()) as usize;
    }
    assert!(end < bytes.len(), "nothing to remove from {} bytes", bytes.len());
    std::fs::write(&segment, &bytes[..end]).unwrap();
}

/// The statement of `reason` that ends with `end`.
fn statement<'a>(reason: &'a str, end: &str) -> &'a str {
    let end = reason.find(end).unwrap_or_else(|| panic!("{end} is not in {reason}")) + end.len();
    &reason[reason[..end].rfind("select ").unwrap()..end]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: a broker of its own"]
async fn a_log_that_was_cut_and_has_grown_again_halts_and_can_be_filled() {
    let kafka = local::Kafka::builder().start().unwrap();
    let world = World::on(&kafka.bootstrap(), 1).await;
    let (old, new) = (ids("old", 10), ids("new", 20));
    for id in &old {
        world.publish(0, [id]).await;
    }
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(10).await;
    running.stop().await.unwrap();
    assert_eq!(world.number("select leader_epoch::bigint from walpost.position").await, 0);

    kafka.kill().unwrap();
    cut_log(&kafka, &world.topic, 4);
    kafka.start().unwrap();
    // At offsets 4 to 23: without a look at what is before 10, those up to
    // there would be missed.
    world.publish(0, &new).await;
    let error = run(world.consumer().handler(Effects).unwrap()).end().await.unwrap_err();
    let reason = error.to_string();
    assert!(reason.contains("the record at offset 9") && reason.contains("epoch 0"), "{reason}");
    assert_eq!(world.effects().await, each(&old, 1), "nothing was applied");

    world.client.query_one(statement(&reason, " 0, 0, 'fill')"), &[]).await.unwrap();
    let mut running = run(world.consumer().handler(Effects).unwrap());
    let status = running.until_applied(20).await;
    assert_eq!(status.counts.applied, 20);
    running.stop().await.unwrap();
    let all: Vec<String> = old.into_iter().chain(new).collect();
    assert_eq!(world.effects().await, each(&all, 1));
    assert_eq!(world.stored().await, 24);
}

#[tokio::test]
async fn effects_behind_the_end_of_the_log_halt_with_both_ways_on() {
    let world = World::new(1).await;
    let (first, second) = (ids("a", 10), ids("b", 5));
    world.publish(0, &first).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(10).await;
    running.stop().await.unwrap();
    world.tamper("next_offset = 50").await;
    let error = run(world.consumer().handler(Effects).unwrap()).end().await.unwrap_err();
    let reason = error.to_string();
    assert!(reason.contains("before offset 50, but the log ends at 10"), "{reason}");

    statement(&reason, " 0, 0, 'fill')");
    world.client.query_one(statement(&reason, " 0, 10, 'fill')"), &[]).await.unwrap();
    world.publish(0, &second).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(5).await;
    running.stop().await.unwrap();
    let all: Vec<String> = first.into_iter().chain(second).collect();
    assert_eq!(world.effects().await, each(&all, 1));
}

#[tokio::test]
async fn what_retention_removed_unread_halts_and_can_be_skipped() {
    let world = World::new(1).await;
    world.publish(0, ids("a", 10)).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(10).await;
    running.stop().await.unwrap();
    world.publish(0, ids("b", 10)).await;
    world.delete_records(0, 15).await;
    let error = run(world.consumer().handler(Effects).unwrap()).end().await.unwrap_err();
    let reason = error.to_string();
    assert!(reason.contains("removed offsets 10 to 14 unread"), "{reason}");
    world.client.query_one(statement(&reason, " 0, 15, 'skip')"), &[]).await.unwrap();
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(5).await;
    running.stop().await.unwrap();
    assert_eq!(world.stored().await, 20);
}
