//! Order over kills, sleepers that wake, and several processors.

use futures_util::future::join_all;
use walpost_testkit::until;
use walpost_webhook::Order;

use crate::{
    faults::{end_leases, ordered_member},
    order::{assert_ordered, in_order, of_keys},
    receiver::{Receiver, answer},
    waiting::alone,
    world::{LIMIT, World, keys, run},
};

/// Where a processor is ended or sleeps.
const POINTS: [&str; 4] = ["after_claim", "before_bytes", "after_answer", "after_finish"];
const ORDERS: [(&str, Order); 2] = [("key", Order::Key), ("all", Order::All)];

async fn planted() -> (World, Receiver) {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let new = of_keys(4, 6);
    assert_eq!(world.deliveries.insert(&world.client, &new).await.unwrap(), 24);
    (world, receiver)
}

#[tokio::test(flavor = "multi_thread")]
async fn order_holds_over_kills_at_every_point() {
    for (name, order) in ORDERS {
        for point in POINTS {
            let (world, receiver) = planted().await;
            for _ in 0..2 {
                let failpoint = format!("{point}@3:kill");
                let member = ordered_member(&world, &receiver, (name, Some(&failpoint)));
                until(LIMIT, "a death", async || !member.is_running()).await;
                member.killed(LIMIT);
                // The server may still have a claim of it to carry out.
                alone(&world).await;
                end_leases(&world).await;
            }
            let url = receiver.url("127.0.0.1");
            let running = [run(&world, in_order(order, &url)), run(&world, in_order(order, &url))];
            world.until("delivered", 24).await;
            for each in running {
                each.stop().await;
            }
            assert_eq!(assert_ordered(&keys(&receiver)), 24, "{name} {point}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn order_holds_when_a_sleeper_wakes_beside_its_heirs() {
    for order in ORDERS {
        // At once, since each waits for the end of a lease.
        join_all(POINTS.map(|point| wakes(order, point))).await;
    }
}

async fn wakes((name, order): (&str, Order), point: &str) {
    let (world, receiver) = planted().await;
    let failpoint = format!("{point}@3:stop");
    let sleeper = ordered_member(&world, &receiver, (name, Some(&failpoint)));
    sleeper.wait_for_log("failpoint", LIMIT);
    // Its claims are lost by now.
    let held = "select count(*) from walpost.webhook_delivery \
                where state = 'sending' and lease_until > clock_timestamp()";
    until(LIMIT, "the end of its leases", async || world.number(held).await == 0).await;
    let running = run(&world, in_order(order, &receiver.url("127.0.0.1")));
    let done = "select count(*) from walpost.webhook_delivery where state = 'delivered'";
    until(LIMIT, "some of its heirs'", async || world.number(done).await >= 12).await;
    sleeper.resume();
    world.until("delivered", 24).await;
    running.stop().await;
    assert_eq!(assert_ordered(&keys(&receiver)), 24, "{name} {point}");
    sleeper.terminate(LIMIT);
}
