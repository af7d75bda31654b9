//! Requests that come while their twin is running, here and in another process.

use std::time::Duration;

use axum::http::StatusCode;
use walpost_idempotency::{InFlight, Policy, http::IdempotencyLayer};
use walpost_testkit::{until, until_some};

use crate::{
    call::post,
    handler::{Gate, layer, router},
    outage::Rig,
    support::{LIMIT, World, metric},
};

#[tokio::test]
async fn a_twin_gets_409_and_the_answer_when_it_asks_again() {
    let world = World::new().await;
    let gate = Gate::new();
    let router = router(&layer(world.pool(), Policy::new("conflict")), &gate);
    let first = tokio::spawn({
        let router = router.clone();
        async move { post(&router, "alice", "k", "hold").await }
    });
    gate.reached().await;
    let twin = post(&router, "alice", "k", "hold").await;
    assert_eq!((twin.status.as_u16(), &*twin.problem()), (409, "in-flight"));
    assert_eq!(twin.header("retry-after"), Some("1"));
    gate.open();
    let first = first.await.unwrap();
    let again = post(&router, "alice", "k", "hold").await;
    assert_eq!(again.what(), first.what());
    assert!(again.is_replay() && world.effects().await == ["hold"]);
    let counted = [("route", "conflict"), ("result", "conflict")];
    assert_eq!(metric("walpost_idempotency_requests_total", &counted), 1.0);
}

#[tokio::test]
async fn twins_that_wait_get_the_same_answer_also_from_another_process() {
    let world = World::new().await;
    let gate = Gate::new();
    let policy = || Policy::new("wait").in_flight(InFlight::Wait).wait_max(LIMIT);
    // One connection: whoever waits has none.
    let pool = || world.pool().connections(1);
    let routers = [0, 1].map(|_| router(&layer(pool(), policy()), &gate));
    let first = tokio::spawn({
        let router = routers[0].clone();
        async move { post(&router, "alice", "k", "hold").await }
    });
    gate.reached().await;
    let twins: Vec<_> = (0..20)
        .map(|number| {
            let router = routers[number % 2].clone();
            tokio::spawn(async move { post(&router, "alice", "k", "hold").await })
        })
        .collect();
    // Another key is not held up by them.
    assert_eq!(post(&routers[1], "alice", "other", "apply").await.status, StatusCode::CREATED);
    gate.open();
    let first = first.await.unwrap();
    assert_eq!(first.status, StatusCode::CREATED);
    for twin in twins {
        let twin = twin.await.unwrap();
        assert_eq!(twin.what(), first.what());
        assert!(twin.is_replay());
    }
    assert_eq!(world.effects().await, ["apply", "hold"]);
}

#[tokio::test]
async fn twins_that_wait_ask_the_database_nothing() {
    let rig = Rig::new().await;
    let gate = Gate::new();
    let policy = || Policy::new("wait").in_flight(InFlight::Wait).wait_max(LIMIT);
    let watched = router(&layer(rig.pool.clone(), policy()), &gate);
    let unwatched = router(&layer(rig.world.pool(), policy()), &gate);
    let place = || {
        let router = watched.clone();
        tokio::spawn(async move { post(&router, "alice", "k", "hold").await })
    };
    let first = place();
    gate.reached().await;
    // Until the last of its bytes has come through.
    let asked = until_some(LIMIT, "silence", async || {
        let asked = rig.proxy.bytes_to_target();
        let other = post(&unwatched, "bob", &asked.to_string(), "apply").await;
        (other.is_replay() && rig.proxy.bytes_to_target() == asked).then_some(asked)
    })
    .await;
    let twins: Vec<_> = (0..20).map(|_| place()).collect();
    // While others come and go.
    for number in 0..20 {
        let other = post(&unwatched, "alice", &number.to_string(), "apply").await;
        assert_eq!(other.status, StatusCode::CREATED);
    }
    assert_eq!(rig.proxy.bytes_to_target(), asked);
    gate.open();
    assert_eq!(first.await.unwrap().status, StatusCode::CREATED);
    for twin in twins {
        assert!(twin.await.unwrap().is_replay());
    }
}

