use walpost_connector::{MAX_BYTES, MAX_PROPERTIES, Properties};

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
