mod answers;
mod ask;
mod look;

use clap::Subcommand;
use tokio_postgres::Client;

use self::ask::Wish;
use super::Place;
use crate::{command::sql, failure::Failure};

/// Which parked events, and what to do.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists them, the oldest first, with what waits behind them
    List(look::ListArgs),
    /// Shows one of them
    Show(look::ShowArgs),
    /// Has the consumer apply them; those that wait behind them follow
    Retry(ask::Args),
    /// Has the consumer give them up for good; those that wait behind them are applied
    Discard {
        #[command(flatten)]
        args: ask::Args,
        /// Discard what a filter finds
        #[arg(long)]
        yes: bool,
    },
}

impl Args {
    pub(super) fn json(&self) -> bool {
        match &self.command {
            Command::List(args) => args.json,
            Command::Show(args) => args.json,
            Command::Retry(args) | Command::Discard { args, .. } => args.json,
        }
    }
}

pub(super) async fn run(place: &Place, args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::List(args) => look::list(place, args).await,
        Command::Show(args) => look::show(place, args).await,
        Command::Retry(args) => ask::run(place, args, Wish::Retry).await,
        Command::Discard { args, yes } => ask::run(place, args, Wish::Discard { yes: *yes }).await,
    }
}

/// Of which events.
#[derive(Debug, clap::Args)]
struct Which {
    /// Of this consumer alone
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Of this topic alone
    #[arg(long)]
    topic: Option<String>,
    /// With this key alone
    #[arg(long)]
    key: Option<String>,
}

/// The rows of `Which`, as $1, $2 and $3.
const OF: &str = "($1::text is null or consumer = $1) and ($2::text is null or topic = $2) \
                  and ($3::text is null or key = convert_to($3, 'UTF8'))";

/// The table of parked events.
struct Parked {
    client: Client,
    schema: String,
}

impl Parked {
    fn name(&self) -> String {
        format!("{}.consumer_parked", sql::quoted(&self.schema))
    }

    fn failed(&self) -> impl Fn(tokio_postgres::Error) -> Failure + use<> {
        let schema = self.schema.clone();
        move |error| {
            let quoted = sql::quoted(&schema);
            let next_step = match error.code().map(|code| code.code()) {
                Some("42P01" | "42703" | "42883" | "3F000") => format!(
                    "run `walpost migrate --set consumer` on the database of the effects, or set \
                     --schema, which is {schema:?}"
                ),
                Some("42501") => format!(
                    "let an owner run this, with the name of your role for OPERATOR: grant usage \
                     on schema {quoted} to OPERATOR; grant select, update on \
                     {quoted}.consumer_parked to OPERATOR; grant select on {quoted}.position to \
                     OPERATOR"
                ),
                _ => return Failure::postgres(error).context("reading parked events failed"),
            };
            Failure::postgres(error).context("reading parked events failed").next_step(next_step)
        }
    }
}

fn events(count: usize) -> String {
    if count == 1 { "1 event".to_owned() } else { format!("{count} events") }
}
