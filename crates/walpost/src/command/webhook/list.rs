use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tokio_postgres::Client;
use walpost_postgres::Database;
use walpost_webhook::{
    Deliveries, DeliveryEntry, DeliveryFilter, DeliveryState, DestinationEntry, DestinationState,
};

use super::{destination, failure, unconfigured};
use crate::{
    command::{
        cells::{as_json, cell},
        inbox::utc,
        parked::json_for_terminal,
        sql,
    },
    failure::{Exit, Failure},
    output,
    table::{Table, thousands},
};

/// Which deliveries to list.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Deliveries to this destination
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
    /// Deliveries in this state: pending, sending, delivered, failed, held, unknown; may be given
    /// several times. Without it those that are not delivered, and of an event all
    #[arg(long, value_name = "STATE")]
    state: Vec<DeliveryState>,
    /// Deliveries of this event, also where they are in the archive
    #[arg(long, value_name = "EVENT_ID")]
    event: Option<String>,
    /// Those that were created last, the newest first; without it the oldest
    #[arg(long)]
    newest: bool,
    /// At most so many; 100 unless set
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: Option<u32>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
}

const LIMIT: u32 = 100;

impl Args {
    fn filter(&self) -> Option<DeliveryFilter> {
        let Self { destination, state, event, limit, newest, .. } = self;
        let is_given = destination.is_some()
            || !state.is_empty()
            || event.is_some()
            || limit.is_some()
            || *newest;
        if !is_given {
            return None;
        }
        // One more says whether there are more.
        let mut filter = DeliveryFilter::new(limit.unwrap_or(LIMIT) + 1);
        if !state.is_empty() {
            filter = filter.states(state.iter().copied());
        } else if event.is_none() {
            filter = filter.states(DeliveryState::OPEN);
        }
        if let Some(destination) = destination {
            filter = filter.destination(destination);
        }
        if let Some(event) = event {
            filter = filter.event_id(event);
        }
        Some(if *newest { filter.newest() } else { filter })
    }
}

pub(super) async fn run(
    database: &Database,
    deliveries: &Deliveries,
    (args, configured): (&Args, Option<&BTreeSet<String>>),
) -> Result<(), Failure> {
    let client = sql::connect_to_look(database).await?;
    let Some(filter) = args.filter() else {
        let all = deliveries.destinations(&client).await.map_err(failure)?;
        return destinations(&all, configured, args.json);
    };
    let mut entries = deliveries.list(&client, &filter).await.map_err(failure)?;
    let is_chosen = args.destination.is_some() || !args.state.is_empty() || args.event.is_some();
    if entries.is_empty() && is_chosen {
        return none(&client, deliveries, args).await;
    }
    let more = entries.len() >= filter.limit() as usize;
    entries.truncate(filter.limit() as usize - 1);
    if args.json {
        let lines = entries.iter().map(|entry| json_for_terminal(&as_json(fields(entry))) + "\n");
        output::print(lines.collect::<String>())?;
    } else if entries.is_empty() {
        output::print("there is no delivery of the kind\n")?;
    } else {
        output::print(table(&entries))?;
    }
    if more {
        output::note("there are more; see them with --limit");
    }
    if let Some(name) = &args.destination
        && configured.is_some_and(|names| !names.contains(name))
    {
        output::note(unconfigured(&cell(name)));
    }
    Ok(())
}

/// Nothing matches, perhaps because nobody has the name.
async fn none(client: &Client, deliveries: &Deliveries, args: &Args) -> Result<(), Failure> {
    if let Some(name) = &args.destination {
        destination(client, deliveries, name).await?;
    }
    let next_step = match &args.event {
        Some(_) => {
            "name the event by its whole id; `walpost status --event ID` says whether there is such \
             an event"
        }
        None => "see with `walpost webhook list` how many there are of each state",
    };
    let failure = Failure::found(Exit::Nothing, "there is no delivery of the kind");
    Err(failure.next_step(next_step))
}

