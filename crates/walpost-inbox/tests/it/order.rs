use std::time::Duration;

use walpost_inbox::{Order, RetrySchedule, State};

use crate::support::{ByType, World, ids, run};

#[tokio::test(flavor = "multi_thread")]
async fn in_order_each_event_waits_for_the_one_before_whoever_processes_it() {
    let world = World::new().await;
    world.receive("apply", ids("a", 20)).await;
    // Two failures of this one hold up all behind it.
    world.receive("twice", ["b".to_owned()]).await;
    world.receive("unknown", ["u".to_owned()]).await;
    world.receive("apply", ids("c", 20)).await;
    let serial = || {
        let pauses = RetrySchedule::new([Duration::from_millis(300); 2]);
        world.processor().order(Order::Serial).retries(pauses).poll_ms(10)
    };
    let (one, other) = (run(serial(), ByType), run(serial().name("other"), ByType));
    world.until(State::Succeeded, 41).await;
    one.stop().await;
    other.stop().await;
    assert_eq!(world.effects().await, [ids("a", 20), vec!["b".to_owned()], ids("c", 20)].concat());
    assert_eq!(world.state("u").await.0, State::Review);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_order_an_event_that_was_given_up_holds_up_nothing() {
    let world = World::new().await;
    world.receive("retry", ["r".to_owned()]).await;
    world.receive("apply", ids("a", 3)).await;
    // Of one source, which is that of events that name none.
    let running = run(world.processor().order(Order::Serial).source(""), ByType);
    world.until(State::Succeeded, 3).await;
    running.stop().await;
    assert_eq!(world.state("r").await.0, State::Failed);
    assert_eq!(world.effects().await, ids("a", 3));
}
