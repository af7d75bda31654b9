//! The bench of lanes: a handler that waits, with one lane and with several.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use tokio::time::sleep;
use walpost_consumer::{
    Consumer, Event, Handler, HandlerError,
    tokio_postgres::{
        Transaction,
        types::{ToSql, Type},
    },
};
use walpost_migrate::Set;

use crate::{progress, publish::publish, services::Services, topic};

const TOPIC: &str = "bench.slow";
const PARTITIONS: i32 = 4;
const TABLE: &str = "create table effect (consumer text not null, key text not null, \
                     part int not null, off bigint not null, n bigint generated always as identity)";
/// Slower than this it has stopped.
const LIMIT: Duration = Duration::from_secs(900);
const TARGET: f64 = 8.0;

/// Applies one topic with a handler that waits, with one lane and with several.
#[derive(Debug, Args)]
pub(crate) struct SlowArgs {
    /// Events in the topic, of 1,000 keys
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// Milliseconds that the handler waits for each event
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    wait_ms: u64,
    /// Lanes of each of the four partitions
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(2..=256))]
    lanes: u64,
    /// One line of JSON on stdout; the text goes to stderr
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Figures {
    bench: &'static str,
    lanes: u64,
    serial_effects_per_second: u64,
    lanes_effects_per_second: u64,
    ratio: f64,
}

/// Waits, and writes one row.
struct Waits {
    consumer: String,
    wait: Duration,
    /// When it got its first event.
    began: Arc<OnceLock<Instant>>,
}

impl Handler for Waits {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        self.began.get_or_init(Instant::now);
        sleep(self.wait).await;
        let key = String::from_utf8_lossy(event.key().unwrap_or_default()).into_owned();
        let row: [(&(dyn ToSql + Sync), Type); 4] = [
            (&self.consumer, Type::TEXT),
            (&key, Type::TEXT),
            (&event.partition(), Type::INT4),
            (&event.offset(), Type::INT8),
        ];
        let insert = "insert into effect (consumer, key, part, off) values ($1, $2, $3, $4)";
        tx.query_typed(insert, &row).await?;
        Ok(())
    }
}

pub(crate) fn run(args: &SlowArgs) -> Result<()> {
    let services = Services::start(Set::Consumer)?;
    services.connect()?.run(TABLE)?;
    topic::create_of(&services.kafka.bootstrap(), TOPIC, PARTITIONS)?;
    progress!("publishing {} events", args.events);
    publish(&services.kafka.bootstrap(), TOPIC, args.events)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let measure = |lanes| -> Result<f64> {
        let rate = runtime.block_on(apply(&services, args, lanes))?;
        check(&services, &name(lanes), args.events)?;
        Ok(rate)
    };
    let (serial, lanes) = (measure(1)?, measure(args.lanes)?);
    let ratio = lanes / serial;
    let figures = Figures {
        bench: "slow",
        lanes: args.lanes,
        serial_effects_per_second: serial.round() as u64,
        lanes_effects_per_second: lanes.round() as u64,
        ratio: (ratio * 10.0).round() / 10.0,
    };
    let verdict = if ratio >= TARGET { "reached" } else { "missed" };
    eprintln!(
        "slow: {} events, {PARTITIONS} partitions, {} ms each, order kept for each key\n\
         one lane {serial:.0} effects/s, {} lanes {lanes:.0} effects/s: {ratio:.1}x; at least \
         {TARGET}x: {verdict}",
        args.events, args.wait_ms, args.lanes
    );
    if args.json {
        println!("{}", serde_json::to_string(&figures)?);
    }
    Ok(())
}

fn name(lanes: u64) -> String {
    format!("slow_{lanes}")
}

/// Effects a second, from the first event that the handler gets to the last effect.
async fn apply(services: &Services, args: &SlowArgs, lanes: u64) -> Result<f64> {
    let name = name(lanes);
    progress!("{lanes} lanes: applying {} events", args.events);
    let wait = Duration::from_millis(args.wait_ms);
    let began = Arc::new(OnceLock::new());
    let consumer = Consumer::builder(&name)
        .kafka("bootstrap.servers", services.kafka.bootstrap())
        .topics([TOPIC])
        .database(walpost_consumer::Database::config(services.conninfo().parse()?))
        .lanes(usize::try_from(lanes)?)
        // A slice of the waiting, so that a batch stays below the handler's time.
        .max_batch_events(100)
        .handler(Waits { consumer: name.clone(), wait, began: began.clone() })?;
    let mut status = consumer.status();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(consumer.run(async {
        let _ = stopped.await;
    }));
    let waiting = status.wait_for(|status| status.counts.applied >= args.events);
    if tokio::time::timeout(LIMIT, waiting).await.is_err() {
        bail!("{} events were not applied within {LIMIT:?}", args.events);
    }
    let began = began.get().context("nothing was applied")?;
    let rate = args.events as f64 / began.elapsed().as_secs_f64();
    let _ = stop.send(());
    running.await??;
    Ok(rate)
}

/// Every event once, and those of a key in the order of the log.
fn check(services: &Services, name: &str, events: u64) -> Result<()> {
    let mut database = services.connect()?;
    let rows = database.with(async |client| {
        let sql = "select key, part, off from effect where consumer = $1 order by n";
        client.query_typed(sql, &[(&name, Type::TEXT)]).await
    })?;
    ensure!(rows.len() as u64 == events, "{events} events made {} effects", rows.len());
    let mut last = HashMap::new();
    for row in &rows {
        let (key, place): (String, (i32, i64)) = (row.get(0), (row.get(1), row.get(2)));
        let before = last.insert(key, place);
        ensure!(before.is_none_or(|before| before < place), "a key's effects are out of order");
    }
    Ok(())
}
