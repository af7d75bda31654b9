//! The bench of webhooks: how many are delivered, whether a fast destination
//! feels slow and dead ones beside it, and whether the application feels any.

mod phase;
mod receiver;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use tokio::time;
use walpost_local::{Postgres, free_port};
use walpost_migrate::{Migrator, Set};

use self::{
    phase::{Kind, Measured, Stage},
    receiver::Receiver,
};
use crate::{database::connect, latency::Percentiles, progress, services::DATABASE};

/// What the figures are held against with `--limits`.
const RATE_LEAST: f64 = 3_000.0;
const FAST_MOST: f64 = 1.5;
const APPLICATION_MOST: f64 = 1.1;
/// For the backlog to be delivered.
const DRAIN_LIMIT: Duration = Duration::from_secs(300);

/// Measures deliveries to a receiver in this process, on keep-alive, with all
/// state in PostgreSQL.
#[derive(Debug, Args)]
pub(crate) struct WebhookArgs {
    /// Deliveries of the backlog
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(100..=5_000_000))]
    deliveries: u32,
    /// Times that each kind of destinations is measured, in turn
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of each
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Transactions of the application a second
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rate: u32,
    /// The binary walpost; by default the one beside this program
    #[arg(long)]
    walpost: Option<PathBuf>,
    /// Ends with 1 when a figure is beyond its limit
    #[arg(long)]
    limits: bool,
    /// One line of JSON on stdout; the text goes to stderr
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Figures {
    bench: &'static str,
    deliveries_per_s: f64,
    fast_alone_p99_ms: f64,
    fast_beside_p99_ms: f64,
    fast_ratio: f64,
    transaction_healthy_p99_ms: f64,
    transaction_dead_p99_ms: f64,
    transaction_ratio: f64,
}

pub(crate) fn run(args: &WebhookArgs) -> Result<()> {
    let walpost = match &args.walpost {
        Some(walpost) => walpost.clone(),
        None => std::env::current_exe()?.with_file_name("walpost"),
    };
    let walpost = walpost.canonicalize().with_context(|| {
        format!(
            "there is no {}; build it with `cargo build --release -p walpost`, or name it with \
             --walpost",
            walpost.display()
        )
    })?;
    progress!("starting PostgreSQL");
    let postgres = Postgres::builder()
        .setting("shared_buffers", "512MB")
        .setting("max_wal_size", "8GB")
        .setting("checkpoint_timeout", "1d")
        .start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let figures = runtime.block_on(async {
        let stage = Stage {
            postgres,
            walpost,
            receiver: Receiver::start().await?,
            dead_url: format!("http://127.0.0.1:{}/dead", free_port()?),
            folder: tempfile::Builder::new().prefix("walpost-").tempdir()?,
            rate: args.rate,
            seconds: args.seconds,
        };
        measure(&stage, args).await
    })?;
    eprint!("{}", as_text(&figures));
    if args.json {
        println!("{}", serde_json::to_string(&figures)?);
    }
    let beyond = beyond(&figures);
    if args.limits && !beyond.is_empty() {
        bail!("beyond the limit: {}", beyond.join(", "));
    }
    Ok(())
}

async fn measure(stage: &Stage, args: &WebhookArgs) -> Result<Figures> {
    let mut client = connect(&stage.postgres.socket_conninfo(DATABASE)).await?;
    for set in [Set::Relay, Set::Webhook] {
        Migrator::new().set(set).migrate(&mut client).await?;
    }
    let order = "create table bench_order (number bigint generated always as identity, body text)";
    client.batch_execute(order).await?;
    let deliveries_per_s = drain(stage, &client, args.deliveries).await?;
    let [mut alone, mut beside, mut dead] = [const { Vec::new() }; 3];
    for round in 1..=args.rounds {
        for (kind, all) in
            [(Kind::Alone, &mut alone), (Kind::Beside, &mut beside), (Kind::Dead, &mut dead)]
        {
            progress!("round {round} of {}: {kind:?}", args.rounds);
            all.push(stage.phase(kind).await?);
        }
    }
    let [fast_alone, fast_beside] =
        [p99(&alone, |of| &of.arrivals)?, p99(&beside, |of| &of.arrivals)?];
    let [healthy, all_dead] =
        [p99(&alone, |of| &of.transactions)?, p99(&dead, |of| &of.transactions)?];
    Ok(Figures {
        bench: "webhook",
        deliveries_per_s,
        fast_alone_p99_ms: fast_alone,
        fast_beside_p99_ms: fast_beside,
        fast_ratio: fast_beside / fast_alone,
        transaction_healthy_p99_ms: healthy,
        transaction_dead_p99_ms: all_dead,
        transaction_ratio: all_dead / healthy,
    })
}

