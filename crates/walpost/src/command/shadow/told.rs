//! What was found, for people and programs.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use serde_json::{Map, Value, json};
use walpost_event::{Bytes, Lsn, Message};
use walpost_shadow::{Difference, Documented, Expected, Finding, Observed, Parked, Part, Summary};

use crate::{
    failure::Failure,
    output,
    table::{Table, thousands},
};

/// Of long contents so many characters stand before the first difference, and behind.
const BEFORE: usize = 40;
const BEHIND: usize = 80;

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// A signal.
    Signal,
    /// The time was over.
    Time,
    /// So many records were compared.
    Records,
}

/// What of the WAL was read.
pub(super) struct Span {
    pub(super) begins_at: Lsn,
    pub(super) read: Lsn,
    pub(super) dropped: u64,
}

/// Who tells.
pub(super) struct Told {
    is_json: bool,
    show_payloads: bool,
    /// Kinds of which one was shown.
    shown: BTreeSet<String>,
}

impl Told {
    pub(super) fn new(is_json: bool, show_payloads: bool) -> Self {
        Self { is_json, show_payloads, shown: BTreeSet::new() }
    }

    pub(super) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Each as JSON; of each kind the first as text.
    pub(super) fn findings(&mut self, findings: Vec<Finding>) -> Result<(), Failure> {
        let mut text = String::new();
        for finding in findings {
            if self.is_json {
                let _ = writeln!(text, "{}", self.as_json(&finding));
            } else if self.shown.insert(kind(&finding)) {
                text.push_str(&self.as_text(&finding));
            }
        }
        if text.is_empty() { Ok(()) } else { output::print(text) }
    }

    /// A line for people, on stderr.
    #[allow(clippy::unused_self, reason = "one place tells")]
    pub(super) fn progress(&self, since: Duration, summary: &Summary) {
        let different: u64 = summary.different.values().sum();
        output::note(format_args!(
            "{} s: {} equal, {} different, {} missing, {} extra, {} pending",
            since.as_secs(),
            thousands(summary.equal),
            thousands(different),
            thousands(summary.missing),
            thousands(summary.extra),
            thousands(summary.pending),
        ));
    }

    pub(super) fn summary(
        &self,
        summary: &Summary,
        span: &Span,
        ended: Result<&Ended, &Failure>,
    ) -> Result<(), Failure> {
        match self.is_json {
            true => output::print(format_args!("{}\n", summary_json(summary, span, ended))),
            false => output::print(summary_text(summary, span)),
        }
    }

    fn as_text(&self, finding: &Finding) -> String {
        let kind = kind(finding);
        match finding {
            Finding::Different { expected, observed, differences } => {
                let mut text = format!(
                    "{kind} differs, the first time at {} of {}\n",
                    at(observed),
                    of(expected)
                );
                for difference in differences {
                    text.push_str(&self.difference(difference));
                }
                text
            }
            Finding::WouldPark { parked, observed } => {
                let Parked { position, reason, detail, .. } = parked;
                format!(
                    "{kind}, the first time the event of {}, at position {position} ({reason}): \
                     {detail}\n",
                    at(observed)
                )
            }
            Finding::Unregistered { event, observed } => {
                let Parked { position, detail, .. } = event;
                let whose = match observed {
                    Some(observed) => format!("the event of {}", at(observed)),
                    None => "an event that Debezium has not".to_owned(),
                };
                format!("{kind}, the first time {whose}, at position {position}: {detail}\n")
            }
            Finding::Missing(observed) => {
                format!("{kind}, the first time {}, which Walpost has not\n", at(observed))
            }
            Finding::Extra(expected) => {
                let topic = &expected.message.topic;
                let event = of(expected);
                format!("{kind}, the first time {event} in {topic}, which Debezium has not\n")
            }
            Finding::Duplicate(observed) => {
                format!(
                    "{kind}, the first time {}, which Debezium has written twice\n",
                    at(observed)
                )
            }
        }
    }

    fn difference(&self, difference: &Difference) -> String {
        let Difference { member, debezium, walpost } = difference;
        let from = difference.first_at();
        let mut text = String::new();
        for (who, part) in [("Debezium", debezium), ("Walpost", walpost)] {
            let _ = writeln!(text, "    {member} of {who:<9} {}", self.part(part, from));
        }
        if let Some(from) = from {
            let _ = writeln!(text, "    the first difference is at byte {from}");
        }
        text
    }

    fn part(&self, part: &Part, from: Option<usize>) -> String {
        match part {
            Part::Plain(text) => text.clone(),
            Part::Contents(None) => "null".to_owned(),
            Part::Contents(Some(bytes)) if self.show_payloads => {
                format!("{} bytes: {}", bytes.len(), excerpt(bytes, from.unwrap_or_default()))
            }
            Part::Contents(Some(bytes)) => format!("{} bytes", bytes.len()),
        }
    }

