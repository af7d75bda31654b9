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

/// Row 7 of two tables: one delivered, one parked; and a delivery of a table that is dropped.
const EQUAL_IDS: &str = "create table public.ord (id bigint primary key, xid xid8 not null \
        default pg_current_xact_id()); create table public.bill (like public.ord including all); \
    create table public.gone (id bigint); \
    insert into public.ord values (7); insert into public.bill values (7); \
    insert into walpost.id_space (outbox, scope, only_walpost) values \
        ('ord', 'table', true), ('bill', 'table', true), ('gone', 'table', true); \
    insert into walpost.parked (pipeline, generation, commit_lsn, ordinal, source, event_id, \
        reason, id_space) \
        select 'main', 1, '0/1', 0, 'public.bill', '7', 'rejected', id from walpost.id_space \
        where outbox = 'bill'::regclass; \
    begin; set local session_replication_role = replica; \
    insert into walpost.webhook_delivery (destination, event_id, source, idempotency_key, body, \
        state, attempts, fence, next_attempt_at, finished_at, outcome) \
        select 'logistics', '7', id::text, id || ':7', 'b', state, 1, 1, null, now(), 'http_5xx' \
        from walpost.id_space join (values ('ord', 'delivered'), ('gone', 'failed')) v (name, state) \
        on outbox = name::regclass; \
    commit; drop table public.gone";

#[test]
fn events_of_equal_ids_of_several_tables_are_told_apart() {
    let rig = rig();
    rig.sql(EQUAL_IDS);
    let set = [&WEBHOOK[..], &["--set", "pipeline.tables=public.ord,public.bill"]].concat();
    let space = |name: &str| {
        let table = format!("select id from walpost.id_space where outbox = '{name}'::regclass");
        rig.sql(&table)
    };
    let gone = "select id from walpost.id_space s \
                where not exists (select from pg_class c where c.oid = s.outbox)";
    let (ord, bill, gone) = (space("ord"), space("bill"), rig.sql(gone));
    let found = rig.json(&[&["--event", "7"], &set[..]].concat());
    let listed = found.iter().map(|one| {
        let sources = one["deliveries"].as_array().unwrap().iter().map(|one| &one["source"]);
        (&one["table"], &one["source"], &one["state"], sources.collect::<Vec<_>>())
    });
    let [ord, bill, gone, null, delivered, parked, failed, of_ord, of_bill] =
        [&*ord, &bill, &gone, "", "delivered", "parked", "failed", "public.ord", "public.bill"]
            .map(|text| if text.is_empty() { Value::Null } else { Value::from(text) });
    let expected = [
        (&of_ord, &ord, &delivered, vec![&ord]),
        (&of_bill, &bill, &parked, vec![]),
        (&null, &gone, &failed, vec![&gone]),
    ];
    assert_eq!(listed.collect::<Vec<_>>(), expected, "{found:?}");
    let text = stdout(&rig.run(&[&["--event", "7"], &set[..]].concat()));
    assert_eq!(text.matches("event     7\n").count(), 3, "{text}");
    assert!(text.contains(&format!("source    {}", bill.as_str().unwrap())), "{text}");
    // Of one table: deliveries of no other table that is known are its own.
    let of_topic = "begin; set local session_replication_role = replica; \
                    update walpost.webhook_delivery set source = 'orders' where event_id = '7' \
                    and state = 'delivered'; commit";
    rig.sql(of_topic);
    let one = [&WEBHOOK[..], &["--set", "pipeline.tables=public.ord"]].concat();
    rig.sql("delete from walpost.parked");
    let found = rig.json(&[&["--event", "7"], &one[..]].concat());
    let states: Vec<&Value> = found.iter().map(|one| &one["state"]).collect();
    assert_eq!(states, [&delivered, &failed], "{found:?}");
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
