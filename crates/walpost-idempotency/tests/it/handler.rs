//! A handler that makes an effect and then does what the request's body says.

use std::{convert::Infallible, future::pending, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use futures_util::stream;
use tokio::sync::Semaphore;
use tokio_postgres::types::Type;
use walpost_idempotency::{
    Policy,
    http::{Database, IdempotencyLayer, Tx, TxError},
};
use walpost_outbox::{NewEvent, OutboxTable, write};
use walpost_testkit::until;

use crate::support::LIMIT;

/// Where a handler waits, and says that it does.
#[derive(Clone)]
pub(crate) struct Gate {
    reached: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { reached: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }

    /// The handler's side.
    pub(crate) async fn pass(&self) {
        self.tell();
        self.open.acquire().await.unwrap().forget();
    }

    /// The same, for one that does not wait here.
    pub(crate) fn tell(&self) {
        self.reached.add_permits(1);
    }

    /// Waits until a handler is there.
    pub(crate) async fn reached(&self) {
        until(LIMIT, "a handler at its gate", async || {
            self.reached.acquire().await.unwrap().forget();
            true
        })
        .await;
    }

    /// Lets one handler go on.
    pub(crate) fn open(&self) {
        self.open.add_permits(1);
    }
}

/// A layer whose principal is a header that only tests trust.
pub(crate) fn layer(database: Database, policy: Policy) -> IdempotencyLayer {
    crate::support::recorder();
    IdempotencyLayer::new(database, policy, |request| {
        request.headers.get("x-user").map(|user| user.to_str().unwrap().to_owned())
    })
    .unwrap()
}

/// `POST /orders` under the layer.
pub(crate) fn router(layer: &IdempotencyLayer, gate: &Gate) -> Router {
    let gate = gate.clone();
    let place = post(move |tx: Tx, body: String| act(gate, tx, body)).get(async || "listed");
    Router::new().route("/orders", place.layer(layer.clone()))
}

async fn insert(tx: &Tx, name: String) -> Result<i64, TxError> {
    tx.run(|tx| {
        Box::pin(async move {
            let sql = "insert into effect (name) values ($1) returning number";
            Ok(tx.query_typed_one(sql, &[(&name, Type::TEXT)]).await?.get(0))
        })
    })
    .await
}

/// Runs statements; what they answer is a test's own affair.
async fn batch(tx: &Tx, sql: &'static str) -> Result<(), TxError> {
    tx.run(move |tx| Box::pin(async move { Ok(tx.batch_execute(sql).await?) })).await
}

async fn event(tx: &Tx, number: i64) -> Result<(), TxError> {
    tx.run(move |tx| {
        Box::pin(async move {
            let event = NewEvent::new("order", number.to_string(), "OrderPlaced");
            let event = event.json(&number).unwrap();
            write(tx, &OutboxTable::default(), &event).await.unwrap();
            Ok(())
        })
    })
    .await
}

fn created(number: i64) -> Response {
    let headers = [
        ("location", format!("/orders/{number}")),
        ("content-type", "application/json".to_owned()),
        ("set-cookie", "session=secret".to_owned()),
    ];
    (StatusCode::CREATED, headers, format!("{{\"id\":{number}}}")).into_response()
}

fn refused(status: u16) -> Response {
    (StatusCode::from_u16(status).unwrap(), "refused").into_response()
}

async fn act(gate: Gate, tx: Tx, body: String) -> Response {
    let what = body.split(' ').next().unwrap_or_default().to_owned();
    let number = match insert(&tx, body).await {
        Ok(number) => number,
        Err(error) => return error.into_response(),
    };
    match what.as_str() {
        "apply" => {}
        "event" => event(&tx, number).await.unwrap(),
        "hold" => gate.pass().await,
        "refuse" => return refused(422),
        "busy" => return refused(429),
        "fail" => return refused(500),
        "sql" => {
            batch(&tx, "select 1/0").await.unwrap_err();
            return refused(400);
        }
        "swallow" => batch(&tx, "select 1/0").await.unwrap_or_default(),
        "deadlock" => {
            let raise = "do $$ begin raise 'x' using errcode = '40P01'; end $$";
            return batch(&tx, raise).await.unwrap_err().into_response();
        }
        "panic" => panic!("as the test wants it"),
        "job_panic" => {
            let panics = tx.run(|_| Box::pin(async { panic!("as the test wants it") }));
            let _: Result<(), TxError> = panics.await;
        }
        "hang" => pending().await,
        "sleep" => batch(&tx, "select pg_sleep(600)").await.unwrap(),
        "commit" => batch(&tx, "commit").await.unwrap(),
        "leave" => leave(&gate, &tx).await,
        "large" => return "x".repeat(3_000).into_response(),
        "endless" => {
            let bytes = stream::repeat_with(|| Ok::<_, Infallible>("x".repeat(100)));
            return Body::from_stream(bytes).into_response();
        }
        "silent" => {
            return Body::from_stream(stream::pending::<Result<&str, Infallible>>())
                .into_response();
        }
        "broken" => {
            let parts = [Ok("half"), Err(std::io::Error::other("broken"))];
            return Body::from_stream(stream::iter(parts)).into_response();
        }
        other => panic!("no such order: {other}"),
    }
    created(number)
}

/// Begins something in the transaction and does not wait for its end.
async fn leave(gate: &Gate, tx: &Tx) {
    let begun = Arc::new(Semaphore::new(0));
    let (told, gate) = (Arc::clone(&begun), gate.clone());
    let run = tx.run(move |tx| {
        Box::pin(async move {
            told.add_permits(1);
            gate.pass().await;
            tx.batch_execute("insert into effect (name) values ('late')").await?;
            Ok::<_, TxError>(())
        })
    });
    tokio::select! {
        _ = run => panic!("it waits at the gate"),
        _ = begun.acquire() => {}
    }
}