    fn as_json(&self, finding: &Finding) -> Value {
        let mut object = Map::new();
        let mut set = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
        let name = match finding {
            Finding::Different { .. } => "different",
            Finding::WouldPark { .. } => "parked_by_walpost",
            Finding::Unregistered { observed: Some(_), .. } => "schema_not_registered",
            Finding::Unregistered { observed: None, .. } => "extra",
            Finding::Missing(_) => "missing",
            Finding::Extra(_) => "extra",
            Finding::Duplicate(_) => "duplicate",
        };
        set("kind", name.into());
        let (expected, observed) = match finding {
            Finding::Different { expected, observed, .. } => (Some(expected), Some(observed)),
            Finding::WouldPark { observed, .. }
            | Finding::Missing(observed)
            | Finding::Duplicate(observed) => (None, Some(observed)),
            Finding::Unregistered { observed, .. } => (None, observed.as_ref()),
            Finding::Extra(expected) => (Some(expected), None),
        };
        if let Some(Observed { partition, offset, message }) = observed {
            set("topic", (&*message.topic).into());
            set("partition", (*partition).into());
            set("offset", (*offset).into());
            set("id", id(message).into());
        }
        if let Some(Expected { position, message }) = expected {
            if observed.is_none() {
                set("topic", (&*message.topic).into());
                set("id", id(message).into());
            }
            set("position", position.to_string().into());
        }
        match finding {
            Finding::Different { differences, .. } => {
                let all: Vec<Value> =
                    differences.iter().map(|one| self.difference_json(one)).collect();
                set("differences", all.into());
            }
            Finding::WouldPark { parked: event, .. } | Finding::Unregistered { event, .. } => {
                if observed.is_none() {
                    let id = event.id.as_ref().map(|id| String::from_utf8_lossy(id).into_owned());
                    set("id", id.into());
                }
                set("position", event.position.to_string().into());
                set("reason", event.reason.into());
                set("detail", event.detail.clone().into());
            }
            Finding::Missing(_) | Finding::Extra(_) | Finding::Duplicate(_) => {}
        }
        Value::Object(object)
    }

    fn difference_json(&self, difference: &Difference) -> Value {
        let Difference { member, debezium, walpost } = difference;
        let from = difference.first_at();
        let part = |part: &Part| match part {
            Part::Plain(text) => text.clone().into(),
            Part::Contents(None) => Value::Null,
            Part::Contents(Some(bytes)) if self.show_payloads => {
                json!({ "bytes": bytes.len(), "text": excerpt(bytes, from.unwrap_or_default()) })
            }
            Part::Contents(Some(bytes)) => json!({ "bytes": bytes.len() }),
        };
        json!({
            "member": member.to_string(),
            "debezium": part(debezium),
            "walpost": part(walpost),
            "first_at_byte": from,
        })
    }
}

/// What is counted together.
fn kind(finding: &Finding) -> String {
    match finding {
        Finding::Different { differences, .. } => {
            let members: Vec<String> =
                differences.iter().map(|one| one.member.to_string()).collect();
            members.join(", ")
        }
        Finding::WouldPark { .. } => "parked by Walpost".to_owned(),
        Finding::Unregistered { observed: Some(_), .. } => "schema not registered".to_owned(),
        Finding::Unregistered { observed: None, .. } => "extra, schema not registered".to_owned(),
        Finding::Missing(_) => "missing".to_owned(),
        Finding::Extra(_) => "extra".to_owned(),
        Finding::Duplicate(_) => "duplicate".to_owned(),
    }
}

fn at(observed: &Observed) -> String {
    let Observed { partition, offset, message } = observed;
    format!("{} partition {partition} offset {offset}", message.topic)
}

fn of(expected: &Expected) -> String {
    match id(&expected.message) {
        Some(id) => format!("event {id} at position {}", expected.position),
        None => format!("the event at position {}", expected.position),
    }
}

/// Of the event, as the header has it.
fn id(message: &Message) -> Option<String> {
    let header = message.headers.iter().find(|header| &*header.name == "id")?;
    header.value.as_ref().map(|id| String::from_utf8_lossy(id).into_owned())
}

/// Text where it is text, else hex, around a byte.
fn excerpt(bytes: &Bytes, from: usize) -> String {
    let (text, from) = match std::str::from_utf8(bytes) {
        Ok(text) => {
            let from = text.char_indices().take_while(|(at, _)| *at < from).count();
            (text.escape_debug().to_string(), from)
        }
        Err(_) => (bytes.iter().map(|byte| format!("{byte:02x}")).collect(), from * 2),
    };
    let start = from.saturating_sub(BEFORE);
    let cut: String = text.chars().skip(start).take(BEFORE + BEHIND).collect();
    let end = if text.chars().count() > start + BEFORE + BEHIND { "…" } else { "" };
    format!("{}{cut}{end}", if start > 0 { "…" } else { "" })
}

