//! Secrets that cannot be read: no attempt is made, and none is counted.

use std::fs;

use walpost_testkit::until;
use walpost_webhook::{Order, ProcessorSettings, RetryPolicy, Schedule, Secret};

use crate::{
    receiver::{Receiver, answer},
    world::{LIMIT, World, ids, keys, run, settings},
};

/// A folder for a token, and a processor that tries once and has it from there.
fn with_token(url: &str) -> (tempfile::TempDir, ProcessorSettings) {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(url);
    settings.destination.token = Some(Secret::File(folder.path().join("token")));
    settings.policy = RetryPolicy::new(Schedule::fixed(std::time::Duration::from_millis(1), 0));
    (folder, settings)
}

const ATTEMPTS: &str = "select count(*) from walpost.webhook_attempt";

#[tokio::test(flavor = "multi_thread")]
async fn while_a_secret_cannot_be_read_deliveries_wait_without_an_attempt() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let (folder, settings) = with_token(&receiver.url("127.0.0.1"));
    world.insert(&ids("a", 3)).await;
    let running = run(&world, settings);
    // It keeps up what is else to be done, and claims nothing.
    for _ in 0..3 {
        world.asked("with place").await;
    }
    let fences = "select sum(fence)::int8 from walpost.webhook_delivery";
    assert_eq!((world.number(fences).await, world.number(ATTEMPTS).await), (0, 0));
    fs::write(folder.path().join("token"), "t0k3n\n").unwrap();
    world.until("delivered", 3).await;
    running.stop().await;
    assert_eq!(world.number(ATTEMPTS).await, 3);
    assert!(receiver.requests().iter().all(|request| request.contains("Bearer t0k3n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_goes_away_gives_claims_back_uncounted() {
    for order in [Order::None, Order::All] {
        let world = World::new().await;
        let receiver = Receiver::answering(answer("200 OK", "", "")).await;
        let (folder, settings) = with_token(&receiver.url("127.0.0.1"));
        let token = folder.path().join("token");
        fs::write(&token, "t0k3n").unwrap();
        let running = run(&world, ProcessorSettings { order, ..settings });
        world.insert(&ids("a", 1)).await;
        world.until("delivered", 1).await;
        // Not even one that is there and can be no header.
        fs::write(&token, "t\u{1}k").unwrap();
        world.insert(&ids("b", 3)).await;
        let given_back = "select count(*) from walpost.webhook_delivery \
                          where state = 'pending' and fence > 0 and attempts = 0";
        until(LIMIT, "a claim given back", async || world.number(given_back).await > 0).await;
        world.until("sending", 0).await;
        assert_eq!(world.number(ATTEMPTS).await, 1, "{order:?}");
        fs::write(&token, "again").unwrap();
        world.until("delivered", 4).await;
        let snapshot = running.stop().await;
        assert!(snapshot.given_back > 0, "{snapshot:?}");
        let mut arrived = keys(&receiver);
        if order == Order::None {
            arrived.sort();
        }
        assert_eq!(arrived, [ids("a", 1), ids("b", 3)].concat(), "{order:?}");
    }
}
