//! What an operator is told of rows: where an event is, which may leave, and
//! what a lost slot has not brought.

use std::process::Output;

use serde_json::Value;
use walpost_local::Postgres;

use crate::cli::{stderr, stdout, walpost};

/// A pipeline that has proven the rows that were there, and no slot.
pub(crate) const PIPELINE: &str = r#"
insert into walpost.checkpoint (pipeline, token, generation, system_id, timeline, slot,
    confirmed_lsn, initial, tables, relations, proven)
select 'main', gen_random_uuid(), 1, system_identifier::text, 1, 'walpost_main', '0/A', 'done',
    array['"walpost"."outbox"'], jsonb_build_object('tables', jsonb_build_object(
        '"walpost"."outbox"', 'walpost.outbox'::regclass::oid::int8), 'parts', jsonb_build_object(
        'walpost.outbox'::regclass::oid::text, '{}'::jsonb) || coalesce((
            select jsonb_object_agg(relid::oid::text, '{}'::jsonb)
            from pg_partition_tree('walpost.outbox')), '{}'), 'was_unlogged', false),
    jsonb_build_object('snapshot', pg_current_snapshot()::text,
        'lsn', '0/A', 'floors', '{}'::jsonb, 'taken_at', extract(epoch from now())::int8 - 5400)
from pg_control_system();
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
        Self { postgres, url }
    }

    fn sql(&self, sql: &str) -> String {
        self.postgres.psql("postgres", sql).unwrap().trim().to_owned()
    }

    /// Inserts an event of a month ago; its id.
    fn event(&self, number: u32) -> String {
        let id = format!("00000000-0000-0000-0000-{number:012}");
        self.sql(&format!(
            "insert into walpost.outbox (id, aggregatetype, aggregateid, type, created_at) \
             values ('{id}', 'order', 'a', 'Placed', now() - interval '30 days')"
        ));
        id
    }

    fn run(&self, args: &[&str]) -> Output {
        walpost(&[args, &["--postgres", &self.url]].concat(), &[])
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        serde_json::from_str(&stdout(&output)).unwrap()
    }

    fn state(&self, id: &str) -> String {
        self.json(&["status", "--event", id])["state"].as_str().unwrap().to_owned()
    }
}

