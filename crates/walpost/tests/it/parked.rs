//! What an operator sees of parked events.

use serde_json::Value;
use walpost_local::Postgres;

use crate::cli::{stderr, stdout, walpost};

/// A record with an escape sequence in its value and bytes in a header, a row,
/// a message, and an event of which nothing was kept.
const PARKED: &str = r#"
insert into walpost.parked (pipeline, generation, commit_lsn, ordinal, source, event_id,
    aggregate_type, aggregate_id, reason, detail, topic, record_key, record_value, record_headers)
values ('shop', 1, '0/A', 3, 'walpost.outbox', 'e1', 'order', E'a\x1b[31m', 'rejected', 'refused',
    'outbox.event.order', 'a', convert_to(E'{"secret": "\x1b[2J"}', 'UTF8'),
    '[{"name": "id", "text": "e1"}, {"name": "raw", "hex": "ff00"}, {"name": "none"}]');
insert into walpost.parked (pipeline, generation, commit_lsn, ordinal, source, reason, row_columns)
values ('shop', 1, '0/B', 0, 'walpost.outbox', 'unroutable',
    '[{"name": "payload", "type_oid": 3802, "type_modifier": -1, "text": "secret"}]');
insert into walpost.parked (pipeline, generation, commit_lsn, ordinal, source, reason, message_content)
values ('shop', 1, '0/C', 0, 'walpost', 'undecodable', 'secret, and no json');
insert into walpost.parked (pipeline, generation, commit_lsn, ordinal, source, reason)
values ('shop', 1, '0/D', 0, 'walpost.outbox', 'oversize');
"#;

#[test]
fn the_event_itself_is_shown_on_request_alone_bounded_and_without_steering_the_terminal() {
    let postgres = Postgres::builder().throwaway().start().unwrap();
    let url = postgres.url("postgres");
    let run = |args: &[&str]| {
        let output = walpost(&[&["parked"], args, &["--postgres", &url]].concat(), &[]);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    assert!(walpost(&["migrate", "--postgres", &url], &[]).status.success());
    postgres.psql("postgres", PARKED).unwrap();

    let list = run(&["list"]);
    assert!(list.contains(r"order/a\u{1b}[31m") && !list.contains('\u{1b}'), "{list}");
    for number in ["1", "2", "3", "4"] {
        let shown = run(&["show", number]);
        assert!(!shown.contains("secret") && !shown.contains('\u{1b}'), "{shown}");
        let json = run(&["show", number, "--json"]);
        assert!(!json.contains("secret") && !json.contains('\u{1b}'), "{json}");
    }

    let shown = run(&["show", "1"]);
    let fields = shown.lines().filter_map(|line| line.split_once(' '));
    let fields: Vec<_> = fields.map(|(name, value)| (name, value.trim())).collect();
    for field in [("position", "0/A:3"), ("value_bytes", "18"), ("headers", "id, raw, none")] {
        assert!(fields.contains(&field), "{field:?}: {shown}");
    }
    assert!(fields.contains(&("topic", "outbox.event.order")), "{shown}");
    let webhook = ["--set", "sink.kind=webhook", "--set", "pipeline.name=shop", "--json"];
    let shown = run(&[&["show", "1"], &webhook[..]].concat());
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert!(shown["topic"].is_null(), "deliveries have none: {shown}");
    let shown = run(&["show", "1", "--payload"]);
    assert!(shown.contains(r#"{"secret": "\u{1b}[2J"}"#) && !shown.contains('\u{1b}'), "{shown}");
    for (name, value) in [("header id", "e1"), ("header raw", "ff00"), ("header none", "-")] {
        let mut lines = shown.lines().filter_map(|line| line.strip_prefix(name));
        assert_eq!(lines.next().map(str::trim), Some(value), "{shown}");
    }
    let shown = run(&["show", "1", "--payload", "--max-bytes", "3"]);
    assert!(shown.contains("{\"s … 15 more") && !shown.contains("secret"), "{shown}");

    let json: Value = serde_json::from_str(&run(&["show", "1", "--payload", "--json"])).unwrap();
    assert_eq!(json["contents"][1]["text"], "{\"secret\": \"\u{1b}[2J\"}");
    assert_eq!(json["contents"][3]["hex"], "ff00");
    assert!(run(&["show", "2", "--payload"]).contains("secret"));
    assert!(run(&["show", "3", "--payload"]).contains("secret, and no json"));
    let nothing: Value = serde_json::from_str(&run(&["show", "4", "--payload", "--json"])).unwrap();
    assert_eq!(nothing["contents"], Value::Array(Vec::new()));
}

#[test]
fn whether_an_event_has_its_dead_letter_is_told() {
    let postgres = Postgres::builder().throwaway().start().unwrap();
    let url = postgres.url("postgres");
    assert!(walpost(&["migrate", "--postgres", &url], &[]).status.success());
    postgres.psql("postgres", PARKED).unwrap();
    let letters = "update walpost.parked set dead_letter_topic = 'dead', \
                   dead_letter_at = '2026-01-02T03:04:05Z' where id in (2, 3); \
                   update walpost.parked set dead_letter_error = 'too large' where id = 3";
    postgres.psql("postgres", letters).unwrap();
    let output = walpost(&["parked", "list", "--pipeline", "shp", "--postgres", &url], &[]);
    assert_eq!(output.status.code(), Some(5), "{}", stdout(&output));
    assert!(stderr(&output).contains("nothing of pipeline \"shp\""), "{}", stderr(&output));
    let output = walpost(&["parked", "list", "--json", "--postgres", &url], &[]);
    let told: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let states: Vec<&Value> = told.iter().map(|one| &one["dead_letter"]).collect();
    assert_eq!(states, ["none", "written", "refused", "none"]);
    let output = walpost(&["parked", "show", "3", "--json", "--postgres", &url], &[]);
    let shown: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(shown["dead_letter_topic"], "dead");
    assert_eq!(shown["dead_letter_at"], "2026-01-02T03:04:05Z");
    assert_eq!(shown["dead_letter_error"], "too large");
}
