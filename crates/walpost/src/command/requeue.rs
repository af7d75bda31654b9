use serde_json::json;
use walpost_relay::{Requeue, Requeued};

use crate::{
    command::connector,
    config::ConfigArgs,
    failure::{Exit, Failure},
    output,
};

/// Which failed rows, and whether only to look.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// Only print what would be requeued
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// All failed rows
    #[arg(long)]
    all: bool,
    /// The row with this id; may be given several times
    #[arg(long, value_name = "ID")]
    id: Vec<String>,
    /// Instead of failed rows all that wait for their next attempt: they are tried at once
    #[arg(long)]
    waiting: bool,
    /// Those of one aggregate: a value for each of polling.aggregate_columns
    #[arg(long, value_name = "VALUE", num_args = 1..)]
    aggregate: Vec<String>,
}

impl Which {
    fn requeue(&self) -> Requeue {
        if self.all {
            Requeue::All
        } else if self.waiting {
            Requeue::Waiting
        } else if self.aggregate.is_empty() {
            Requeue::Ids(self.id.clone())
        } else {
            Requeue::Aggregate(self.aggregate.clone())
        }
    }
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let config = connector::load(config).await?;
    let (database, relay) = (config.database()?, config.relay()?);
    let Some(polling) = config.polling()? else {
        let text = "nothing to requeue: pipeline.source is not \"polling\"";
        return Err(Failure::found(Exit::Configuration, text).next_step(
            "see what a pipeline that reads the WAL has set aside with `walpost parked list`",
        ));
    };
    let mut count = 0;
    let mut printed = Ok(());
    let which = args.which.requeue();
    let told = |rows: Vec<Requeued>| {
        count += rows.len();
        if printed.is_ok() {
            printed = output::print(lines(&rows, args.json));
        }
    };
    walpost_relay::requeue(&database, &relay, &polling, &which, args.dry_run, told)
        .await
        .map_err(|error| Failure::of_relay(error, false))?;
    printed?;
    let done = if args.dry_run { "would be requeued" } else { "requeued" };
    let what = if args.which.waiting { "waiting" } else { "failed" };
    output::note(format_args!("{count} {what} rows {done}"));
    if count == 0 && !args.which.waiting {
        output::note("rows that wait for their next attempt are tried at once by --waiting");
    }
    Ok(())
}

fn lines(rows: &[Requeued], json: bool) -> String {
    let line = |row: &Requeued| {
        if json {
            return format!("{}\n", json!({ "id": row.id, "last_error": row.last_error }));
        }
        let shown = |text: &str| -> String {
            let visible = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
            text.chars().map(visible).collect()
        };
        format!("{}  {}\n", shown(&row.id), shown(row.last_error.as_deref().unwrap_or("-")))
    };
    rows.iter().map(line).collect()
}