#[test]
fn where_an_event_is_and_what_cannot_be_known() {
    let rig = Rig::new();
    let (published, archived, parked) = (rig.event(1), rig.event(2), rig.event(3));
    rig.sql(
        "insert into walpost.outbox_archive select * from walpost.outbox where id::text \
             like '%2'; delete from walpost.outbox where id::text like '%2'",
    );
    assert_eq!(rig.state(&published), "pending", "no pipeline has run");
    rig.sql(PIPELINE);
    let pending = rig.event(4);
    let park = |state: &str| {
        rig.sql(&format!(
            "delete from walpost.parked; insert into walpost.parked (pipeline, generation, \
             commit_lsn, ordinal, source, event_id, reason, state) \
             values ('main', 1, '0/1', 0, 's', '{parked}', 'rejected', '{state}')"
        ))
    };
    for (state, expected) in [("open", "parked"), ("discarded", "discarded"), ("done", "published")]
    {
        park(state);
        assert_eq!(rig.state(&parked), expected);
    }
    assert_eq!(rig.state(&published), "published");
    assert_eq!(rig.state(&archived), "published");
    assert_eq!(rig.state(&pending), "pending");
    let output = rig.run(&["status", "--event", &pending]);
    assert!(stdout(&output).contains("not proven to be published yet"), "{}", stdout(&output));
    for unknown in ["00000000-0000-0000-0000-000000000009", "no uuid", "'; drop table x"] {
        let output = rig.run(&["status", "--event", unknown]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(text.contains("unknown") && text.contains("pg_logical_emit_message"), "{text}");
    }
    rig.sql("alter table walpost.outbox drop column xid");
    assert_eq!(rig.state(&pending), "pending");
    let status = stdout(&rig.run(&["status"]));
    assert!(status.contains("proven (main) every row of 1 h 3"), "{status}");
}

#[test]
fn rows_are_counted_and_leave_on_request_alone() {
    let rig = Rig::new();
    for number in 0..3 {
        rig.event(number);
    }
    let output = rig.run(&["prune", "--yes"]);
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    assert!(stderr(&output).contains("no pipeline has read"), "{}", stderr(&output));
    rig.sql(PIPELINE);
    rig.event(3);
    let output = rig.run(&["prune"]);
    let text = stdout(&output);
    assert!(
        text.contains("walpost.outbox          3                   1               0"),
        "{text}"
    );
    assert!(text.ends_with("nothing was done; --yes does it\n"), "{text}");
    let counted = rig.json(&["prune"]);
    assert_eq!((&counted["done"], &counted["tables"][0]["rows"]), (&false.into(), &3.into()));
    assert_eq!(rig.sql("select count(*) from walpost.outbox"), "4");
    let output = rig.run(&["prune", "--yes", "--set", "retention.keep_days=2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("it is at least 7"), "{}", stderr(&output));
    let archive = ["--set", "retention.archive_days=30", "--set", "retention.batch_rows=2"];
    let done = rig.json(&[&["prune", "--yes"], &archive[..]].concat());
    assert_eq!((&done["done"], &done["tables"][0]["rows"]), (&true.into(), &3.into()));
    assert_eq!(rig.sql("select count(*) from walpost.outbox"), "1");
    assert_eq!(rig.sql("select count(*) from walpost.outbox_archive"), "3");
}

#[test]
fn a_lost_slot_is_told_and_its_recovery_asked_for() {
    let rig = Rig::new();
    let output = rig.run(&["slot", "recover"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("has no checkpoint"), "{}", stderr(&output));
    rig.event(0);
    rig.sql(PIPELINE);
    rig.event(1);
    let output = rig.run(&["slot", "recover"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(text.contains("slot walpost_main is lost (missing); published up to 0/A"), "{text}");
    assert!(text.ends_with("nothing was done; --yes has the next start do it\n"), "{text}");
    rig.sql("update walpost.checkpoint set has_messages = true");
    let output = rig.run(&["slot", "recover", "--yes"]);
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    assert!(stderr(&output).contains("--accept-lost-messages --yes"), "{}", stderr(&output));
    let requested = "select recovery_requested is not null from walpost.checkpoint";
    assert_eq!(rig.sql(requested), "f");
    let json = rig.json(&["slot", "recover", "--yes", "--accept-lost-messages"]);
    assert_eq!(json["rows_not_proven"]["walpost.outbox"], 1);
    assert_eq!((&json["requested"], &json["lost"]), (&true.into(), &"missing".into()));
    assert_eq!(rig.sql(requested), "t");
    let status = stdout(&rig.run(&["status"]));
    assert!(status.contains("; the next start replaces the slot\n"), "{status}");
}

/// Policies hide rows from those who look, and from nobody who would take them
/// for published.
#[test]
fn a_role_that_policies_hide_rows_from_may_look_and_is_told_so() {
    let rig = Rig::new();
    let id = rig.event(1);
    rig.sql(PIPELINE);
    rig.sql(
        "create role looker login; grant usage on schema walpost to looker; \
         grant all on all tables in schema walpost to looker; \
         create policy nobody on walpost.outbox using (false); \
         alter table walpost.outbox enable row level security",
    );
    let url = rig.url.replace("postgres@", "looker@").replace("user=postgres", "user=looker");
    assert_ne!(url, rig.url);
    let as_looker = |args: &[&str]| walpost(&[args, &["--postgres", &url]].concat(), &[]);
    let output = as_looker(&["status"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let output = as_looker(&["status", "--event", &id]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("row level security hides"), "{}", stdout(&output));
    for args in [&["prune"][..], &["prune", "--yes"], &["slot", "recover"]] {
        let output = as_looker(args);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {}", stdout(&output));
        let told = stderr(&output);
        assert!(told.contains("row level security hides rows"), "{told}");
        assert!(told.contains("next step: give the role BYPASSRLS"), "{told}");
    }
    assert_eq!(rig.state(&id), "published");
}

#[test]
#[ignore = "deep: takes long"]
fn an_event_is_found_by_an_id_that_its_column_prints_otherwise() {
    for (kind, inserted, parked, asked, other) in [
        ("char(12)", "two", "two         ", "two", "two and many more"),
        ("uuid", UUID, UUID, "AAAAAAAA-0000-0000-0000-00000000000A", "aaaaaaaa"),
        ("numeric(5, 2)", "7", "7.00", "7", "7.001"),
    ] {
        let rig = Rig::new();
        rig.sql(&format!(
            "alter table walpost.outbox alter id drop default, alter id type {kind} using null; \
             insert into walpost.outbox (id, aggregatetype, aggregateid, type) \
             values ('{inserted}', 'order', 'a', 'Placed')"
        ));
        rig.sql(PIPELINE);
        assert_eq!(rig.state(asked), "published", "{kind}");
        rig.sql(&format!(
            "insert into walpost.parked (pipeline, generation, commit_lsn, ordinal, source, \
             event_id, reason, state) values ('main', 1, '0/1', 0, 'walpost.outbox', '{parked}', \
             'rejected', 'discarded')"
        ));
        assert_eq!(rig.state(asked), "discarded", "{kind}");
        assert_eq!(rig.state(other), "unknown", "{kind}");
    }
}

const UUID: &str = "aaaaaaaa-0000-0000-0000-00000000000a";

#[test]
fn a_part_that_cannot_leave_keeps_no_other_and_is_told_at_the_end() {
    let rig = Rig::new();
    rig.event(1);
    rig.sql(
        "alter table walpost.outbox alter aggregateid drop not null; \
         update walpost.outbox set aggregateid = null",
    );
    rig.sql(PIPELINE);
    rig.sql(
        "insert into walpost.parked (pipeline, generation, commit_lsn, ordinal, source, event_id, \
         reason, state, updated_at) select 'main', 1, '0/1', n, 'walpost.outbox', \
         gen_random_uuid(), 'rejected', 'done', now() - interval '90 days' \
         from generate_series(1, 2) n",
    );
    let archive = ["prune", "--yes", "--set", "retention.archive_days=30"];
    let output = rig.run(&archive);
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    let told = stderr(&output);
    assert!(told.contains("has a null in column \"aggregateid\""), "{told}");
    let statement = "alter table \"walpost\".\"outbox_archive\" alter column \"aggregateid\" \
                     drop not null";
    assert!(told.contains(&format!("next step: run `{statement}`")), "{told}");
    let done = stdout(&output);
    assert!(done.contains("parked events settled 30 days ago: 2 deleted"), "{done}");
    rig.sql(statement);
    let output = rig.run(&archive);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(rig.sql("select count(*) from walpost.outbox_archive"), "1");
}
