//! What both directions say.

use serde_json::{Value, json};
use walpost_relay::{HandedBack, RelayConfig, TakeOverPlan};
use walpost_takeover::{Boundary, Operation, StoredOffset};

use super::offsets::Stored;
use crate::table::{Table, thousands};

pub(super) fn from_json(
    stored: &Stored,
    offset: &StoredOffset,
    boundary: &Boundary,
    plan: &TakeOverPlan,
    relay: &RelayConfig,
) -> Value {
    let part = plan.part.map(|part| {
        json!({
            "commit_lsn": part.commit_lsn.to_string(),
            "published_events": part.published,
            "events": part.events,
        })
    });
    json!({
        "pipeline": relay.pipeline,
        "slot": relay.slot,
        "offset": {
            "place": stored.place,
            "lsn": offset.lsn.to_string(),
            "last_event": offset.operation.map(name),
            "committed_lsn": offset.committed.map(|lsn| lsn.to_string()),
            "transaction": offset.xid,
        },
        "slot_lsn": plan.slot_confirmed.to_string(),
        "begins_at_lsn": plan.begins_at.to_string(),
        "skipped_events": plan.skipped_events,
        "partly_published": part,
        "may_repeat": boundary.may_repeat.map(|reason| reason.text()),
        "stood_at_lsn": plan.stood_at.map(|lsn| lsn.to_string()),
        "obstacles": obstacles(&plan.obstacles),
        "done": plan.is_done,
    })
}

pub(super) fn from_text(
    stored: &Stored,
    offset: &StoredOffset,
    boundary: &Boundary,
    plan: &TakeOverPlan,
    relay: &RelayConfig,
) -> String {
    let last = match (offset.operation, offset.xid) {
        (Some(operation), Some(xid)) => format!("{} of transaction {xid}", name(operation)),
        (Some(operation), None) => name(operation).to_owned(),
        (None, _) => "not told".to_owned(),
    };
    let mut table = Table::titled(["", "position", ""]);
    table.row(["the connector's last event".to_owned(), offset.lsn.to_string(), last]);
    let committed = offset.committed.map_or("none".to_owned(), |lsn| lsn.to_string());
    table.row(["its last whole transaction".to_owned(), committed, stored.place.clone()]);
    let slot = format!("slot {}", relay.slot);
    table.row(["the slot".to_owned(), plan.slot_confirmed.to_string(), slot]);
    let pipeline = format!("pipeline {}", relay.pipeline);
    table.row(["Walpost begins".to_owned(), plan.begins_at.to_string(), pipeline]);
    let mut text = format!("{table}\n");
    if plan.skipped_events > 0 {
        let events = thousands(plan.skipped_events);
        text += &format!("{events} published events that the slot would bring are below that\n");
    }
    if let Some(part) = plan.part {
        text += &format!(
            "of the transaction that is committed at {}, {} of {} events are published and are not \
             sent again\n",
            part.commit_lsn,
            thousands(part.published.into()),
            thousands(part.events.into())
        );
    }
    if plan.is_part_missing {
        text += "the connector's last transaction has no events in this publication\n";
    }
    if let Some(reason) = boundary.may_repeat {
        text += &format!("events may come a second time: {}\n", reason.text());
    }
    if let Some(stood_at) = plan.stood_at {
        text += &format!("the pipeline stood at {stood_at} when it was left\n");
    }
    text + match (plan.is_done, plan.obstacles.is_empty()) {
        (true, _) => "taken over: start `walpost run`, and leave the connector stopped\n",
        (false, true) => "nothing was done; --yes does it\n",
        (false, false) => "nothing was done\n",
    }
}

pub(super) fn to_json(
    before: Option<&Stored>,
    handed: &HandedBack,
    relay: &RelayConfig,
    is_done: bool,
) -> Value {
    json!({
        "pipeline": relay.pipeline,
        "slot": relay.slot,
        "offset_before": before.map(|stored| json!({
            "place": stored.place,
            "lsn": lsn_before(stored),
        })),
        "slot_lsn": handed.slot_confirmed.to_string(),
        "published_lsn": handed.published.to_string(),
        "parked_events": handed.parked_events,
        "obstacles": obstacles(&handed.obstacles),
        "done": is_done,
    })
}

pub(super) fn to_text(
    before: Option<&Stored>,
    handed: &HandedBack,
    relay: &RelayConfig,
    is_done: bool,
) -> String {
    let mut table = Table::titled(["", "position", ""]);
    let (lsn, place) = match before {
        Some(stored) => (lsn_before(stored).unwrap_or_default(), stored.place.clone()),
        None => ("none".to_owned(), String::new()),
    };
    table.row(["the connector's offset before".to_owned(), lsn, place]);
    let slot = format!("slot {}", relay.slot);
    table.row(["the slot".to_owned(), handed.slot_confirmed.to_string(), slot]);
    let pipeline = format!("pipeline {}", relay.pipeline);
    table.row(["Walpost has published".to_owned(), handed.published.to_string(), pipeline]);
    let mut text = format!("{table}\n");
    if handed.parked_events > 0 {
        let events = thousands(handed.parked_events);
        text += &format!("{events} parked events stay with Walpost\n");
    }
    text + match (is_done, handed.obstacles.is_empty()) {
        (true, _) => {
            "handed over: start the connector, which goes on there, and leave `walpost run` \
             stopped\n"
        }
        (false, true) => {
            "nothing was done; --yes publishes what is committed by then, and stores the offset \
             behind it\n"
        }
        (false, false) => "nothing was done\n",
    }
}

fn lsn_before(stored: &Stored) -> Option<String> {
    let offset = StoredOffset::parse(stored.value.as_deref()?).ok()?;
    Some(offset.lsn.to_string())
}

fn obstacles(obstacles: &[(String, String)]) -> Vec<Value> {
    let one =
        |(problem, remedy): &(String, String)| json!({ "problem": problem, "next_step": remedy });
    obstacles.iter().map(one).collect()
}

fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Begin => "begin",
        Operation::Row => "row",
        Operation::Message => "message",
        Operation::Commit => "commit",
    }
}
