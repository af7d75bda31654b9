//! The bench of one large transaction: how fast it is published, and that the
//! memory of the relay does not grow with it, not after a kill within it either.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use walpost_local::{ChildGuard, Signal};
use walpost_migrate::Set;

use crate::{
    arrivals::Arrivals,
    database::Database,
    drain::{self, Drain},
    encoding::Encoding,
    measure::{Meter, Usage},
    progress,
    report::transaction::{Killed, Report},
    services::{Services, await_slot, create_slot, drop_slot},
    subject::{Job, Subject, Walpost},
    topic::{self, Ends},
    workload::{self, OneTransaction},
};

const UNDISTURBED: &str = "undisturbed";
const KILLED: &str = "killed";
const POLL: Duration = Duration::from_millis(20);
const LIMIT: Duration = Duration::from_secs(900);
/// Beyond the relay's own bound on an orderly stop.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// For the brokers to append what a killed process had sent.
const PAUSE: Duration = Duration::from_secs(2);

/// Publishes one transaction of many rows, and publishes it again with a kill half-way.
#[derive(Debug, Args)]
pub(crate) struct TransactionArgs {
    /// Rows of the transaction
    #[arg(long, default_value_t = 3_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rows: u64,
    /// Fail when a process of walpost ever has more memory resident, in units of 1,048,576 bytes
    #[arg(long, default_value_t = 128)]
    rss_limit_mb: u64,
    /// One line of JSON on stdout; the table goes to stderr
    #[arg(long)]
    json: bool,
    /// The binary to measure, by default `walpost` beside this one
    #[arg(long, value_name = "PATH")]
    walpost: Option<PathBuf>,
    /// A setting of walpost other than the default, as section.key=value
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

pub(crate) fn run(args: &TransactionArgs) -> Result<()> {
    let walpost = Walpost::new(args.walpost.as_deref(), &args.settings)?;
    let services = Services::start(Set::Relay)?;
    let database = services.connect()?;
    for slot in [UNDISTURBED, KILLED] {
        create_slot(&database, slot)?;
    }
    progress!("filling one transaction of {} rows", args.rows);
    let transaction = workload::fill_one_transaction(&database, args.rows)?;
    let bench = Bench { services: &services, database, walpost, rows: args.rows, transaction };
    let (drain, arrivals) = bench.undisturbed()?;
    let killed = bench.killed()?;
    let report = Report {
        rows: args.rows,
        wal_bytes: transaction.wal_bytes,
        drain,
        arrivals,
        killed,
        rss_limit_mb: args.rss_limit_mb,
    };
    report.print(args.json)?;
    match report.problem() {
        None => Ok(()),
        Some(problem) => bail!(problem),
    }
}

struct Bench<'a> {
    services: &'a Services,
    database: Database,
    walpost: Walpost,
    rows: u64,
    transaction: OneTransaction,
}

impl Bench<'_> {
    fn undisturbed(&self) -> Result<(Drain, Arrivals)> {
        let files = self.files(UNDISTURBED)?;
        progress!("publishing it");
        let (drain, child) = drain::drain(&self.walpost, &files.job(self), self.rows)?;
        stop(&child)?;
        self.drop_slot(UNDISTURBED)?;
        progress!("reading the topic back");
        Ok((drain, self.arrivals(UNDISTURBED)?))
    }

    /// The first process is killed when half of the rows are in the topic.
    /// Nothing of the transaction is confirmed before its end, so the second
    /// one reads back what is there and streams from the first row.
    fn killed(&self) -> Result<Killed> {
        let files = self.files(KILLED)?;
        let ends = Ends::open(&self.services.kafka.bootstrap(), KILLED)?;
        progress!("publishing it to another topic, with a kill half-way");
        let first = self.walpost.start(&files.job(self))?;
        let first_usage = watch(&first, || Ok(ends.records()? >= self.rows.div_ceil(2)))?;
        first.kill()?;
        thread::sleep(PAUSE);
        let records_at_kill = ends.records()?;
        progress!("killed with {records_at_kill} records in the topic; starting it again");
        await_slot(&self.database, KILLED, false)?;
        let second = self.walpost.start(&files.job(self))?;
        // It may have nothing left to do; once it streams it listens to signals.
        await_slot(&self.database, KILLED, true)
            .with_context(|| format!("starting again: {}", second.log_tail()))?;
        let second_usage = watch(&second, || self.is_checkpointed(KILLED))?;
        stop(&second)?;
        self.drop_slot(KILLED)?;
        progress!("reading the topic back");
        let arrivals = self.arrivals(KILLED)?;
        Ok(Killed { records_at_kill, first: first_usage, second: second_usage, arrivals })
    }

    /// Whether the pipeline's checkpoint is behind the commit.
    fn is_checkpointed(&self, pipeline: &str) -> Result<bool> {
        let position = self.transaction.before_commit;
        let sql = format!(
            "select count(*) from walpost.checkpoint
             where pipeline = '{pipeline}' and confirmed_lsn > '{position}'"
        );
        Ok(self.database.number(&sql)? == 1)
    }

    fn arrivals(&self, topic: &str) -> Result<Arrivals> {
        Arrivals::read(&self.services.kafka.bootstrap(), topic, self.rows)
    }

    fn drop_slot(&self, slot: &str) -> Result<()> {
        drop_slot(&self.database, slot)
    }

    /// Slot, topic and folder have one name.
    fn files(&self, name: &'static str) -> Result<Files> {
        topic::create(&self.services.kafka.bootstrap(), name)?;
        Ok(Files { name, folder: self.services.new_folder(name)?, file: "/dev/null".into() })
    }
}

struct Files {
    name: &'static str,
    folder: PathBuf,
    file: PathBuf,
}

impl Files {
    fn job<'a>(&'a self, bench: &'a Bench<'_>) -> Job<'a> {
        Job {
            services: bench.services,
            folder: &self.folder,
            slot: self.name,
            topic: self.name,
            encoding: Encoding::Text,
            file: &self.file,
            end: None,
        }
    }
}

/// What a process has used when the moment comes.
fn watch(child: &ChildGuard, mut has_come: impl FnMut() -> Result<bool>) -> Result<Usage> {
    let start = Instant::now();
    let mut meter = Meter::new(child.pid());
    loop {
        let usage = meter.sample()?;
        if has_come()? {
            return Ok(usage);
        }
        ensure!(!usage.ended, "walpost ended early; its log ends with: {}", child.log_tail());
        let waited = start.elapsed();
        ensure!(
            waited < LIMIT,
            "not done after {LIMIT:?}; the log ends with: {}",
            child.log_tail()
        );
        thread::sleep(POLL);
    }
}

fn stop(child: &ChildGuard) -> Result<()> {
    let status = child.end(Signal::Terminate, STOP_LIMIT).context("stopping walpost")?;
    ensure!(status.success(), "walpost stopped with {status}: {}", child.log_tail());
    Ok(())
}