#[tokio::test]
async fn whoever_has_waited_long_enough_gets_409() {
    let world = World::new().await;
    let gate = Gate::new();
    let policy =
        || Policy::new("wait").in_flight(InFlight::Wait).wait_max(Duration::from_millis(200));
    let routers = [0, 1].map(|_| router(&layer(world.pool(), policy()), &gate));
    let first = tokio::spawn({
        let router = routers[0].clone();
        async move { post(&router, "alice", "k", "hold").await }
    });
    gate.reached().await;
    for router in &routers {
        let twin = post(router, "alice", "k", "hold").await;
        assert_eq!((twin.status.as_u16(), &*twin.problem()), (409, "in-flight"));
    }
    gate.open();
    assert_eq!(first.await.unwrap().status, StatusCode::CREATED);
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_twin_that_waits_carries_out_what_the_first_could_not() {
    let world = World::new().await;
    let gate = Gate::new();
    let policy = Policy::new("wait")
        .in_flight(InFlight::Wait)
        .wait_max(LIMIT)
        .handler_timeout(Duration::from_secs(15));
    let router = router(&layer(world.pool(), policy), &gate);
    let both = [0, 1].map(|_| {
        let router = router.clone();
        tokio::spawn(async move { post(&router, "alice", "k", "hold").await })
    });
    // Nobody opens for whoever comes first, so it is rolled back.
    gate.reached().await;
    gate.reached().await;
    gate.open();
    let [a, b] = both;
    let mut statuses = [a.await.unwrap().status.as_u16(), b.await.unwrap().status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 503]);
    assert_eq!(world.effects().await, ["hold"]);
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_twin_whose_client_has_gone_waits_no_more_and_is_never_carried_out() {
    let world = World::new().await;
    let gate = Gate::new();
    let policy = Policy::new("gone")
        .in_flight(InFlight::Wait)
        .waiting_max(1)
        .handler_timeout(Duration::from_secs(20));
    let layer = layer(world.pool().connections(1), policy);
    let router = router(&layer, &gate);
    let place = || {
        let router = router.clone();
        tokio::spawn(async move { post(&router, "alice", "k", "hold").await })
    };
    let first = place();
    gate.reached().await;
    let twin = place();
    until(LIMIT, "a twin that waits", async || layer.waiting() == 1).await;
    twin.abort();
    assert!(twin.await.unwrap_err().is_cancelled());
    assert_eq!(layer.waiting(), 0);
    // Nobody opens for the first, so it is rolled back; whoever comes next passes.
    assert_eq!(first.await.unwrap().status.as_u16(), 503);
    gate.open();
    layer.drained().await;
    assert_eq!(world.effects().await, [""; 0]);
    assert_eq!(post(&router, "alice", "other", "apply").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn as_many_twins_wait_as_may_and_others_get_503() {
    let world = World::new().await;
    let gate = Gate::new();
    let policy = || Policy::new("crowded").in_flight(InFlight::Wait).waiting_max(2).wait_max(LIMIT);
    // The twins of one layer stand in line, those of the other one ask again and again.
    let layers = [0, 1].map(|_| layer(world.pool(), policy()));
    let place = |layer: &IdempotencyLayer| {
        let router = router(layer, &gate);
        tokio::spawn(async move { post(&router, "alice", "k", "hold").await })
    };
    let first = place(&layers[0]);
    gate.reached().await;
    let mut twins = Vec::new();
    for layer in &layers {
        twins.extend([place(layer), place(layer)]);
        until(LIMIT, "two that wait", async || layer.waiting() == 2).await;
        let turned_away = post(&router(layer, &gate), "alice", "k", "hold").await;
        assert_eq!((turned_away.status.as_u16(), &*turned_away.problem()), (503, "crowded"));
        assert_eq!(turned_away.header("retry-after"), Some("1"));
    }
    // Another key waits for nobody.
    let other = post(&router(&layers[0], &gate), "alice", "other", "apply").await;
    assert_eq!(other.status, StatusCode::CREATED);
    gate.open();
    assert_eq!(first.await.unwrap().status, StatusCode::CREATED);
    for twin in twins {
        assert!(twin.await.unwrap().is_replay());
    }
    let counted = [("route", "crowded"), ("result", "crowded")];
    assert_eq!(metric("walpost_idempotency_requests_total", &counted), 2.0);
}
