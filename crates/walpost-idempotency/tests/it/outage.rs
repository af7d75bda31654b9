//! Without the database: nothing is done, unless the route says otherwise.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, http::StatusCode, routing::post};
use tokio_postgres::config::Host;
use walpost_idempotency::{
    Mode, OnStoreFailure, Policy,
    http::{Database, Run},
};
use walpost_testkit::{Direction, Proxy, Target, until};

use crate::{
    call::{Answer, post as call},
    handler::{Gate, layer, router},
    support::{LIMIT, World, metric},
};

/// A database behind a proxy, and connections through it.
pub(crate) struct Rig {
    pub(crate) world: World,
    pub(crate) proxy: Proxy,
    pub(crate) pool: Database,
    config: tokio_postgres::Config,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let world = World::new().await;
        let config = world.database.config();
        let (hosts, ports) = (config.get_hosts(), config.get_ports());
        let Host::Tcp(host) = &hosts[0] else { panic!("a URL names a host") };
        let host = if host == "localhost" { "127.0.0.1" } else { host };
        let target = SocketAddr::new(host.parse().unwrap(), ports[0]);
        let proxy = Proxy::start(Target::Tcp(target)).await;
        let mut through = tokio_postgres::Config::new();
        through.host("127.0.0.1").port(proxy.port());
        if let Some(user) = config.get_user() {
            through.user(user);
        }
        if let Some(password) = config.get_password() {
            through.password(password);
        }
        through.dbname(world.database.name());
        let pool = Database::config(through.clone()).answer_timeout(LIMIT);
        Self { world, proxy, pool, config: through }
    }

    /// A session through the proxy.
    pub(crate) async fn connect(&self) -> tokio_postgres::Client {
        let (client, connection) = self.config.connect(tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

#[tokio::test]
async fn without_the_database_nothing_is_done() {
    let rig = Rig::new().await;
    let router = router(&layer(rig.pool.clone(), Policy::new("closed")), &Gate::new());
    assert_eq!(call(&router, "alice", "a", "apply 1").await.status, StatusCode::CREATED);
    rig.proxy.cut();
    for key in ["a", "b"] {
        let refused = call(&router, "alice", key, "apply 1").await;
        assert_eq!((refused.status.as_u16(), &*refused.problem()), (503, "store-unavailable"));
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    assert_eq!(rig.world.effects().await, ["apply 1"]);
    let counted = [("route", "closed"), ("result", "store_error")];
    assert_eq!(metric("walpost_idempotency_requests_total", &counted), 2.0);
    rig.proxy.restore();
    assert!(call(&router, "alice", "a", "apply 1").await.is_replay());
}

#[tokio::test]
async fn a_connection_from_before_a_restart_costs_nobody_his_answer() {
    let rig = Rig::new().await;
    let router = router(&layer(rig.pool.clone(), Policy::new("restart")), &Gate::new());
    for round in 0..20 {
        let key = round.to_string();
        assert_eq!(call(&router, "alice", &key, "apply").await.status, StatusCode::CREATED);
        rig.proxy.cut_connections();
    }
}

#[tokio::test]
async fn an_open_route_runs_unprotected_and_is_counted() {
    let rig = Rig::new().await;
    rig.proxy.cut();
    for mode in [Mode::Transactional, Mode::Leased] {
        let route = format!("open {mode:?}");
        let policy = Policy::new(&*route).mode(mode).on_store_failure(OnStoreFailure::Open);
        let open = layer(rig.pool.clone(), policy);
        let notes = post(async || "noted").layer(open.clone());
        let notes = Router::new().route("/orders", notes);
        for _ in 0..2 {
            assert_eq!(call(&notes, "alice", "k", "").await.body, "noted");
        }
        let counted = [("route", &*route), ("result", "open")];
        assert_eq!(metric("walpost_idempotency_requests_total", &counted), 2.0);
        // A handler that needs the transaction cannot run without it.
        let needs = router(&open, &Gate::new());
        let refused = call(&needs, "alice", "k", "apply 1").await;
        assert_eq!(refused.status.as_u16(), 503, "{mode:?}");
    }
    assert_eq!(rig.world.effects().await, [""; 0]);
}

#[tokio::test]
async fn an_answer_whose_commit_is_lost_is_found_by_the_retry() {
    let rig = Rig::new().await;
    let gate = Gate::new();
    let router = router(&layer(rig.pool.clone(), Policy::new("lost")), &gate);
    let waiting = tokio::spawn({
        let router = router.clone();
        async move { call(&router, "alice", "k", "hold").await }
    });
    gate.reached().await;
    // COMMIT goes out, its answer does not come back.
    rig.proxy.hold(Direction::ToClient);
    gate.open();
    let committed = "select count(*) from walpost.idempotency";
    until(LIMIT, "the commit", async || rig.world.number(committed).await == 1).await;
    rig.proxy.cut();
    let lost = waiting.await.unwrap();
    assert_eq!((lost.status.as_u16(), &*lost.problem()), (503, "store-unavailable"));
    rig.proxy.restore();
    let again = call(&router, "alice", "k", "hold").await;
    assert_eq!((again.status, again.is_replay()), (StatusCode::CREATED, true));
    assert_eq!(rig.world.effects().await, ["hold"]);
}

/// What became of a request whose run under a lease ended with `status`, and how many leases
/// were lost: its end went out and no answer came back, or it did not arrive; before it was
/// sent again the database saw `meanwhile`, where `left` became 1.
async fn ended_twice(
    route: &'static str,
    status: StatusCode,
    (lost, left, meanwhile): (Direction, &str, &str),
) -> (Rig, Router, Answer) {
    let rig = Rig::new().await;
    let gate = Gate::new();
    let of_handler = gate.clone();
    let place = post(async move |_: Run| {
        of_handler.pass().await;
        (status, "placed")
    });
    // It is renewed while nobody waits for it.
    let policy = Policy::new(route).mode(Mode::Leased).lease(LIMIT * 10);
    let router = Router::new().route("/orders", place.layer(layer(rig.pool.clone(), policy)));
    let waiting = tokio::spawn({
        let router = router.clone();
        async move { call(&router, "alice", "k", "a").await }
    });
    gate.reached().await;
    let accepted = rig.proxy.accepted();
    rig.proxy.hold(lost);
    gate.open();
    until(LIMIT, "the first end", async || rig.world.number(left).await == 1).await;
    rig.world.client.batch_execute(meanwhile).await.unwrap();
    rig.proxy.cut_connections();
    until(LIMIT, "the second end", async || rig.proxy.accepted() > accepted).await;
    rig.proxy.restore();
    let answer = waiting.await.unwrap();
    (rig, router, answer)
}

fn leases_lost(route: &str) -> f64 {
    metric("walpost_idempotency_lease_lost_total", &[("route", route)])
}

const TAKEN_OVER: &str = "update walpost.idempotency set fence = fence + 1";

#[tokio::test]
async fn a_lease_whose_end_is_lost_is_found_ended_and_its_answer_given_out() {
    let completed = "select count(*) from walpost.idempotency where status = 'completed'";
    let lost = (Direction::ToClient, completed, "");
    let (_rig, router, first) = ended_twice("end lost", StatusCode::CREATED, lost).await;
    assert_eq!((first.status, first.is_replay()), (StatusCode::CREATED, false));
    let again = call(&router, "alice", "k", "a").await;
    assert_eq!((again.what(), again.is_replay()), (first.what(), true));
    assert_eq!(leases_lost("end lost"), 0.0);
}

#[tokio::test]
async fn a_lease_whose_release_is_lost_is_lost_to_nobody() {
    let released = "select count(*) from walpost.idempotency where lease_until <= now()";
    let lost = (Direction::ToClient, released, TAKEN_OVER);
    let failed = StatusCode::INTERNAL_SERVER_ERROR;
    let (_rig, _, first) = ended_twice("release lost", failed, lost).await;
    assert_eq!((first.status, &first.body[..]), (failed, &b"placed"[..]));
    assert_eq!(leases_lost("release lost"), 0.0);
}

#[tokio::test]
async fn a_lease_that_is_lost_before_its_second_end_is_lost() {
    let running = "select count(*) from walpost.idempotency where status = 'in_progress'";
    let lost = (Direction::ToTarget, running, TAKEN_OVER);
    let (_rig, _, first) = ended_twice("overtaken twice", StatusCode::CREATED, lost).await;
    assert_eq!((first.status.as_u16(), &*first.problem()), (409, "in-flight"));
    assert_eq!(leases_lost("overtaken twice"), 1.0);
}

#[tokio::test]
async fn a_database_that_does_not_answer_counts_as_away() {
    let rig = Rig::new().await;
    let pool = rig.pool.clone().answer_timeout(Duration::from_millis(300));
    let policy = |mode| Policy::new("silent").mode(mode).on_store_failure(OnStoreFailure::Open);
    // Whose connection is there by then for the others.
    let patient = router(&layer(rig.pool.clone(), Policy::new("silent")), &Gate::new());
    assert_eq!(call(&patient, "a", "k", "apply").await.status, StatusCode::CREATED);
    // Half open: what is sent is taken, and nothing comes back.
    rig.proxy.swallow(Direction::Both);
    for mode in [Mode::Transactional, Mode::Leased] {
        let notes = post(async || "noted").layer(layer(pool.clone(), policy(mode)));
        let notes = Router::new().route("/orders", notes);
        assert_eq!(call(&notes, "alice", "other", "").await.body, "noted", "{mode:?}");
    }
    let closed = router(&layer(pool, Policy::new("silent")), &Gate::new());
    let refused = call(&closed, "alice", "other", "apply").await;
    assert_eq!((refused.status.as_u16(), &*refused.problem()), (503, "store-unavailable"));
}

#[tokio::test]
async fn a_request_that_gets_no_connection_in_time_is_refused() {
    let rig = Rig::new().await;
    let gate = Gate::new();
    let pool = rig.pool.clone().connections(1);
    let hasty = pool.clone().answer_timeout(Duration::from_millis(100));
    // Open as well: the database is well, and a twin may be at work.
    let policy = || Policy::new("busy").on_store_failure(OnStoreFailure::Open);
    let patient = router(&layer(pool, policy()), &gate);
    let first = tokio::spawn(async move { call(&patient, "alice", "k", "hold").await });
    gate.reached().await;
    let hasty = router(&layer(hasty, policy()), &gate);
    let refused = call(&hasty, "alice", "other", "apply").await;
    assert_eq!((refused.status.as_u16(), &*refused.problem()), (503, "store-unavailable"));
    gate.open();
    assert_eq!(first.await.unwrap().status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_table_that_is_missing_is_no_reason_to_run() {
    let rig = Rig::new().await;
    rig.world.client.batch_execute("drop table walpost.idempotency cascade").await.unwrap();
    let router = router(&layer(rig.pool.clone(), Policy::new("missing")), &Gate::new());
    assert_eq!(call(&router, "alice", "k", "apply 1").await.status.as_u16(), 503);
    assert_eq!(rig.world.effects().await, [""; 0]);
}
