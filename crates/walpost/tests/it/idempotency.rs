//! Requests under idempotency keys: looked at, forgotten, pruned.

use crate::{
    cli::{stderr, stdout, walpost},
    rig::Rig,
};

const LOOKUP: &str = "4ca5b8a4b1b2b3bb15d0b8d5ff0f9d42ac4ab0ac0f1c4ef9ad8ff5c1bd5f8b22";

/// `alice`'s request under `k` on `POST /orders`, and three others.
fn requests(lookup: &str) -> String {
    format!(
        "insert into walpost.idempotency (lookup, route, fingerprint, status, completed_at, \
         expires_at, gone_until, lease_until, recovery_point, response_status, header_names, \
         header_values, body) values \
         (decode('{lookup}', 'hex'), 'POST /orders', sha256('a'), 'completed', now(), \
         now() + '1 day', null, null, null, 201, '{{}}', '{{}}', '4242'), \
         (decode('{LOOKUP}', 'hex'), 'POST /pay', sha256('b'), 'in_progress', null, null, null, \
         now() + '1 hour', 'charged', null, null, null, null), \
         (sha256('c'), 'r', sha256('c'), 'completed', now(), now() - interval '1 s', null, null, \
         null, 200, '{{}}', '{{}}', ''), \
         (sha256('d'), 'r', sha256('d'), 'completed', now(), now() - interval '1 s', \
         now() + '1 day', null, null, 200, '{{}}', '{{}}', '')"
    )
}

#[test]
fn requests_are_shown_forgotten_and_pruned() {
    let rig = Rig::of(&["idempotency"]);
    let alice = ["--principal", "alice", "--route", "POST /orders", "--key", "k"];
    let with =
        |command: &'static str, more: &[&'static str]| [&[command], &alice[..], more].concat();
    let output = rig.run(&with("show", &[]));
    assert_eq!(output.status.code(), Some(3));
    let text = stderr(&output);
    assert!(text.contains("walpost migrate --set idempotency"), "{text}");
    let args = ["migrate", "--set", "idempotency", "--postgres", &rig.url];
    let output = walpost(&args, &[]);
    assert!(
        stdout(&output).starts_with("applied idempotency/0001_idempotency\n"),
        "{}",
        stderr(&output)
    );
    assert_eq!(rig.run(&with("show", &[])).status.code(), Some(5));
    let key = walpost_idempotency::Key::new("k").unwrap();
    let scope = walpost_idempotency::Scope::principal_and_route("alice", "POST /orders");
    rig.sql(&requests(&walpost_idempotency::Lookup::new(&scope, &key).to_string()));

    let shown = &rig.json(&with("show", &[]))[0];
    assert_eq!((&shown["status"], &shown["response_status"]), (&"completed".into(), &201.into()));
    assert!(!stdout(&rig.run(&with("show", &[]))).contains("4242"));
    let shown = &rig.json(&["show", "--lookup", LOOKUP])[0];
    assert_eq!(
        (&shown["recovery_point"], &shown["is_abandoned"]),
        (&"charged".into(), &false.into())
    );
    assert_eq!(rig.run(&["show"]).status.code(), Some(2));
    assert_eq!(rig.run(&["show", "--key", "k"]).status.code(), Some(2));

    assert_eq!(rig.run(&["purge", "--lookup", LOOKUP, "--yes"]).status.code(), Some(5), "it runs");
    let output = rig.run(&with("purge", &[]));
    let text = stdout(&output);
    assert_eq!(text, "one request would be forgotten\nnothing was done; --yes does it\n");
    assert_eq!(rig.json(&with("purge", &["--yes"]))[0]["done"], true);
    assert_eq!(rig.run(&with("purge", &["--yes"])).status.code(), Some(5));

    let text = stdout(&rig.run(&["purge"]));
    assert_eq!(text, "1 responses and 1 rows would leave\nnothing was done; --yes does it\n");
    let purged = &rig.json(&["purge", "--yes"])[0];
    assert_eq!((&purged["responses"], &purged["rows"]), (&1.into(), &1.into()));
    assert_eq!(rig.sql("select count(*) from walpost.idempotency"), "2");
}
