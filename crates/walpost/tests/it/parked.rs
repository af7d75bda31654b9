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
    for line in ["position        0/A:3", "value_bytes     18", "headers         id, raw, none"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let shown = run(&["show", "1", "--payload"]);
    assert!(shown.contains(r#"{"secret": "\u{1b}[2J"}"#) && !shown.contains('\u{1b}'), "{shown}");
    for line in ["header id       e1", "header raw      ff00", "header none     -"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let shown = run(&["show", "1", "--payload", "--max-bytes", "3"]);
    assert!(shown.contains("{\"s … 15 more") && !shown.contains("secret"), "{shown}");

    let json: Value = serde_json::from_str(&run(&["show", "1", "--payload", "--json"])).unwrap();
    assert_eq!(json["contents"][1]["text"], "{\"secret\": \"\u{1b}[2J\"}");
    assert_eq!(json["contents"][3]["hex"], "ff00");
    assert!(run(&["show", "2", "--payload"]).contains("column payload  secret"));
    assert!(run(&["show", "3", "--payload"]).contains("message         secret, and no json"));
    let nothing: Value = serde_json::from_str(&run(&["show", "4", "--payload", "--json"])).unwrap();
    assert_eq!(nothing["contents"], Value::Array(Vec::new()));
}
