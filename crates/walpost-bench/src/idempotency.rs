//! The bench of idempotency keys: what the layer adds to a handler, request by
//! request, in one process.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    response::IntoResponse,
    routing::post,
};
use clap::Args;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio_postgres::{Client, Error, Transaction, types::Type};
use tower_service::Service;
use walpost_idempotency::{
    Policy,
    http::{Database, IdempotencyLayer, Tx, TxError},
};
use walpost_local::Postgres;
use walpost_migrate::{Migrator, Set};

use crate::{database::connect, progress, services::DATABASE};

const TABLE: &str = "create table placed (number bigint generated always as identity, \
                     body text not null)";
const INSERT: &str = "insert into placed (body) values ($1) returning number";
/// Requests of one kind before those of the next.
const BLOCK: u64 = 100;

/// Measures a handler alone, under the layer with new keys, and with used ones.
#[derive(Debug, Args)]
pub(crate) struct IdempotencyArgs {
    /// Requests of each kind
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    requests: u64,
    /// One line of JSON on stdout; the text goes to stderr
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Figures {
    bench: &'static str,
    bare_p50_us: u64,
    bare_p99_us: u64,
    new_p50_us: u64,
    new_p99_us: u64,
    replayed_p50_us: u64,
    replayed_p99_us: u64,
    round_trip_p50_us: u64,
}

/// What one kind of requests took.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn quantile_us(&mut self, quantile: f64) -> u64 {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        let index = (last as f64 * quantile).round() as usize;
        self.0.get(index).map_or(0, |time| time.as_micros() as u64)
    }
}

pub(crate) fn run(args: &IdempotencyArgs) -> Result<()> {
    progress!("starting PostgreSQL");
    let postgres = Postgres::builder()
        .setting("shared_buffers", "512MB")
        .setting("max_wal_size", "8GB")
        .setting("checkpoint_timeout", "1d")
        .setting("autovacuum", "off")
        .start()?;
    let conninfo = postgres.socket_conninfo(DATABASE);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let figures = runtime.block_on(measure(&conninfo, args.requests))?;
    eprintln!(
        "idempotency: {} requests of each kind, one after another, over a Unix socket\n\
         handler alone p50 {} us, p99 {} us; new under the layer p50 {} us, p99 {} us; \
         replayed p50 {} us, p99 {} us\n\
         the layer adds {} us to a new request; `select 1` takes {} us",
        args.requests,
        figures.bare_p50_us,
        figures.bare_p99_us,
        figures.new_p50_us,
        figures.new_p99_us,
        figures.replayed_p50_us,
        figures.replayed_p99_us,
        figures.new_p50_us.saturating_sub(figures.bare_p50_us),
        figures.round_trip_p50_us,
    );
    if args.json {
        println!("{}", serde_json::to_string(&figures)?);
    }
    Ok(())
}

async fn measure(conninfo: &str, requests: u64) -> Result<Figures> {
    let mut client = connect(conninfo).await?;
    Migrator::new().set(Set::Idempotency).migrate(&mut client).await?;
    client.batch_execute(TABLE).await?;
    let bare = bare(connect(conninfo).await?);
    let layered = layered(conninfo)?;
    let [mut alone, mut new, mut replayed, mut trips] = [const { Times(Vec::new()) }; 4];
    let mut number = 0;
    while number < requests {
        for _ in 0..BLOCK {
            send(&bare, number, &mut alone).await?;
            let begun = Instant::now();
            client.query_typed("select 1", &[]).await?;
            trips.0.push(begun.elapsed());
            number += 1;
        }
        for times in [&mut new, &mut replayed] {
            for key in number - BLOCK..number {
                send(&layered, key, times).await?;
            }
        }
    }
    let placed: i64 = client.query_one("select count(*) from placed", &[]).await?.get(0);
    ensure!(placed as u64 == 2 * number, "{number} keys made {placed} effects, with those alone");
    Ok(Figures {
        bench: "idempotency",
        bare_p50_us: alone.quantile_us(0.5),
        bare_p99_us: alone.quantile_us(0.99),
        new_p50_us: new.quantile_us(0.5),
        new_p99_us: new.quantile_us(0.99),
        replayed_p50_us: replayed.quantile_us(0.5),
        replayed_p99_us: replayed.quantile_us(0.99),
        round_trip_p50_us: trips.quantile_us(0.5),
    })
}

async fn send(router: &Router, key: u64, times: &mut Times) -> Result<()> {
    let request = Request::post("/orders").header("idempotency-key", key.to_string());
    let request = request.body(Body::from("{\"item\":7}"))?;
    let begun = Instant::now();
    let Ok(response) = router.clone().call(request).await;
    times.0.push(begun.elapsed());
    ensure!(response.status() == StatusCode::OK, "key {key} got {}", response.status());
    Ok(())
}

async fn place(tx: &Transaction<'_>, body: &str) -> Result<i64, Error> {
    Ok(tx.query_typed_one(INSERT, &[(&body, Type::TEXT)]).await?.get(0))
}

/// A transaction of its own for each request, on one connection.
fn bare(client: Client) -> Router {
    let client = Arc::new(Mutex::new(client));
    let handler = async move |body: String| {
        let mut client = client.lock().await;
        let placed = async {
            let tx = client.transaction().await?;
            let number = place(&tx, &body).await?;
            tx.commit().await?;
            Ok::<_, TxError>(number.to_string())
        };
        placed.await.into_response()
    };
    Router::new().route("/orders", post(handler))
}

/// The same handler under the layer, also on one connection.
fn layered(conninfo: &str) -> Result<Router> {
    let database = Database::config(conninfo.parse()?).connections(1);
    let layer =
        IdempotencyLayer::new(database, Policy::new("POST /orders"), |_| Some("bench".to_owned()))?;
    let handler = async move |tx: Tx, body: String| {
        let placed =
            tx.run(|tx| Box::pin(async move { Ok::<_, TxError>(place(tx, &body).await?) }));
        let number = placed.await?;
        Ok::<_, TxError>(number.to_string())
    };
    Ok(Router::new().route("/orders", post(handler).layer(layer)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_times() {
        let mut times = Times((1..=101).rev().map(Duration::from_micros).collect());
        assert_eq!((times.quantile_us(0.5), times.quantile_us(0.99)), (51, 100));
        assert_eq!(Times::default().quantile_us(0.5), 0);
    }
}
