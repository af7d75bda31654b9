//! Handlers with types of their own, behind a pooler in transaction mode.

use axum::{Router, http::StatusCode, routing::post};
use walpost_idempotency::{
    Policy,
    http::{Database, Tx},
};
use walpost_testkit::Pooler;

use crate::{
    call::post as call,
    handler::layer,
    support::{LIMIT, World},
};

const TYPES: &str = "create type mood as enum ('glad', 'sad'); \
    create type spot as (x int, mood mood); \
    create table typed (name text primary key, mood mood default 'glad', \
    spot spot default '(1,sad)', moods mood[] default '{sad}')";

/// Inserts a row and reads the column that the body names.
async fn act(tx: Tx, body: String) -> StatusCode {
    let done = tx.run(move |tx| {
        Box::pin(async move {
            let (name, column) = body.split_once(' ').unwrap();
            tx.execute("insert into typed (name) values ($1)", &[&name]).await?;
            tx.query(&format!("select {column} from typed where name = $1"), &[&name]).await?;
            Ok(())
        })
    });
    match done.await {
        Ok::<(), walpost_idempotency::http::TxError>(()) => StatusCode::CREATED,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_with_their_own_types_are_served_over_all_servers_of_a_pooler() {
    let world = World::new().await;
    world.client.batch_execute(TYPES).await.unwrap();
    let pooler = Pooler::before(&world.database).await;
    let database = Database::config(pooler.config()).answer_timeout(LIMIT).connections(2);
    let layer = layer(database, Policy::new("typed"));
    let router = Router::new().route("/orders", post(act).layer(layer));
    for number in 0..60 {
        let column = ["mood", "spot", "moods"][number % 3];
        let body = format!("n{number} {column}");
        let answer = call(&router, "alice", &format!("k{number}"), &body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{body}: {answer:?}");
    }
    assert_eq!(world.number("select count(*) from typed").await, 60);
    let clients = pooler.clients();
    assert!(clients < 20, "{clients} connections");
}
