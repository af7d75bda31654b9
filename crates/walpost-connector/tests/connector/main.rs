//! Connectors as people have them, judged as a whole.

mod bounds;
mod converters;
mod encode;
mod examples;
mod judging;
mod kafka;
mod layer;
mod manual;
mod names;
mod placeholders;
mod robust;
mod table;
mod transforms;

use walpost_connector::{
    Connector, Judgement, Properties, Row, Setting, SettingValue, Unknown, Verdict, judge,
};

/// The least that is a connector.
const BASE: &[(&str, &str)] = &[
    ("name", "orders"),
    ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
    ("plugin.name", "pgoutput"),
    ("database.hostname", "localhost"),
    ("database.user", "app"),
    ("database.password", "hunter2"),
    ("database.dbname", "shop"),
    ("topic.prefix", "shop"),
    ("snapshot.mode", "no_data"),
    ("publication.autocreate.mode", "disabled"),
    ("transforms", "outbox"),
    ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
    ("key.converter", STRING),
    ("value.converter", STRING),
];

const STRING: &str = "org.apache.kafka.connect.storage.StringConverter";
const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";

/// The least with these properties too, which take the place of those of the
/// same name.
fn with(more: &[(&str, &str)]) -> Properties {
    Properties::from_pairs(BASE.iter().chain(more).copied())
}

fn judged(more: &[(&str, &str)]) -> Judgement {
    judge(&with(more), None, Unknown::Refuse)
}

#[track_caller]
fn settings(more: &[(&str, &str)]) -> Connector {
    match judged(more).into_connector() {
        Ok((connector, _)) => connector,
        Err(refused) => panic!("{refused}"),
    }
}

/// What the layer has for a key, as `section.key`; `None` for nothing.
fn laid<'a>(connector: &'a Connector, key: &str) -> Option<&'a SettingValue> {
    let is_it = |setting: &&Setting| format!("{}.{}", setting.section, setting.key) == key;
    connector.settings.iter().find(is_it).map(|setting| &setting.value)
}

/// The same of a text.
#[track_caller]
fn text<'a>(connector: &'a Connector, key: &str) -> &'a str {
    let value = laid(connector, key).unwrap_or_else(|| panic!("{key} is not laid"));
    value.as_text().unwrap_or_else(|| panic!("{key} is {value}"))
}

#[track_caller]
fn row(judgement: &Judgement, property: &str) -> Row {
    let row = judgement.verdicts.row(property);
    row.unwrap_or_else(|| panic!("{property} has no row")).clone()
}

/// The verdict of the first of these properties, with its note.
#[track_caller]
fn verdict(more: &[(&str, &str)]) -> (Verdict, String) {
    let row = row(&judged(more), more[0].0);
    (row.verdict, row.note)
}

#[track_caller]
fn refused(more: &[(&str, &str)], property: &str, says: &str) {
    let judgement = judged(more);
    let row = row(&judgement, property);
    assert_eq!(row.verdict, Verdict::Refused, "{row}");
    assert!(row.note.contains(says), "{row}");
    assert!(judgement.connector.is_none());
}