fn destinations(
    all: &[DestinationEntry],
    configured: Option<&BTreeSet<String>>,
    json: bool,
) -> Result<(), Failure> {
    if json {
        let line = |each| json_for_terminal(&as_json(of_destination(each, configured))) + "\n";
        return output::print(all.iter().map(line).collect::<String>());
    }
    if all.is_empty() {
        return output::print("there is no destination: none was started, nothing was created\n");
    }
    let mut table = Table::titled([
        "destination",
        "state",
        "pending",
        "sending",
        "delivered 24h",
        "failed",
        "held",
        "unknown",
        "blocked",
        "oldest pending",
        "last error",
    ])
    .right([2, 3, 4, 5, 6, 7, 8, 9]);
    for each in all {
        let one = &each.backlog;
        let state = match one.state {
            DestinationState::Active | DestinationState::New if one.is_unconfigured(configured) => {
                "not configured"
            }
            DestinationState::Active if each.breaker_open_until.is_some() => "breaker open",
            state => state.as_str(),
        };
        let oldest = match one.pending {
            0 => "-".to_owned(),
            _ => age(one.oldest_pending),
        };
        let error = each.last_error.as_ref().map_or_else(String::new, |error| {
            let status = error.status.map_or_else(String::new, |status| format!(" {status}"));
            format!("{}{status} at {}", error.outcome, utc(error.at))
        });
        table.row([
            cell(&one.destination),
            state.to_owned(),
            thousands(one.pending),
            thousands(one.sending),
            thousands(each.delivered_day),
            thousands(one.failed),
            thousands(one.held),
            thousands(one.unknown),
            thousands(one.blocked),
            oldest,
            cell(&error),
        ]);
    }
    output::print(table)?;
    for each in all {
        advise(each, configured);
    }
    Ok(())
}

/// What somebody has to do about it.
fn advise(each: &DestinationEntry, configured: Option<&BTreeSet<String>>) {
    let one = &each.backlog;
    let name = cell(&one.destination);
    let is_unconfigured = one.is_unconfigured(configured);
    if is_unconfigured {
        output::note(unconfigured(&name));
    }
    match one.state {
        DestinationState::Disabled => {
            let since = one.changed_at.map_or_else(String::new, |at| format!(" since {}", utc(at)));
            let reason = cell(one.reason.as_deref().unwrap_or_default());
            output::note(format_args!(
                "{name} is disabled{since} ({reason}); `walpost webhook resume {name}` enables it"
            ));
        }
        DestinationState::New if !is_unconfigured => output::note(format_args!(
            "{name} was never had by a processor: look whether it is configured by this name"
        )),
        DestinationState::Active if one.held > 0 => output::note(format_args!(
            "{name} is active, and some are held; `walpost webhook resume {name}` lets them go"
        )),
        DestinationState::Active | DestinationState::New => {}
    }
    if let Some(until) = each.breaker_open_until {
        output::note(format_args!(
            "the breaker of a sender to {name} is open: nothing but probes is sent until {} or so, \
             and the last error says why; it closes once the receiver answers",
            utc(until)
        ));
    }
    if one.blocked > 0 {
        output::note(format_args!(
            "{} to {name} wait for others: `walpost webhook list --destination {name}` says for \
             which; `retry` one that has failed, or `settle` it",
            thousands(one.blocked)
        ));
    }
    if one.unknown > 0 {
        output::note(format_args!(
            "nobody knows whether {} to {name} arrived: find out, and use `walpost webhook settle` \
             or `retry`; `walpost webhook list --destination {name} --state unknown` has them",
            thousands(one.unknown)
        ));
    }
}

