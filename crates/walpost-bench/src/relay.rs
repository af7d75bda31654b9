//! The bench of the relay: one backlog, drained by each subject in turn, then
//! latency; all of it several times, since machines are noisy.

use std::{path::PathBuf, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tokio_postgres::types::PgLsn;
use walpost_migrate::Set;

use crate::{
    database::Database,
    drain::{self, Drain},
    encoding::Encoding,
    latency, progress,
    publish::publish,
    report::relay::{Report, Round},
    services::{Services, await_slot, create_slot, drop_slot},
    subject::{Debezium, Job, Output, RecvLogical, Subject, Walpost},
    topic, workload,
};

/// Events per second at which latency is measured.
const RATES: [u32; 2] = [200, 2_000];
const WARM_UP_TOPIC: &str = "bench.warm-up";
const WARM_UP_EVENTS: u64 = 500_000;
/// For the servers to finish what the subject before has left to do.
const PAUSE: Duration = Duration::from_secs(2);

/// Drains one backlog with each subject in turn, then measures latency.
#[derive(Debug, Args)]
pub(crate) struct RelayArgs {
    /// Events in the backlog
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// How often each subject is measured, in turn with the others; figures are
    /// medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Which subjects, in this order; by default pg_recvlogical, walpost and debezium,
    /// the first for text alone
    #[arg(long, value_enum, value_delimiter = ',')]
    subjects: Vec<Which>,
    /// What keys and values are; other than text walpost runs Debezium's connector file
    #[arg(long, value_enum, default_value = "text")]
    encoding: Encoding,
    /// Seconds at each of 200 and 2,000 events/s in each round; 0 for no latency
    #[arg(long, default_value_t = 10)]
    latency_seconds: u64,
    /// One line of JSON a subject on stdout; the table goes to stderr
    #[arg(long)]
    json: bool,
    /// The binary to measure, by default `walpost` beside this one
    #[arg(long, value_name = "PATH")]
    walpost: Option<PathBuf>,
    /// A setting of walpost other than the default, as section.key=value
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    #[value(name = "pg_recvlogical")]
    RecvLogical,
    Walpost,
    /// Walpost with sink.publish = "transactional"
    #[value(name = "walpost_transactional")]
    Transactional,
    /// Walpost beside its database, by the Unix socket
    #[value(name = "walpost_socket")]
    Socket,
    Debezium,
}

impl RelayArgs {
    fn chosen(&self) -> Vec<Which> {
        match self.encoding {
            _ if !self.subjects.is_empty() => self.subjects.clone(),
            Encoding::Text => vec![Which::RecvLogical, Which::Walpost, Which::Debezium],
            Encoding::JsonWithSchemas | Encoding::Avro => vec![Which::Walpost, Which::Debezium],
        }
    }

    fn subject(&self, which: Which) -> Result<Box<dyn Subject>> {
        Ok(match which {
            Which::RecvLogical => Box::new(RecvLogical),
            Which::Walpost => Box::new(Walpost::new(self.walpost.as_deref(), &self.settings)?),
            Which::Transactional => {
                let mut settings = self.settings.clone();
                settings.push("sink.publish=transactional".to_owned());
                Box::new(
                    Walpost::new(self.walpost.as_deref(), &settings)?
                        .named("walpost_transactional"),
                )
            }
            Which::Socket => Box::new(
                Walpost::new(self.walpost.as_deref(), &self.settings)?
                    .named("walpost_socket")
                    .by_socket(),
            ),
            Which::Debezium => Box::new(Debezium::fetched(self.encoding)?),
        })
    }
}

pub(crate) fn run(args: &RelayArgs) -> Result<()> {
    for (index, which) in args.subjects.iter().enumerate() {
        ensure!(!args.subjects[..index].contains(which), "a subject is named twice");
    }
    let subjects: Vec<_> =
        args.chosen().into_iter().map(|which| args.subject(which)).collect::<Result<_>>()?;
    let mut services = Services::start(Set::Relay)?;
    if args.encoding.has_registry() {
        services.start_registry()?;
    }
    let mut report = Report::new(args.events, args.rounds, args.encoding.name());
    let mut bench = Bench {
        database: services.connect()?,
        services: &services,
        encoding: args.encoding,
        jobs: 0,
    };
    for subject in &subjects {
        report.add(subject.name(), subject.version(&services)?);
        for round in 0..args.rounds {
            create_slot(&bench.database, &backlog_slot(subject.as_ref(), round))?;
        }
    }
    warm_up_kafka(&services, args.events)?;
    let end = workload::fill(&bench.database, args.events)?;
    let latency = (args.latency_seconds > 0).then(|| Duration::from_secs(args.latency_seconds));
    for round in 0..args.rounds {
        for subject in &subjects {
            let drain = bench.drain(subject.as_ref(), round, args.events, end)?;
            report.add_round(subject.name(), Round { drain, latency: Vec::new() });
        }
        let Some(duration) = latency else { continue };
        for subject in &subjects {
            let measured = bench.latency(subject.as_ref(), round, duration)?;
            report.add_latency(subject.name(), measured);
        }
    }
    report.print(args.json)
}

/// A broker that has just started is slower than one that has seen records, and
/// the first subject would pay for that.
fn warm_up_kafka(services: &Services, events: u64) -> Result<()> {
    let bootstrap = services.kafka.bootstrap();
    topic::create(&bootstrap, WARM_UP_TOPIC)?;
    publish(&bootstrap, WARM_UP_TOPIC, events.min(WARM_UP_EVENTS))
}

/// Each round reads the backlog from a slot of its own.
fn backlog_slot(subject: &dyn Subject, round: u32) -> String {
    format!("backlog_{}_{round}", subject.name())
}

struct Bench<'a> {
    services: &'a Services,
    database: Database,
    encoding: Encoding,
    jobs: u32,
}

