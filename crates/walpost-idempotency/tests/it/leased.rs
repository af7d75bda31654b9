//! The layer in leased mode: work that leaves the database.

use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use walpost_idempotency::{
    Claim, Error, Mode, Overtake, Policy,
    http::{Run, TxError},
};
use walpost_testkit::{until, until_some};

use crate::{
    call::{Answer, post as call, request, send},
    handler::{Gate, layer},
    support::{LIMIT, World, answer, lookup, metric},
};

/// Keys that the provider was called with, each time.
type Provider = Arc<Mutex<Vec<String>>>;

struct Shop {
    world: World,
    router: Router,
    gate: Gate,
    provider: Provider,
}

fn policy(route: &str) -> Policy {
    Policy::new(route).mode(Mode::Leased).response_max_bytes(2_000)
}

impl Shop {
    async fn new(policy: Policy) -> Self {
        let world = World::new().await;
        let (gate, provider) = (Gate::new(), Provider::default());
        let (of_handler, calls) = (gate.clone(), Arc::clone(&provider));
        let checkout = post(move |run: Option<Run>, body: String| {
            checkout(of_handler, calls, run.unwrap(), body)
        });
        let router = Router::new().route("/orders", checkout.layer(layer(world.pool(), policy)));
        Self { world, router, gate, provider }
    }

    async fn post(&self, body: &str) -> Answer {
        call(&self.router, "alice", "k", body).await
    }

    fn calls(&self) -> Vec<String> {
        self.provider.lock().unwrap().clone()
    }
}

/// Charges unless that has been done, and then does what the body says, or, in a
/// run behind the charge, succeeds.
async fn checkout(gate: Gate, provider: Provider, run: Run, what: String) -> Response {
    if run.recovery_point() == Some("charged") {
        return (StatusCode::CREATED, "resumed").into_response();
    }
    provider.lock().unwrap().push(run.key_for("charge"));
    let charged = run.phase("charged", |tx| {
        Box::pin(async move {
            tx.batch_execute("insert into effect (name) values ('charged')").await?;
            Ok::<_, TxError>(())
        })
    });
    if let Err(error) = charged.await {
        return error.into_response();
    }
    match what.as_str() {
        "apply" => {}
        "fail" => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        "panic" => panic!("as the test wants it"),
        "refuse" => return (StatusCode::PAYMENT_REQUIRED, "no funds").into_response(),
        "large" => return "x".repeat(3_000).into_response(),
        "hold" => gate.pass().await,
        "hold_and_write" => {
            gate.pass().await;
            let late = run.phase("late", |tx| {
                Box::pin(async move {
                    tx.batch_execute("insert into effect (name) values ('late')").await?;
                    Ok::<_, TxError>(())
                })
            });
            if let Err(error) = late.await {
                assert!(error.to_string().contains("given up"), "{error}");
                gate.pass().await;
                return error.into_response();
            }
        }
        other => panic!("no such checkout: {other}"),
    }
    (StatusCode::CREATED, "charged").into_response()
}

#[tokio::test]
async fn a_checkout_is_charged_once_and_its_answer_replayed() {
    let shop = Shop::new(policy("checkout")).await;
    let first = shop.post("apply").await;
    assert_eq!((first.status, first.is_replay()), (StatusCode::CREATED, false));
    let again = shop.post("apply").await;
    assert_eq!((again.what(), again.is_replay()), (first.what(), true));
    assert_eq!(shop.post("other").await.problem(), "mismatch");
    assert_eq!((shop.calls().len(), shop.world.effects().await), (1, vec!["charged".to_owned()]));
}

#[tokio::test]
async fn a_refusal_is_kept_with_what_was_done_before_it() {
    let shop = Shop::new(policy("checkout")).await;
    for _ in 0..2 {
        assert_eq!(shop.post("refuse").await.status.as_u16(), 402);
    }
    assert_eq!(shop.calls().len(), 1);
}

#[tokio::test]
async fn a_run_that_fails_is_resumed_at_once_behind_its_recovery_point() {
    for (what, status) in [("fail", 500), ("panic", 500)] {
        let shop = Shop::new(policy("checkout")).await;
        assert_eq!(shop.post(what).await.status.as_u16(), status, "{what}");
        let resumed = shop.post(what).await;
        assert_eq!((resumed.status.as_u16(), &resumed.body[..]), (201, &b"resumed"[..]), "{what}");
        assert!(shop.post(what).await.is_replay());
        assert_eq!(shop.calls().len(), 1, "{what}");
    }
}

#[tokio::test]
async fn begun_anew_the_provider_is_called_again_with_the_same_key() {
    let shop = Shop::new(policy("checkout").overtake(Overtake::Rerun)).await;
    for _ in 0..2 {
        assert_eq!(shop.post("fail").await.status.as_u16(), 500);
    }
    let calls = shop.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0], calls[1]);
}

