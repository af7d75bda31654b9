//! One way to apply events, in this process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use tokio::{runtime::Builder, sync::watch};

use super::{SubjectArgs, Way, plain, sql_only, walpost};
use crate::measure::Meter;

const POLL: Duration = Duration::from_millis(2);
const LIMIT: Duration = Duration::from_secs(1_700);

/// What it took. Times in seconds since the start of the process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) first: f64,
    /// Effects that were seen then.
    pub(crate) seen_at_first: u64,
    pub(crate) done: f64,
    pub(crate) cpu: f64,
    pub(crate) rss_peak_bytes: u64,
}

/// Committed effects, counted by the way itself.
pub(super) type Applied = Arc<AtomicU64>;

/// Becomes true when all effects are there.
pub(super) type Stop = watch::Receiver<bool>;

/// Runs one way to its end and prints what it took.
pub(crate) fn run_subject(args: &SubjectArgs) -> Result<()> {
    let start = Instant::now();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let applied = Applied::default();
    let (stop, stopped) = watch::channel(false);
    let (own, counter) = (args.clone(), applied.clone());
    let task = match args.subject {
        Way::Slice => runtime.spawn(walpost::run(walpost::BySlice, own, counter, stopped)),
        Way::PerEvent => runtime.spawn(walpost::run(walpost::ByEvent, own, counter, stopped)),
        Way::Plain => runtime.spawn(plain::run(own, counter, stopped)),
        Way::SqlOnly => runtime.spawn(sql_only::run(own, counter)),
        Way::Jdbc => bail!("Debezium is no process of this program"),
    };
    let mut meter = Meter::new(std::process::id());
    let mut first = None;
    let outcome = loop {
        let seen = applied.load(Ordering::Relaxed);
        let now = start.elapsed().as_secs_f64();
        if seen > 0 && first.is_none() {
            first = Some((now, seen.min(args.events)));
        }
        if let (Some((first, seen_at_first)), true) = (first, seen >= args.events) {
            let usage = meter.sample()?;
            let (cpu, rss_peak_bytes) = (usage.cpu.as_secs_f64(), usage.rss_peak_bytes);
            break Outcome { first, seen_at_first, done: now, cpu, rss_peak_bytes };
        }
        if task.is_finished() && applied.load(Ordering::Relaxed) < args.events {
            runtime.block_on(task)??;
            bail!("it ended after {seen} of {} events", args.events);
        }
        if start.elapsed() > LIMIT {
            bail!("{seen} of {} events after {LIMIT:?}", args.events);
        }
        thread::sleep(POLL);
    };
    stop.send_replace(true);
    runtime.block_on(task)??;
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}
