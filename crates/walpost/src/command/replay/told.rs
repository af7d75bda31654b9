//! What a replay says, for people and for programs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use walpost_relay::{ReplayProgress, ReplayRow, ReplaySurvey, Replayed};

use crate::{
    command::parked::{for_terminal, json_for_terminal},
    output,
    table::{Table, thousands},
};

/// Between two lines about how far it is.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Where a terminal rewrites one line.
const REWRITE_EVERY: Duration = Duration::from_millis(500);

/// What a filter finds.
pub(super) fn survey(survey: &ReplaySurvey, json: bool) -> String {
    if json {
        return line(&json!({
            "events": survey.events,
            "parked": survey.parked,
            "oldest": survey.span.as_ref().map(|(oldest, _)| oldest),
            "newest": survey.span.as_ref().map(|(_, newest)| newest),
            "beyond_dedup_window": survey.beyond_window,
            "of_other_sources": survey.of_other_sources,
            "ids_missing": survey.ids_missing,
            "types": types(survey),
            "events_of_other_types": survey.of_other_types,
        }));
    }
    let mut text = format!("{} events match", thousands(survey.events));
    if let Some((oldest, newest)) = &survey.span {
        text += &format!(", the oldest of {oldest}, the newest of {newest} (UTC)");
    }
    text.push('\n');
    let mut table = Table::titled(["type", "events", "oldest", "newest"]).right([1]);
    for one in &survey.types {
        let (oldest, newest) = one.span.clone().unwrap_or(("-".into(), "-".into()));
        let name = one.event_type.as_deref().map_or("-".to_owned(), for_terminal);
        table.row([name, thousands(one.events), oldest, newest]);
    }
    if survey.of_other_types > 0 {
        table.row(["(others)".to_owned(), thousands(survey.of_other_types)]);
    }
    if survey.events > 0 {
        text += &table.to_string();
    }
    for (count, what) in [
        (survey.parked, "more are parked or discarded, never published, and left out"),
        (survey.beyond_window, "are older than replay.dedup_window_hours"),
        (survey.of_other_sources, "may be published under another source by another program"),
        (survey.ids_missing, "of the ids have no row, and only Kafka can replay them"),
    ] {
        if count > 0 {
            text += &format!("{} {what}\n", thousands(count));
        }
    }
    text
}

fn types(survey: &ReplaySurvey) -> Value {
    let one = |one: &walpost_relay::ReplayType| {
        json!({
            "type": one.event_type,
            "events": one.events,
            "oldest": one.span.as_ref().map(|(oldest, _)| oldest),
            "newest": one.span.as_ref().map(|(_, newest)| newest),
        })
    };
    survey.types.iter().map(one).collect()
}

fn line(json: &Value) -> String {
    json_for_terminal(json) + "\n"
}

/// The replays of a pipeline.
pub(super) fn list(replays: &[ReplayRow], json: bool) -> String {
    if json {
        return replays.iter().map(|one| line(&row(one))).collect();
    }
    if replays.is_empty() {
        return "nothing was replayed\n".to_owned();
    }
    let titles = ["id", "started at", "state", "sent", "of", "asked by", "filter"];
    let mut table = Table::titled(titles).right([3, 4]);
    for one in replays {
        table.row([
            one.id.to_string(),
            one.started_at.clone(),
            one.state.as_str().to_owned(),
            thousands(one.sent),
            thousands(one.selected),
            for_terminal(&one.asked_by),
            for_terminal(&one.filter.to_string()),
        ]);
    }
    table.to_string()
}

fn row(one: &ReplayRow) -> Value {
    json!({
        "id": one.id,
        "state": one.state.as_str(),
        "source": one.source,
        "filter": one.filter,
        "to_topic": one.to_topic,
        "rate_per_s": one.rate_per_s,
        "selected": one.selected,
        "sent": one.sent,
        "unsendable": one.unsendable,
        "detail": one.detail,
        "asked_by": one.asked_by,
        "started_at": one.started_at,
        "updated_at": one.updated_at,
    })
}

/// How it has ended.
pub(super) fn replayed(replayed: &Replayed, json: bool) -> String {
    let progress = replayed.progress;
    let seconds = progress.sending.as_secs_f64();
    if json {
        let reasons = replayed.unsendable.iter();
        let reasons: Vec<Value> =
            reasons.map(|one| json!({ "seq": one.seq, "reason": one.reason })).collect();
        return line(&json!({
            "replay": replayed.id,
            "state": replayed.state.as_str(),
            "selected": progress.selected,
            "sent": progress.sent,
            "sent_now": progress.sent_now,
            "seconds": seconds,
            "rate_per_s": progress.rate_per_s(),
            "unsendable": progress.unsendable,
            "gone": replayed.gone,
            "reasons": reasons,
        }));
    }
    let mut text = format!(
        "replay {}: {}, {} events sent in {seconds:.1} s, {:.0} a second\n",
        replayed.id,
        replayed.state.as_str(),
        thousands(progress.sent_now),
        progress.rate_per_s()
    );
    for one in &replayed.unsendable {
        text += &format!("row with seq {} not sent: {}\n", one.seq, for_terminal(&one.reason));
    }
    text
}

/// Says now and then how far it is, on stderr.
pub(super) struct Progress {
    is_terminal: bool,
    last: Instant,
}

impl Progress {
    pub(super) fn new(is_terminal: bool) -> Self {
        Self { is_terminal, last: Instant::now() }
    }

    pub(super) fn tell(&mut self, now: ReplayProgress) {
        let every = if self.is_terminal { REWRITE_EVERY } else { LINE_EVERY };
        if self.last.elapsed() < every {
            return;
        }
        self.last = Instant::now();
        output::note(format_args!(
            "{} of {} events sent, {:.0} a second",
            thousands(now.sent),
            thousands(now.selected),
            now.rate_per_s()
        ));
    }
}
