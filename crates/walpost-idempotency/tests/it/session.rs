//! What a handler sets in its session, and what is left of it for the next request.

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use walpost_idempotency::{
    Mode, Policy,
    http::{Run, Tx, TxError},
};
use walpost_testkit::SESSION;

use crate::{
    call::{post as call, send},
    handler::layer,
    support::World,
};

/// By itself, each of these reaches beyond a transaction.
const SETS: [&str; 12] = [
    "set app.tenant = '7'",
    "select set_config('app.tenant', '7', false)",
    "set search_path = pg_catalog",
    "set statement_timeout = '77s'; set timezone = 'Asia/Tokyo'",
    "set role pg_monitor",
    "set local role pg_monitor",
    "set session authorization pg_monitor",
    "create temp table left_over (n int); prepare left_over as select 1",
    "select pg_advisory_lock(7); listen left_over",
    "declare left_over cursor with hold for select 1",
    "reset all",
    "reset all; set app.tenant = '7'; set role pg_monitor",
];

/// Runs the statements of the body, or says what it finds in the session. A body
/// that begins with `!` ends with an error that is not kept.
async fn work(
    tx: &tokio_postgres::Transaction<'_>,
    body: String,
) -> Result<(u16, String), TxError> {
    if body == "look" {
        let row = tx.query_one(SESSION, &[]).await?;
        return Ok((200, row.get(0)));
    }
    let fails = body.starts_with('!');
    tx.batch_execute(body.trim_start_matches('!')).await?;
    Ok((if fails { 500 } else { 201 }, String::new()))
}

fn answer(worked: Result<(u16, String), TxError>) -> Response {
    match worked {
        Ok((status, text)) => (StatusCode::from_u16(status).unwrap(), text).into_response(),
        Err(error) => error.into_response(),
    }
}

/// All requests have one connection.
async fn nothing_is_left(world: &World, router: &Router, sets: impl Iterator<Item = String>) {
    let look = async |key: String| {
        let keyed = call(router, "alice", &key, "look").await;
        assert_eq!(keyed.status, StatusCode::OK, "{keyed:?}");
        String::from_utf8(keyed.body.to_vec()).unwrap()
    };
    let fresh = look("first".to_owned()).await;
    assert!(fresh.ends_with(" - 0 0 0 0"), "{fresh}");
    for (number, set) in sets.enumerate() {
        let expected = if set.starts_with('!') { 500 } else { 201 };
        let done = call(router, "alice", &format!("set{number}"), &set).await;
        assert_eq!(done.status.as_u16(), expected, "{set}: {done:?}");
        assert_eq!(look(format!("look{number}")).await, fresh, "after {set}");
    }
    let sessions = "select count(*) from pg_stat_activity where datname = current_database() \
                    and pid <> pg_backend_pid() and backend_type = 'client backend'";
    assert_eq!(world.number(sessions).await, 1);
}

#[tokio::test]
async fn a_session_does_not_reach_the_next_request() {
    let world = World::new().await;
    let handler =
        post(async |tx: Tx, body: String| answer(tx.run(move |tx| Box::pin(work(tx, body))).await));
    let layer = layer(world.pool().connections(1), Policy::new("session").key_optional());
    let router = Router::new().route("/orders", handler.layer(layer));
    nothing_is_left(&world, &router, SETS.map(str::to_owned).into_iter()).await;
    // Nor does it where the transaction is rolled back.
    let last = call(&router, "alice", "last", "look").await;
    for (number, set) in SETS.map(|set| format!("!{set}")).into_iter().enumerate() {
        let failed = call(&router, "alice", &format!("fails{number}"), &set).await;
        assert_eq!(failed.status.as_u16(), 500, "{set}: {failed:?}");
        let look = call(&router, "alice", &format!("behind{number}"), "look").await;
        assert_eq!(look.body, last.body, "after {set}");
    }
    // Nor without a key.
    for (number, set) in SETS.into_iter().enumerate() {
        let keyless = Request::post("/orders").header("x-user", "alice");
        let done = send(&router, keyless.body(Body::from(set)).unwrap()).await;
        assert_eq!(done.status, StatusCode::CREATED, "{set}: {done:?}");
        let look = call(&router, "alice", &format!("keyless{number}"), "look").await;
        assert_eq!(look.body, last.body, "after {set}");
    }
}

#[tokio::test]
async fn a_session_does_not_reach_the_next_phase() {
    let world = World::new().await;
    let handler = post(async |run: Option<Run>, body: String| {
        let run = run.unwrap();
        answer(run.phase("done", move |tx| Box::pin(work(tx, body))).await)
    });
    let policy = Policy::new("phases").mode(Mode::Leased);
    let layer = layer(world.pool().connections(1), policy);
    let router = Router::new().route("/orders", handler.layer(layer));
    nothing_is_left(&world, &router, SETS.map(str::to_owned).into_iter()).await;
}

#[tokio::test]
async fn a_handler_that_ends_its_transaction_is_refused_whatever_it_sets_before() {
    let world = World::new().await;
    let handler =
        post(async |tx: Tx, body: String| answer(tx.run(move |tx| Box::pin(work(tx, body))).await));
    let layer = layer(world.pool(), Policy::new("ends"));
    let router = Router::new().route("/orders", handler.layer(layer));
    for (number, ends) in
        ["rollback", "reset all; rollback", "reset all; rollback; begin"].into_iter().enumerate()
    {
        let body = format!("insert into effect (name) values ('x'); {ends}");
        let refused = call(&router, "alice", &format!("k{number}"), &body).await;
        assert!(refused.status.is_server_error(), "{ends}: {refused:?}");
        assert_eq!(world.number("select count(*) from walpost.idempotency").await, 0, "{ends}");
        assert_eq!(world.effects().await, [""; 0], "{ends}");
    }
}
