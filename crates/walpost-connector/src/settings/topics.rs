use std::collections::BTreeMap;

use walpost_router::Pattern;

use crate::{
    judge::{Judge, Scope},
    lists,
    table::{self, Of},
    verdicts::{Origin, Verdict},
};

/// How a topic is made that is missing: `topic.creation.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicCreation {
    /// In order; the first one that has a topic is its group. The last one,
    /// `default`, has all.
    pub groups: Vec<TopicGroup>,
}

/// Topics that are made alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicGroup {
    /// Its alias.
    pub name: String,
    /// Patterns of its topics, as they are written.
    pub include: Vec<Pattern>,
    /// Patterns of topics that are not of it.
    pub exclude: Vec<Pattern>,
    /// `partitions`; `None` for the brokers' default (-1).
    pub partitions: Option<u32>,
    /// `replication.factor`; `None` for the brokers' default (-1).
    pub replication: Option<u16>,
    /// Settings of the topic.
    pub config: BTreeMap<String, String>,
}

const DEFAULT: &str = "default";
/// Groups of one connector.
const MAX_GROUPS: usize = 100;

impl TopicCreation {
    /// The group of a topic.
    pub fn group(&self, topic: &str) -> Option<&TopicGroup> {
        self.groups.iter().find(|group| group.has(topic))
    }
}

impl TopicGroup {
    fn has(&self, topic: &str) -> bool {
        let found = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(topic));
        self.name == DEFAULT || (found(&self.include) && !found(&self.exclude))
    }
}

pub(crate) fn read(judge: &mut Judge) -> Option<TopicCreation> {
    const BEGIN: &str = "topic.creation.";
    let plain = judge.plain(Origin::Connector);
    let is_used = !plain.beginning(BEGIN).is_empty();
    let mut aliases = lists::split(&plain.given("topic.creation.groups").unwrap_or_default());
    aliases.retain(|alias| alias != DEFAULT);
    if aliases.len() > MAX_GROUPS {
        let note = format!("it has {} names; write at most {MAX_GROUPS}", aliases.len());
        judge.plain(Origin::Connector).refuse("topic.creation.groups", note);
        return None;
    }
    aliases.push(DEFAULT.to_owned());
    if !is_used {
        return None;
    }
    let is_off = judge
        .plain(Origin::Worker)
        .given("topic.creation.enable")
        .is_some_and(|text| text.eq_ignore_ascii_case("false"));
    if is_off {
        let note = "topic.creation.enable of the worker is false";
        judge.leave(Origin::Connector, BEGIN, Verdict::Ignored, note);
        return None;
    }
    let mut groups = Vec::new();
    for alias in &aliases {
        let prefix = format!("{BEGIN}{alias}.");
        // Settings of `a.b` are none of `a`.
        let others = aliases.iter().filter_map(|other| other.strip_prefix(&format!("{alias}.")));
        let others: Vec<String> = others.map(|rest| format!("{rest}.")).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let mut scope =
            judge.scope((Of::TopicGroup, Origin::Connector), prefix, table::TOPIC_GROUP, &others);
        let mut group = group(&mut scope, alias);
        group.config.retain(|name, _| !others.iter().any(|other| name.starts_with(other)));
        groups.push(group);
    }
    let note = "topic.creation.groups does not name it, and Kafka Connect reads it only then";
    judge.leave(Origin::Connector, BEGIN, Verdict::Ignored, note);
    // What a group does not say, the last one does.
    let default = groups.pop()?;
    for group in &mut groups {
        let scope = judge.plain(Origin::Connector);
        let given = |option: &str| scope.has(&format!("{BEGIN}{}.{option}", group.name));
        let (has_partitions, has_copies) = (given("partitions"), given("replication.factor"));
        group.partitions = if has_partitions { group.partitions } else { default.partitions };
        group.replication = if has_copies { group.replication } else { default.replication };
    }
    groups.push(default);
    Some(TopicCreation { groups })
}

fn group(scope: &mut Scope<'_>, alias: &str) -> TopicGroup {
    for name in ["partitions", "replication.factor"] {
        if alias == DEFAULT {
            scope.require(name, "a number, or -1 for the brokers' default");
        }
        if scope.given_number(name) == Some(0) {
            scope.refuse(name, "it is 0; write a number from 1, or -1 for the brokers' default");
        }
    }
    if alias == DEFAULT {
        for name in ["include", "exclude"] {
            if scope.has(name) {
                scope.ignore(name, "the group default has every topic that no other has");
            }
        }
    } else if scope.given("include").is_none() {
        scope.refuse("include", "it is missing, and the group has no topic; write its topics");
    }
    let own = ["include", "exclude", "partitions", "replication.factor"];
    let config = scope.beginning("").into_iter().filter(|(name, _)| !own.contains(&name.as_str()));
    let number = |name: &str| scope.given_number(name);
    TopicGroup {
        name: alias.to_owned(),
        include: scope.patterns("include"),
        exclude: scope.patterns("exclude"),
        partitions: number("partitions").and_then(|partitions| partitions.try_into().ok()),
        replication: number("replication.factor").and_then(|copies| copies.try_into().ok()),
        config: config.collect(),
    }
}
