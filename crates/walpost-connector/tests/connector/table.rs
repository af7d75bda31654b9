use std::collections::BTreeMap;

use walpost_connector::{
    Kind, Of, Origin, Properties, Rule, SECTIONS, Section, Standing, Unknown, Verdict, judge,
};

use super::{
    JSON, STRING, judged,
    names::{CONNECTOR, ROUTER},
    with,
};

const DECODE: &str =
    "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent";

fn sections(title: &str) -> impl Iterator<Item = &'static Section> {
    SECTIONS.iter().filter(move |section| section.title == title)
}

#[test]
fn every_option_of_the_router_has_a_row() {
    let router = sections("Outbox Event Router").next().unwrap();
    for name in ROUTER {
        assert!(router.rules.iter().any(|rule| rule.name == *name), "{name}");
    }
    assert_eq!(router.rules.len(), ROUTER.len(), "and none that Debezium never had");
}

#[test]
fn every_property_of_the_connector_has_a_row() {
    let plain = || SECTIONS.iter().filter(|section| section.of == Of::Connector);
    for name in CONNECTOR {
        let found = plain().flat_map(|section| section.rules).any(|rule| rule.is_about(name));
        assert!(found, "{name}");
    }
}

#[test]
fn no_name_is_in_the_table_twice_and_each_default_is_of_its_kind() {
    for section in SECTIONS {
        for (index, rule) in section.rules.iter().enumerate() {
            let again = section.rules[..index].iter().any(|other| other.name == rule.name);
            assert!(!again, "{} of {}", rule.name, section.title);
        }
    }
    let names = SECTIONS.iter().filter(|section| section.of == Of::Connector);
    let mut seen = BTreeMap::new();
    for section in names {
        for rule in section.rules {
            let before = seen.insert(rule.name, section.title);
            assert_eq!(before, None, "{} of {}", rule.name, section.title);
        }
    }
}

/// Whatever a property needs beside it to do what the table says.
fn beside(section: &Section, rule: &Rule) -> Vec<(&'static str, &'static str)> {
    match rule.name {
        "database.sslcert" => vec![("database.sslkey", "/k")],
        "database.sslkey" => vec![("database.sslcert", "/c")],
        "database.sslpassword" => vec![("database.sslcert", "/c"), ("database.sslkey", "/k")],
        "snapshot.select.statement.overrides.*" => {
            vec![("snapshot.select.statement.overrides", "x")]
        }
        "snapshot.select.statement.overrides" => {
            vec![("snapshot.select.statement.overrides.x", "select 1")]
        }
        "heartbeat.action.query" => vec![("heartbeat.interval.ms", "1000")],
        "table.json.payload.null.behavior" | "table.json.payload.empty.array.behavior" => {
            vec![("transforms.outbox.table.expand.json.payload", "true")]
        }
        "field.name.adjustment.mode" if section.title == "Outbox Event Router" => {
            vec![("transforms.outbox.table.expand.json.payload", "true")]
        }
        "table.field.event.schema.version" => {
            vec![("transforms.outbox.table.fields.additional.placement", "a:envelope")]
        }
        "message.prefix.include.list" | "message.prefix.exclude.list" => {
            vec![("transforms", "t,outbox"), ("transforms.t.type", DECODE)]
        }
        "basic.auth.user.info" | "schema.registry.basic.auth.user.info" => {
            vec![("value.converter.basic.auth.credentials.source", "USER_INFO")]
        }
        "delegate.converter.type.*" => vec![("value.converter.delegate.converter.type", JSON)],
        "ssl.truststore.location" => vec![("producer.override.ssl.truststore.type", "PEM")],
        "ssl.keystore.location" => vec![("producer.override.ssl.keystore.type", "PEM")],
        "compression.gzip.level" => vec![("producer.override.compression.type", "gzip")],
        "compression.lz4.level" => vec![("producer.override.compression.type", "lz4")],
        "compression.zstd.level" => vec![("producer.override.compression.type", "zstd")],
        _ => vec![],
    }
}

