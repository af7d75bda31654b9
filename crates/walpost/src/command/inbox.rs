mod decide;
mod look;
mod prune;
mod time;

use clap::Subcommand;
use walpost_inbox::{Error, Inbox, State};

use crate::{
    config::{Config, ConfigArgs},
    failure::{Exit, Failure},
};

pub(super) use self::time::utc;

/// Events received from outside: which, and what to do.
///
/// The tables are those of `walpost migrate --set inbox`.
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
    /// Lists events that are not done, the oldest first
    List(look::ListArgs),
    /// Shows one of them, whatever became of it
    Show(look::ShowArgs),
    /// Has failed events tried again at once, and those under review processed
    Retry(decide::Args),
    /// Ignores pending events and those under review, for good
    Ignore(decide::Args),
    /// Counts what is old among events that are done, or has it leave
    Prune(prune::Args),
}

impl Args {
    /// Whether the answer is for a program.
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            Command::List(args) => args.json,
            Command::Show(args) => args.json,
            Command::Retry(args) | Command::Ignore(args) => args.json,
            Command::Prune(args) => args.json,
        }
    }
}

/// By which events are chosen, but for their states.
#[derive(Debug, clap::Args)]
struct Which {
    /// Of this source alone
    #[arg(long)]
    source: Option<String>,
    /// Of this type alone
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// With this id alone, as the sender gives it
    #[arg(long = "id", value_name = "EVENT_ID")]
    event_id: Option<String>,
}

impl Which {
    fn is_given(&self) -> bool {
        self.source.is_some() || self.event_type.is_some() || self.event_id.is_some()
    }

    fn filter(&self, states: &[State], limit: u32) -> walpost_inbox::Filter {
        let mut filter = walpost_inbox::Filter::new(limit).states(states.iter().copied());
        if let Some(source) = &self.source {
            filter = filter.source(source);
        }
        if let Some(event_type) = &self.event_type {
            filter = filter.event_type(event_type);
        }
        if let Some(event_id) = &self.event_id {
            filter = filter.event_id(event_id);
        }
        filter
    }
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let config = Config::load(config)?;
    let schema = args.schema.clone().unwrap_or_else(|| config.settings.pipeline.schema.clone());
    let inbox = Inbox::in_schema(schema);
    let database = config.database()?;
    let done = match &args.command {
        Command::List(args) => look::list(&database, &inbox, args).await,
        Command::Show(args) => look::show(&database, &inbox, args).await,
        Command::Retry(args) => decide::run(&database, &inbox, args, decide::Wish::Retry).await,
        Command::Ignore(args) => decide::run(&database, &inbox, args, decide::Wish::Ignore).await,
        Command::Prune(args) => prune::run(&database, &inbox, args).await,
    };
    done.map_err(|failure| failure.for_role(&database))
}

/// The text of the error has the next step in it.
fn failure(error: Error) -> Failure {
    let exit = match &error {
        Error::Window { .. } | Error::Setting { .. } => Exit::Configuration,
        _ => Exit::Postgres,
    };
    Failure::new(exit, error)
}
