use serde_json::json;
use walpost_inbox::{Changed, Inbox, State};
use walpost_postgres::Database;

use super::{Which, failure};
use crate::{
    command::sql,
    failure::{Exit, Failure},
    output,
};

/// Numbers that a line of text names.
const NAMED_MAX: usize = 20;

/// About which events.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Their numbers in the list
    #[arg(required_unless_present_any = ["all", "source", "event_type", "event_id"], num_args = 0..=1_000)]
    numbers: Vec<i64>,
    #[command(flatten)]
    which: Which,
    /// In this state alone
    #[arg(long, value_name = "STATE", conflicts_with = "numbers")]
    state: Vec<State>,
    /// All that the command is for
    #[arg(long, conflicts_with = "numbers")]
    all: bool,
    /// At most so many, the oldest first
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Do it where events are chosen otherwise than by number; without it they are counted
    #[arg(long)]
    yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// What is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Retry,
    Ignore,
}

impl Wish {
    /// States of events that it is for.
    fn states(self) -> [State; 2] {
        match self {
            Self::Retry => [State::Failed, State::Review],
            Self::Ignore => [State::Pending, State::Review],
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Retry => "will be tried again",
            Self::Ignore => "ignored",
        }
    }

    fn to_do(self) -> &'static str {
        match self {
            Self::Retry => "would be tried again",
            Self::Ignore => "would be ignored",
        }
    }
}

pub(super) async fn run(
    database: &Database,
    inbox: &Inbox,
    args: &Args,
    wish: Wish,
) -> Result<(), Failure> {
    if !args.numbers.is_empty() && args.which.is_given() {
        let text = "events are chosen by number or otherwise, not both";
        return Err(Failure::found(Exit::Configuration, text)
            .next_step("leave either the numbers out, or --source, --type and --id"));
    }
    let client = sql::connect_to_ask(database).await?;
    let mut numbers = args.numbers.clone();
    if numbers.is_empty() {
        let states: Vec<State> = match &*args.state {
            [] => wish.states().to_vec(),
            states => states.to_vec(),
        };
        let filter = args.which.filter(&states, args.limit);
        let entries = inbox.list(&client, &filter).await.map_err(failure)?;
        numbers.extend(entries.iter().map(|entry| entry.number));
        if !args.yes && !numbers.is_empty() {
            return would_do(&numbers, wish, args.json);
        }
    }
    let changed = match wish {
        Wish::Retry => inbox.retry(&client, &numbers).await,
        Wish::Ignore => inbox.ignore(&client, &numbers).await,
    };
    told(&changed.map_err(failure)?, wish, args.json)
}

fn would_do(numbers: &[i64], wish: Wish, json: bool) -> Result<(), Failure> {
    if json {
        let line = json!({ "done": [], "would_do": numbers });
        return output::print(format_args!("{line}\n"));
    }
    output::print(format_args!("{}: {}\n", wish.to_do(), named(numbers)))?;
    output::note("nothing was done; --yes does it");
    Ok(())
}

fn told(changed: &Changed, wish: Wish, json: bool) -> Result<(), Failure> {
    let states = wish.states().map(State::as_str).join(" or ");
    if json {
        let left = changed
            .left
            .iter()
            .map(|(number, state)| json!({ "number": number, "state": state.map(State::as_str) }));
        let left: Vec<_> = left.collect();
        output::print(format_args!("{}\n", json!({ "done": changed.done, "left": left })))?;
    } else if !changed.done.is_empty() {
        output::print(format_args!("{}: {}\n", wish.done(), named(&changed.done)))?;
    }
    for (number, state) in changed.left.iter().take(NAMED_MAX) {
        match state {
            Some(state) => output::note(format_args!("{number} is {state}, not {states}")),
            None => output::note(format_args!("no event has number {number}")),
        }
    }
    if changed.done.is_empty() {
        let failure = Failure::found(Exit::Nothing, "nothing was done: no event of the kind")
            .next_step("see their states with `walpost inbox list --all`");
        return Err(if json { failure.told_in_json() } else { failure });
    }
    Ok(())
}

fn named(numbers: &[i64]) -> String {
    let shown: Vec<String> = numbers.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    match numbers.len() {
        count if count > NAMED_MAX => format!("{count} events, from {} on", shown[0]),
        _ => format!("event {}", shown.join(", ")),
    }
}
