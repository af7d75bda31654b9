//! A shop that places orders, and a service that makes one shipment for each.
//!
//! `shop.rs` and `shipping.rs` are what an application has. `surroundings.rs`
//! stands for what is there already elsewhere: PostgreSQL, Kafka, the tables,
//! and the relay, which is the program `walpost run`.

mod report;
mod shipping;
mod shop;
mod surroundings;

use std::{
    error::Error,
    io::{self, IsTerminal},
    process::ExitCode,
    time::Duration,
};

use stand::number;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tracing_subscriber::EnvFilter;
use walpost_consumer::error_chain;

use crate::{report::Report, surroundings::Surroundings};

/// Orders, unless the variable ORDERS says otherwise.
const ORDERS: i64 = 2_000;
/// Between two of them, unless PACE_MS says otherwise.
const PACE_MS: u64 = 5;
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

type Failed = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    log.with_ansi(io::stderr().is_terminal()).init();
    let Err(error) = run().await else { return ExitCode::SUCCESS };
    eprintln!("shipping-service: {}", error_chain(&*error));
    ExitCode::FAILURE
}

async fn run() -> Result<(), Failed> {
    let orders = number("ORDERS", ORDERS)?;
    let pace = Duration::from_millis(number("PACE_MS", PACE_MS)?);
    let surroundings = Surroundings::open().await?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let database = surroundings.database().clone();
    let report = Report::new(&database, orders).await?;
    report.so_far().await?.figures().tell()?;

    let (stop, stopped) = watch::channel(false);
    let mut relay = surroundings.start_relay()?;
    let consumer = shipping::consumer(&database, surroundings.brokers())?;
    let mut consumer = tokio::spawn(consumer.run(requested(stopped.clone())));
    let mut shop = tokio::spawn(shop::place_orders(database, orders, pace, stopped));

    let mut tick = interval(REPORT_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_open = true;
    let ended: Result<(), Failed> = loop {
        tokio::select! {
            _ = interrupted.recv() => break Ok(()),
            _ = terminated.recv() => break Ok(()),
            ended = &mut consumer => break Err(problem("the consumer", ended)),
            ended = relay.finished() => break Err(problem("the relay", Ok(ended))),
            ended = &mut shop, if is_open => match ended {
                Ok(Ok(())) => is_open = false,
                ended => break Err(problem("the shop", ended)),
            },
            _ = tick.tick() => {
                match report.so_far().await?.figures().tell() {
                    Ok(true) => break Ok(()),
                    Ok(false) => {}
                    Err(broken) => break Err(broken),
                }
            }
        }
    };
    // What is at hand is finished: no work is lost by not waiting, only time.
    stop.send_replace(true);
    relay.stop();
    if ended.is_ok() {
        if is_open {
            shop.await??;
        }
        consumer.await??;
        relay.finished().await?;
        report.so_far().await?.figures().tell_the_end()?;
    }
    ended
}

async fn requested(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Why a part ended that should have gone on.
fn problem<E: Into<Failed>>(
    part: &str,
    ended: Result<Result<(), E>, tokio::task::JoinError>,
) -> Failed {
    match ended {
        Ok(Ok(())) => format!("{part} ended by itself").into(),
        Ok(Err(error)) => error.into(),
        Err(panic) => panic.into(),
    }
}
