//! The provider fails, is slow, loses answers, and tells twice, early, late, in
//! another order or never.

use walpost_testkit::until;

use crate::{
    oracle::Oracle,
    world::{LIMIT, World},
};

const CALLS: [(&str, &str); 1] = [("CALL_TIMEOUT_MS", "1000")];

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_fail_or_whose_answers_are_lost_are_one_subscription() {
    let world = World::new(&CALLS).await;
    let (_sender, _processor) = (world.part("sender", &[]), world.part("processor", &[]));
    let oracle = Oracle::new(&world).await;
    let faults = ["fail", "lose", "slow", "late", "late\nlose\nfail\nlose"];
    let users: Vec<String> = faults.iter().map(|fault| fault.replace('\n', "-")).collect();
    world.users(&users.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for (user, fault) in users.iter().zip(faults) {
        world.faults(fault).await;
        assert_eq!(world.subscribe(user).await.unwrap().status, 202);
        oracle.until(user, "active").await;
        let open = "select count(*) from walpost.webhook_delivery where state <> 'delivered'";
        world.until_count(open, 0).await;
        oracle.until(user, "active").await;
        assert_eq!(oracle.told_of(user).await, ["active"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_comes_before_the_answer_to_its_request_is_taken() {
    // The answer is never heard, and waited for all the while.
    let world = World::new(&[("CALL_TIMEOUT_MS", "100000")]).await;
    world.users(&["alice"]).await;
    world.faults("lose").await;
    let (_sender, _processor) = (world.part("sender", &[]), world.part("processor", &[]));
    let told = world.subscribe("alice").await.unwrap();
    let id = told.body["subscription"].as_str().unwrap();
    Oracle::new(&world).await.until("alice", "active").await;
    world
        .until_count("select count(*) from walpost.webhook_delivery where state = 'sending'", 1)
        .await;
    let now = world.look("alice", id).await;
    assert_eq!((now.status, &now.body["state"]), (200, &"active".into()));
    assert_eq!(world.look("bob", id).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_that_come_twice_or_late_settle_once() {
    let world = World::new(&CALLS).await;
    let (_sender, _processor) = (world.part("sender", &[]), world.part("processor", &[]));
    let users = ["twice", "late", "refused-poor"];
    world.users(&users).await;
    let oracle = Oracle::new(&world).await;
    for (user, end) in users.into_iter().zip(["active", "active", "failed"]) {
        world.whims(if user == "late" { "late" } else { "twice" }).await;
        assert_eq!(world.subscribe(user).await.unwrap().status, 202);
        oracle.until(user, end).await;
        assert_eq!(oracle.told_of(user).await, [end]);
    }
    world.until_all_is_told().await;
    world.until_count("select count(*) from walpost.inbox", 3).await;
    world
        .until_count("select count(*) from walpost.inbox where processing_state = 'succeeded'", 3)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn news_that_come_in_another_order_lead_to_the_same_end() {
    let world = World::new(&CALLS).await;
    let (_sender, _processor) = (world.part("sender", &[]), world.part("processor", &[]));
    world.users(&["alice"]).await;
    world.whims("late").await;
    let told = world.subscribe("alice").await.unwrap();
    let id = told.body["subscription"].as_str().unwrap();
    let oracle = Oracle::new(&world).await;
    until(LIMIT, "a subscription at the provider", async || {
        oracle.compare().await.iter().any(|(.., theirs)| theirs.is_some())
    })
    .await;
    world.cancel_at_the_provider(id).await;
    oracle.until("alice", "cancelled").await;
    world
        .until_count("select count(*) from walpost.inbox where processing_state = 'succeeded'", 2)
        .await;
    oracle.until("alice", "cancelled").await;
    let told = oracle.told_of("alice").await;
    assert_eq!(told.last().map(String::as_str), Some("cancelled"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_webhook_tells_is_found_by_asking() {
    let world = World::new(&CALLS).await;
    let _sender = world.part("sender", &[]);
    world.users(&["alice"]).await;
    world.whims("never\nnever").await;
    let told = world.subscribe("alice").await.unwrap();
    let id = told.body["subscription"].as_str().unwrap();
    let _reconciler = world.part("reconciler", &[]);
    let oracle = Oracle::new(&world).await;
    oracle.until("alice", "active").await;
    world.cancel_at_the_provider(id).await;
    oracle.until("alice", "cancelled").await;
    assert_eq!(oracle.told_of("alice").await, ["active", "cancelled"]);
    world.until_count("select count(*) from walpost.inbox", 0).await;
    // What nobody here has asked for is noted for people, and what is there after all.
    let refused = "insert into subscription (id, user_id, plan_id, state) \
                   values ('refused', 'alice', 'basic', 'failed')";
    world.database("app").await.execute(refused, &[]).await.unwrap();
    for reference in ["nobody", "refused"] {
        let insert = "insert into subscription (reference, user_id, plan_id, state) \
                      values ($1, 'x', 'basic', 'active')";
        world.database("billing").await.execute(insert, &[&reference]).await.unwrap();
    }
    world
        .until_count("select count(*) from stray where reference in ('nobody', 'refused')", 2)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_may_not_be_is_refused_and_nothing_is_enqueued() {
    let world = World::new(&CALLS).await;
    world.users(&["alice"]).await;
    let unverified = "insert into app_user values ('eve', false)";
    world.database("app").await.execute(unverified, &[]).await.unwrap();
    for (user, plan, problem) in [
        ("nobody", "basic", "unknown_user"),
        ("eve", "basic", "email_not_verified"),
        ("alice", "gold", "unknown_plan"),
    ] {
        let told = world.subscribe_with(user, "k1", plan).await.unwrap();
        assert_eq!((told.status, &told.body["problem"]), (422, &problem.into()));
    }
    let nothing = "select (select count(*) from subscription) \
                   + (select count(*) from walpost.outbox)";
    world.until_count(nothing, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_one_subscription_and_two_keys_are_two() {
    let world = World::new(&CALLS).await;
    let (_sender, _processor) = (world.part("sender", &[]), world.part("processor", &[]));
    world.users(&["alice"]).await;
    let twins = (0..10).map(|_| world.subscribe("alice"));
    let told = futures_util::future::join_all(twins).await;
    let known = |status: u16| matches!(status, 202 | 409);
    assert!(told.iter().flatten().all(|told| known(told.status)), "{told:?}");
    let first = world.until_enqueued("alice").await;
    let second = world.subscribe_with("alice", "other", "basic").await.unwrap();
    assert_ne!(first.body["subscription"], second.body["subscription"]);
    let active = "select count(*) from subscription where state = 'active'";
    world.until_count(active, 2).await;
    assert_eq!(Oracle::new(&world).await.compare().await.len(), 2);
}