#[tokio::test]
async fn what_is_not_resolved_is_refused_until_an_operator_has_looked() {
    let shop = Shop::new(policy("r").overtake(Overtake::Refuse)).await;
    assert_eq!(shop.post("fail").await.status.as_u16(), 500);
    let refused = shop.post("fail").await;
    assert_eq!((refused.status.as_u16(), &*refused.problem()), (409, "unresolved"));
    assert_eq!(refused.header("retry-after"), None);
    let world = &shop.world;
    assert!(world.idempotency.remove(&world.client, &lookup("alice", "k")).await.unwrap());
    assert_eq!(shop.post("apply").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_response_that_is_too_large_is_never_carried_out_again() {
    let shop = Shop::new(policy("checkout")).await;
    let first = shop.post("large").await;
    assert_eq!((first.status.as_u16(), &*first.problem()), (500, "response-too-large"));
    let again = shop.post("large").await;
    assert_eq!((again.what(), again.is_replay()), (first.what(), true));
    assert_eq!(shop.calls().len(), 1);
}

const LEASE: Duration = Duration::from_secs(10);
/// Whether it has outlived its first lease: from the beginning to the end it lasts longer than
/// two of them.
const OUTLIVES: &str = "select count(*) from walpost.idempotency \
                        where lease_until - created_at > interval '20 s'";

#[tokio::test]
async fn a_lease_is_renewed_while_its_handler_runs() {
    let shop = Shop::new(policy("checkout").lease(LEASE)).await;
    let router = shop.router.clone();
    let running = tokio::spawn(async move { call(&router, "alice", "k", "hold").await });
    shop.gate.reached().await;
    until(LIMIT, "renewals", async || shop.world.number(OUTLIVES).await == 1).await;
    assert_eq!(shop.post("hold").await.problem(), "in-flight");
    shop.gate.open();
    assert_eq!(running.await.unwrap().status, StatusCode::CREATED);
    assert_eq!(shop.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_though_its_handler_never_lets_go_of_its_thread() {
    let world = World::new().await;
    let (gate, (release, released)) = (Gate::new(), mpsc::channel::<()>());
    let (of_handler, released) = (gate.clone(), Arc::new(Mutex::new(released)));
    let compute = post(async move |_: Run| {
        of_handler.tell();
        // Until the other end is dropped.
        let _ = released.lock().unwrap().recv();
        StatusCode::CREATED
    });
    let policy = policy("compute").lease(LEASE);
    let router = Router::new().route("/orders", compute.layer(layer(world.pool(), policy)));
    let running = tokio::spawn({
        let router = router.clone();
        async move { call(&router, "alice", "k", "a").await }
    });
    gate.reached().await;
    until(LIMIT, "renewals", async || world.number(OUTLIVES).await == 1).await;
    assert_eq!(call(&router, "alice", "k", "a").await.problem(), "in-flight");
    drop(release);
    assert_eq!(running.await.unwrap().status, StatusCode::CREATED);
}

/// Takes the request over from a run that holds it, as after a long pause.
async fn take_over(shop: &Shop, route: &str) -> walpost_idempotency::Lease {
    let mut client = shop.world.database.connect().await;
    let request = walpost_idempotency::Request {
        method: "POST",
        route: "/orders",
        body: b"hold_and_write",
        ..Default::default()
    };
    let print = walpost_idempotency::Fingerprint::of(&request);
    let key = walpost_idempotency::Key::new("k").unwrap();
    let scope = walpost_idempotency::Scope::principal_and_route("alice", route);
    let lookup = walpost_idempotency::Lookup::new(&scope, &key);
    let policy = policy(route);
    // Between any two of these it may renew its lease.
    until_some(LIMIT, "the request", async || {
        shop.world.shift("1 hour").await;
        let claim = shop.world.idempotency.lease(&mut client, &lookup, &print, &policy).await;
        match claim {
            Ok(Claim::New(lease)) => Some(lease),
            Ok(Claim::InFlight { .. }) | Err(Error::GivenUp { .. }) => None,
            other => panic!("{other:?}"),
        }
    })
    .await
}

#[tokio::test]
async fn a_run_that_was_overtaken_writes_nothing_and_answers_nothing() {
    let shop = Shop::new(policy("overtaken")).await;
    let router = shop.router.clone();
    let zombie = tokio::spawn(async move {
        let request = request("alice", "k", "hold_and_write");
        send(&router, request).await
    });
    shop.gate.reached().await;
    let heir = take_over(&shop, "overtaken").await;
    // It wakes, and is refused by the database: at its write, and at its end.
    shop.gate.open();
    shop.gate.reached().await;
    assert_eq!(shop.world.effects().await, ["charged"]);
    shop.world.idempotency.finish(&shop.world.client, &heir, &answer("k")).await.unwrap();
    shop.gate.open();
    let zombie = zombie.await.unwrap();
    assert_eq!((zombie.status.as_u16(), &*zombie.problem()), (409, "in-flight"));
    let again = shop.post("hold_and_write").await;
    assert_eq!((&again.body[..], again.is_replay()), (&b"made k"[..], true));
    assert_eq!(metric("walpost_idempotency_lease_lost_total", &[("route", "overtaken")]), 1.0);
}

#[tokio::test]
async fn a_run_that_cannot_renew_is_given_up() {
    let shop = Shop::new(policy("lost").lease(Duration::from_secs(6))).await;
    let router = shop.router.clone();
    let zombie = tokio::spawn(async move { call(&router, "alice", "k", "hold_and_write").await });
    shop.gate.reached().await;
    let _heir = take_over(&shop, "lost").await;
    // Nobody opens the gate: its renewal tells it.
    let zombie = zombie.await.unwrap();
    assert_eq!((zombie.status.as_u16(), &*zombie.problem()), (409, "in-flight"));
    assert_eq!(metric("walpost_idempotency_lease_lost_total", &[("route", "lost")]), 1.0);
}
