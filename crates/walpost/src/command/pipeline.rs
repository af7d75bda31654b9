use clap::Subcommand;
use serde_json::{Value, json};
use walpost_relay::{MoveOrder, MovePlan, MovedTable, make_move, plan_move};

use crate::{
    command::connector,
    config::ConfigArgs,
    failure::{Exit, Failure},
    output,
    table::{Table, thousands},
};

/// What to do with pipelines.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

impl Args {
    /// Whether the answer is for a program.
    pub(crate) fn json(&self) -> bool {
        let Command::Move(args) = &self.command;
        args.json
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows what new row filters of two pipelines would move; with --yes moves it
    ///
    /// What was committed before is published by the giver, what is committed behind it by the
    /// receiver, which waits for the giver. Both go on running. Afterwards set row_filter of both
    /// to the new filters.
    Move(Move),
}

#[derive(Debug, clap::Args)]
struct Move {
    /// The pipeline that gives rows away; that of the configuration if it is left out
    #[arg(long)]
    from: Option<String>,
    /// The pipeline that gets them
    #[arg(long)]
    to: String,
    /// The row filter of the giver from then on; "true" for all rows
    #[arg(long, value_name = "CONDITION")]
    filter_from: String,
    /// The row filter of the receiver from then on
    #[arg(long, value_name = "CONDITION")]
    filter_to: String,
    /// Longest wait for transactions that have written to the outbox, in milliseconds; others
    /// wait to write meanwhile
    #[arg(long, default_value_t = 2_000)]
    lock_timeout_ms: u64,
    /// Do it
    #[arg(long)]
    yes: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(config: &ConfigArgs, args: &Args) -> Result<(), Failure> {
    let Command::Move(args) = &args.command;
    let config = connector::load(config).await?;
    let (database, relay, id_column) =
        (config.database()?, config.relay()?, config.router()?.event_id);
    let order = MoveOrder {
        from: args.from.clone().unwrap_or_else(|| relay.pipeline.clone()),
        to: args.to.clone(),
        filter_from: args.filter_from.clone(),
        filter_to: args.filter_to.clone(),
        lock_timeout_ms: args.lock_timeout_ms,
    };
    let plan = match args.yes {
        true => make_move(&database, &relay, &order, &id_column).await,
        false => plan_move(&database, &relay, &order, &id_column).await,
    };
    let plan = plan.map_err(|error| Failure::of_relay(error, false))?;
    if args.json {
        output::print(format_args!("{}\n", as_json(&plan)))?;
    } else {
        output::print(as_text(&plan, &order))?;
    }
    match plan.obstacles.into_iter().next() {
        Some((problem, remedy)) => {
            let problem = format!("nothing can be moved: {problem}");
            let failure = Failure::found(Exit::Postgres, &problem).next_step(remedy);
            Err(if args.json { failure.told_in_json() } else { failure })
        }
        None => Ok(()),
    }
}

fn as_json(plan: &MovePlan) -> Value {
    let obstacle =
        |(problem, remedy): &(String, String)| json!({ "problem": problem, "next_step": remedy });
    let table = |moved: &MovedTable| {
        json!({
            "table": moved.table.to_string(),
            "filter_from": { "before": moved.from.0, "after": moved.from.1 },
            "filter_to": { "before": moved.to.0, "after": moved.to.1 },
            "rows_looked_at": moved.looked_at,
            "rows_like_those_that_move": moved.moving,
        })
    };
    json!({
        "move": plan.id,
        "tables": plan.tables.iter().map(table).collect::<Vec<_>>(),
        "set_row_filter_messages": plan.with_messages,
        "obstacles": plan.obstacles.iter().map(obstacle).collect::<Vec<_>>(),
    })
}

/// With a row filter a pipeline takes no messages unless it says so.
fn messages(plan: &MovePlan) -> String {
    match plan.with_messages.is_empty() {
        true => String::new(),
        false => format!(
            ", and row_filter_messages = true in {}, which otherwise takes no messages of \
             pg_logical_emit_message any more",
            plan.with_messages.join(" and ")
        ),
    }
}

fn as_text(plan: &MovePlan, order: &MoveOrder) -> String {
    let mut text = String::new();
    for moved in &plan.tables {
        let all = |filter: &Option<String>| filter.clone().unwrap_or_else(|| "all rows".to_owned());
        let mut table = Table::titled(["pipeline", "before", "after"]);
        table.row([order.from.clone(), all(&moved.from.0), moved.from.1.clone()]);
        table.row([order.to.clone(), all(&moved.to.0), moved.to.1.clone()]);
        text.push_str(&format!(
            "{}\n{table}of its last {} rows, {} are like those that move\n",
            moved.table,
            thousands(moved.looked_at),
            thousands(moved.moving)
        ));
    }
    let end = match (plan.id, plan.obstacles.is_empty()) {
        (Some(id), _) => format!(
            "moved, as number {id}; now set row_filter of both pipelines to what stands under \
             after{}\n",
            messages(plan)
        ),
        (None, true) => "nothing was done; --yes does it\n".to_owned(),
        (None, false) => "nothing was done\n".to_owned(),
    };
    text + &end
}
