//! What has become of a request.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use serde_json::json;

use super::{
    Parked,
    ask::{Asked, Wish},
    events,
};
use crate::{
    command::parked::{for_terminal, json_for_terminal},
    failure::{Exit, Failure},
    output,
    table::Table,
};

/// Between two looks.
const POLL: Duration = Duration::from_millis(200);
/// Numbers that a line of text names.
const NAMED_MAX: usize = 10;

/// What became of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Applied,
    Discarded,
    StaysParked { reason: String },
    Waiting,
}

impl Outcome {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Discarded => "discarded",
            Self::StaysParked { .. } => "stays parked",
            Self::Waiting => "waiting",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::StaysParked { reason } => Some(reason),
            _ => None,
        }
    }
}

pub(super) fn would_ask(ids: &[i64], wish: &str, json: bool) -> Result<(), Failure> {
    if json {
        let lines = ids.iter().map(|id| json!({ "id": id, "would": wish }).to_string() + "\n");
        return output::print(lines.collect::<String>());
    }
    output::print(format_args!("would {wish} {}: {}\n", events(ids.len()), numbers(ids)))
}

/// The first of them that cannot be, and why.
pub(super) fn refused(asked: &[Asked], wish: Wish) -> Result<(), Failure> {
    let will_be = |one: &&Asked| {
        matches!(
            (one.answer.as_str(), wish),
            ("requested", _) | ("no reader", Wish::Discard { .. })
        )
    };
    let refused = asked.iter().find(|one| !will_be(one));
    let Some(Asked { id, answer }) = refused else { return Ok(()) };
    let (text, next_step) = match answer.as_str() {
        "settled" => (
            format!("event {id} was discarded already"),
            "see what is parked with `walpost consumer parked list`".to_owned(),
        ),
        "no id" => (
            format!(
                "event {id} has no id that an effect could be told by, so it cannot be retried"
            ),
            format!(
                "make its effect by hand from `walpost consumer parked show {id} --payload`, then \
                 run `walpost consumer parked discard {id}`"
            ),
        ),
        "no reader" => (
            format!("nobody reads the partition of event {id} any more, so it cannot be retried"),
            format!(
                "its topic was created anew, or its consumer's row was deleted: publish the event \
                 again, then run `walpost consumer parked discard {id}`"
            ),
        ),
        _ => (
            {
                let unknown = asked.iter().filter(|one| one.answer == *answer).map(|one| one.id);
                format!("no parked event has number {}", numbers(&unknown.collect::<Vec<_>>()))
            },
            "it may have been applied; see the numbers with `walpost consumer parked list --all`"
                .to_owned(),
        ),
    };
    let others: Vec<i64> = asked.iter().filter(will_be).map(|one| one.id).collect();
    let text = match others.as_slice() {
        [] if asked.len() == 1 => text,
        [] => format!("{text}; none of the others was asked for"),
        _ => format!("{text}; asked for: {}", numbers(&others)),
    };
    Err(Failure::found(Exit::Running, &text).next_step(next_step))
}

/// Waits until all of them are dealt with, for so long at most.
pub(super) async fn wait(
    parked: &Parked,
    asked: &[Asked],
    wait_seconds: u32,
) -> Result<BTreeMap<i64, Outcome>, Failure> {
    let text = format!(
        "select id, state, request is not null, reason from {} where id = any($1)",
        parked.name()
    );
    let began = Instant::now();
    let mut outcomes: BTreeMap<i64, Outcome> =
        asked.iter().map(|one| (one.id, Outcome::Waiting)).collect();
    loop {
        let waiting = outcomes.iter().filter(|(_, outcome)| **outcome == Outcome::Waiting);
        let open: Vec<i64> = waiting.map(|(id, _)| *id).collect();
        let rows = parked.client.query(&text, &[&open]).await.map_err(parked.failed())?;
        let mut gone: BTreeSet<i64> = open.into_iter().collect();
        for row in &rows {
            gone.remove(&row.get(0));
            let outcome = match (row.get::<_, &str>(1), row.get::<_, bool>(2)) {
                ("discarded", _) => Outcome::Discarded,
                ("parked", false) => Outcome::StaysParked { reason: row.get(3) },
                _ => Outcome::Waiting,
            };
            outcomes.insert(row.get(0), outcome);
        }
        outcomes.extend(gone.into_iter().map(|id| (id, Outcome::Applied)));
        let is_done = outcomes.values().all(|outcome| *outcome != Outcome::Waiting);
        if is_done || began.elapsed() >= Duration::from_secs(wait_seconds.into()) {
            return Ok(outcomes);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Prints the outcomes. An event that is not dealt with as was asked fails the
/// command, unless it was not to wait.
pub(super) fn print(
    outcomes: &BTreeMap<i64, Outcome>,
    json: bool,
    waited: bool,
) -> Result<(), Failure> {
    if json {
        let line = |(id, outcome): (&i64, &Outcome)| {
            let (text, reason) = (outcome.as_str(), outcome.reason());
            json_for_terminal(&json!({ "id": id, "outcome": text, "reason": reason })) + "\n"
        };
        output::print(outcomes.iter().map(line).collect::<String>())?;
    } else {
        let mut table = Table::titled(["id", "outcome", "reason"]).right([0]);
        for (id, outcome) in outcomes {
            let reason = for_terminal(outcome.reason().unwrap_or("-"));
            table.row([id.to_string(), outcome.as_str().to_owned(), reason]);
        }
        output::print(table)?;
    }
    let of = |wanted: &str| {
        let of = outcomes.iter().filter(|(_, outcome)| outcome.as_str() == wanted);
        of.map(|(id, _)| *id).collect::<Vec<i64>>()
    };
    let (parked, waiting) = (of("stays parked"), of("waiting"));
    let failure = if let Some(first) = parked.first() {
        let text = format!("{} stayed parked: {}", events(parked.len()), numbers(&parked));
        Failure::found(Exit::Running, &text).next_step(format!(
            "mend what the reason says, see `walpost consumer parked show {first}`, or discard it \
             with `walpost consumer parked discard {first}`"
        ))
    } else if !waiting.is_empty() && waited {
        let text =
            format!("{} not dealt with in time: {}", events(waiting.len()), numbers(&waiting));
        Failure::found(Exit::Running, &text).next_step(
            "the request stands, and the consumer carries it out once it runs and owns the \
             partition",
        )
    } else {
        return Ok(());
    };
    Err(if json { failure.told_in_json() } else { failure })
}

/// Numbers for one line.
fn numbers(ids: &[i64]) -> String {
    let named: Vec<String> = ids.iter().take(NAMED_MAX).map(i64::to_string).collect();
    match ids.len().saturating_sub(NAMED_MAX) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}
