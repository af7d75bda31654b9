//! The bench of the consumer: one topic, applied in several ways.

mod child;
mod end_to_end;
mod jdbc;
mod plain;
mod sql_only;
mod walpost;

use std::{
    env, fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use walpost_local::{ChildGuard, Launch};
use walpost_migrate::Set;

pub(crate) use self::{
    child::{Outcome, run_subject},
    end_to_end::RATE,
};
use crate::{
    database::Database,
    progress,
    publish::{Values, publish, publish_as},
    report::consumer::Report,
    services::Services,
    topic,
};

const PAUSE: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(1_800);
const TOPIC: &str = "bench.consumer";

/// The effect is one row. Plain tables for those that have none of their own,
/// of the same columns where it counts.
const TABLES: &str = "
create schema bench;
create table bench.effect (event_id text not null, total_cents bigint not null);
create table bench.processed (consumer text, source text, event_id text,
    primary key (consumer, source, event_id));
create table bench.watermark (consumer text, topic text, part int, next_offset bigint not null,
    primary key (consumer, topic, part)) with (fillfactor = 50);
create table bench.upsert (event_id text primary key, total_cents bigint not null);
";

const EMPTY: &str = "
truncate bench.effect, bench.processed, bench.watermark, bench.upsert, walpost.done,
    walpost.position cascade;
checkpoint;
";

/// Applies one topic in several ways, each from the beginning.
#[derive(Debug, Args)]
pub(crate) struct ConsumerArgs {
    /// Events in the topic
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// Which ways, in this order
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["walpost_slice", "walpost_per_event", "one_transaction_per_event", "sql_only", "debezium_jdbc_sink"])]
    subjects: Vec<Way>,
    /// Seconds at 2,000 events/s, from the application's commit to the effect's; 0
    /// for no latency
    #[arg(long, default_value_t = 30)]
    latency_seconds: u64,
    /// The relay to measure latency with, by default `walpost` beside this program
    #[arg(long, value_name = "PATH")]
    walpost: Option<PathBuf>,
    /// One line of JSON a subject on stdout; the table goes to stderr
    #[arg(long)]
    json: bool,
}

/// What a process of its own is to do.
#[derive(Clone, Debug, Args)]
pub(crate) struct SubjectArgs {
    #[arg(long, value_enum)]
    subject: Way,
    #[arg(long)]
    bootstrap: String,
    #[arg(long)]
    topic: String,
    #[arg(long)]
    postgres: String,
    #[arg(long)]
    events: u64,
}

/// A way to apply events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// The consumer crate, whose handler writes a slice with one statement.
    #[value(name = "walpost_slice")]
    Slice,
    /// The consumer crate, whose handler writes one event after another.
    #[value(name = "walpost_per_event")]
    PerEvent,
    /// What one writes without it.
    #[value(name = "one_transaction_per_event")]
    Plain,
    /// The same SQL in batches, without Kafka and without a consumer: what the
    /// database could take.
    #[value(name = "sql_only")]
    SqlOnly,
    /// Debezium's JDBC sink connector in upsert mode, which is at least once; not
    /// by a process of this program.
    #[value(name = "debezium_jdbc_sink")]
    Jdbc,
}

impl Way {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

pub(crate) fn run(args: &ConsumerArgs) -> Result<()> {
    let services = Services::start(Set::Consumer)?;
    let database = services.connect()?;
    database.run(TABLES)?;
    topic::create(&services.kafka.bootstrap(), TOPIC)?;
    progress!("publishing {} events", args.events);
    publish(&services.kafka.bootstrap(), TOPIC, args.events)?;
    if args.subjects.contains(&Way::Jdbc) {
        jdbc::fetched()?;
        topic::create(&services.kafka.bootstrap(), jdbc::TOPIC)?;
        publish_as(&services.kafka.bootstrap(), jdbc::TOPIC, args.events, Values::WithSchema)?;
    }
    let mut report = Report::new(args.events);
    for way in &args.subjects {
        database.run(EMPTY)?;
        thread::sleep(PAUSE);
        progress!("{}: applying {} events", way.name(), args.events);
        let (outcome, table) = match way {
            Way::Jdbc => (jdbc::apply(&services, &database, args.events), jdbc::TABLE),
            way => (measure(&services, *way, args.events), "bench.effect"),
        };
        let outcome = outcome.with_context(|| format!("applying with {}", way.name()))?;
        check(&database, table, args.events)?;
        report.add(way.name(), outcome);
    }
    drop(services);
    if args.latency_seconds > 0 {
        let duration = Duration::from_secs(args.latency_seconds);
        let latency = end_to_end::measure(args.walpost.as_deref(), duration);
        report.add_latency(latency.context("measuring latency from end to end")?);
    }
    report.print(args.json)
}

fn measure(services: &Services, way: Way, events: u64) -> Result<Outcome> {
    let folder = services.new_folder(&way.name())?;
    let child = Launch::new(way.name(), env::current_exe()?, folder.join("log"))
        .args(["consumer-subject", "--subject", &way.name(), "--topic", TOPIC])
        .args(["--bootstrap", &services.kafka.bootstrap(), "--events", &events.to_string()])
        .args(["--postgres", &services.conninfo()])
        .disposable(Some(services.folder()))
        .spawn()?;
    let status = child.wait(LIMIT)?;
    ensure!(status.success(), "it ended with {status}: {}", child.log_tail());
    outcome(&child)
}

fn outcome(child: &ChildGuard) -> Result<Outcome> {
    let log: &Path = child.log();
    let text = fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))?;
    match text.lines().rev().find(|line| line.starts_with('{')) {
        Some(line) => serde_json::from_str(line).context("reading the figures"),
        None => bail!("it printed no figures: {}", child.log_tail()),
    }
}

/// A way that is fast because it loses or repeats effects is none.
fn check(database: &Database, table: &str, events: u64) -> Result<()> {
    let effects = database.number(&format!("select count(*) from {table}"))?;
    let distinct = format!("select count(distinct event_id) from {table}");
    let distinct = database.number(&distinct)?;
    ensure!(
        u64::try_from(effects)? == events && effects == distinct,
        "{events} events made {effects} effects, {distinct} of them distinct"
    );
    Ok(())
}