impl Bench<'_> {
    fn drain(
        &mut self,
        subject: &dyn Subject,
        round: u32,
        events: u64,
        end: PgLsn,
    ) -> Result<Drain> {
        let slot = backlog_slot(subject, round);
        let files = self.files(subject, false)?;
        self.settle()?;
        progress!("{}: draining {events} events", subject.name());
        let job = files.job(self.services, &slot, Some(end));
        let (drain, child) = drain::drain(subject, &job, events)
            .with_context(|| format!("draining with {}", subject.name()))?;
        drop(child);
        drop_slot(&self.database, &slot)?;
        progress!(
            "{}: {:.0} events/s from the first event to the last, {:.1} s in all",
            subject.name(),
            drain.events_per_second(),
            drain.done.as_secs_f64()
        );
        Ok(drain)
    }

    /// Of a subject that was started anew, on a slot of its own.
    fn latency(
        &mut self,
        subject: &dyn Subject,
        round: u32,
        duration: Duration,
    ) -> Result<Vec<latency::Latency>> {
        let slot = format!("latency_{}_{round}", subject.name());
        let files = self.files(subject, true)?;
        create_slot(&self.database, &slot)?;
        self.settle()?;
        progress!("{}: warming up", subject.name());
        let job = files.job(self.services, &slot, None);
        let child = subject.start(&job)?;
        let measured = await_slot(&self.database, &slot, true)
            .and_then(|()| latency::measure(subject, &job, child.pid(), &RATES, duration))
            .with_context(|| format!("latency of {}: {}", subject.name(), child.log_tail()))?;
        drop(child);
        drop_slot(&self.database, &slot)?;
        Ok(measured)
    }

    /// So that no subject pays for what another has left behind.
    fn settle(&self) -> Result<()> {
        self.database.run("checkpoint")?;
        thread::sleep(PAUSE);
        Ok(())
    }

    fn files(&mut self, subject: &dyn Subject, pipe: bool) -> Result<Files> {
        self.jobs += 1;
        let topic = format!("bench.{}.{}", subject.name(), self.jobs);
        let folder = self.services.new_folder(&topic)?;
        let file = match pipe {
            false => PathBuf::from("/dev/null"),
            true => folder.join("pipe"),
        };
        if pipe {
            let mode = Mode::RUSR | Mode::WUSR;
            mknodat(CWD, &file, FileType::Fifo, mode, 0).context("creating a pipe")?;
        }
        if subject.output() == Output::Topic {
            topic::create(&self.services.kafka.bootstrap(), &topic)?;
        }
        Ok(Files { folder, topic, file, encoding: self.encoding })
    }
}

struct Files {
    folder: PathBuf,
    topic: String,
    file: PathBuf,
    encoding: Encoding,
}

impl Files {
    fn job<'a>(&'a self, services: &'a Services, slot: &'a str, end: Option<PgLsn>) -> Job<'a> {
        let Self { folder, topic, file, encoding } = self;
        Job { services, folder, slot, topic, file, encoding: *encoding, end }
    }
}
