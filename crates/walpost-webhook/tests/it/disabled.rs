//! What was claimed for a destination that wants nothing more, and not yet sent.

use std::sync::Arc;

use tokio::sync::Semaphore;
use walpost_testkit::until;

use crate::{
    receiver::{Receiver, answer},
    world::{LIMIT, NAME, World, ids, patient, run},
};

/// Those that were never sent, as far as anybody can see.
const UNTOUCHED: &str = "select count(*) from walpost.webhook_delivery d where state = 'held' \
                         and attempts = 0 and outcome is null \
                         and not exists (select from walpost.webhook_attempt a where a.delivery = d.id)";

/// Eight deliveries: four in their calls, four claimed ahead.
async fn eight(world: &World, receiver: &Receiver) {
    world.insert(&ids("a", 8)).await;
    until(LIMIT, "four calls", async || receiver.requests().len() == 4).await;
    world.until("sending", 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_claimed_ahead_of_a_410_is_held_and_not_sent() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let receiver = Receiver::gated(answer("410 Gone", "", ""), &gate).await;
    let running = run(&world, patient(&receiver.url("127.0.0.1")));
    eight(&world, &receiver).await;
    gate.add_permits(1);
    world.until("held", 5).await;
    gate.add_permits(3);
    world.until("held", 8).await;
    let snapshot = running.stop().await;
    assert_eq!((receiver.requests().len(), snapshot.given_back), (4, 4));
    assert_eq!(world.number(UNTOUCHED).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_claimed_before_an_operator_disables_is_held_and_not_sent() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let receiver = Receiver::gated(answer("200 OK", "", ""), &gate).await;
    let running = run(&world, patient(&receiver.url("127.0.0.1")));
    eight(&world, &receiver).await;
    world.deliveries.disable(&world.client, NAME, "a reason").await.unwrap();
    // The processor knows of it, since it holds what comes and has looked again.
    world.insert(&ids("b", 1)).await;
    world.until("held", 1).await;
    world.asked("with place").await;
    gate.add_permits(8);
    world.until("delivered", 4).await;
    world.until("held", 5).await;
    let snapshot = running.stop().await;
    assert_eq!((receiver.requests().len(), snapshot.given_back), (4, 4));
    assert_eq!(world.number(UNTOUCHED).await, 5);
}