fn summary_text(summary: &Summary, span: &Span) -> String {
    let mut table = Table::default().right([0]);
    let mut row = |count: u64, what: &str| table.row([thousands(count), what.to_owned()]);
    row(summary.equal, "equal");
    for (members, count) in &summary.different {
        row(*count, &format!("different: {members}"));
    }
    row(summary.missing, "missing: Debezium has them, Walpost has not");
    row(summary.extra, "extra: Walpost has them, Debezium has not");
    for (documented, count) in &summary.documented {
        row(*count, &format!("documented: {}", documented.section()));
    }
    for (count, what) in [
        (summary.late, "late: extra ones that Debezium has written behind the grace"),
        (summary.duplicates, "duplicates: Debezium has written them twice"),
        (summary.older, "of events from before the start"),
        (summary.foreign, "of others: in the topics below, or without the header id"),
        (summary.uncompared, "not compared: too much waited on both sides"),
        (span.dropped, "dropped by the transforms"),
        (summary.pending, "pending at the end"),
    ] {
        if count > 0 {
            row(count, what);
        }
    }
    let others = topics_of_others(summary);
    format!("{table}{others}read from {} to {}\n", span.begins_at, span.read)
}

/// Where Walpost has published nothing, and so perhaps should have.
fn topics_of_others(summary: &Summary) -> String {
    let topics = &summary.foreign_topics;
    if topics.is_empty() {
        return String::new();
    }
    let named = topics.iter().map(|(topic, count)| format!("{topic} ({})", thousands(*count)));
    let named: Vec<String> = named.collect();
    let more = if topics.len() < Summary::FOREIGN_TOPICS_MOST { "" } else { " and maybe others" };
    format!(
        "topics that Walpost has no record for: {}{more}; if this connector writes one of them, \
         --topic NAME has its records counted as missing\n",
        named.join(", ")
    )
}

fn summary_json(summary: &Summary, span: &Span, ended: Result<&Ended, &Failure>) -> Value {
    let documented = summary.documented.iter();
    let documented: Map<String, Value> = documented
        .map(|(one, count): (&Documented, &u64)| (one.section().to_owned(), (*count).into()))
        .collect();
    let topics = summary.foreign_topics.iter();
    let foreign_topics: Map<String, Value> =
        topics.map(|(topic, count)| (topic.to_string(), (*count).into())).collect();
    json!({
        "kind": "summary",
        "equal": summary.equal,
        "different": summary.different,
        "missing": summary.missing,
        "extra": summary.extra,
        "late": summary.late,
        "documented": documented,
        "duplicates": summary.duplicates,
        "older": summary.older,
        "foreign": summary.foreign,
        "foreign_topics": foreign_topics,
        "uncompared": summary.uncompared,
        "dropped": span.dropped,
        "pending": summary.pending,
        "differs": summary.differs(),
        "begins_at_lsn": span.begins_at.to_string(),
        "read_to_lsn": span.read.to_string(),
        "ended_by": match ended {
            Ok(Ended::Signal) => "signal",
            Ok(Ended::Time) => "time",
            Ok(Ended::Records) => "records",
            Err(_) => "error",
        },
        "error": ended.err().map(Failure::text),
    })
}

#[cfg(test)]
mod tests {
    use walpost_event::{Header, Headers, Position};
    use walpost_shadow::Member;

    use super::*;

    fn different() -> Finding {
        let message = |value: &str| {
            let headers = [Header { name: "id".into(), value: Some("7".into()) }];
            Box::new(Message {
                topic: "order".into(),
                partition: None,
                key: None,
                value: Some(value.to_owned().into()),
                headers: Headers::from_iter(headers),
                timestamp_ms: None,
            })
        };
        let (one, other) = (message("s3cret-a"), message("s3cret-bc"));
        let differences = vec![
            Difference {
                member: Member::Partition,
                debezium: Part::Plain("1".to_owned()),
                walpost: Part::Plain("2".to_owned()),
            },
            Difference {
                member: Member::Value,
                debezium: Part::Contents(one.value.clone()),
                walpost: Part::Contents(other.value.clone()),
            },
            Difference {
                member: Member::Key,
                debezium: Part::Contents(None),
                walpost: Part::Contents(other.value.clone()),
            },
        ];
        let position = Position { commit_lsn: 16.into(), ordinal: 2 };
        Finding::Different {
            expected: Expected { position, message: other },
            observed: Observed { partition: 1, offset: 9, message: one },
            differences,
        }
    }

