//! Events received from outside: looked at, decided about, pruned.

use serde_json::Value;
use walpost_testkit::{MARKER, QUOTING_SCHEMA, Quoting};

use crate::{
    cli::{stderr, stdout, walpost},
    rig::Rig,
};

/// Past the triggers, as a month of processors would leave it.
const EVENTS: &str = r#"
begin;
set local session_replication_role = replica;
insert into walpost.inbox (source, event_id, event_type, payload, payload_hash, payload_bytes,
    processing_state, processed_at, attempts, fence, next_attempt_at, reason)
select 'bank', 'evt_' || n, 'paid', payload, sha256(payload), octet_length(payload), state,
    case when state in ('succeeded', 'ignored') then now() - n * interval '20 days' end, n, n,
    case when state = 'pending' then now() end, case when state = 'failed' then 'not today' end
from unnest(array['pending', 'failed', 'review', 'succeeded', 'ignored', 'failed'])
    with ordinality as t (state, n), convert_to('{"card": "4242"}', 'utf8') as payload;
commit;
"#;

fn state(rig: &Rig, number: u32) -> String {
    rig.sql(&format!("select processing_state from walpost.inbox where seq = {number}"))
}

#[test]
fn events_are_listed_shown_tried_again_and_ignored() {
    let rig = Rig::of(&["inbox"]);
    let output = rig.run(&["list"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("walpost migrate --set inbox"), "{}", stderr(&output));
    let args = ["migrate", "--set", "inbox", "--postgres", &rig.url];
    let output = walpost(&args, &[]);
    assert!(stdout(&output).starts_with("applied inbox/0001_inbox\n"), "{}", stderr(&output));
    assert_eq!(stdout(&rig.run(&["list"])), "no event of the kind is in the inbox\n");
    rig.sql(EVENTS);

    let numbers = |events: &[Value]| -> Vec<u64> {
        events.iter().map(|event| event["number"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers(&rig.json(&["list"])), [1, 2, 3, 6]);
    assert_eq!(numbers(&rig.json(&["list", "--all"])), [1, 2, 3, 4, 5, 6]);
    assert_eq!(numbers(&rig.json(&["list", "--state", "failed"])), [2, 6]);
    assert_eq!(numbers(&rig.json(&["list", "--all", "--id", "evt_4"])), [4]);
    let output = rig.run(&["list", "--source", "shop"]);
    assert_eq!(output.status.code(), Some(5), "{}", stdout(&output));
    for wish in ["retry", "ignore"] {
        let output = rig.run(&[wish, "--type", "pai"]);
        assert_eq!(output.status.code(), Some(5), "also without --yes: {}", stdout(&output));
        assert!(stderr(&output).contains("no event of the kind"), "{}", stderr(&output));
    }
    let output = rig.run(&["list", "--limit", "1"]);
    assert!(stdout(&output).contains("1  pending  bank    paid  evt_1"), "{}", stdout(&output));
    assert!(stderr(&output).contains("there are more"), "{}", stderr(&output));

    let shown = &rig.json(&["show", "2"])[0];
    assert_eq!((&shown["reason"], &shown["payload"]), (&"not today".into(), &Value::Null));
    for args in [&["show", "2"][..], &["list", "--all"], &["list", "--all", "--json"]] {
        assert!(!stdout(&rig.run(args)).contains("4242"), "{args:?}");
    }
    assert!(stdout(&rig.run(&["show", "2", "--payload"])).contains("4242"));
    let shown = &rig.json(&["show", "2", "--payload", "--max-bytes", "7"])[0];
    assert_eq!(shown["payload"], r#"{"card""#);
    assert_eq!(rig.run(&["show", "99"]).status.code(), Some(1));

    let output = rig.run(&["retry", "2", "4", "99"]);
    assert_eq!(stdout(&output), "will be tried again: event 2\n");
    let text = stderr(&output);
    assert!(text.contains("4 is succeeded, not failed or review"), "{text}");
    assert!(text.contains("no event has number 99"), "{text}");
    assert_eq!(rig.run(&["ignore", "2"]).status.code(), Some(5), "one that failed");
    let output = rig.run(&["ignore", "--all"]);
    assert_eq!(stdout(&output), "would be ignored: event 1, 3\n");
    assert_eq!(state(&rig, 3), "review");
    assert_eq!(rig.json(&["ignore", "--all", "--yes"])[0]["done"], serde_json::json!([1, 3]));
    assert_eq!((state(&rig, 1), state(&rig, 3)), ("ignored".to_owned(), "ignored".to_owned()));
    let retried = &rig.json(&["retry", "--type", "paid", "--state", "failed", "--yes"])[0];
    assert_eq!(retried["done"], serde_json::json!([2, 6]));
    for wrong in [&["retry"][..], &["retry", "2", "--all"], &["retry", "2", "--type", "paid"]] {
        assert_eq!(rig.run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn what_is_old_leaves_on_request_and_not_within_the_window() {
    let rig = Rig::of(&["inbox"]);
    let args = ["migrate", "--set", "all", "--postgres", &rig.url];
    assert!(walpost(&args, &[]).status.success());
    rig.sql(EVENTS);
    let output = rig.run(&["prune"]);
    let text = stdout(&output);
    assert_eq!(text, "2 payloads and 1 rows would leave\nnothing was done; --yes does it\n");
    let output = rig.run(&["prune", "--keep-days", "89", "--yes"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("have to be remembered for 90"), "{}", stderr(&output));
    assert_eq!(rig.sql("select count(*) from walpost.inbox where has_payload"), "6");
    let pruned = &rig.json(&["prune", "--payload-days", "90", "--yes"])[0];
    assert_eq!((&pruned["payloads"], &pruned["rows"]), (&1.into(), &1.into()));
    assert_eq!(rig.sql("select count(*) from walpost.inbox"), "5");
    let shown = &rig.json(&["show", "4", "--payload"])[0];
    assert!(shown["payload"].is_string(), "80 days old: {shown}");
    let _ = rig.json(&["prune", "--yes"]);
    let shown = &rig.json(&["show", "4", "--payload"])[0];
    assert_eq!((&shown["payload"], &shown["has_payload"]), (&Value::Null, &false.into()));
}

#[test]
fn a_value_that_the_server_quotes_is_in_no_output() {
    let rig = Rig::of(&["inbox"]);
    let args = ["migrate", "--set", "inbox", "--postgres", &rig.url];
    assert!(walpost(&args, &[]).status.success());
    rig.sql(EVENTS);
    rig.sql(QUOTING_SCHEMA);
    for quoting in Quoting::ALL {
        rig.sql(&quoting.trigger("before update on walpost.inbox", &format!("'{MARKER}'")));
        for args in [&["retry", "2"][..], &["retry", "2", "--json"]] {
            let output = rig.run(args);
            let (stdout, stderr) = (stdout(&output), stderr(&output));
            assert_ne!(output.status.code(), Some(0), "{}: {stdout}", quoting.name);
            assert!(stderr.contains(quoting.state), "{}: {stderr}", quoting.name);
            quoting.is_hidden_in(&[stdout, stderr]);
        }
    }
}
