//! Why a partition is halted, as a row for operators.

use walpost_consumer::{Event, HandlerError};

use crate::support::{Ask, Effects, World, run};

const ROWS: &str = "select count(*) from walpost.consumer_halted";

fn halts(event: &Event) -> Result<(), HandlerError> {
    match event.id() {
        "halt" => Err(HandlerError::halt("the tariff is unknown")),
        _ => Ok(()),
    }
}

#[tokio::test]
async fn a_halt_is_a_row_until_the_partition_is_claimed_again() {
    let world = World::new(2).await;
    world.publish(0, ["a", "halt"]).await;
    world.publish(1, ["b"]).await;
    let mut running = run(world.consumer().max_batch_events(1).handler(Ask(halts)).unwrap());
    running.until_applied(2).await;
    world.until_number(ROWS, 1).await;
    let sql = "select q.part, h.reason, h.epoch = q.epoch from walpost.consumer_halted h \
               join walpost.position q on q.id = h.pos_id";
    let row = world.client.query_one(sql, &[]).await.unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, bool>(2)), (0, true));
    let reason: &str = row.get(1);
    assert!(reason.contains("at offset 1") && reason.contains("the tariff is unknown"), "{reason}");
    // A reset takes the offset away from the member, which is halted all the same.
    world.operate("fill", 0).await.unwrap();
    assert_eq!(world.number(ROWS).await, 1);
    running.stop().await.unwrap();
    assert_eq!(world.number(ROWS).await, 1, "it stays while nobody goes on");
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(1).await;
    assert_eq!(world.number(ROWS).await, 0);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_halt_before_a_claim_and_one_behind_a_successor_are_told_apart() {
    let world = World::new(1).await;
    world.publish(0, ["halt"]).await;
    let running = run(world.consumer().handler(Ask(halts)).unwrap());
    running.end().await.unwrap_err();
    world.until_number(ROWS, 1).await;
    // Somebody claims it: what the one before still wants to say counts no more.
    let claim = "select walpost.claim(id, group_id, cluster_id, topic_id, 'rows') \
                 from walpost.position";
    world.client.execute(claim, &[]).await.unwrap();
    assert_eq!(world.number(ROWS).await, 0);
    // The row is of another topic now: no claim, and a halt all the same.
    world.tamper("topic_id = 'another'").await;
    let running = run(world.consumer().handler(Ask(halts)).unwrap());
    running.end().await.unwrap_err();
    world.until_number(ROWS, 1).await;
    // Of another group's partition nothing is said.
    world.client.execute("delete from walpost.consumer_halted", &[]).await.unwrap();
    world.tamper("group_id = 'another'").await;
    world.client.execute("update walpost.consumer set group_id = 'another'", &[]).await.unwrap();
    let running = run(world.consumer().handler(Ask(halts)).unwrap());
    running.end().await.unwrap_err();
    assert_eq!(world.number(ROWS).await, 0);
}
