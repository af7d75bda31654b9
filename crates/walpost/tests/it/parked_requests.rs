//! What a command asks of the relay, and what it says about the answer. A
//! trigger stands for the relay.

use std::process::Output;

use serde_json::Value;
use walpost_local::Postgres;

use crate::cli::{stderr, stdout, walpost};

/// Two heads with one behind the first, one of which nothing is left, and one
/// that was sent on.
const PARKED: &str = r#"
insert into walpost.parked (pipeline, generation, commit_lsn, ordinal, source, aggregate_type,
    aggregate_id, reason, detail, state, topic, record_headers)
values
    ('shop', 1, '0/A', 0, 's', 'order', 'a', 'rejected', 'refused', 'open', 't', '[]'),
    ('shop', 1, '0/B', 0, 's', 'order', 'a', 'behind', 'waits', 'open', 't', '[]'),
    ('shop', 1, '0/C', 0, 's', 'order', 'b/c', 'unroutable', 'no type', 'open', 't', '[]'),
    ('shop', 1, '0/D', 0, 's', 'order', 'd', 'oversize', 'large', 'open', null, null),
    ('shop', 1, '0/E', 0, 's', 'order', 'e', 'rejected', 'refused', 'done', 't', '[]');
"#;

/// Does as it is asked at once, but refuses event 3 again; who waits behind the
/// first follows it.
const RELAY: &str = r#"
create function relay() returns trigger language plpgsql as $$
begin
    if new.requested is null then return new; end if;
    new.state := case when new.requested = 'discard' then 'discarded'
        when new.id = 3 then 'open' else 'done' end;
    if new.id = 3 then new.detail := E'refused\x1b again'; end if;
    if new.id = 1 then update walpost.parked set state = 'done' where id = 2; end if;
    new.requested := null;
    return new;
end $$;
create trigger relay before update on walpost.parked for each row execute function relay();
"#;

struct Rig {
    postgres: Postgres,
    url: String,
}

impl Rig {
    fn new() -> Self {
        let postgres = Postgres::builder().throwaway().start().unwrap();
        let url = postgres.url("postgres");
        assert!(walpost(&["migrate", "--postgres", &url], &[]).status.success());
        postgres.psql("postgres", PARKED).unwrap();
        Self { postgres, url }
    }

    fn run(&self, args: &[&str]) -> Output {
        walpost(&[&["parked"], args, &["--postgres", &self.url]].concat(), &[])
    }

    /// Numbers of those that something is asked for.
    fn requested(&self) -> String {
        let sql = "select coalesce(string_agg(id || ' ' || requested, ', ' order by id), '') \
                   from walpost.parked where requested is not null";
        self.postgres.psql("postgres", sql).unwrap().trim().to_owned()
    }
}

#[test]
fn what_cannot_be_asked_for_is_refused_with_what_to_do_and_nothing_is_asked() {
    let rig = Rig::new();
    let refused = |args: &[&str], code: i32, text: &str, next_step: &str| {
        let output = rig.run(args);
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(text) && told.contains(next_step), "{told}");
        assert_eq!(rig.requested(), "", "{args:?}");
    };
    refused(&["retry"], 2, "required", "");
    refused(&["retry", "1", "--all"], 2, "cannot be used with", "");
    refused(&["retry", "--aggregate", "order"], 2, "an aggregate is TYPE/ID", "");
    refused(&["retry", "1", "9"], 1, "no parked event has number 9", "parked list --all");
    refused(&["retry", "2"], 1, "event 2 waits behind event 1", "retry or discard 1");
    refused(&["retry", "4"], 1, "nothing of the contents of event 4", "parked discard 4");
    refused(&["retry", "4"], 1, "nothing of the contents of event 4", "retry --from-table 4");
    refused(&["retry", "5"], 1, "event 5 was sent on already", "parked list");
    refused(&["discard", "1", "5"], 1, "event 5 was sent on already", "parked list");
    refused(&["discard", "--all"], 2, "needs --yes", "--dry-run");
    refused(&["retry", "--all", "--reason", "behind"], 2, "by themselves", "that they wait for");
}

#[test]
fn without_a_relay_the_request_stands_and_the_command_says_so() {
    let rig = Rig::new();
    let output = rig.run(&["retry", "--all", "--dry-run"]);
    assert!(output.status.success());
    assert_eq!(stdout(&output), "would retry 2 events: 1, 3\n");
    assert_eq!(rig.requested(), "");

    let output = rig.run(&["retry", "--all", "--from-table", "--dry-run"]);
    assert_eq!(stdout(&output), "would retry 3 events: 1, 3, 4\n");

    let output = rig.run(&["retry", "--all", "--wait-seconds", "0"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(rig.requested(), "1 retry, 3 retry");
    let output = rig.run(&["retry", "1", "2", "--wait-seconds", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(
        told.contains("asked the relay of shop to retry 2 events; waiting up to 1 s"),
        "{told}"
    );
    assert!(told.contains("2 events not dealt with in time: 1, 2"), "{told}");
    assert!(told.contains("the request stands") && told.contains("walpost status"), "{told}");
    assert_eq!(stdout(&output).matches("waiting").count(), 2);
    assert_eq!(rig.requested(), "1 retry, 3 retry", "what waits has no request of its own");

    let args = ["discard", "--aggregate", "order/a", "--yes", "--wait-seconds", "0"];
    assert!(rig.run(&args).status.success());
    assert_eq!(rig.requested(), "1 discard, 2 discard, 3 retry");
    let output = rig.run(&["discard", "--all", "--limit", "1", "--dry-run"]);
    assert_eq!(stdout(&output), "would discard 1 event: 1\n");
    assert!(stderr(&output).contains("more than 1"));
    let output = rig.run(&["retry", "--all", "--pipeline", "other"]);
    assert_eq!(stdout(&output), "nothing of the kind is parked\n");
}

#[test]
fn the_answer_of_the_relay_is_told_for_each_event() {
    let rig = Rig::new();
    rig.postgres.psql("postgres", RELAY).unwrap();
    let output = rig.run(&["retry", "1", "2", "3"]);
    assert_eq!(output.status.code(), Some(1));
    let (table, told) = (stdout(&output), stderr(&output));
    for line in [
        "1   published     -           -",
        "2   published     -           -",
        r"3   parked again  unroutable  refused\u{1b} again",
    ] {
        assert!(table.contains(line), "{line}: {table}");
    }
    assert!(
        told.contains("1 event parked again: 3") && told.contains("parked discard 3"),
        "{told}"
    );

    let args = ["retry", "--aggregate", "order/b/c", "--json"];
    let output = rig.run(&args);
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&answer["id"], &answer["outcome"]), (&3.into(), &"parked again".into()));
    assert_eq!(answer["detail"], "refused\u{1b} again");

    let output = rig.run(&["discard", "--all", "--reason", "oversize", "--yes"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("4   discarded"), "{}", stdout(&output));
}
