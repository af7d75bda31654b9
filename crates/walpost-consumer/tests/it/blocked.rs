//! A handler that keeps its thread, for a while.

use std::time::Duration;

use walpost_consumer::{Event, HandlerError};

use crate::{
    contents::Log,
    metrics::Shown,
    support::{Ask, World, run},
};

#[tokio::test]
async fn a_handler_that_blocks_its_thread_is_logged_and_counted_until_it_ends() {
    let (log, _guard) = Log::listen();
    let shown = Shown::begin();
    let world = World::new(1).await;
    world.publish(0, ["a0", "a1"]).await;
    let handler = Ask(|event: &Event| -> Result<(), HandlerError> {
        if event.id() == "a1" {
            std::thread::sleep(Duration::from_millis(2_500));
        }
        Ok(())
    });
    let mut running = run(world.consumer().handler(handler).unwrap());
    let name = "walpost_consumer_handler_blocked_seconds";
    shown.until(name, &["partition=\"0\""], |blocked| blocked >= 1.0).await;
    running.until_applied(2).await;
    shown.until(name, &[], |blocked| blocked == 0.0).await;
    running.stop().await.unwrap();
    let lines = log.lines("the handler blocks its thread");
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.contains("WARN") && line.contains("offset=0"), "{line}");
    assert_eq!(log.lines("gave its thread back").len(), 1, "{}", log.text());
}
