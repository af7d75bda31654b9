//! What a reset does to each partition, and how that is told.

use serde_json::{Value, json};

use super::{
    choose::Choice,
    stored::Position,
    sync::{Compared, Held},
    target::Mode,
};
use crate::{
    command::parked::{for_terminal, json_for_terminal},
    table::Table,
};

/// What would be done with one partition.
pub(super) struct Plan {
    pub(super) of: Compared,
    pub(super) from: i64,
    pub(super) to: i64,
    /// Of records from `to` on.
    pub(super) made: Made,
    pub(super) choice: Option<Choice>,
}

/// What was made of records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Made {
    pub(super) effects: i64,
    /// Records that are parked, or were discarded.
    pub(super) parked: i64,
}

impl Plan {
    pub(super) fn is_empty(&self) -> bool {
        match &self.choice {
            Some(choice) => choice.offsets.is_empty(),
            None => self.from == self.to,
        }
    }

    /// As the table `consumer_reset` has it.
    pub(super) fn mode(&self, mode: Mode) -> &'static str {
        if self.choice.is_some() { "chosen" } else { mode.as_str() }
    }

    /// Effects that are made again.
    fn again(&self, mode: Mode) -> i64 {
        match (&self.choice, mode) {
            (Some(choice), _) => choice.done as i64,
            (None, Mode::Rerun) => self.made.effects,
            (None, Mode::Fill | Mode::Skip) => 0,
        }
    }

    /// Parked or discarded events in between.
    fn parked(&self) -> i64 {
        self.choice.as_ref().map_or(self.made.parked, |choice| choice.parked as i64)
    }

    /// Offsets in between that have no effect here: events that were never
    /// applied, copies, and markers of transactions.
    fn without_effect(&self, mode: Mode) -> i64 {
        match (&self.choice, mode) {
            (Some(choice), _) => choice.missing as i64,
            (None, Mode::Rerun | Mode::Fill) => {
                (self.from - self.to - self.made.effects - self.made.parked).max(0)
            }
            (None, Mode::Skip) => self.to - self.from,
        }
    }
}

/// What is to be done, for people and for programs.
pub(super) fn told(plans: &[Plan], mode: Mode, as_json: bool) -> String {
    if as_json {
        return plans
            .iter()
            .map(|plan| json_for_terminal(&json(plan, mode, false)) + "\n")
            .collect();
    }
    let mut table = Table::titled([
        "topic",
        "partition",
        "from",
        "to",
        "mode",
        "effects again",
        "parked",
        "without effect",
    ])
    .right([1, 2, 3, 5, 6, 7]);
    for plan in plans {
        table.row([
            for_terminal(&plan.of.stored.topic),
            plan.of.stored.partition.to_string(),
            plan.from.to_string(),
            plan.to.to_string(),
            plan.mode(mode).to_owned(),
            plan.again(mode).to_string(),
            plan.parked().to_string(),
            plan.without_effect(mode).to_string(),
        ]);
    }
    let of = match (mode, plans.iter().any(|plan| plan.choice.is_some())) {
        (_, true) => "events that match and were never applied: they are applied, too",
        (Mode::Rerun | Mode::Fill, _) => {
            "offsets in between that have none: events that were never applied, which are applied, \
             copies and markers of transactions, which are not"
        }
        (Mode::Skip, _) => "offsets in between, whose events are not applied",
    };
    let mut text = format!("{table}without effect: {of}\n");
    if plans.iter().any(|plan| plan.parked() > 0) {
        text += match mode {
            Mode::Fill => "parked: events without an effect, which stay parked\n",
            Mode::Rerun | Mode::Skip => "parked: events without an effect, which are tried again\n",
        };
    }
    if let Some(wish) = plans.iter().find(|plan| plan.of.held == Held::Unmarked) {
        let (topic, partition) = (for_terminal(&wish.of.stored.topic), wish.of.stored.partition);
        let offset = wish.of.log.committed.offset.unwrap_or_default();
        text += &format!(
            "the group's offset of {topic}[{partition}] in Kafka is {offset}, without a marker, as \
             set with another tool: this reset takes its place\n"
        );
    }
    text
}

/// What was done.
pub(super) fn told_done(done: &[Compared], plans: &[Plan], mode: Mode, as_json: bool) -> String {
    let mut text = String::new();
    for plan in plans {
        let of = |one: &&Compared| one.stored.id == plan.of.stored.id;
        let reset = done.iter().find(of);
        if as_json {
            text += &(json_for_terminal(&json(plan, mode, reset.is_some())) + "\n");
        } else if let Some(reset) = reset {
            let Position { topic, partition, next_offset, .. } = &reset.stored;
            let (topic, to) = (for_terminal(topic), next_offset.unwrap_or_default());
            text += &format!("{topic}[{partition}]: {}, from {to} on\n", plan.mode(mode));
        }
    }
    text
}

fn json(plan: &Plan, mode: Mode, done: bool) -> Value {
    json!({
        "topic": plan.of.stored.topic,
        "partition": plan.of.stored.partition,
        "from_offset": plan.from,
        "to_offset": plan.to,
        "mode": plan.mode(mode),
        "effects_again": plan.again(mode),
        "parked": plan.parked(),
        "without_effect": plan.without_effect(mode),
        "copies": plan.choice.as_ref().map(|choice| choice.copies),
        "done": done,
    })
}
