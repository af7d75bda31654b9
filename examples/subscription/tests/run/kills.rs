//! Each part is killed at each failpoint that it passes, ours and the provider's;
//! its successor goes on.

use walpost_testkit::covers_points;

use crate::{
    oracle::Oracle,
    world::{LIMIT, World},
};

/// Points of the idempotency layer, and how often a request passes each.
const OF_THE_LAYER: [(&str, usize); 7] = [
    ("after_claim", 1),
    ("before_commit", 1),
    ("after_commit", 1),
    // Of the leased mode.
    ("after_lease", 0),
    ("after_phase", 0),
    ("before_finish", 0),
    ("after_finish", 0),
];
/// Points of webhooks, and who passes them.
const OF_WEBHOOKS: [(&str, Part); 6] = [
    ("after_claim", Part::Sender),
    ("before_bytes", Part::Sender),
    ("after_answer", Part::Sender),
    ("after_finish", Part::Sender),
    ("before_receipt", Part::Service),
    ("after_receipt", Part::Service),
];
/// The example's own.
const OF_THE_EXAMPLE: [(&str, Part); 5] = [
    ("before_settling", Part::Settler),
    ("before_settled_commit", Part::Settler),
    ("behind_subscribed_commit", Part::Provider),
    ("before_telling", Part::Provider),
    ("behind_telling", Part::Provider),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Sender,
    Service,
    /// The processor of the inbox, and whoever asks the provider.
    Settler,
    Provider,
}

const FAILPOINT: &str = "WALPOST_FAILPOINT";
const SENDING: [(&str, &str); 1] = [("CALL_TIMEOUT_MS", "1000")];

/// Each failpoint has to be here, with who passes it.
fn every<T>(code: impl Iterator<Item = &'static str>, table: &[(&'static str, T)]) {
    covers_points(table.iter().map(|(name, _)| *name), code);
}

fn of(part: Part) -> Vec<&'static str> {
    every(walpost_webhook::failpoints(), &OF_WEBHOOKS);
    every(subscription::failpoints(), &OF_THE_EXAMPLE);
    let all = OF_WEBHOOKS.iter().chain(&OF_THE_EXAMPLE);
    all.filter(|(_, whose)| *whose == part).map(|(name, _)| *name).collect()
}

