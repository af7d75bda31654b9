use serde_json::json;
use walpost_inbox::{Inbox, Prune};
use walpost_postgres::Database;

use super::failure;
use crate::{command::sql, failure::Failure, output, table::thousands};

/// What leaves, of events that succeeded or were ignored.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Payloads leave so many days after their events were done
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(..=3_653))]
    payload_days: u32,
    /// Rows leave so many days after; no less than the window in which keys are remembered
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3_653))]
    keep_days: u32,
    /// Rows of one transaction
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch_rows: u32,
    /// Have it leave; without it it is counted
    #[arg(long)]
    yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) async fn run(database: &Database, inbox: &Inbox, args: &Args) -> Result<(), Failure> {
    let prune = Prune::new(args.payload_days, args.keep_days).batch_rows(args.batch_rows);
    let client = sql::connect_to_ask(database).await?;
    let pruned = match args.yes {
        true => inbox.prune(&client, &prune).await,
        false => inbox.prunable(&client, &prune).await,
    };
    let pruned = pruned.map_err(failure)?;
    if args.json {
        let line = json!({ "done": args.yes, "payloads": pruned.payloads, "rows": pruned.rows });
        return output::print(format_args!("{line}\n"));
    }
    let (payloads, rows) = (thousands(pruned.payloads), thousands(pruned.rows));
    output::print(match args.yes {
        true => format!("{payloads} payloads and {rows} rows have left\n"),
        false => format!(
            "{payloads} payloads and {rows} rows would leave\nnothing was done; --yes does it\n"
        ),
    })
}
