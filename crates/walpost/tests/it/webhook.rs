//! Webhooks that are sent: looked at, decided about, held, let go, pruned.

use serde_json::{Value, json};

use crate::{
    cli::{stderr, stdout, walpost},
    rig::Rig,
};

/// Past the triggers, as processors would leave it after `$` months.
pub(crate) const DELIVERIES: &str = r#"
begin;
set local session_replication_role = replica;
insert into walpost.webhook_delivery (destination, event_id, event_type, idempotency_key, body,
    created_at, state, attempts, fence, next_attempt_at, lease_until, finished_at, outcome)
select 'logistics', 'evt_' || n, 'paid', 'key_' || n, convert_to('{"card": "4242"}', 'utf8'),
    now() - interval '1 hour', state, 1, 1,
    case when state = 'pending' then now() + interval '1 hour' end,
    case when state = 'sending' then now() + interval '1 hour' end,
    case when state in ('delivered', 'failed') then now() end, 'http_5xx'
from unnest(array['pending', 'sending', 'delivered', 'failed', 'held', 'unknown', 'unknown'])
    with ordinality as t (state, n);
insert into walpost.webhook_attempt (delivery, number, outcome, status, elapsed_ms, response)
select id, 1, 'http_5xx', 503, 12, 'card 4242 refused' from walpost.webhook_delivery
where state not in ('sending', 'delivered');
insert into walpost.webhook_destination (name) values ('logistics');
commit;
"#;

fn rig() -> Rig {
    let rig = Rig::of(&["webhook"]);
    let args = ["migrate", "--set", "webhook", "--postgres", &rig.url];
    let output = walpost(&args, &[]);
    assert!(stdout(&output).starts_with("applied webhook/0001_webhook\n"), "{}", stderr(&output));
    rig
}

fn states(rig: &Rig, state: &str) -> String {
    rig.sql(&format!("select count(*) from walpost.webhook_delivery where state = '{state}'"))
}

fn ids(lines: &[Value]) -> Vec<u64> {
    lines.iter().map(|line| line["id"].as_u64().unwrap()).collect()
}

