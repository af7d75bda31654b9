use std::time::SystemTime;

use serde_json::{Value, json};
use walpost_inbox::{Entry, Inbox, State};
use walpost_postgres::Database;

use super::{Which, failure, time::utc};
use crate::{
    command::{
        cells::{as_json, cell, plain, shown},
        parked::json_for_terminal,
        sql,
    },
    failure::{Exit, Failure},
    output,
    table::Table,
};

/// What is listed unless states are named.
const NOT_DONE: [State; 4] = [State::Pending, State::Processing, State::Failed, State::Review];

/// Which events to list.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    which: Which,
    /// In this state alone; may be given several times
    #[arg(long, value_name = "STATE", conflicts_with = "all")]
    state: Vec<State>,
    /// Also those that succeeded or were ignored
    #[arg(long)]
    all: bool,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Print one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
}

/// Which event to show.
#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// Its number in the list
    number: i64,
    /// Also its payload, for which the role needs a grant of its own
    #[arg(long)]
    payload: bool,
    /// With --payload: at most so many bytes of it
    #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=67_108_864))]
    max_bytes: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) async fn list(
    database: &Database,
    inbox: &Inbox,
    args: &ListArgs,
) -> Result<(), Failure> {
    let states = match (args.all, &*args.state) {
        (true, _) => &[],
        (false, []) => &NOT_DONE[..],
        (false, states) => states,
    };
    let client = sql::connect_to_look(database).await?;
    // One more says whether there are more.
    let filter = args.which.filter(states, args.limit + 1);
    let mut entries = inbox.list(&client, &filter).await.map_err(failure)?;
    if entries.is_empty() && (args.which.is_given() || !args.state.is_empty()) {
        let text = "no event of the kind is in the inbox";
        return Err(Failure::found(Exit::Nothing, text)
            .next_step("see sources, types and ids with `walpost inbox list --all`"));
    }
    let more = entries.len() > args.limit as usize;
    entries.truncate(args.limit as usize);
    if args.json {
        let lines = entries.iter().map(|entry| json_for_terminal(&as_json(fields(entry))) + "\n");
        output::print(lines.collect::<String>())?;
    } else if entries.is_empty() {
        output::print("no event of the kind is in the inbox\n")?;
    } else {
        output::print(table(&entries))?;
    }
    if more {
        output::note("there are more; see them with --limit");
    }
    Ok(())
}

pub(super) async fn show(
    database: &Database,
    inbox: &Inbox,
    args: &ShowArgs,
) -> Result<(), Failure> {
    let client = sql::connect_to_look(database).await?;
    let Some(entry) = inbox.show(&client, args.number).await.map_err(failure)? else {
        let text = format!("no event has number {}", args.number);
        return Err(Failure::found(Exit::Running, &text)
            .next_step("see the numbers with `walpost inbox list --all`"));
    };
    let mut fields = fields(&entry);
    if args.payload {
        let payload = inbox.payload(&client, args.number, args.max_bytes).await.map_err(failure)?;
        fields.push(shown("payload", "payload_hex", payload));
    }
    if args.json {
        return output::print(json_for_terminal(&as_json(fields)) + "\n");
    }
    let mut table = Table::default();
    for (name, value) in fields {
        table.row([name.to_owned(), plain(&value)]);
    }
    output::print(table)
}

fn table(entries: &[Entry]) -> Table {
    let mut table = Table::titled([
        "number", "state", "source", "type", "event", "received", "attempts", "next", "reason",
    ])
    .right([0, 6]);
    for entry in entries {
        let next = match (entry.state, entry.next_attempt_at) {
            (State::Failed, None) => "given up".to_owned(),
            (State::Failed, Some(at)) => utc(at),
            _ => "-".to_owned(),
        };
        table.row([
            entry.number.to_string(),
            entry.state.to_string(),
            cell(&entry.source),
            cell(&entry.event_type),
            cell(&entry.event_id),
            utc(entry.received_at),
            entry.attempts.to_string(),
            next,
            cell(entry.reason.as_deref().unwrap_or_default()),
        ]);
    }
    table
}

fn fields(entry: &Entry) -> Vec<(&'static str, Value)> {
    let at = |at: Option<SystemTime>| json!(at.map(utc));
    vec![
        ("number", json!(entry.number)),
        ("state", json!(entry.state.as_str())),
        ("source", json!(entry.source)),
        ("event_type", json!(entry.event_type)),
        ("event_id", json!(entry.event_id)),
        ("related_reference", json!(entry.related_reference)),
        ("received_at", json!(utc(entry.received_at))),
        ("processed_at", at(entry.processed_at)),
        ("attempts", json!(entry.attempts)),
        ("next_attempt_at", at(entry.next_attempt_at)),
        ("reason", json!(entry.reason)),
        ("claims", json!(entry.claims)),
        ("claimed_by", json!(entry.claimed_by)),
        ("lease_until", at(entry.lease_until)),
        ("payload_bytes", json!(entry.payload_bytes)),
        ("has_payload", json!(entry.has_payload)),
    ]
}
