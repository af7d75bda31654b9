//! The layer in transactional mode, request by request.

use std::time::Duration;

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    routing::post,
};
use futures_util::stream;
use walpost_idempotency::{
    AfterExpiry, Keep, KeySyntax, OnMismatch, Policy,
    http::{IdempotencyLayer, Tx, TxError},
};
use walpost_testkit::until;

use crate::{
    call::{Answer, post as call, request, send},
    handler::{Gate, layer, router},
    support::{LIMIT, World, metric},
};

struct Shop {
    world: World,
    layer: IdempotencyLayer,
    router: Router,
    gate: Gate,
}

impl Shop {
    async fn new(policy: Policy) -> Self {
        let world = World::new().await;
        let gate = Gate::new();
        let layer = layer(world.pool(), policy.response_max_bytes(2_000));
        let router = router(&layer, &gate);
        Self { world, layer, router, gate }
    }

    async fn post(&self, key: &str, body: &str) -> Answer {
        call(&self.router, "alice", key, body).await
    }

    /// No transaction is left open, and no effect is there.
    async fn is_clean(&self) {
        let open = "select count(*) from pg_stat_activity where datname = current_database() \
                    and pid <> pg_backend_pid() and state <> 'idle'";
        until(LIMIT, "no open transaction", async || self.world.number(open).await == 0).await;
        assert_eq!(self.world.effects().await, [""; 0]);
        assert_eq!(self.world.number("select count(*) from walpost.idempotency").await, 0);
    }
}

fn policy() -> Policy {
    Policy::new("POST /orders")
}

#[tokio::test]
async fn an_order_is_placed_once_and_its_answer_replayed() {
    let shop = Shop::new(Policy::new("replay")).await;
    let first = shop.post("k", "event 1").await;
    assert_eq!((first.status, first.is_replay()), (StatusCode::CREATED, false));
    assert_eq!(first.header("set-cookie"), Some("session=secret"));
    for key in ["k", "\"k\"", " \"k\";v=1 "] {
        let again = shop.post(key, "event 1").await;
        assert_eq!(again.what(), first.what(), "{key}");
        assert!(again.is_replay());
        for name in ["location", "content-type"] {
            assert_eq!(again.header(name), first.header(name), "{name}");
        }
        assert_eq!(again.header("set-cookie"), None);
    }
    assert_eq!(shop.world.effects().await, ["event 1"]);
    assert_eq!(shop.world.number("select count(*) from walpost.outbox").await, 1);
    let counted = |result| {
        metric("walpost_idempotency_requests_total", &[("route", "replay"), ("result", result)])
    };
    assert_eq!((counted("new"), counted("replayed")), (1.0, 3.0));
}

#[tokio::test]
async fn requests_that_are_at_fault_are_refused_before_anything_is_done() {
    let shop = Shop::new(policy().request_max_bytes(100)).await;
    let refused = async |request| {
        let answer = send(&shop.router, request).await;
        (answer.status.as_u16(), answer.problem())
    };
    let bare = || Request::post("/orders").header("x-user", "alice");
    let missing = bare().body(Body::from("apply 1")).unwrap();
    assert_eq!(refused(missing).await, (400, "key-missing".to_owned()));
    for key in ["", "\"a", "a b", "a,b", "\"\"", &"k".repeat(256)] {
        let answer = refused(request("alice", key, "apply 1")).await;
        assert_eq!(answer, (400, "key-invalid".to_owned()), "{key}");
    }
    let twice = bare().header("idempotency-key", "a").header("idempotency-key", "a");
    let twice = twice.body(Body::from("apply 1")).unwrap();
    assert_eq!(refused(twice).await, (400, "key-invalid".to_owned()));
    let bytes = bare().header("idempotency-key", &b"\xff\xfe"[..]);
    let bytes = bytes.body(Body::from("apply 1")).unwrap();
    assert_eq!(refused(bytes).await, (400, "key-invalid".to_owned()));
    let nobody = Request::post("/orders").header("idempotency-key", "k");
    let nobody = nobody.body(Body::from("apply 1")).unwrap();
    assert_eq!(refused(nobody).await, (403, "no-principal".to_owned()));
    let large = (413, "body-too-large".to_owned());
    assert_eq!(refused(request("alice", "k", "x".repeat(101))).await, large);
    let endless = stream::repeat_with(|| Ok::<_, std::io::Error>("xxxx"));
    assert_eq!(refused(request("alice", "k", Body::from_stream(endless))).await, large);
    let told = bare().header("idempotency-key", "k").header("content-length", "101");
    assert_eq!(refused(told.body(Body::empty()).unwrap()).await, large);
    let parts = [Ok("apply"), Err(std::io::Error::other("gone"))];
    let broken = request("alice", "k", Body::from_stream(stream::iter(parts)));
    assert_eq!(refused(broken).await, (400, "body-incomplete".to_owned()));
    shop.is_clean().await;
}

