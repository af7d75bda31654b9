mod decide;
mod hold;
mod list;
mod prune;
mod show;
mod test;

pub(in crate::command) use self::list::{fields, table};

use std::collections::BTreeSet;

use clap::Subcommand;
use tokio_postgres::Client;
use walpost_webhook::{Deliveries, DestinationBacklog, StoreError};

use crate::{
    config::{Config, ConfigArgs, SinkKind},
    failure::{Exit, Failure},
};

/// Names of destinations that an error lists.
const NAMED_MAX: usize = 20;

/// Webhooks that are sent: how far they are, and what to do.
///
/// The tables are those of `walpost migrate --set webhook`.
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
    /// Lists destinations with what waits for each; with a filter deliveries, the oldest first or by --newest the last
    List(list::Args),
    /// Shows a delivery and its attempts, whatever became of it
    Show(show::Args),
    /// Has deliveries that failed, are held or unknown sent again at once, with the same key
    Retry(decide::RetryArgs),
    /// Says what became of deliveries of which nobody knew, for who has looked
    Settle(decide::SettleArgs),
    /// Disables a destination: what is for it is held
    Hold(hold::HoldArgs),
    /// Enables a destination, and lets go what is held for it
    Resume(hold::ResumeArgs),
    /// Sends one request as a delivery would be sent, and prints the answer
    ///
    /// Nothing is written down about it. The receiver gets a body that says
    /// walpost.test unless --payload is given.
    Test(test::Args),
    /// Counts what has arrived and is old, or has it leave
    Prune(prune::Args),
}

impl Args {
    /// Whether the answer is for a program.
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            Command::List(args) => args.json,
            Command::Show(args) => args.json,
            Command::Retry(args) => args.json,
            Command::Settle(args) => args.json,
            Command::Hold(args) => args.json,
            Command::Resume(args) => args.json,
            Command::Prune(args) => args.json,
            Command::Test(args) => args.json,
        }
    }
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let config = Config::load(config)?;
    let schema = args.schema.as_ref().unwrap_or(&config.settings.pipeline.schema);
    let deliveries = Deliveries::in_schema(schema);
    let configured = configured(&config)?;
    let configured = configured.as_ref();
    // A trial needs none.
    let database = || config.database();
    let done = match &args.command {
        Command::List(args) => list::run(&database()?, &deliveries, (args, configured)).await,
        Command::Show(args) => show::run(&database()?, &deliveries, args).await,
        Command::Retry(args) => decide::retry(&database()?, &deliveries, (args, configured)).await,
        Command::Settle(args) => decide::settle(&database()?, &deliveries, args).await,
        Command::Hold(args) => hold::hold(&database()?, &deliveries, args).await,
        Command::Resume(args) => hold::resume(&database()?, &deliveries, args).await,
        Command::Prune(args) => prune::run(&database()?, &deliveries, args).await,
        Command::Test(args) => return test::run(&config, args).await,
    };
    let database = config.database()?;
    done.map_err(|failure| failure.for_role(&database))
}

/// Names of the destinations, where the configuration has some.
fn configured(config: &Config) -> Result<Option<BTreeSet<String>>, Failure> {
    let names = config.settings.destinations.keys().cloned().collect::<BTreeSet<_>>();
    let is_known = config.sink_kind()? == SinkKind::Webhook && !names.is_empty();
    Ok(is_known.then_some(names))
}

/// What is said of deliveries to a destination that the configuration does not have.
fn unconfigured(name: &str) -> String {
    format!(
        "{name} is no destination of this configuration, so nothing sends what is for it: \
         configure [destination.{name}], or give deliveries up with `walpost webhook settle ID \
         --failed`"
    )
}

/// The text of the error has the next step in it.
pub(in crate::command) fn failure(error: StoreError) -> Failure {
    let exit = match &error {
        StoreError::Setting { .. } | StoreError::Bounds { .. } => Exit::Configuration,
        _ => Exit::Postgres,
    };
    Failure::new(exit, error)
}

/// A destination by its name, or who there is instead.
async fn destination(
    client: &Client,
    deliveries: &Deliveries,
    name: &str,
) -> Result<DestinationBacklog, Failure> {
    if let Some(found) = deliveries.destination(client, name).await.map_err(failure)? {
        return Ok(found);
    }
    let all = deliveries.backlog(client).await.map_err(failure)?;
    let mut names: Vec<&str> = all.iter().map(|each| &*each.destination).collect();
    let next_step = match names.len() {
        0 => "start its processor once, or create a delivery for it: there is no destination yet"
            .to_owned(),
        count => {
            names.truncate(NAMED_MAX);
            let more = if count > NAMED_MAX { " and others" } else { "" };
            format!("name one of these: {}{more}", names.join(", "))
        }
    };
    let text = format!("there is no destination {name:?}");
    Err(Failure::found(Exit::Nothing, &text).next_step(next_step))
}