#[test]
#[ignore = "deep: takes long"]
fn destinations_and_deliveries_are_listed_and_shown() {
    let rig = Rig::of(&["webhook"]);
    let output = rig.run(&["list"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("walpost migrate --set webhook"), "{}", stderr(&output));
    let rig = self::rig();
    assert!(stdout(&rig.run(&["list"])).contains("there is no destination"));
    rig.sql(DELIVERIES);

    let output = rig.run(&["list"]);
    let (text, notes) = (stdout(&output), stderr(&output));
    let row = text.lines().nth(1).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..8], ["logistics", "active", "1", "1", "1", "1", "1", "2"], "{text}");
    assert!(row.contains("1 h 0 min") && row.contains("http_5xx 503 at 2"), "{text}");
    assert!(notes.contains("nobody knows whether 2 to logistics arrived"), "{notes}");
    assert!(notes.contains("`walpost webhook resume logistics` lets them go"), "{notes}");
    let listed = &rig.json(&["list"])[0];
    assert_eq!((&listed["failed"], &listed["unknown"]), (&1.into(), &2.into()));
    assert_eq!((&listed["last_error_status"], &listed["delivered_24h"]), (&503.into(), &1.into()));
    rig.sql("update walpost.webhook_destination set breaker_open_until = now() + interval '1 h'");
    let output = rig.run(&["list"]);
    assert!(stdout(&output).contains("logistics    breaker open"), "{}", stdout(&output));
    assert!(stderr(&output).contains("nothing but probes is sent until"), "{}", stderr(&output));
    // What a sender noted that was killed ends by itself.
    rig.sql("update walpost.webhook_destination set breaker_open_until = now()");
    assert!(stdout(&rig.run(&["list"])).contains("logistics    active"));

    assert_eq!(ids(&rig.json(&["list", "--destination", "logistics"])), [1, 2, 4, 5, 6, 7]);
    assert_eq!(ids(&rig.json(&["list", "--state", "failed", "--state", "delivered"])), [3, 4]);
    assert_eq!(ids(&rig.json(&["list", "--event", "evt_3"])), [3]);
    let output = rig.run(&["list", "--destination", "logistic"]);
    assert_eq!(output.status.code(), Some(5), "{}", stdout(&output));
    let text = stderr(&output);
    assert!(text.contains("there is no destination \"logistic\""), "{text}");
    assert!(text.contains("name one of these: logistics"), "{text}");
    // A part of an id is none.
    let output = rig.run(&["list", "--event", "evt_"]);
    assert_eq!(output.status.code(), Some(5), "{}", stdout(&output));
    let text = stderr(&output);
    assert!(text.contains("no delivery of the kind") && text.contains("whole id"), "{text}");
    let text = stdout(&rig.run(&["list", "--state", "failed"]));
    assert!(text.contains("http_5xx 503"), "{text}");
    assert_eq!(rig.json(&["list", "--state", "failed"])[0]["status"], 503);
    assert_eq!(ids(&rig.json(&["list", "--newest", "--limit", "2"])), [7, 6]);
    let output = rig.run(&["list", "--limit", "1"]);
    let text = stdout(&output);
    assert!(text.contains(" 1  pending  logistics    paid  evt_1"), "{text}");
    assert!(stderr(&output).contains("there are more"), "{}", stderr(&output));
    assert_eq!(rig.run(&["list", "--state", "lost"]).status.code(), Some(2));

    let text = stdout(&rig.run(&["show", "4"]));
    assert!(
        text.contains("idempotency_key  key_4") && text.contains("503  http_5xx  12"),
        "{text}"
    );
    let shown = &rig.json(&["show", "4"])[0];
    assert_eq!(shown["attempt_log"][0]["elapsed_ms"], 12);
    for args in [&["show", "4"][..], &["show", "4", "--json"], &["list", "--limit", "9"]] {
        assert!(!stdout(&rig.run(args)).contains("4242"), "{args:?}");
    }
    let shown = &rig.json(&["show", "4", "--payload", "--max-bytes", "8"])[0];
    assert_eq!((&shown["payload"], &shown["response"]), (&"{\"card\":".into(), &"card 424".into()));
    assert_eq!(rig.run(&["show", "99"]).status.code(), Some(5));
}

/// The second one waits for the first, the third has another key.
const IN_ORDER: &str = r#"
begin;
set local session_replication_role = replica;
insert into walpost.webhook_delivery (destination, event_id, idempotency_key, body, order_key,
    state, attempts, fence, next_attempt_at, finished_at, outcome, blocked_by)
select 'logistics', 'evt_' || n, 'key_' || n, 'b', key, state, attempts, attempts, next, ended,
    outcome, behind
from (values
    (1, 'order-1', 'failed', 8, null::timestamptz, now(), 'http_5xx', null::bigint),
    (2, 'order-1', 'pending', 0, 'infinity', null, null, 1),
    (3, 'order-2', 'pending', 0, now(), null, null, null)
) as t (n, key, state, attempts, next, ended, outcome, behind);
insert into walpost.webhook_destination (name, ordering) values ('logistics', 'key');
commit;
"#;

#[test]
fn what_is_blocked_says_by_which_delivery_and_goes_once_that_is_settled() {
    let rig = rig();
    rig.sql(IN_ORDER);
    let output = rig.run(&["list"]);
    assert!(stderr(&output).contains("1 to logistics wait for others"), "{}", stderr(&output));
    let listed = &rig.json(&["list"])[0];
    assert_eq!((&listed["pending"], &listed["blocked"]), (&2.into(), &1.into()));
    let text = stdout(&rig.run(&["list", "--destination", "logistics"]));
    let blocked: Vec<&str> = text.lines().filter(|line| line.contains("blocked by 1")).collect();
    assert!(blocked.len() == 1 && blocked[0].contains("evt_2"), "{text}");
    let shown = &rig.json(&["show", "2"])[0];
    assert_eq!((&shown["blocked_by"], &shown["order_key"]), (&1.into(), &"order-1".into()));
    assert!(shown["next_attempt_at"].is_null(), "{shown}");
    let settled = &rig.json(&["settle", "1", "--failed"])[0];
    assert_eq!(settled["done"], json!([1]));
    let shown = &rig.json(&["show", "2"])[0];
    assert!(shown["blocked_by"].is_null() && shown["next_attempt_at"].is_string(), "{shown}");
}