#[tokio::test]
async fn strict_routes_take_quoted_keys_alone() {
    let shop = Shop::new(policy().key_syntax(KeySyntax::Strict).key_header("X-Key")).await;
    let with = |key: &str| {
        let request = Request::post("/orders").header("x-user", "alice").header("x-key", key);
        request.body(Body::from("apply 1")).unwrap()
    };
    assert_eq!(send(&shop.router, with("k")).await.problem(), "key-invalid");
    assert_eq!(send(&shop.router, with("\"k\"")).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn another_request_under_a_key_is_422_or_409_and_another_users_is_fine() {
    let shop = Shop::new(Policy::new("mismatch")).await;
    assert_eq!(shop.post("k", "apply 1").await.status, StatusCode::CREATED);
    let other = shop.post("k", "apply 2").await;
    assert_eq!((other.status.as_u16(), &*other.problem()), (422, "mismatch"));
    let mut query = request("alice", "k", "apply 1");
    *query.uri_mut() = "/orders?x=1".parse().unwrap();
    assert_eq!(send(&shop.router, query).await.problem(), "mismatch");
    let bob = call(&shop.router, "bob", "k", "apply 2").await;
    assert_eq!((bob.status, bob.is_replay()), (StatusCode::CREATED, false));
    assert_eq!(shop.world.effects().await, ["apply 1", "apply 2"]);
    let conflict =
        layer(shop.world.pool(), Policy::new("mismatch").on_mismatch(OnMismatch::Conflict));
    let other = call(&router(&conflict, &shop.gate), "alice", "k", "apply 2").await;
    assert_eq!((other.status.as_u16(), &*other.problem()), (409, "mismatch"));
    let counted = [("route", "mismatch"), ("result", "mismatch")];
    assert_eq!(metric("walpost_idempotency_requests_total", &counted), 3.0);
}

#[tokio::test]
async fn an_expired_key_is_gone() {
    let shop = Shop::new(policy().after_expiry(AfterExpiry::Gone)).await;
    assert_eq!(shop.post("k", "apply 1").await.status, StatusCode::CREATED);
    shop.world.shift("24 hours").await;
    let gone = shop.post("k", "apply 1").await;
    assert_eq!((gone.status.as_u16(), &*gone.problem()), (410, "gone"));
    assert_eq!(shop.world.effects().await, ["apply 1"]);
}

#[tokio::test]
async fn an_error_leaves_no_effect_and_is_kept_by_policy() {
    // Status, and whether it is kept: by default, with success, with all.
    let kept = [
        ("refuse", 422, [true, false, true]),
        ("sql", 400, [true, false, true]),
        ("busy", 429, [false, false, true]),
        ("fail", 500, [false, false, true]),
    ];
    for (index, keep) in [Keep::default(), Keep::Success, Keep::All].into_iter().enumerate() {
        let shop = Shop::new(policy().keep(keep)).await;
        for (what, status, kept) in kept {
            let first = shop.post(what, what).await;
            assert_eq!(first.status.as_u16(), status, "{what}");
            let again = shop.post(what, what).await;
            assert_eq!(again.what(), first.what(), "{what}");
            assert_eq!(again.is_replay(), kept[index], "{what} under {keep:?}");
            // A key that is free is free for anything.
            let other = shop.post(what, "apply 1").await.status.as_u16();
            assert_eq!(other, if kept[index] { 422 } else { 201 }, "{what} under {keep:?}");
        }
        let free = kept.iter().filter(|(.., kept)| !kept[index]).count();
        assert_eq!(shop.world.effects().await, vec!["apply 1"; free]);
    }
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_handler_that_fails_is_rolled_back_and_its_key_is_free() {
    let shop = Shop::new(policy()).await;
    // For those that end by it, and not so short that the server's own limit, twice as long, is
    // first.
    let hasty = policy().handler_timeout(Duration::from_secs(5));
    let hasty = router(&layer(shop.world.pool(), hasty), &shop.gate);
    for (what, status, name) in [
        ("panic", 500, "handler-failed"),
        ("job_panic", 500, "handler-failed"),
        ("broken", 500, "handler-failed"),
        ("swallow", 500, "handler-failed"),
        ("large", 500, "response-too-large"),
        ("endless", 500, "response-too-large"),
        ("silent", 503, "timed-out"),
        ("hang", 503, "timed-out"),
        ("sleep", 503, "timed-out"),
        ("deadlock", 503, "store-unavailable"),
    ] {
        let router = if name == "timed-out" { &hasty } else { &shop.router };
        let failed = call(router, "alice", "k", what).await;
        assert_eq!((failed.status.as_u16(), &*failed.problem()), (status, name), "{what}");
        assert_eq!(failed.header("retry-after").is_some(), status == 503, "{what}");
        shop.is_clean().await;
    }
    assert_eq!(shop.post("k", "apply 1").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_handler_that_commits_by_itself_is_told_so() {
    let shop = Shop::new(policy()).await;
    let refused = shop.post("k", "commit").await;
    assert_eq!((refused.status.as_u16(), &*refused.problem()), (500, "handler-failed"));
    assert_eq!(shop.world.number("select count(*) from walpost.idempotency").await, 0);
}

#[tokio::test]
async fn a_client_that_goes_away_changes_nothing() {
    let shop = Shop::new(policy()).await;
    let router = shop.router.clone();
    let gone = tokio::spawn(async move { call(&router, "alice", "k", "hold").await });
    shop.gate.reached().await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    shop.gate.open();
    shop.layer.drained().await;
    assert_eq!(shop.world.effects().await, ["hold"]);
    let again = shop.post("k", "hold").await;
    assert_eq!((again.status, again.is_replay()), (StatusCode::CREATED, true));
}

#[tokio::test]
async fn what_a_handler_has_begun_and_left_is_ended_before_its_answer() {
    let shop = Shop::new(policy()).await;
    let router = shop.router.clone();
    let answered = tokio::spawn(async move { call(&router, "alice", "k", "leave").await });
    shop.gate.reached().await;
    shop.gate.open();
    assert_eq!(answered.await.unwrap().status, StatusCode::CREATED);
    assert_eq!(shop.world.effects().await, ["late", "leave"]);
}

#[tokio::test]
async fn other_methods_pass_and_keys_may_be_optional() {
    let shop = Shop::new(Policy::new("optional").key_optional()).await;
    let listed = send(&shop.router, Request::get("/orders").body(Body::empty()).unwrap()).await;
    assert_eq!((listed.status, &listed.body[..]), (StatusCode::OK, &b"listed"[..]));
    let keyless = |body: &'static str| Request::post("/orders").body(Body::from(body)).unwrap();
    for _ in 0..2 {
        let placed = send(&shop.router, keyless("apply 1")).await;
        assert_eq!((placed.status, placed.is_replay()), (StatusCode::CREATED, false));
    }
    assert_eq!(send(&shop.router, keyless("refuse")).await.status.as_u16(), 422);
    assert_eq!(send(&shop.router, keyless("panic")).await.status.as_u16(), 500);
    assert_eq!(shop.world.effects().await, ["apply 1", "apply 1"]);
    let counted = [("route", "optional"), ("result", "keyless")];
    assert_eq!(metric("walpost_idempotency_requests_total", &counted), 4.0);
}

#[tokio::test]
async fn without_a_key_what_was_rolled_back_is_no_success() {
    let shop = Shop::new(policy().key_optional()).await;
    let keyless = Request::post("/orders").body(Body::from("swallow")).unwrap();
    assert!(send(&shop.router, keyless).await.status.is_server_error());
    shop.is_clean().await;
}

#[tokio::test]
async fn below_a_nest_another_path_is_another_request() {
    let shop = Shop::new(policy()).await;
    let nested = Router::new().nest("/accounts/{account}", shop.router.clone());
    let to = |account: u32| {
        let mut request = request("alice", "k", "apply 1");
        *request.uri_mut() = format!("/accounts/{account}/orders").parse().unwrap();
        request
    };
    assert_eq!(send(&nested, to(1)).await.status, StatusCode::CREATED);
    assert_eq!(send(&nested, to(2)).await.status.as_u16(), 422);
    assert!(send(&nested, to(1)).await.is_replay());
    assert_eq!(shop.world.effects().await, ["apply 1"]);
}

#[tokio::test]
async fn a_transaction_is_there_under_its_layer_and_while_the_request_lasts() {
    let world = World::new().await;
    let bare = Router::new().route("/orders", post(async |_: Tx| "served"));
    let answer = call(&bare, "alice", "k", "").await;
    assert_eq!((answer.status.as_u16(), &*answer.problem()), (500, "handler-failed"));
    let (sender, mut outlived) = tokio::sync::mpsc::channel(1);
    let keep = post(async move |tx: Tx| {
        sender.send(tx).await.unwrap();
        "served"
    });
    let router = Router::new().route("/orders", keep.layer(layer(world.pool(), policy())));
    assert_eq!(call(&router, "alice", "k", "").await.status, StatusCode::OK);
    let tx = outlived.recv().await.unwrap();
    let late: Result<(), TxError> = tx.run(|_| Box::pin(async { Ok(()) })).await;
    assert!(matches!(late, Err(TxError::Ended)), "{late:?}");
}

#[test]
fn a_policy_out_of_its_bounds_makes_no_layer() {
    let database = walpost_idempotency::http::Database::config(tokio_postgres::Config::new());
    let policy = policy().ttl(Duration::from_secs(1));
    let error = IdempotencyLayer::new(database, policy, |_| None).unwrap_err();
    assert_eq!(error.setting, "ttl");
}
