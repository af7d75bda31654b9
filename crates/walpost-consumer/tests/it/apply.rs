//! Events, copies of events, and restarts.

use crate::support::{Effects, World, each, ids, run};

#[tokio::test]
async fn each_event_takes_effect_once_over_restarts() {
    let world = World::new(2).await;
    let (first, second) = (ids("a", 1200), ids("b", 1300));
    world.publish(0, &first[..600]).await;
    world.publish(1, &first[600..]).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(1200).await;
    assert_eq!(world.effects().await, each(&first, 1));
    running.stop().await.unwrap();

    world.publish(1, &second).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(1300).await;
    running.stop().await.unwrap();
    let all: Vec<String> = first.into_iter().chain(second).collect();
    assert_eq!(world.effects().await, each(&all, 1));
    assert_eq!(world.stored().await, 2500);
}