#[test]
fn deliveries_are_sent_again_and_settled() {
    let rig = rig();
    rig.sql(DELIVERIES);
    let output = rig.run(&["retry", "4", "3", "99"]);
    assert_eq!(stdout(&output), "will be sent again: delivery 4\n");
    let text = stderr(&output);
    assert!(text.contains("3 is delivered, not failed, held or unknown"), "{text}");
    assert!(text.contains("no delivery has the id 99"), "{text}");
    let row = "select state, attempts, idempotency_key, next_attempt_at <= now() \
               from walpost.webhook_delivery where id = 4";
    assert_eq!(rig.sql(row), "pending|0|key_4|t");
    assert_eq!(rig.run(&["retry", "4"]).status.code(), Some(5));

    let none = ["retry", "--destination", "logistics"];
    assert_eq!(rig.run(&none).status.code(), Some(5), "also without --yes");
    let unknown = ["retry", "--destination", "logistics", "--state", "unknown"];
    let output = rig.run(&unknown);
    assert_eq!(stdout(&output), "would be sent again: delivery 6, 7\n");
    assert!(stderr(&output).contains("--yes does it"), "{}", stderr(&output));
    assert_eq!(states(&rig, "unknown"), "2");
    for wrong in [
        &["retry"][..],
        &["retry", "--state", "failed"],
        &["retry", "4", "--all"],
        &["retry", "4", "--state", "failed"],
        &["retry", "--all", "--destination", "logistics"],
        &["retry", "--all", "--state", "delivered"],
        &["settle", "6"],
        &["settle", "6", "--delivered", "--failed"],
        &["settle", "--failed"],
    ] {
        assert_eq!(rig.run(wrong).status.code(), Some(2), "{wrong:?}");
    }
    let text = stderr(&rig.run(&["settle", "6"]));
    assert!(text.contains("--delivered") && text.contains("--failed"), "{text}");
    let output = rig.run(&["retry", "--destination", "shop"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).contains("name one of these: logistics"), "{}", stderr(&output));

    assert_eq!(
        stdout(&rig.run(&["settle", "6", "--delivered"])),
        "delivered, as you say: delivery 6\n"
    );
    let settled = &rig.json(&["settle", "6", "7", "--failed"])[0];
    assert_eq!(settled["done"], json!([7]));
    assert_eq!(settled["left"], json!([{ "id": 6, "state": "delivered" }]));
    assert_eq!((states(&rig, "delivered"), states(&rig, "failed")), ("2".into(), "1".into()));
    let retried =
        &rig.json(&["retry", "--all", "--state", "failed", "--state", "held", "--yes"])[0];
    assert_eq!(retried["done"], json!([5, 7]));
    assert_eq!(states(&rig, "pending"), "4");
}

#[test]
fn a_destination_is_held_and_let_go() {
    let rig = rig();
    rig.sql(DELIVERIES);
    let output = rig.run(&["hold", "logistic", "--reason", "moves"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).contains("name one of these: logistics"), "{}", stderr(&output));
    assert_eq!(rig.run(&["hold", "logistics"]).status.code(), Some(2), "no reason");
    assert_eq!(rig.run(&["hold", "logistics", "--reason", " "]).status.code(), Some(2));
    let held = &rig.json(&["hold", "logistics", "--reason", "moves house"])[0];
    assert_eq!((&held["done"], &held["reason"]), (&true.into(), &"moves house".into()));
    let text = stdout(&rig.run(&["hold", "logistics", "--reason", "other"]));
    assert!(text.contains("was disabled already: moves house, since 2"), "{text}");
    let notes = stderr(&rig.run(&["list"]));
    assert!(notes.contains("logistics is disabled since 2"), "{notes}");

    // What a processor does meanwhile.
    rig.sql(
        "update walpost.webhook_delivery set state = 'held', next_attempt_at = null \
         where state = 'pending'",
    );
    let resumed = &rig.json(&["resume", "logistics", "--batch-rows", "1"])[0];
    assert_eq!((&resumed["released"], &resumed["held"]), (&2.into(), &0.into()));
    assert_eq!((states(&rig, "held"), states(&rig, "pending")), ("0".into(), "2".into()));
    let text = stdout(&rig.run(&["resume", "logistics"]));
    assert_eq!(text, "logistics was enabled already; 0 were let go\n");
    let place = "select state, reason is null from walpost.webhook_destination";
    assert_eq!(rig.sql(place), "active|t");
}