/// Has a backlog delivered; deliveries a second from the first to the last.
async fn drain(stage: &Stage, client: &tokio_postgres::Client, count: u32) -> Result<f64> {
    progress!("delivering a backlog of {count}");
    let insert = format!(
        "insert into walpost.webhook_delivery (destination, event_id, event_type, idempotency_key, \
         body) select 'fast', 'backlog-' || n, 'OrderPlaced', 'backlog-' || n, \
         convert_to('{{\"order\": ' || n || ', \"note\": \"' || repeat('x', 280) || '\"}}', 'UTF8') \
         from generate_series(1, {count}) n"
    );
    client.batch_execute(&insert).await?;
    client.batch_execute("vacuum analyze walpost.webhook_delivery").await?;
    let walpost = stage.walpost(Kind::Alone)?;
    let (start, arrivals) = (Instant::now(), &stage.receiver.fast);
    let left = "select count(*) from walpost.webhook_delivery where state <> 'delivered'";
    while client.query_one(left, &[]).await?.get::<_, i64>(0) > 0 {
        ensure!(start.elapsed() < DRAIN_LIMIT, "{} of {count} were delivered", arrivals.count());
        time::sleep(Duration::from_millis(250)).await;
    }
    ensure!(arrivals.count() >= u64::from(count), "{} of {count} arrived", arrivals.count());
    drop(walpost);
    Ok(arrivals.rate())
}

/// The median over the rounds of what one of them has as its 99th percentile, in
/// milliseconds: one bad moment of the machine does not decide.
fn p99(rounds: &[Measured], of: fn(&Measured) -> &Vec<u64>) -> Result<f64> {
    let round = |measured| Percentiles::of(of(measured).clone()).map(|found| found.p99);
    let mut all: Vec<f64> =
        rounds.iter().map(round).collect::<Option<_>>().context("nothing was measured")?;
    all.sort_by(f64::total_cmp);
    Ok(all[all.len() / 2])
}

fn beyond(figures: &Figures) -> Vec<&'static str> {
    let limits = [
        (figures.deliveries_per_s >= RATE_LEAST, "deliveries a second"),
        (figures.fast_ratio <= FAST_MOST, "the fast destination's p99"),
        (figures.transaction_ratio <= APPLICATION_MOST, "the application's p99"),
    ];
    limits.into_iter().filter(|(holds, _)| !holds).map(|(_, what)| what).collect()
}

fn as_text(figures: &Figures) -> String {
    format!(
        "webhooks, with all state in PostgreSQL, over keep-alive\n\
         deliveries {:.0}/s (at least {RATE_LEAST:.0})\n\
         commit to arrival at the fast one, p99: {:.1} ms alone, {:.1} ms beside a dead and a slow \
         one: {:.2} times (at most {FAST_MOST})\n\
         the application's transaction, p99: {:.2} ms with healthy ones, {:.2} ms with all dead: \
         {:.2} times (at most {APPLICATION_MOST})\n",
        figures.deliveries_per_s,
        figures.fast_alone_p99_ms,
        figures.fast_beside_p99_ms,
        figures.fast_ratio,
        figures.transaction_healthy_p99_ms,
        figures.transaction_dead_p99_ms,
        figures.transaction_ratio,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_its_limit_is_named() {
        let mut figures = Figures {
            bench: "webhook",
            deliveries_per_s: 3_000.0,
            fast_alone_p99_ms: 10.0,
            fast_beside_p99_ms: 15.0,
            fast_ratio: 1.5,
            transaction_healthy_p99_ms: 1.0,
            transaction_dead_p99_ms: 1.1,
            transaction_ratio: 1.1,
        };
        assert_eq!(beyond(&figures), [""; 0]);
        figures.deliveries_per_s = 2_999.0;
        figures.transaction_ratio = 1.11;
        assert_eq!(beyond(&figures), ["deliveries a second", "the application's p99"]);
    }

    #[test]
    fn the_round_in_the_middle_decides() {
        let round = |micros: u64| Measured { arrivals: vec![micros], transactions: Vec::new() };
        let rounds = [round(9_000_000), round(1_000), round(2_000)];
        assert_eq!(p99(&rounds, |of| &of.arrivals).unwrap(), 2.0);
        assert!(p99(&rounds, |of| &of.transactions).is_err());
    }
}
