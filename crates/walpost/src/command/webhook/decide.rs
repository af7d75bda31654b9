use std::collections::BTreeSet;

use clap::{ArgGroup, ValueEnum};
use serde_json::json;
use tokio_postgres::Client;
use walpost_postgres::Database;
use walpost_webhook::{
    Decided, Deliveries, DeliveryFilter, DeliveryState, DestinationState, Settlement,
};

use super::{destination, failure, unconfigured};
use crate::{
    command::{cells::cell, sql},
    failure::{Exit, Failure},
    output,
};

/// Ids that a line of text names.
const NAMED_MAX: usize = 20;

/// Which deliveries to send again.
#[derive(Debug, clap::Args)]
pub(super) struct RetryArgs {
    /// Their ids in the list
    #[arg(
        required_unless_present_any = ["all", "destination"],
        conflicts_with_all = ["all", "destination", "state"],
        num_args = 0..=1_000
    )]
    ids: Vec<i64>,
    /// Those to this destination
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    destination: Option<String>,
    /// In this state; failed unless set, and may be given several times. Of unknown ones the
    /// receiver may have the effect already
    #[arg(long, value_name = "STATE")]
    state: Vec<Again>,
    /// Those to every destination
    #[arg(long)]
    all: bool,
    /// At most so many, the oldest first
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Do it where deliveries are chosen otherwise than by id; without it they are counted
    #[arg(long)]
    yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// States from which a delivery is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Again {
    Failed,
    Unknown,
    Held,
}

/// What somebody has found out.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("finding").required(true).args(["delivered", "failed"]))]
pub(super) struct SettleArgs {
    /// Their ids in the list
    #[arg(required = true, num_args = 1..=1_000)]
    ids: Vec<i64>,
    /// They have arrived
    #[arg(long)]
    delivered: bool,
    /// They have not, and are not to be sent any more; also for those that are pending or held,
    /// and for those that have failed and hold others back
    #[arg(long)]
    failed: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl From<Again> for DeliveryState {
    fn from(again: Again) -> Self {
        match again {
            Again::Failed => Self::Failed,
            Again::Unknown => Self::Unknown,
            Again::Held => Self::Held,
        }
    }
}

pub(super) async fn retry(
    database: &Database,
    deliveries: &Deliveries,
    (args, configured): (&RetryArgs, Option<&BTreeSet<String>>),
) -> Result<(), Failure> {
    let client = sql::connect_to_ask(database).await?;
    let chosen;
    let mut ids = &*args.ids;
    if ids.is_empty() {
        chosen = choose(&client, deliveries, args).await?;
        ids = &chosen;
        if !args.yes && !ids.is_empty() {
            return would_retry(ids, args.json);
        }
    }
    let decided = deliveries.retry(&client, ids).await.map_err(failure)?;
    told(&decided, ("will be sent again", "failed, held or unknown"), args.json)?;
    for name in decided.destinations.iter().take(NAMED_MAX) {
        let of = deliveries.destination(&client, name).await.map_err(failure)?;
        if of.is_some_and(|of| of.state == DestinationState::Disabled) {
            let name = cell(name);
            output::note(format_args!(
                "{name} is disabled, so what is for it is held again; `walpost webhook resume \
                 {name}` lets it go"
            ));
        }
        if configured.is_some_and(|names| !names.contains(name)) {
            output::note(unconfigured(&cell(name)));
        }
    }
    Ok(())
}

async fn choose(
    client: &Client,
    deliveries: &Deliveries,
    args: &RetryArgs,
) -> Result<Vec<i64>, Failure> {
    let states: Vec<DeliveryState> = match &*args.state {
        [] => vec![DeliveryState::Failed],
        states => states.iter().map(|state| DeliveryState::from(*state)).collect(),
    };
    let mut filter = DeliveryFilter::new(args.limit + 1).states(states);
    if let Some(name) = &args.destination {
        filter = filter.destination(destination(client, deliveries, name).await?.destination);
    }
    let entries = deliveries.list(client, &filter).await.map_err(failure)?;
    let mut ids: Vec<i64> = entries.iter().map(|entry| entry.id).collect();
    if ids.len() > args.limit as usize {
        ids.truncate(args.limit as usize);
        output::note(format_args!("there are more than {}; see --limit", args.limit));
    }
    Ok(ids)
}

fn would_retry(ids: &[i64], json: bool) -> Result<(), Failure> {
    if json {
        return output::print(format_args!("{}\n", json!({ "done": [], "would_do": ids })));
    }
    output::print(format_args!("would be sent again: {}\n", named(ids)))?;
    output::note("nothing was done; --yes does it");
    Ok(())
}

pub(super) async fn settle(
    database: &Database,
    deliveries: &Deliveries,
    args: &SettleArgs,
) -> Result<(), Failure> {
    let client = sql::connect_to_ask(database).await?;
    let (settlement, done, states) = if args.delivered {
        (Settlement::Delivered, "delivered, as you say", "unknown")
    } else {
        (Settlement::Failed, "failed, as you say", "unknown, pending, held or failed")
    };
    let decided = deliveries.settle(&client, &args.ids, settlement).await.map_err(failure)?;
    told(&decided, (done, states), args.json)
}

/// `states` are those that it is for.
fn told(decided: &Decided, (done, states): (&str, &str), json: bool) -> Result<(), Failure> {
    if json {
        let left = decided.left.iter();
        let left =
            left.map(|(id, state)| json!({ "id": id, "state": state.map(DeliveryState::as_str) }));
        let left: Vec<_> = left.collect();
        output::print(format_args!("{}\n", json!({ "done": decided.done, "left": left })))?;
    } else if !decided.done.is_empty() {
        output::print(format_args!("{done}: {}\n", named(&decided.done)))?;
    }
    for (id, state) in decided.left.iter().take(NAMED_MAX) {
        match state {
            Some(state) => output::note(format_args!("{id} is {state}, not {states}")),
            None => output::note(format_args!("no delivery has the id {id}, outside the archive")),
        }
    }
    if decided.done.is_empty() {
        let text = "nothing was done: no delivery of the kind";
        let failure = Failure::found(Exit::Nothing, text).next_step(
            "see with `walpost webhook list` how many there are of each state, and with --state \
             which",
        );
        return Err(if json { failure.told_in_json() } else { failure });
    }
    Ok(())
}

fn named(ids: &[i64]) -> String {
    let shown: Vec<String> = ids.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    match ids.len() {
        count if count > NAMED_MAX => format!("{count} deliveries, from {} on", shown[0]),
        _ => format!("delivery {}", shown.join(", ")),
    }
}
