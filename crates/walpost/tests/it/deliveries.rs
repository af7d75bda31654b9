//! What `walpost status` says of events that are sent as webhooks, and to whom.

use serde_json::Value;

use crate::{
    cli::{stderr, stdout, walpost},
    rig::Rig,
    rows::PIPELINE,
    webhook::DELIVERIES,
};

const WEBHOOK: [&str; 2] = ["--set", "sink.kind=webhook"];
const ID: &str = "aaaaaaaa-0000-0000-0000-00000000000a";

/// With one delivery in each state, of `evt_1` to `evt_7`.
fn rig() -> Rig {
    let rig = Rig::of(&["status"]);
    let output = walpost(&[&["migrate", "--postgres", &rig.url], &WEBHOOK[..]].concat(), &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    rig.sql(DELIVERIES);
    rig
}

fn event(rig: &Rig, id: &str) -> Value {
    let mut all = rig.json(&[&["--event", id], &WEBHOOK[..]].concat());
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn an_event_that_is_sent_as_a_webhook_is_as_far_as_its_deliveries() {
    let rig = rig();
    for (id, state, delivery) in [
        ("evt_1", "undelivered", "pending"),
        ("evt_2", "undelivered", "sending"),
        ("evt_3", "delivered", "delivered"),
        ("evt_4", "failed", "failed"),
        ("evt_5", "undelivered", "held"),
        ("evt_6", "undelivered", "unknown"),
    ] {
        let found = event(&rig, id);
        assert_eq!(found["state"], state, "{found}");
        assert_eq!(found["deliveries"][0]["state"], delivery, "{found}");
        assert_eq!(found["deliveries"][0]["destination"], "logistics", "{found}");
    }
    let text = stdout(&rig.run(&[&["--event", "evt_4"], &WEBHOOK[..]].concat()));
    assert!(text.contains("detail    its deliveries: 1 failed; `walpost webhook show"), "{text}");
    assert!(text.contains(" 4  failed  logistics    paid  evt_4"), "{text}");
    let output = rig.run(&[&["--event", "evt_9"], &WEBHOOK[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("nor has it a delivery"), "{}", stdout(&output));

    // A row that is proven says nothing of what became of its deliveries.
    let row = format!(
        "insert into walpost.outbox (id, aggregatetype, aggregateid, type) \
         values ('{ID}', 'invoice', '1', 'paid')"
    );
    rig.sql(&row);
    rig.sql(PIPELINE);
    let found = event(&rig, ID);
    assert_eq!(
        (&found["state"], &found["deliveries"]),
        (&"published".into(), &Value::Array(vec![]))
    );
    assert!(found["detail"].as_str().unwrap().contains("it has no delivery"), "{found}");
    let of_it = format!(
        "begin; set local session_replication_role = replica; \
         update walpost.webhook_delivery set event_id = '{ID}', destination = 'to ' || id \
         where id in (3, 4); commit"
    );
    rig.sql(&of_it);
    // Under another text of the same id.
    let found = event(&rig, &ID.to_uppercase());
    assert_eq!((&found["state"], &found["place"]), (&"failed".into(), &"walpost.outbox".into()));
    assert_eq!(found["deliveries"].as_array().unwrap().len(), 2, "{found}");
    assert!(found["detail"].as_str().unwrap().contains("1 delivered, 1 failed"), "{found}");
    // Where events go to topics nothing of it is asked.
    let found = &rig.json(&["--event", ID])[0];
    assert_eq!((&found["state"], &found["deliveries"]), (&"published".into(), &Value::Null));
}

#[test]
fn what_failed_is_held_or_unknown_has_its_line() {
    let rig = rig();
    let text = stdout(&rig.run(&WEBHOOK));
    assert!(
        text.contains("deliveries 1 failed, 1 held, 2 unknown; `walpost webhook list`"),
        "{text}"
    );
    let found = &rig.json(&WEBHOOK)[0]["deliveries"];
    assert_eq!((&found["failed"], &found["unknown"]), (&1.into(), &2.into()));
    rig.sql("delete from walpost.webhook_attempt; truncate walpost.webhook_delivery cascade");
    let text = stdout(&rig.run(&[]));
    assert!(text.contains("deliveries none failed, held or unknown\n"), "{text}");
    rig.sql("drop table walpost.webhook_delivery cascade");
    assert!(!stdout(&rig.run(&[])).contains("deliveries"), "no tables of them");
}

/// What stands between the backticks of a next step.
fn statement(text: &str) -> String {
    let step = text.split("next step: ").nth(1).unwrap_or_else(|| panic!("{text}"));
    step.split('`').nth(1).unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn the_grants_that_are_told_are_enough_and_open_no_payload() {
    let rig = rig();
    rig.sql(PIPELINE);
    rig.sql(&format!(
        "insert into walpost.outbox (id, aggregatetype, aggregateid, type, payload) \
         values ('{ID}', 'invoice', '1', 'paid', '{{}}'); create role \"support\" login"
    ));
    let url = rig.url.replace("postgres@", "support@").replace("user=postgres", "user=support");
    assert_ne!(url, rig.url);
    let run = |args: &[&str]| walpost(&[args, &WEBHOOK, &["--postgres", &url]].concat(), &[]);
    for args in [&["status"][..], &["status", "--event", ID], &["parked", "list"]] {
        let output = run(args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {text}");
        assert!(!text.contains("all tables"), "{text}");
        let mut grants = statement(&text);
        if args.contains(&"--event") {
            // Of the deliveries it is asked behind that.
            rig.sql(&grants);
            let text = stderr(&run(args));
            assert!(text.contains("webhook_grant('reader', 'support')"), "{text}");
            grants = "select walpost.webhook_grant('reader', 'support')".to_owned();
        }
        rig.sql(&grants);
        let output = run(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        if args == ["status"] {
            let text = stdout(&output);
            let told = "deliveries not known: reading destinations was refused";
            assert!(text.contains(told) && text.contains("'reader', 'support')"), "{text}");
        }
    }
    assert!(stdout(&run(&["status"])).contains("deliveries 1 failed"), "granted meanwhile");

    let may_read = "select count(*) from information_schema.column_privileges \
                    where grantee = 'support' and column_name in ('payload', 'headers', 'body', \
                    'response', 'record_key', 'record_value', 'record_headers', 'row_columns', \
                    'message_content')";
    assert_eq!(rig.sql(may_read), "0");
    let output = run(&["webhook", "show", "4", "--payload"]);
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    assert!(stderr(&output).contains("webhook_grant('sender', 'support')"), "{}", stderr(&output));
    let set = ["--set", "destination.a.url=https://a.example/hooks"];
    let output = run(&[&["check"], &set[..]].concat());
    let text = stdout(&output);
    assert!(text.contains("webhook_grant('writer', 'support')"), "{text}");
}

#[test]
fn what_waits_for_a_destination_that_is_not_configured_is_told_and_can_be_given_up() {
    let rig = rig();
    let set = [&WEBHOOK[..], &["--set", "destination.freight.url=https://a.example/hooks"]];
    let set = set.concat();
    let run = |args: &[&str]| walpost(&[args, &set, &["--postgres", &rig.url]].concat(), &[]);
    let text = stdout(&run(&["check"]));
    let row = "logistics: not configured here, and 1 pending and 1 held for it wait";
    assert!(text.contains(row) && text.contains("warn  Webhooks"), "{text}");
    assert!(text.contains("webhook settle ID --failed"), "{text}");
    let output = run(&["webhook", "list"]);
    assert!(stdout(&output).contains("logistics    not configured"), "{}", stdout(&output));
    let note = "logistics is no destination of this configuration, so nothing sends";
    assert!(stderr(&output).contains(note), "{}", stderr(&output));
    let listed = stdout(&run(&["webhook", "list", "--json"]));
    assert!(listed.contains("\"configured\":false"), "{listed}");
    for args in [&["list", "--destination", "logistics"][..], &["retry", "4"]] {
        let output = run(&[&["webhook"], args].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(note), "{args:?}: {}", stderr(&output));
    }
    let output = run(&["webhook", "settle", "1", "2", "4", "--failed"]);
    assert_eq!(stdout(&output), "failed, as you say: delivery 1, 4\n");
    let text = stderr(&output);
    assert!(text.contains("2 is sending, not unknown, pending, held or failed"), "{text}");
    // Where it is configured, or nobody knows who is, nothing of it is said.
    let same = [&WEBHOOK[..], &["--set", "destination.logistics.url=https://a.example/hooks"]];
    for args in [&same.concat()[..], &[]] {
        let all = [&["webhook", "list", "--postgres", &rig.url], args].concat();
        let output = walpost(&all, &[]);
        assert!(stdout(&output).contains("logistics    active"), "{}", stdout(&output));
        assert!(!stderr(&output).contains("no destination"), "{}", stderr(&output));
    }
}

#[test]
fn a_retry_for_a_disabled_destination_says_that_it_is_held_again() {
    let rig = rig();
    let url = &*rig.url;
    let hold = ["webhook", "hold", "logistics", "--reason", "moves", "--postgres", url];
    assert!(walpost(&hold, &[]).status.success());
    let output = walpost(&["webhook", "retry", "4", "--postgres", url], &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.contains("logistics is disabled, so what is for it is held again"), "{text}");
    assert!(text.contains("`walpost webhook resume logistics`"), "{text}");
}
