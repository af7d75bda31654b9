mod parked;

use clap::Subcommand;

use crate::{
    config::{Config, ConfigArgs},
    failure::Failure,
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
    /// Events that a handler could not apply: shows them, has them retried or discarded
    Parked(parked::Args),
}

impl Args {
    /// Whether the answer is for a program.
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            Command::Parked(args) => args.json(),
        }
    }
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
        Command::Parked(args) => parked::run(&place, args).await,
    }
}