async fn all_are_active(world: &World, users: &[&str]) {
    let oracle = Oracle::new(world).await;
    for user in users {
        oracle.until(user, "active").await;
        assert_eq!(oracle.told_of(user).await, ["active"], "{user}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_killed_at_each_step_of_a_request_enqueues_it_once() {
    every(walpost_idempotency::failpoints(), &OF_THE_LAYER);
    let mut world = World::new(&SENDING).await;
    let (_sender, _processor) = (world.part("sender", &[]), world.part("processor", &[]));
    let oracle = Oracle::new(&world).await;
    let mut there = Vec::new();
    for (point, times) in OF_THE_LAYER {
        let gone: &'static str = format!("{point}-gone").leak();
        world.users(&[point, gone]).await;
        for (user, comes_back) in [(gone, false), (point, true)] {
            let armed = format!("idempotency/{point}@1:kill");
            world.restart_service(&[(FAILPOINT, &armed)]).await;
            let told = world.subscribe(user).await;
            assert_eq!(told.is_none(), times == 1, "{point}: {told:?}");
            if times == 1 {
                world.service.killed(LIMIT);
                world.restart_service(&[]).await;
            }
            if comes_back {
                let told = world.until_enqueued(user).await;
                assert_eq!(world.subscribe(user).await, Some(told), "the same again");
            }
            // Whoever never comes back has a subscription, or was never heard of.
            if comes_back || oracle.has(user).await {
                there.push(user);
            } else {
                assert_eq!((user, times), (gone, 1));
            }
        }
    }
    world.restart_service(&[]).await;
    all_are_active(&world, &there).await;
    // Of the two that were killed before their commit and never came back, nobody
    // has heard.
    assert_eq!(there.len(), OF_THE_LAYER.len() * 2 - 2, "{there:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_killed_at_each_step_of_a_webhook_takes_it_once() {
    let mut world = World::new(&SENDING).await;
    let (_sender, _processor) = (world.part("sender", &[]), world.part("processor", &[]));
    let points = of(Part::Service);
    world.users(&points).await;
    for point in &points {
        // A webhook that was not answered would kill it before this request.
        world.until_all_is_told().await;
        let armed = format!("webhook/{point}@1:kill");
        world.restart_service(&[(FAILPOINT, &armed)]).await;
        // The webhook may come before this answer has gone out.
        let told = world.subscribe(point).await;
        assert!(told.is_none_or(|told| told.status == 202), "{point}");
        world.service.killed(LIMIT);
        world.restart_service(&[]).await;
        world.until_enqueued(point).await;
        all_are_active(&world, &[point]).await;
    }
    world.until_count("select count(*) from walpost.inbox", points.len() as i64).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_is_killed_at_each_step_asks_for_one_subscription() {
    let world = World::new(&SENDING).await;
    let _processor = world.part("processor", &[]);
    let points = of(Part::Sender);
    world.users(&points).await;
    for point in &points {
        assert_eq!(world.subscribe(point).await.unwrap().status, 202);
        let armed = format!("webhook/{point}@1:kill");
        let sender = world.part("sender", &[(FAILPOINT, &armed)]);
        sender.killed(LIMIT);
    }
    let _sender = world.part("sender", &[]);
    all_are_active(&world, &points).await;
    let delivered = "select count(*) from walpost.webhook_delivery where state = 'delivered'";
    world.until_count(delivered, points.len() as i64).await;
    all_are_active(&world, &points).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_processor_that_is_killed_at_each_step_settles_once() {
    let world = World::new(&SENDING).await;
    let _sender = world.part("sender", &[]);
    let points = of(Part::Settler);
    world.users(&points).await;
    for point in &points {
        let armed = format!("subscription/{point}@1:kill");
        let processor = world.part("processor", &[(FAILPOINT, &armed)]);
        assert_eq!(world.subscribe(point).await.unwrap().status, 202);
        processor.killed(LIMIT);
        let state = "select count(*) from subscription where state <> 'pending'";
        world.until_count(state, 0).await;
    }
    let _processor = world.part("processor", &[]);
    all_are_active(&world, &points).await;
    let succeeded = "select count(*) from walpost.inbox where processing_state = 'succeeded'";
    world.until_count(succeeded, points.len() as i64).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_the_provider_and_is_killed_at_each_step_settles_once() {
    let world = World::new(&SENDING).await;
    let _sender = world.part("sender", &[]);
    let points = of(Part::Settler);
    world.users(&points).await;
    for point in &points {
        world.whims("never").await;
        let armed = format!("subscription/{point}@1:kill");
        let reconciler = world.part("reconciler", &[(FAILPOINT, &armed)]);
        assert_eq!(world.subscribe(point).await.unwrap().status, 202);
        reconciler.killed(LIMIT);
    }
    let _reconciler = world.part("reconciler", &[]);
    all_are_active(&world, &points).await;
    world.until_count("select count(*) from walpost.inbox", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_killed_at_each_step_has_one_subscription_and_tells_of_it() {
    let mut world = World::new(&SENDING).await;
    let (_sender, _processor) = (world.part("sender", &[]), world.part("processor", &[]));
    let points = of(Part::Provider);
    world.users(&points).await;
    for point in &points {
        // An earlier webhook would kill it before this subscription.
        world.until_all_is_told().await;
        let armed = format!("subscription/{point}@1:kill");
        world.restart_billing(&[(FAILPOINT, &armed)]).await;
        assert_eq!(world.subscribe(point).await.unwrap().status, 202);
        world.billing.killed(LIMIT);
        world.restart_billing(&[]).await;
        all_are_active(&world, &[point]).await;
    }
}
