//! Retries that wait for a slow receiver leave hands to first attempts.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{io::AsyncWriteExt, sync::Semaphore};
use walpost_testkit::until;
use walpost_webhook::Order;

use crate::{
    receiver::{Receiver, answer},
    world::{LIMIT, World, ids, patient, run},
};

/// Refuses what comes first of those that begin with `r`, and answers their retries once
/// the gate has a permit for each.
async fn slow_with_retries(gate: &Arc<Semaphore>, waiting: &Arc<AtomicUsize>) -> Receiver {
    let seen = Arc::<Mutex<HashSet<String>>>::default();
    let (gate, waiting) = (Arc::clone(gate), Arc::clone(waiting));
    Receiver::scripted(move |mut stream, notes| {
        let (seen, gate, waiting) = (Arc::clone(&seen), Arc::clone(&gate), Arc::clone(&waiting));
        async move {
            while let Some(request) = notes.request(&mut stream).await? {
                let key = request.lines().find_map(|line| line.strip_prefix("Idempotency-Key: "));
                let key = key.unwrap().to_owned();
                let is_slow = key.starts_with('r');
                let is_first = seen.lock().unwrap().insert(key);
                if is_slow && !is_first {
                    waiting.fetch_add(1, Ordering::SeqCst);
                    gate.acquire().await.unwrap().forget();
                    waiting.fetch_sub(1, Ordering::SeqCst);
                }
                let status = if is_slow && is_first { "500 Oops" } else { "200 OK" };
                stream.write_all(answer(status, "", "").as_bytes()).await?;
            }
            Ok(())
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn first_attempts_go_on_while_retries_wait_for_a_slow_receiver() {
    for order in [Order::None, Order::Key] {
        let world = World::new().await;
        let (gate, waiting) = (Arc::new(Semaphore::new(0)), Arc::<AtomicUsize>::default());
        let receiver = slow_with_retries(&gate, &waiting).await;
        world.insert(&ids("r", 40)).await;
        let mut settings = patient(&receiver.url("127.0.0.1"));
        (settings.breaker, settings.order) = (None, order);
        let running = run(&world, settings);
        // Half of four hands, however many are due.
        until(LIMIT, "slow retries", async || waiting.load(Ordering::SeqCst) == 2).await;
        let tried = "select count(*) from walpost.webhook_delivery where attempts > 0";
        until(LIMIT, "all first attempts", async || world.number(tried).await == 40).await;
        for round in 0..5 {
            world.insert(&ids(&format!("f{round}-"), 20)).await;
            world.until("delivered", 20 * (round + 1)).await;
            assert_eq!(waiting.load(Ordering::SeqCst), 2, "nobody has let them go");
        }
        gate.add_permits(40);
        world.until("delivered", 140).await;
        running.stop().await;
    }
}