    #[test]
    fn contents_show_where_they_are_asked_for_and_nowhere_else() {
        let finding = different();
        for show in [false, true] {
            let told = Told::new(false, show);
            let (text, json) = (told.as_text(&finding), told.as_json(&finding).to_string());
            assert_eq!((text.contains("s3cret"), json.contains("s3cret")), (show, show), "{text}");
        }
    }

    #[test]
    fn what_differs_is_told_with_its_place() {
        let told = Told::new(false, false);
        let text = told.as_text(&different());
        for part in [
            "partition, value, key differs, the first time at order partition 1 offset 9 of event \
             7 at position 0/10:2\n",
            "    partition of Debezium  1\n    partition of Walpost   2\n",
            "    value of Debezium  8 bytes\n    value of Walpost   9 bytes\n",
            "    the first difference is at byte 7\n",
            "    key of Debezium  null\n",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        let json = told.as_json(&different());
        assert_eq!((&json["kind"], &json["id"]), (&"different".into(), &"7".into()));
        assert_eq!((&json["offset"], &json["position"]), (&9.into(), &"0/10:2".into()));
        let expected = json!({
            "member": "value", "debezium": { "bytes": 8 }, "walpost": { "bytes": 9 },
            "first_at_byte": 7,
        });
        assert_eq!(json["differences"][1], expected);
    }

    #[test]
    fn long_contents_are_cut_around_what_differs() {
        let long: Bytes = format!("{}X{}", "a".repeat(500), "b".repeat(500)).into();
        let text = excerpt(&long, 500);
        assert!(text.chars().count() < 130 && text.contains("aXb"), "{text}");
        assert!(text.starts_with('…') && text.ends_with('…'));
        assert_eq!(excerpt(&"ä\n".into(), 0), "ä\\n");
        assert_eq!(excerpt(&Bytes::from_static(&[0xff, 0]), 1), "ff00");
    }

    #[test]
    fn a_summary_has_all_counts_and_ends_with_what_was_read() {
        let summary = Summary {
            equal: 1_234,
            different: [("key, value".to_owned(), 2)].into(),
            documented: [(Documented::JavaObject, 3)].into(),
            ..Summary::default()
        };
        let span = Span { begins_at: 16.into(), read: 32.into(), dropped: 0 };
        let text = summary_text(&summary, &span);
        for part in
            ["1,234  equal\n", "2  different: key, value\n", "3  documented: Bytes as text\n"]
        {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert!(
            text.ends_with("read from 0/10 to 0/20\n") && !text.contains("duplicates"),
            "{text}"
        );
        let json = summary_json(&summary, &span, Ok(&Ended::Time));
        assert_eq!((&json["differs"], &json["ended_by"]), (&true.into(), &"time".into()));
        assert_eq!(json["documented"]["Bytes as text"], 3);
        assert!(!text.contains("--topic"), "{text}");
    }

    #[test]
    fn topics_of_others_are_named_with_what_to_do() {
        let summary = Summary {
            foreign: 1_201,
            foreign_topics: [("a".into(), 1_200), ("b".into(), 1)].into(),
            ..Summary::default()
        };
        let span = Span { begins_at: 16.into(), read: 32.into(), dropped: 0 };
        let text = summary_text(&summary, &span);
        assert!(text.contains("1,201  of others: in the topics below, or without"), "{text}");
        assert!(text.contains("no record for: a (1,200), b (1); if this"), "{text}");
        assert!(text.contains("--topic NAME"), "{text}");
        let json = summary_json(&summary, &span, Ok(&Ended::Time));
        assert_eq!(json["foreign_topics"], json!({ "a": 1_200, "b": 1 }));
        assert_eq!(json["differs"], false);
    }

    #[test]
    fn an_event_whose_schema_nobody_has_registered_has_a_kind_of_its_own() {
        let position = Position { commit_lsn: 16.into(), ordinal: 2 };
        let reason = "schema_not_registered";
        let event =
            Parked { position, id: Some("7".into()), reason, detail: "no schema".to_owned() };
        let Finding::Different { observed, .. } = different() else { panic!() };
        let told = Told::new(false, false);
        for (observed, name, text) in [
            (None, "extra", "an event that Debezium has not, at position 0/10:2: no schema\n"),
            (Some(observed), reason, "the event of order partition 1 offset 9, at position"),
        ] {
            let finding = Finding::Unregistered { event: event.clone(), observed };
            let json = told.as_json(&finding);
            assert_eq!((&json["kind"], &json["id"]), (&name.into(), &"7".into()));
            assert_eq!((&json["reason"], &json["position"]), (&reason.into(), &"0/10:2".into()));
            assert!(told.as_text(&finding).contains(text), "{}", told.as_text(&finding));
        }
    }
}
