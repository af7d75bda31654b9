use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use walpost_connector::{
    MAX_BYTES, MAX_PLACEHOLDERS, MAX_PROPERTIES, Properties, Reference, ResolveError,
};

use super::{refused, settings};

#[test]
fn there_is_a_bound_on_everything() {
    let many = |count: usize| (0..count).map(|n| format!("a{n}={n}\n")).collect::<String>();
    let read = |text: &str| Properties::read(text.as_bytes());
    assert!(read(&many(MAX_PROPERTIES)).is_ok());
    let error = read(&many(MAX_PROPERTIES + 1)).unwrap_err().to_string();
    assert!(error.contains("2001 properties; a configuration has at most 2000"), "{error}");
    let error = read(&format!("#{}", "x".repeat(MAX_BYTES))).unwrap_err().to_string();
    assert!(error.contains("has at most 1048576"), "{error}");
    let aliases = (0..101).map(|n| format!("t{n},")).collect::<String>();
    refused(&[("transforms", &aliases)], "transforms", "write at most 100");
    refused(
        &[("topic.creation.groups", &aliases), ("topic.creation.default.partitions", "1")],
        "topic.creation.groups",
        "write at most 100",
    );
    refused(&[("name", "a\u{7}b")], "name", "control characters");
}

#[test]
fn groups_of_topics_do_not_share_what_begins_alike() {
    let connector = settings(&[
        ("topic.creation.groups", "a,a.b"),
        ("topic.creation.default.partitions", "-1"),
        ("topic.creation.default.replication.factor", "3"),
        ("topic.creation.a.include", "x.*"),
        ("topic.creation.a.exclude", "xx"),
        ("topic.creation.a.b.include", "xx"),
        ("topic.creation.a.b.partitions", "7"),
    ]);
    let topics = connector.topic_creation.unwrap();
    let group = |topic: &str| {
        let group = topics.group(topic).unwrap();
        (group.name.as_str(), group.partitions, group.replication, group.config.len())
    };
    assert_eq!(group("x"), ("a", None, Some(3), 0));
    assert_eq!(group("xx"), ("a.b", Some(7), Some(3), 0));
    assert_eq!(group("y"), ("default", None, Some(3), 0));
    let more = [
        ("topic.creation.default.partitions", "0"),
        ("topic.creation.default.replication.factor", "1"),
    ];
    refused(&more, "topic.creation.default.partitions", "write a number from 1");
    refused(&more[1..], "topic.creation.default.partitions", "it is missing");
}

#[test]
fn patterns_of_a_list_are_bounded_in_number_and_size() {
    let many = "a,".repeat(1001);
    refused(&[("table.include.list", &many)], "table.include.list", "at most 1000");
    let overrides = "snapshot.select.statement.overrides";
    refused(&[(overrides, &many)], overrides, "write at most 1000");
    let large = r"\p{L}{300}";
    refused(&[("table.include.list", large)], "table.include.list", "write");
}

#[test]
fn topics_of_a_group_are_split_at_every_comma_as_kafka_connect_does() {
    let base = [
        ("topic.creation.groups", "a"),
        ("topic.creation.default.partitions", "1"),
        ("topic.creation.default.replication.factor", "1"),
    ];
    let include = "topic.creation.a.include";
    let topics = settings(&[&base[..], &[(include, "x, y.*")]].concat()).topic_creation.unwrap();
    assert_eq!(topics.group("y1").unwrap().name, "a");
    assert_eq!(topics.group("Y1").unwrap().name, "default", "case counts");
    // One pattern for Debezium's lists, and two broken ones here.
    refused(&[&base[..], &[(include, r"t{1\,2}")]].concat(), include, "regular expression");
}

#[test]
fn placeholders_are_bounded_in_number_and_in_what_they_stand_for() {
    let pairs = |count: usize| (0..count).map(|n| (format!("a{n}"), "x${p:y}"));
    let small = |_: Reference<'_>| Ok::<_, Infallible>("y".to_owned());
    assert!(Properties::from_pairs(pairs(MAX_PLACEHOLDERS)).resolve(small).is_ok());
    let error = Properties::from_pairs(pairs(MAX_PLACEHOLDERS + 1)).resolve(small).unwrap_err();
    assert!(matches!(error, ResolveError::TooMany { .. }), "{error}");
    assert_eq!(error.property(), "a100");
    let large = |_: Reference<'_>| Ok::<_, Infallible>("y".repeat(MAX_BYTES / 4));
    assert!(Properties::from_pairs(pairs(4)).resolve(large).is_ok());
    let error = Properties::from_pairs(pairs(5)).resolve(large).unwrap_err();
    assert!(matches!(error, ResolveError::TooLarge { .. }), "{error}");
}

#[test]
fn files_of_one_line_and_of_half_placeholders_are_read_in_one_pass() {
    let started = Instant::now();
    let members = (0..MAX_PROPERTIES).map(|n| format!("\"a{n}\":\"{}\"", "x".repeat(480)));
    let line = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
    assert_eq!(Properties::read(line.as_bytes()).unwrap().iter().count(), MAX_PROPERTIES);
    // Read up to the bound and no further: what follows is not even JSON.
    let many: String = (0..MAX_PROPERTIES * 2).map(|n| format!("\"a{n}\":1,")).collect();
    let error = Properties::read(format!("{{{many} no JSON").as_bytes()).unwrap_err().to_string();
    assert!(error.contains("a configuration has at most 2000"), "{error}");
    let half = format!("{}{}", "${".repeat(MAX_BYTES / 4), "}".repeat(8));
    let given = Properties::from_pairs([("a", half.as_str())]);
    let lookup = |_: Reference<'_>| Ok::<_, Infallible>(String::new());
    assert_eq!(given.resolve(lookup).unwrap().get("a"), Some(half.as_str()));
    assert!(started.elapsed() < Duration::from_secs(120), "{:?}", started.elapsed());
}
