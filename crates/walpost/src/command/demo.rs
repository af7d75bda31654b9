use std::path::PathBuf;

use crate::{
    config::{Config, ConfigArgs},
    demo::{self, Options},
    failure::{Exit, Failure},
    output,
};

/// How much, how rough, and where.
///
/// A shop writes orders and their events, `walpost run` publishes them, and a consumer applies
/// them. Half-way the relay and the consumer are killed with SIGKILL and started again. Then every
/// event is looked up in the topic and among the effects, the group's offsets are reset, and the
/// replay is counted.
///
/// Without --postgres a private PostgreSQL is started, without --kafka an in-process mock of a
/// broker. With them the demo works in a database and a topic of its own, and removes both.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Events to write
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    events: u64,
    /// How often relay and consumer are killed each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=100))]
    kills: u32,
    /// Print the figures as one JSON object, as the last line
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep configuration and logs, and what is in --postgres and --kafka
    #[arg(long)]
    keep: bool,
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    // Only what the command line names: a file that lies about may name a
    // server that is no place for a demo.
    let kafka = match &config.kafka {
        Some(_) => Some(Config::load(config)?.kafka_client()?),
        None => None,
    };
    let options = Options {
        events: args.events,
        kills: args.kills,
        postgres: config.postgres.clone(),
        kafka,
        keep: args.keep,
        program: program()?,
    };
    let figures = demo::run(options).await?;
    if args.json {
        output::note(figures.table().to_string().trim_end());
        output::print(format_args!("{}\n", figures.json()))?;
    } else {
        output::print(figures.table())?;
    }
    match figures.problem() {
        None => Ok(()),
        Some(problem) => Err(Failure::found(Exit::Running, &problem).told_in_json()),
    }
}

fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::running(error).context("cannot find this program's own file"))
}