/// A value that the property takes.
fn good(rule: &Rule) -> String {
    let value = match rule.name {
        "table.fields.additional.placement" => "a:header",
        "slot.stream.params" => "origin=none",
        "transforms" => "outbox",
        "predicates" => "",
        "key.converter" | "value.converter" | "header.converter" => STRING,
        "delegate.converter.type" => JSON,
        "delegate.converter.type.*" => "1",
        "snapshot.select.statement.overrides" => "x",
        "skipped.operations" => "u",
        "database.port" => "6543",
        "apicurio.registry.use-id" => "contentId",
        "basic.auth.user.info" | "schema.registry.basic.auth.user.info" => "u:p",
        "transaction.boundary" => "interval",
        "converter.encoding" => "latin1",
        "partitions" | "replication.factor" => "-1",
        "max.queue.size" => "9000",
        "signal.data.collection" => "public.signals",
        "delegate.converter.type.schemas.enable" => "true",
        "max.batch.size" => "100",
        _ => "",
    };
    let by_kind = || match rule.kind {
        Kind::Boolean => " TRUE ".to_owned(),
        Kind::Number(low, high) => low.max(1).min(high).to_string(),
        Kind::OneOf(values) => values[0].to_owned(),
        Kind::Url => "http://x".to_owned(),
        Kind::File => "/x".to_owned(),
        Kind::Class => "a.B".to_owned(),
        _ => "x".to_owned(),
    };
    if value.is_empty() && rule.name != "predicates" { by_kind() } else { value.to_owned() }
}

/// A value that is none of its kind.
fn bad(kind: Kind) -> Option<String> {
    Some(match kind {
        Kind::Boolean => "yes".to_owned(),
        Kind::Number(_, high) => format!("{high}0"),
        Kind::OneOf(_) => "no-such-value".to_owned(),
        Kind::Regex | Kind::Replaced | Kind::Regexes | Kind::Patterns => "(".to_owned(),
        Kind::Class => "a..b".to_owned(),
        Kind::Name => "a b".to_owned(),
        Kind::SlotName => "Slot".to_owned(),
        Kind::Text | Kind::Password | Kind::Sql | Kind::List | Kind::Url | Kind::File => {
            return None;
        }
    })
}

/// What transforms need, as far as their classes have it.
const OF_TRANSFORMS: [(&str, &str); 9] = [
    ("regex", "a"),
    ("replacement", "b"),
    ("header", "h"),
    ("value.literal", "v"),
    ("headers", "h"),
    ("fields", "f"),
    ("operation", "copy"),
    ("static.field", "f"),
    ("static.value", "v"),
];

/// A connector with one property of a section, under its whole name.
fn connector(section: &Section, rule: &Rule, value: &str) -> (String, Vec<(String, String)>) {
    let mut prefix = section.prefix().replace("<name>", "t").replace("<group>", "default");
    let mut more: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: &str| more.push((name.to_owned(), value.to_owned()));
    let regex_router = "org.apache.kafka.connect.transforms.RegexRouter";
    let class = section.classes().first().copied().unwrap_or(regex_router);
    match section.prefix() {
        "transforms.<name>." if section.title == "Outbox Event Router" => {
            prefix = "transforms.outbox.".to_owned();
        }
        "transforms.<name>." => {
            let before = section.title == "Logical messages as rows";
            add("transforms", if before { "t,outbox" } else { "outbox,t" });
            add(
                "transforms.t.type",
                if class.contains("HeaderFrom") { section.classes()[1] } else { class },
            );
            add("transforms.outbox.table.fields.additional.placement", "a:envelope");
            for (name, value) in OF_TRANSFORMS {
                let is_of_it = |other: &Rule| other.name == name;
                let is_common = section.classes().is_empty() && name.starts_with("re");
                if is_common || section.rules.iter().any(is_of_it) {
                    add(&format!("transforms.t.{name}"), value);
                }
            }
        }
        "predicates.<name>." => {
            add("predicates", "t");
            add("predicates.t.type", class);
            add("predicates.t.pattern", "a");
            add("predicates.t.name", "a");
        }
        "<converter>." => {
            prefix = "value.converter.".to_owned();
            let class = if section.classes().is_empty() { STRING } else { class };
            add("value.converter", class);
            if class.starts_with("io.confluent") {
                add("value.converter.schema.registry.url", "http://r");
            }
            for (name, value) in [
                ("apicurio.registry.url", "http://r"),
                ("apicurio.registry.as-confluent", "true"),
                ("apicurio.registry.use-id", "contentId"),
            ] {
                if section.rules.iter().any(|other| other.name == name) {
                    add(&format!("value.converter.{name}"), value);
                }
            }
        }
        "topic.creation.<group>." => {
            add("topic.creation.default.partitions", "1");
            add("topic.creation.default.replication.factor", "1");
        }
        _ => {}
    }
    for (name, value) in beside(section, rule) {
        more.push((name.to_owned(), value.to_owned()));
    }
    let name = format!("{prefix}{}", rule.name.replace('*', "x"));
    more.push((name.clone(), value.to_owned()));
    (name, more)
}

