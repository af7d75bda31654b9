use clap::Subcommand;
use serde_json::{Value, json};
use walpost_relay::{RecoveryPlan, plan_recovery, request_recovery};

use crate::{
    command::connector,
    config::ConfigArgs,
    failure::{Exit, Failure},
    output,
    table::{Table, thousands},
};

/// What to do with the slot.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

impl Args {
    /// Whether the answer is for a program.
    pub(crate) fn json(&self) -> bool {
        let Command::Recover(args) = &self.command;
        args.json
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows what a lost slot has not brought; with --yes the next start makes another slot and
    /// publishes that from the outbox table
    Recover(Recover),
}

#[derive(Debug, clap::Args)]
struct Recover {
    /// Have the next start of `walpost run` do it
    #[arg(long)]
    yes: bool,
    /// Give up messages of pg_logical_emit_message that were not read
    #[arg(long)]
    accept_lost_messages: bool,
    /// Give up rows that were deleted before they were published
    #[arg(long)]
    accept_deleted_rows: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let Command::Recover(args) = &args.command;
    let config = connector::load(config).await?;
    let (database, relay) = (config.database()?, config.relay()?);
    let (messages, deleted) = (args.accept_lost_messages, args.accept_deleted_rows);
    let plan = match args.yes {
        true => request_recovery(&database, &relay, messages, deleted).await,
        false => plan_recovery(&database, &relay, messages, deleted).await,
    };
    let plan = plan.map_err(|error| Failure::of_relay(error, false).in_properties(&config))?;
    if args.json {
        output::print(format_args!("{}\n", as_json(&plan)))?;
    } else {
        output::print(as_text(&plan, &relay.slot, args.yes))?;
    }
    match plan.obstacles.into_iter().next() {
        Some((problem, remedy)) => {
            let problem = format!("the slot cannot be recovered: {problem}");
            let failure = Failure::found(Exit::Postgres, &problem).next_step(remedy);
            let failure = failure.in_properties(&config);
            Err(if args.json { failure.told_in_json() } else { failure })
        }
        None => Ok(()),
    }
}

fn as_json(plan: &RecoveryPlan) -> Value {
    let obstacle =
        |(problem, remedy): &(String, String)| json!({ "problem": problem, "next_step": remedy });
    let rows = plan.rows.iter().map(|(table, rows)| (table.to_string(), json!(rows)));
    json!({
        "lost": plan.lost,
        "published_up_to_lsn": plan.confirmed.to_string(),
        "proven_at_seconds": plan.proven_at,
        "rows_not_proven": Value::Object(rows.collect()),
        "obstacles": plan.obstacles.iter().map(obstacle).collect::<Vec<_>>(),
        "requested": plan.is_requested,
    })
}

fn as_text(plan: &RecoveryPlan, slot: &str, yes: bool) -> String {
    let Some(lost) = &plan.lost else {
        return format!("slot {slot} is there: nothing is to be recovered\n");
    };
    let mut text = format!("slot {slot} is lost ({lost}); published up to {}\n", plan.confirmed);
    if !plan.rows.is_empty() {
        let mut table = Table::titled(["outbox", "rows not proven"]).right([1]);
        for (name, rows) in &plan.rows {
            table.row([name.to_string(), thousands(*rows)]);
        }
        text = format!(
            "{text}\n{table}\nthose of them that are neither in the topics nor parked are \
             published; rows that were deleted before they were published are lost\n"
        );
    }
    match (plan.is_requested, yes, plan.obstacles.is_empty()) {
        (true, ..) => text + "asked for: start `walpost run`\n",
        (false, false, true) => text + "nothing was done; --yes has the next start do it\n",
        _ => text + "nothing was done\n",
    }
}
