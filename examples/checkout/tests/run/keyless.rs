//! A payment provider that knows no keys: an outcome that nobody knows is held,
//! and looked up instead of asked for again.

use crate::{
    oracle::{Oracle, refunded, shipped, trace},
    world::{Setting, World},
};

/// Calls and claims outlast a stall.
const KEYLESS: [Setting; 3] =
    [("KEYS_LAST_MS", "0"), ("CALL_TIMEOUT_MS", "3000"), ("LEASE_MS", "30000")];
const SETTLED: Setting = ("SETTLED_AFTER_MS", "4000");
/// While anybody looks.
const NOT_SETTLED: Setting = ("SETTLED_AFTER_MS", "60000");

fn keyless(settled: Setting) -> Vec<Setting> {
    [&KEYLESS[..], &[settled]].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_whose_answer_is_lost_is_found_and_not_made_again() {
    let world = World::new(&keyless(NOT_SETTLED)).await;
    let service = world.service().await;
    world.payment_faults("lose").await;
    assert_eq!(service.check_out("alice", "lamp").await.unwrap().what(), (503, "charging"));
    assert_eq!(service.until_told("alice", "lamp").await.what(), (201, "shipped"));
    Oracle::new(&world).await.until("alice", &shipped()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_that_comes_late_is_waited_for() {
    let world = World::new(&keyless(NOT_SETTLED)).await;
    let service = world.service().await;
    world.payment_faults("late").await;
    assert_eq!(service.check_out("alice", "lamp").await.unwrap().what(), (503, "charging"));
    assert_eq!(service.until_told("alice", "lamp").await.what(), (201, "shipped"));
    Oracle::new(&world).await.until("alice", &shipped()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_charge_nothing_is_shipped_and_the_customer_is_told() {
    let mut world = World::new(&keyless(SETTLED)).await;
    let service = world.service().await;
    world.payment_faults("fail").await;
    assert_eq!(service.check_out("alice", "lamp").await.unwrap().what(), (503, "charging"));
    assert_eq!(service.until_told("alice", "lamp").await.what(), (402, "not_charged"));
    // What has not gone out is no unknown outcome: it may be asked for again.
    world.payment.take().unwrap().kill();
    assert_eq!(service.check_out("bob", "lamp").await.unwrap().what(), (503, "accepted"));
    world.open_payment().await;
    assert_eq!(service.until_told("bob", "lamp").await.what(), (201, "shipped"));
    let oracle = Oracle::new(&world).await;
    assert_eq!(oracle.trace("alice").await, trace("not_charged", 0, 0, 0));
    assert_eq!(oracle.trace("bob").await, shipped());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_that_comes_after_the_end_is_found_and_refunded_once() {
    // The charge comes as long after the call is given up as the call took: behind the end.
    let late = ("CALL_TIMEOUT_MS", "8000");
    let settings = [&keyless(("SETTLED_AFTER_MS", "0"))[..], &[late]].concat();
    let world = World::new(&settings).await;
    let service = world.service().await;
    let (_sweeper, _sender) = (world.part("sweeper", &[]), world.part("sender", &[]));
    world.payment_faults("late").await;
    assert_eq!(service.check_out("alice", "lamp").await.unwrap().what(), (503, "charging"));
    assert_eq!(service.until_told("alice", "lamp").await.what(), (402, "not_charged"));
    Oracle::new(&world).await.until("alice", &refunded()).await;
}
