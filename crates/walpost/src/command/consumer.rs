mod choose;
mod cluster;
mod look;
mod parked;
mod plan;
mod prune;
mod reset;
mod stored;
mod sync;
mod target;

use clap::Subcommand;

use crate::{
    config::{Config, ConfigArgs},
    failure::{Exit, Failure},
};

/// Consumers that are built with `walpost-consumer`: where they are, and what to do.
///
/// The tables are those of `walpost migrate --set consumer`, in the database of the effects.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Schema of the tables; without it pipeline.schema
    #[arg(long, global = true)]
    schema: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists consumers with their topics, and how far behind they are
    List(look::ListArgs),
    /// Shows the partitions of one, and its last resets
    Show(look::ShowArgs),
    /// Sets its offsets: events are applied once more, or what is missing, or are passed over
    Reset(reset::Args),
    /// Counts effects that need no longer be remembered, or has them forgotten
    Prune(prune::Args),
    /// Events that a handler could not apply: shows them, has them retried or discarded
    Parked(parked::Args),
    /// Sets the group's offsets in Kafka to the stored ones, as after a kill
    SyncOffsets(sync::Args),
}

impl Args {
    /// Whether the answer is for a program.
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            Command::List(args) => args.json,
            Command::Show(args) => args.json,
            Command::Reset(args) => args.json,
            Command::Prune(args) => args.json,
            Command::Parked(args) => args.json(),
            Command::SyncOffsets(args) => args.json,
        }
    }
}

/// Of which consumer, and which of its partitions.
#[derive(Debug, clap::Args)]
struct Which {
    /// Name of the consumer
    name: String,
    /// Of this topic alone
    #[arg(long)]
    topic: Option<String>,
    /// Of these partitions alone, as 0,3
    #[arg(long = "partition", value_name = "PARTITION", value_delimiter = ',')]
    partitions: Vec<i32>,
}

/// Where the tables are.
struct Place {
    database: walpost_postgres::Database,
    schema: String,
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let config = Config::load(config)?;
    let schema = args.schema.clone().unwrap_or_else(|| config.settings.pipeline.schema.clone());
    let place = Place { database: config.database()?, schema };
    match &args.command {
        Command::List(args) => look::list(&config, &place, args).await,
        Command::Show(args) => look::show(&config, &place, args).await,
        Command::Reset(args) => reset::run(&config, &place, args).await,
        Command::Prune(args) => prune::run(&config, &place, args).await,
        Command::Parked(args) => parked::run(&place, args).await,
        Command::SyncOffsets(args) => sync::run(&config, &place, args).await,
    }
}

/// Kafka did not answer, or refused.
fn kafka_failed(text: &str) -> Failure {
    Failure::found(Exit::Kafka, text).next_step(crate::failure::BROKERS)
}