/// In its two largest units.
fn age(of: Duration) -> String {
    let seconds = of.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

fn of_destination(
    each: &DestinationEntry,
    configured: Option<&BTreeSet<String>>,
) -> Vec<(&'static str, Value)> {
    let one = &each.backlog;
    let error = each.last_error.as_ref();
    let oldest = (one.pending > 0).then_some(one.oldest_pending.as_secs());
    vec![
        ("destination", json!(one.destination)),
        ("state", json!(one.state.as_str())),
        ("configured", json!(configured.map(|names| names.contains(&one.destination)))),
        ("reason", json!(one.reason)),
        ("changed_at", json!(one.changed_at.map(utc))),
        ("breaker_open_until", json!(each.breaker_open_until.map(utc))),
        ("pending", json!(one.pending)),
        ("sending", json!(one.sending)),
        ("delivered_24h", json!(each.delivered_day)),
        ("failed", json!(one.failed)),
        ("held", json!(one.held)),
        ("unknown", json!(one.unknown)),
        ("blocked", json!(one.blocked)),
        ("oldest_pending_seconds", json!(oldest)),
        ("last_error", json!(error.map(|error| &error.outcome))),
        ("last_error_status", json!(error.and_then(|error| error.status))),
        ("last_error_at", json!(error.map(|error| utc(error.at)))),
    ]
}

/// One line for each; with their sources if ids have any.
pub(in crate::command) fn table(entries: &[DeliveryEntry]) -> Table {
    let has_source = entries.iter().any(|entry| !entry.source.is_empty());
    let titles =
        ["id", "state", "destination", "type", "event", "created", "attempts", "next", "outcome"];
    let source = has_source.then_some("source");
    let mut table = Table::titled(titles.into_iter().chain(source)).right([0, 6]);
    for entry in entries {
        let cells = [
            entry.id.to_string(),
            entry.state.to_string(),
            cell(&entry.destination),
            cell(entry.event_type.as_deref().unwrap_or_default()),
            cell(&entry.event_id),
            utc(entry.created_at),
            entry.attempts.to_string(),
            match entry.blocked_by {
                Some(head) => format!("blocked by {head}"),
                None => entry.next_attempt_at.map_or_else(|| "-".to_owned(), utc),
            },
            cell(&outcome(entry)),
        ];
        table.row(cells.into_iter().chain(has_source.then(|| cell(&entry.source))));
    }
    table
}

/// With the status of the answer, where that is what it came to.
fn outcome(entry: &DeliveryEntry) -> String {
    let outcome = entry.outcome.as_deref().unwrap_or_default();
    match entry.status {
        Some(status) if outcome.starts_with("http_") => format!("{outcome} {status}"),
        _ => outcome.to_owned(),
    }
}

/// All but what is sent.
pub(in crate::command) fn fields(entry: &DeliveryEntry) -> Vec<(&'static str, Value)> {
    let at = |at: Option<SystemTime>| json!(at.map(utc));
    vec![
        ("id", json!(entry.id)),
        ("state", json!(entry.state.as_str())),
        ("destination", json!(entry.destination)),
        ("event_type", json!(entry.event_type)),
        ("event_id", json!(entry.event_id)),
        ("source", json!(Some(&entry.source).filter(|source| !source.is_empty()))),
        ("idempotency_key", json!(entry.idempotency_key)),
        ("created_at", json!(utc(entry.created_at))),
        ("attempts", json!(entry.attempts)),
        ("all_attempts", json!(entry.claims)),
        ("next_attempt_at", at(entry.next_attempt_at)),
        ("order_key", json!(entry.order_key)),
        ("blocked_by", json!(entry.blocked_by)),
        ("outcome", json!(entry.outcome)),
        ("status", json!(entry.status)),
        ("finished_at", at(entry.finished_at)),
        ("archived_at", at(entry.archived_at)),
        ("claimed_by", json!(entry.claimed_by)),
        ("lease_until", at(entry.lease_until)),
        ("retry_limit", json!(entry.retry_limit)),
        ("retry_wait_ms", json!(entry.retry_wait.map(|wait| wait.as_millis() as u64))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_its_two_largest_units() {
        for (seconds, text) in
            [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3_600, "1 h 0 min"), (93_600, "1 d 2 h")]
        {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }
}
