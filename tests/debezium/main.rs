//! A few cases of `cargo xtask debezium`, and random ones.

#![allow(clippy::unwrap_used, reason = "a test that fails")]

use std::path::Path;

use walpost_tests::{
    differential::{Case, Engine, Setting, cases, differential, random_cases},
    walpost_binary,
};

/// One of each kind: routes, headers, envelopes, defaults, expansion, converters, types,
/// updates, messages, snapshots, a transform, a failure and a refusal.
const FEW: [&str; 16] = [
    "route: keys find their partitions",
    "route: NULL",
    "header: several, in their order",
    "envelope: with its schema",
    "timestamp: in microseconds, cut",
    "tombstone: of text, JsonWithSchema",
    "tombstone: empty bytes as text",
    "content as key, value and header",
    "expand: objects of text, Json",
    "value: BinaryOrJson of bytea",
    "decimal.handling.mode precise",
    "update: of the primary key is a new event",
    "decode: beside the table",
    "snapshot.mode initial",
    "RegexRouter: renames",
    "placement: no place",
];
const RECORDS: usize = 60;

/// Of Avro, whose ids and schemas are in one registry.
const AVRO: [&str; 4] =
    ["avro: key and value", "avro: an envelope", "avro: expanded", "avro: types 0 in an envelope"];
const EXAMPLES: &str = "example: ";

/// Those that Walpost is compared by: the same, the examples, and Avro.
fn few_of_walpost() -> Vec<Case> {
    let more = cases()
        .into_iter()
        .filter(|case| case.name.starts_with(EXAMPLES) || AVRO.contains(&case.name.as_str()));
    few().into_iter().chain(more).collect()
}

fn few() -> Vec<Case> {
    let mut few = cases();
    few.retain(|case| FEW.contains(&case.name.as_str()));
    assert_eq!(few.len(), FEW.len());
    few.extend(random_cases(RECORDS, 1));
    few
}

/// A property of the other one alone, and what is to be noticed of it.
const SABOTAGED: [(&str, &str, &str, &str); 4] = [
    ("route: keys find their partitions", "key.converter", JSON, "key of Debezium"),
    ("header: several, in their order", "extended.headers.enabled", "false", "header 0"),
    ("timestamp: in microseconds, cut", "time.precision.mode", "connect", "fails"),
    ("placement: no place", PLACEMENT, "type:header", "Debezium alone refuses"),
];
const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";
const PLACEMENT: &str = "transforms.outbox.table.fields.additional.placement";

fn sabotaged() -> Vec<Case> {
    let all = cases();
    let one = |(name, property, value, _): (&str, &str, &str, &str)| {
        let mut case = all.iter().find(|case| case.name == name).unwrap().clone();
        case.name.insert_str(0, "sabotaged ");
        case.sabotaged(property, value)
    };
    SABOTAGED.map(one).into()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs Debezium"]
async fn two_debeziums_publish_the_same_and_whatever_is_changed_is_noticed() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debezium");
    let other = Engine::Debezium;
    let setting = Setting { other, jobs: 8, folder, keep: false, progress: false };
    let all = [sabotaged(), few()].concat();
    let mut outcomes = Box::pin(differential(setting, all)).await.into_iter();
    for (outcome, (name, _, _, noticed)) in outcomes.by_ref().zip(SABOTAGED) {
        let unexplained = outcome.tally.unexplained.join("\n");
        assert!(unexplained.contains(noticed), "{name}: {unexplained}");
    }
    let mut compared = 0;
    for outcome in outcomes {
        let unexplained = outcome.tally.unexplained.join("\n");
        assert!(unexplained.is_empty(), "{}:\n{unexplained}", outcome.name);
        compared += outcome.tally.compared;
    }
    assert!(compared > RECORDS + FEW.len(), "{compared}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs Debezium"]
async fn walpost_publishes_what_debezium_does() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debezium-beside-walpost");
    let other = Engine::Walpost(walpost_binary());
    let setting = Setting { other, jobs: 6, folder, keep: false, progress: false };
    let outcomes = Box::pin(differential(setting, few_of_walpost())).await;
    let (mut equal, mut unexplained) = (0, String::new());
    for outcome in outcomes {
        equal += outcome.tally.equal;
        for text in outcome.tally.unexplained {
            unexplained.push_str(&format!("{}:\n{text}\n", outcome.name));
        }
    }
    assert!(unexplained.is_empty(), "{unexplained}");
    assert!(equal > RECORDS + FEW.len(), "{equal}");
}
