//! A service with one route under idempotency keys, for tests to ask.
//!
//! `walpost-test-api DATABASE_URL PORT`. `POST /orders` makes one row of `orders`
//! from its body; whose a request is, its header `x-user` says, which only a test
//! believes. `/metrics` is for Prometheus. It stops with SIGTERM.

#![allow(clippy::unwrap_used, reason = "a test program")]

use std::{net::Ipv4Addr, time::Duration};

use axum::{
    Router,
    routing::{get, post},
};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;
use walpost_idempotency::{
    Policy,
    http::{Database, IdempotencyLayer, Tx, TxError},
};

async fn place(tx: Tx, order: String) -> Result<String, TxError> {
    let number = tx
        .run::<i64, TxError, _>(move |tx| {
            Box::pin(async move {
                let insert = "insert into orders (contents) values ($1) returning number";
                Ok(tx.query_one(insert, &[&order]).await?.get(0))
            })
        })
        .await?;
    Ok(number.to_string())
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, port] = args.as_slice() else { panic!("walpost-test-api DATABASE_URL PORT") };
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    metrics::set_global_recorder(recorder).unwrap();
    // A database that is slow is not away.
    let database = Database::config(url.parse().unwrap()).answer_timeout(Duration::from_secs(60));
    let layer = IdempotencyLayer::new(database, Policy::new("POST /orders"), |request| {
        request.headers.get("x-user").map(|user| user.to_str().unwrap().to_owned())
    });
    let router = Router::new()
        .route("/orders", post(place).layer(layer.unwrap()))
        .route("/metrics", get(async move || metrics.render()));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.parse().unwrap())).await.unwrap();
    axum::serve(listener, router).await.unwrap();
}
