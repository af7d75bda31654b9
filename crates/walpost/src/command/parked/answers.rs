//! What the relay has made of a request.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde_json::json;
use tokio_postgres::Row;

use super::{
    CELL_MAX_CHARS,
    ask::{Chosen, Table, numbers},
    contents::json_for_terminal,
    line,
};
use crate::{
    failure::{Exit, Failure},
    output,
    table::Table as Columns,
};

/// Between two looks.
const POLL: Duration = Duration::from_millis(200);

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Published,
    Discarded,
    ParkedAgain,
    Waiting,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Discarded => "discarded",
            Self::ParkedAgain => "parked again",
            Self::Waiting => "waiting",
        }
    }
}

/// The answer for one event.
pub(super) struct Answer {
    outcome: Outcome,
    /// Why it is parked.
    reason: Option<String>,
    detail: Option<String>,
}

pub(super) fn events(count: usize) -> String {
    if count == 1 { "1 event".to_owned() } else { format!("{count} events") }
}

/// What would be asked for.
pub(super) fn would_ask(chosen: &[Chosen], wish: &str, json: bool) -> Result<(), Failure> {
    if json {
        let line = |one: &Chosen| {
            let behind = one.behind;
            let object = json!({ "id": one.id, "pipeline": one.pipeline, "behind": behind });
            json_for_terminal(&object) + "\n"
        };
        return output::print(chosen.iter().map(line).collect::<String>());
    }
    let ids = numbers(chosen.iter().map(|one| one.id));
    output::print(format_args!("would {wish} {}: {ids}\n", events(chosen.len())))
}

/// Waits until the relay has dealt with all of them, for so long at most.
pub(super) async fn wait(
    table: &Table,
    chosen: &[Chosen],
    wait_seconds: u32,
) -> Result<BTreeMap<i64, Answer>, Failure> {
    let text = format!(
        "select id, state, requested is not null, reason, detail from {} where id = any($1)",
        table.name()
    );
    let began = Instant::now();
    let mut answers = BTreeMap::new();
    let mut open: BTreeMap<i64, bool> = chosen.iter().map(|one| (one.id, one.follows())).collect();
    loop {
        let ids: Vec<i64> = open.keys().copied().collect();
        let rows = table.client.query(&text, &[&ids]).await.map_err(table.failed())?;
        for row in &rows {
            let id = row.get(0);
            let answer = answer(row, open.get(&id).copied().unwrap_or_default());
            if answer.outcome != Outcome::Waiting {
                open.remove(&id);
            }
            answers.insert(id, answer);
        }
        if open.is_empty() || began.elapsed() >= Duration::from_secs(wait_seconds.into()) {
            return Ok(answers);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// One that follows another has no request of its own.
fn answer(row: &Row, follows: bool) -> Answer {
    let (state, requested, reason): (&str, bool, String) = (row.get(1), row.get(2), row.get(3));
    let outcome = match state {
        "done" => Outcome::Published,
        "discarded" => Outcome::Discarded,
        "open" if requested || follows && reason == "behind" => Outcome::Waiting,
        "open" => Outcome::ParkedAgain,
        _ => Outcome::Waiting,
    };
    let told = outcome == Outcome::ParkedAgain;
    let detail: Option<String> = row.get(4);
    Answer { outcome, reason: told.then_some(reason), detail: detail.filter(|_| told) }
}

/// Prints the answers. An event that is not dealt with as was asked fails the
/// command, unless it was not to wait.
pub(super) fn print(
    answers: &BTreeMap<i64, Answer>,
    json: bool,
    waited: bool,
) -> Result<(), Failure> {
    if json {
        let line = |(id, answer): (&i64, &Answer)| {
            let Answer { outcome, reason, detail } = answer;
            let object = json!({
                "id": id, "outcome": outcome.as_str(), "reason": reason, "detail": detail
            });
            json_for_terminal(&object) + "\n"
        };
        output::print(answers.iter().map(line).collect::<String>())?;
    } else {
        let mut columns = Columns::titled(["id", "outcome", "reason", "detail"]);
        for (id, answer) in answers {
            let cell = |text: &Option<String>| {
                text.as_deref().map_or_else(|| "-".to_owned(), |text| line(text, CELL_MAX_CHARS))
            };
            columns.row([
                id.to_string(),
                answer.outcome.as_str().to_owned(),
                cell(&answer.reason),
                cell(&answer.detail),
            ]);
        }
        output::print(columns)?;
    }
    let of = |outcome: Outcome| {
        let of = answers.iter().filter(move |(_, answer)| answer.outcome == outcome);
        of.map(|(id, _)| *id).collect::<Vec<i64>>()
    };
    let (again, waiting) = (of(Outcome::ParkedAgain), of(Outcome::Waiting));
    let failure = if let Some(first) = again.first() {
        let text =
            format!("{} parked again: {}", events(again.len()), numbers(again.iter().copied()));
        Failure::found(Exit::Running, &text).next_step(format!(
            "mend what `walpost parked show {first}` says, or discard it with `walpost parked \
             discard {first}`"
        ))
    } else if !waiting.is_empty() && waited {
        let text = format!(
            "{} not dealt with in time: {}",
            events(waiting.len()),
            numbers(waiting.iter().copied())
        );
        Failure::found(Exit::Running, &text).next_step(
            "the request stands, and the relay carries it out once it streams and has come past \
             the event; see with `walpost status` whether it runs",
        )
    } else {
        return Ok(());
    };
    Err(if json { failure.told_in_json() } else { failure })
}
