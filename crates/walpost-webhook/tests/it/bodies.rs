//! How many bytes are on their way, and how large a body may be.

use std::sync::Arc;

use tokio::sync::Semaphore;
use walpost_testkit::until;
use walpost_webhook::{Message, NewDelivery, StoreError};

use crate::{
    receiver::{Receiver, answer},
    world::{LIMIT, NAME, World, patient, run, sorted_keys},
};

fn of_bytes(id: &str, bytes: usize) -> NewDelivery {
    NewDelivery::new(NAME, id, Message::new(id, vec![b'x'; bytes]))
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_bounded_by_bytes_and_a_larger_body_goes_alone() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let receiver = Receiver::gated(answer("200 OK", "", ""), &gate).await;
    // In the order in which they are created: two fit, one goes alone, two fit.
    for (id, bytes) in [("a", 400), ("b", 500), ("c", 5_000), ("d", 400), ("e", 600)] {
        let one = [of_bytes(id, bytes)];
        assert_eq!(world.deliveries.insert(&world.client, &one).await.unwrap(), 1);
    }
    let mut settings = patient(&receiver.url("127.0.0.1"));
    settings.in_flight_max_bytes = 1_000;
    let running = run(&world, settings);
    for (delivered, sending, expected) in
        [(0, 2, vec!["a", "b"]), (2, 1, vec!["c"]), (3, 2, vec!["d", "e"])]
    {
        world.until("delivered", delivered).await;
        world.until("sending", sending).await;
        let now = delivered as usize + expected.len();
        until(LIMIT, "the calls", async || receiver.requests().len() == now).await;
        // Another round of claims finds no room.
        world.polled().await;
        let mut keys = world
            .texts("select event_id from walpost.webhook_delivery where state = 'sending'")
            .await;
        keys.sort();
        assert_eq!(keys, expected);
        gate.add_permits(expected.len());
    }
    world.until("delivered", 5).await;
    running.stop().await;
    assert_eq!(sorted_keys(&receiver), ["a", "b", "c", "d", "e"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_large_is_refused_when_it_is_created() {
    let world = World::new().await;
    let mib = 1_024 * 1_024;
    let error = world
        .deliveries
        .insert(&world.client, &[of_bytes("small", 1), of_bytes("large", mib + 1)])
        .await
        .unwrap_err();
    assert!(
        matches!(error, StoreError::BodyTooLarge { bytes, max_bytes } if (bytes, max_bytes) == (mib + 1, mib)),
        "{error}"
    );
    assert_eq!(world.number("select count(*) from walpost.webhook_delivery").await, 0);
    let all = [of_bytes("just", mib)];
    assert_eq!(world.deliveries.insert(&world.client, &all).await.unwrap(), 1);
    let larger = world.deliveries.clone().body_max_bytes(2 * mib);
    assert_eq!(larger.insert(&world.client, &[of_bytes("large", 2 * mib)]).await.unwrap(), 1);
}