#[test]
fn what_arrived_moves_to_the_archive_on_request() {
    let rig = rig();
    rig.sql(DELIVERIES);
    let aged = "begin; set local session_replication_role = replica; \
                update walpost.webhook_delivery set finished_at = now() - interval '31 days' \
                where finished_at is not null; commit";
    rig.sql(aged);
    let output = rig.run(&["prune"]);
    let text = stdout(&output);
    assert_eq!(text, "1 deliveries would move to the archive, 0 would be deleted from it\n");
    assert!(stderr(&output).contains("--yes does it"), "{}", stderr(&output));
    assert_eq!(states(&rig, "delivered"), "1");
    assert_eq!(
        rig.run(&["prune", "--archive-after-days", "31", "--delete-after-days", "30"])
            .status
            .code(),
        Some(2)
    );
    let pruned = &rig.json(&["prune", "--yes"])[0];
    assert_eq!((&pruned["archived"], &pruned["deleted"]), (&1.into(), &0.into()));
    assert_eq!(rig.sql("select count(*) from walpost.webhook_delivery"), "6");
    let shown = &rig.json(&["show", "3", "--payload"])[0];
    assert!(shown["archived_at"].is_string() && shown["payload"].is_null(), "{shown}");
    assert_eq!(ids(&rig.json(&["list", "--event", "evt_3"])), [3]);
    let text = stdout(&rig.run(&["prune", "--delete-after-days", "30", "--yes"]));
    assert_eq!(text, "0 deliveries have moved to the archive, 1 were deleted from it\n");
    assert_eq!(rig.run(&["show", "3"]).status.code(), Some(5));
}

/// Where nobody listens, and by a name that nobody has.
#[test]
fn one_request_is_sent_on_trial_and_its_failure_is_told() {
    let port = walpost_local::free_port().unwrap();
    let url = format!("destination.logistics.url=http://127.0.0.1:{port}/hooks");
    let sets = [
        "sink.kind=webhook",
        "destination.allow_http=true",
        "destination.allow_private_networks=true",
        &url,
    ];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
    let test = |more: &[&str]| walpost(&[&["webhook", "test"], more, &sets].concat(), &[]);
    let output = test(&["logistics"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("logistics: connect, not sent in "), "{}", stdout(&output));
    let output = test(&["logistics", "--json", "--key", "mine"]);
    let told: Value = serde_json::from_str(stdout(&output).lines().next().unwrap()).unwrap();
    assert_eq!((&told["outcome"], &told["idempotency_key"]), (&"connect".into(), &"mine".into()));
    // No variable has it go through somebody else.
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let variables = ["HTTP_PROXY", "http_proxy", "ALL_PROXY"].map(|name| (name, &*address));
    let output = walpost(&[&["webhook", "test", "logistics"][..], &sets].concat(), &variables);
    assert!(stdout(&output).contains("connect, not sent"), "{}", stdout(&output));
    assert!(proxy.accept().is_err(), "nobody came");
    let output = test(&["nobody"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    assert!(stderr(&output).contains("name one of these: logistics"), "{}", stderr(&output));
    let output = walpost(&["webhook", "test", "logistics"], &[]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn a_destination_without_a_url_is_told_by_its_key_alone() {
    let sets = ["--set", "sink.kind=webhook", "--set", "destination.logistics.events=paid"];
    let output =
        walpost(&[&["check", "--postgres", "postgres://app@h/db"], &sets[..]].concat(), &[]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.starts_with("error: destination.logistics.url is not set"), "{text}");
}
