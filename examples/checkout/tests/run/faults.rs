//! The provider and the warehouse fail, are slow, lose answers and die.

use crate::{
    oracle::{Oracle, refunded, shipped, trace},
    world::{LIMIT, Setting, World},
};

/// Nobody is killed with it.
const LEASE: Setting = ("LEASE_MS", "30000");
/// Short, so that a lost answer costs little, and longer than a stall.
const CALLS: [Setting; 2] = [SHORT, LEASE];
const SHORT: Setting = ("CALL_TIMEOUT_MS", "3000");
/// Longer than anything takes, and shorter than a request may.
const CALLS_LAST: [Setting; 2] = [("CALL_TIMEOUT_MS", "18000"), LEASE];

#[tokio::test(flavor = "multi_thread")]
async fn a_shipment_that_fails_for_now_is_gone_on_with_and_nothing_is_charged_again() {
    let world = World::new(&CALLS_LAST).await;
    let service = world.service().await;
    world.warehouse_faults("fail\nfail").await;
    for _ in 0..2 {
        let told = service.check_out("alice", "lamp").await.unwrap();
        assert_eq!(told.what(), (503, "charged"));
    }
    let told = service.check_out("alice", "lamp").await.unwrap();
    assert_eq!(told.what(), (201, "shipped"));
    assert_eq!(service.check_out("alice", "lamp").await, Some(told));
    assert_eq!(Oracle::new(&world).await.trace("alice").await, shipped());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_comes_back_for_is_ended_by_the_sweeper() {
    let world = World::new(&CALLS).await;
    let service = world.service().await;
    let faults = [("fail", ""), ("", "fail"), ("lose", ""), ("", "lose"), ("late", "late")];
    for (n, (payment, warehouse)) in faults.iter().enumerate() {
        world.payment_faults(payment).await;
        world.warehouse_faults(warehouse).await;
        let told = service.check_out(&format!("c{n}"), "lamp").await.unwrap();
        assert_eq!(told.status.as_u16(), 503, "{told:?}");
    }
    let _sweeper = world.part("sweeper", &[]);
    let oracle = Oracle::new(&world).await;
    for n in 0..faults.len() {
        oracle.until(&format!("c{n}"), &shipped()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_lost_slow_or_late_charge_and_ship_once() {
    let world = World::new(&CALLS).await;
    let service = world.service().await;
    let oracle = Oracle::new(&world).await;
    for fault in ["lose", "slow", "late", "late\nlose\nfail"] {
        for of_payment in [true, false] {
            let customer = format!("{}-{of_payment}", fault.replace('\n', "-"));
            match of_payment {
                true => world.payment_faults(fault).await,
                false => world.warehouse_faults(fault).await,
            }
            let told = service.until_told(&customer, "lamp").await;
            assert_eq!(told.what(), (201, "shipped"));
            oracle.until(&customer, &shipped()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn out_of_stock_is_refunded_once_and_the_customer_is_told() {
    let world = World::new(&CALLS_LAST).await;
    let service = world.service().await;
    let told = service.check_out("alice", "chandelier").await.unwrap();
    assert_eq!(told.what(), (200, "refund_due"));
    assert_eq!(told.body["refund_cents"], 4_900);
    assert_eq!(service.check_out("alice", "chandelier").await, Some(told));
    let oracle = Oracle::new(&world).await;
    assert_eq!(oracle.trace("alice").await, trace("refund_due", 1, 0, 0));
    world.payment_faults("fail\nlose\nlate\nfail").await;
    let _sender = world.part("sender", &[SHORT]);
    oracle.until("alice", &refunded()).await;
    let shop = world.database("shop").await;
    walpost_testkit::until(LIMIT, "a delivery that has ended", async || {
        let count = "select count(*) from walpost.webhook_delivery \
                     where state = 'delivered' and attempts > 1";
        shop.query_one(count, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    assert_eq!(oracle.trace("alice").await, refunded());
    assert_eq!(oracle.refund_events().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn providers_that_are_killed_in_the_midst_of_a_request_are_asked_again() {
    let mut world = World::new(&[("CALL_TIMEOUT_MS", "9000"), LEASE]).await;
    let service = world.service().await;
    // They have the request, and do what it asks for later, or never.
    world.payment_faults("late").await;
    assert_eq!(service.check_out("alice", "lamp").await.unwrap().what(), (503, "accepted"));
    world.payment.take().unwrap().kill();
    assert_eq!(service.check_out("alice", "lamp").await.unwrap().what(), (503, "accepted"));
    world.open_payment().await;
    world.warehouse_faults("lose").await;
    assert_eq!(service.check_out("alice", "lamp").await.unwrap().what(), (503, "charged"));
    world.warehouse.take().unwrap().kill();
    assert_eq!(service.check_out("alice", "lamp").await.unwrap().what(), (503, "charged"));
    world.open_warehouse().await;
    assert_eq!(service.check_out("alice", "lamp").await.unwrap().what(), (201, "shipped"));
    Oracle::new(&world).await.until("alice", &shipped()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twins_on_two_servers_are_one_checkout() {
    let world = World::new(&CALLS_LAST).await;
    let (one, other) = (world.service().await, world.service().await);
    let oracle = Oracle::new(&world).await;
    let payment = world.payment.as_ref().unwrap();
    // The first one waits for the provider until its twins are answered.
    payment.pause();
    let twins = async {
        oracle.until("alice", &trace("accepted", 0, 0, 0)).await;
        let twins = (0..9).map(|n| if n % 2 == 0 { &other } else { &one });
        let twins = twins.map(|server| server.check_out("alice", "lamp"));
        let told = futures_util::future::join_all(twins).await;
        payment.resume();
        told
    };
    let (first, twins) = tokio::join!(one.check_out("alice", "lamp"), twins);
    assert_eq!(first.unwrap().what(), (201, "shipped"));
    for twin in twins {
        assert_eq!(twin.map(|told| told.status.as_u16()), Some(409));
    }
    assert_eq!(one.until_told("alice", "lamp").await, other.until_told("alice", "lamp").await);
    oracle.until("alice", &shipped()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_for_one_order_and_a_refused_card_ships_nothing() {
    let world = World::new(&CALLS_LAST).await;
    let service = world.service().await;
    assert_eq!(service.check_out("alice", "lamp").await.unwrap().what(), (201, "shipped"));
    let other = service.check_out("alice", "chandelier").await.unwrap();
    assert_eq!(other.status.as_u16(), 422);
    for _ in 0..2 {
        let told = service.check_out_with("bob", "lamp", "empty").await.unwrap();
        assert_eq!(told.what(), (402, "declined"));
    }
    let oracle = Oracle::new(&world).await;
    assert_eq!(oracle.trace("alice").await, shipped());
    assert_eq!(oracle.trace("bob").await, trace("declined", 0, 0, 0));
}