/// Where the settings know better than the table, and say why; and what
/// sections of its own are about.
const BY_SETTINGS: &[&str] = &[
    "transforms.x",
    "predicates.x",
    "key.converter.x",
    "value.converter.x",
    "header.converter.x",
    "topic.creation.x",
    "producer.override.x",
    "delegate.converter.type.x",
    "predicates.t.name",
    "transforms.t.type",
    "transforms.t.predicate",
    "transforms.t.negate",
    "predicates.t.type",
    "column.propagate.source.type",
    "datatype.propagate.source.type",
    "topic.creation.default.include",
    "topic.creation.default.exclude",
    "apicurio.registry.url",
    "walpost.debezium.version",
];

#[test]
fn every_property_of_the_table_has_the_verdict_that_the_table_says() {
    let (mut count, mut wrong) = (0, Vec::new());
    for section in SECTIONS.iter().filter(|section| section.title != "Worker") {
        for rule in section.rules {
            let (value, expected) = match rule.standing {
                Standing::Honoured(_) => (good(rule), Verdict::Honoured),
                Standing::Mapped(_) | Standing::Alias(_) => (good(rule), Verdict::Mapped),
                Standing::Ignored(_) => (good(rule), Verdict::Ignored),
                Standing::Only(values, _) => (values[0].to_owned(), Verdict::Honoured),
                Standing::Refused(_) | Standing::Removed(_) => ("x".to_owned(), Verdict::Refused),
            };
            let (name, more) = connector(section, rule, &value);
            if BY_SETTINGS.iter().any(|known| name.ends_with(known)) {
                continue;
            }
            let more: Vec<(&str, &str)> = more.iter().map(|(n, v)| (&**n, &**v)).collect();
            let judgement = judged(&more);
            let row = judgement.verdicts.row(&name).unwrap_or_else(|| panic!("{name}"));
            let is_set =
                |name: &str| judgement.verdicts.row(name).is_some_and(|row| row.value.is_some());
            let expected = match rule.standing {
                Standing::Removed(now) if is_set(&name.replace(rule.name, now)) => Verdict::Ignored,
                _ => expected,
            };
            let says_what = ["write", "remove"].iter().any(|word| row.note.contains(word));
            let names_successor = match rule.standing {
                Standing::Removed(now) => row.note.contains(now),
                _ => true,
            };
            let is_told = expected != Verdict::Refused || (says_what && names_successor);
            if row.verdict != expected || !is_told {
                wrong.push(row.to_string());
            }
            count += 1;
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count > 300, "{count} properties");
}

#[test]
fn a_value_of_another_kind_is_refused_and_the_right_one_told() {
    let mut count = 0;
    for section in SECTIONS.iter().filter(|section| section.title != "Worker") {
        for rule in section.rules {
            let is_only = matches!(rule.standing, Standing::Only(..));
            let is_refused = matches!(rule.standing, Standing::Refused(_) | Standing::Removed(_));
            let wrong = if is_only { Some("no.such.Value".to_owned()) } else { bad(rule.kind) };
            let Some(wrong) = wrong.filter(|_| !is_refused) else { continue };
            let (name, more) = connector(section, rule, &wrong);
            let more: Vec<(&str, &str)> = more.iter().map(|(n, v)| (&**n, &**v)).collect();
            let judgement = judged(&more);
            let row = judgement.verdicts.row(&name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(row.verdict, Verdict::Refused, "{row}");
            assert!(["write", "remove"].iter().any(|word| row.note.contains(word)), "{row}");
            assert!(judgement.connector.is_none(), "{row}");
            count += 1;
        }
    }
    assert!(count > 100, "{count} properties");
}

#[test]
fn every_property_of_a_worker_has_the_verdict_that_the_table_says() {
    let worker = sections("Worker").next().unwrap();
    for rule in worker.rules {
        let value = good(rule);
        let name = rule.name.replace('*', "x");
        let file = Properties::from_pairs([(name.clone(), value)]);
        let judgement = judge(&with(&[]), Some(&file), Unknown::Refuse);
        let mut rows = judgement.verdicts.rows().iter();
        let row = rows.find(|row| (row.origin, &row.property) == (Origin::Worker, &name)).unwrap();
        let allowed: &[Verdict] = match (rule.standing, rule.name) {
            // Options of a converter that nobody names, and settings that the
            // producer does not know.
            (_, "header.converter") => &[Verdict::Honoured],
            (_, name) if name.ends_with("converter") || name.ends_with("converter.*") => {
                &[Verdict::Ignored]
            }
            (_, "producer.*") => &[Verdict::Refused],
            (Standing::Mapped(_), _) => &[Verdict::Mapped],
            (Standing::Ignored(_), _) => &[Verdict::Ignored],
            _ => &[Verdict::Honoured],
        };
        assert!(allowed.contains(&row.verdict), "{row}");
    }
}
