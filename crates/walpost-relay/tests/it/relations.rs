//! A table is known by its object id: whatever it is called, its events are
//! published, and nothing counts as published that no stream could bring.
//!
//! Long because each way to change a table is tried on a relay that runs.

use std::time::Duration;

use walpost_relay::{Initial, LostSlot, Outcome, Phase, TableFilter, TableName, check, prunable};
use walpost_testkit::until;

use crate::{
    partitions::days,
    proven::proven,
    retention::{old, pruned, retention, run},
    rig::{Rig, SOON, phase, stop},
};

const ALL_TABLES: &str = "drop publication walpost; \
                          create publication walpost for all tables with (publish = 'insert')";

fn insert(table: &str, value: &str) -> String {
    format!(
        "insert into {table} (aggregatetype, aggregateid, type, payload) \
         values ('order', 'a', 'Placed', '{value}');"
    )
}

/// The error that ends a relay that streams.
async fn end(relay: &mut walpost_relay::RunningRelay) -> String {
    let ended = tokio::time::timeout(SOON, relay.finished()).await.expect("it ends");
    ended.unwrap_err().to_string()
}

fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
}

/// The rows that a row of the checkpoint calls proven.
async fn prunable_rows(rig: &Rig) -> (u64, u64) {
    let found = prunable(&rig.database, &rig.config, "id", &retention()).await.unwrap();
    (found[0].rows, found[0].not_proven)
}

#[tokio::test]
async fn rows_of_a_table_that_is_renamed_for_a_moment_are_published() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    let mut sql = "begin; alter table walpost.outbox rename to x;".to_owned();
    (0..10).for_each(|value| sql.push_str(&insert("walpost.x", &value.to_string())));
    sql.push_str("alter table walpost.x rename to outbox; commit");
    run(&rig, &sql).await;
    assert_eq!(rig.landed(10).await.len(), 10);
    // The same by another schema, in a transaction that is met by the next session.
    stop(relay).await;
    rig.released().await;
    let away = format!(
        "create schema other; begin; alter table walpost.outbox set schema other; {} \
         alter table other.outbox set schema walpost; commit",
        insert("other.outbox", "10")
    );
    run(&rig, &away).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["11"]).await;
    assert_eq!(rig.landed(12).await[10..], ["10", "11"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_table_that_is_renamed_under_load_goes_on_being_published() {
    let mut rig = Rig::new().await;
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    proven(&rig, 1).await;
    run(&rig, "alter table walpost.outbox rename to elsewhere").await;
    run(&rig, &insert("walpost.elsewhere", "2")).await;
    rig.landed(2).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    run(&rig, &insert("walpost.elsewhere", "3")).await;
    rig.landed(3).await;
    let (outcome, detail) = rig.checked("outbox table").await;
    assert_eq!(outcome, Outcome::Fail);
    contains(&detail, &["does not exist", "walpost.elsewhere"]);
    run(&rig, "alter table walpost.elsewhere rename to outbox").await;
    rig.insert("a", &["4"]).await;
    assert_eq!(rig.landed(4).await, ["1", "2", "3", "4"]);
    phase(&relay, &Phase::Streaming).await;
    assert_eq!(relay.status().borrow().failed_sessions, 0);
    proven(&rig, 4).await;
    stop(relay).await;
    rig.released().await;

    // For good, while nothing runs: the next start says how it is called.
    run(&rig, "alter table walpost.outbox rename to events").await;
    run(&rig, &insert("walpost.events", "5")).await;
    contains(&rig.refusal().await, &["does not exist", "walpost.events", "name that one"]);
    rig.config.tables = vec!["walpost.events".parse().unwrap()];
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(5).await[4..], ["5"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_view_in_the_place_of_the_table_ends_the_relay_and_loses_nothing() {
    let mut rig = Rig::new().await;
    run(&rig, ALL_TABLES).await;
    let mut relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    proven(&rig, 1).await;
    run(
        &rig,
        "begin; alter table walpost.outbox rename to outbox_v1; \
         create view walpost.outbox as select * from walpost.outbox_v1; commit",
    )
    .await;
    run(&rig, &insert("walpost.outbox", "2")).await;
    contains(&end(&mut relay).await, &["outbox is a view", "outbox_v1"]);
    let (outcome, detail) = rig.checked("rows of the tables").await;
    assert_eq!(outcome, Outcome::Fail);
    contains(&detail, &["is a view"]);
    rig.config.tables = vec!["walpost.outbox_v1".parse().unwrap()];
    rig.released().await;
    let relay = rig.streaming().await;
    run(&rig, &insert("walpost.outbox", "3")).await;
    assert_eq!(rig.landed(3).await, ["1", "2", "3"]);
    stop(relay).await;
}

#[tokio::test]
async fn another_table_under_the_name_has_to_be_decided_about() {
    let mut rig = Rig::new().await;
    run(&rig, ALL_TABLES).await;
    let mut relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    proven(&rig, 1).await;
    // It was filled while the stream had no reason to take its rows for events.
    let fill = format!(
        "create table walpost.next (like walpost.outbox including all); {}",
        insert("walpost.next", "2")
    );
    run(&rig, &fill).await;
    rig.insert("a", &["9"]).await;
    proven(&rig, 2).await;
    run(
        &rig,
        "begin; alter table walpost.outbox rename to before; \
         alter table walpost.next rename to outbox; commit",
    )
    .await;
    contains(&end(&mut relay).await, &["is another table than pipeline", "before"]);
    assert_eq!(prunable_rows(&rig).await.0, 0);
    rig.released().await;
    run(&rig, "drop table walpost.before").await;
    contains(&rig.refusal().await, &["is new to pipeline", "initial = \"skip\""]);
    rig.config.initial = Some(Initial::Skip);
    let relay = rig.streaming().await;
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.landed(3).await, ["1", "9", "3"]);
    stop(relay).await;
}

#[tokio::test]
async fn children_by_inheritance_are_refused_and_never_pruned() {
    let rig = Rig::new().await;
    let mut relay = rig.streaming().await;
    run(&rig, &old("a", "1")).await;
    proven(&rig, 1).await;
    assert_eq!(prunable_rows(&rig).await, (1, 0));
    // The first row of each has the same place in its table.
    run(&rig, "create table public.outbox_child (seq bigint default 1) inherits (walpost.outbox)")
        .await;
    run(&rig, &old("a", "2").replace("walpost.outbox", "public.outbox_child")).await;
    contains(&end(&mut relay).await, &["inherits from walpost.outbox", "no inherit"]);
    let (outcome, detail) = rig.checked("rows of the tables").await;
    assert_eq!(outcome, Outcome::Fail);
    contains(&detail, &["outbox_child"]);
    contains(&rig.refusal().await, &["inherits from"]);
    assert_eq!(pruned(&rig, &retention()).await.rows, 1);
    assert_eq!(rig.count("select count(*) from public.outbox_child").await, 1);
    run(&rig, "alter table public.outbox_child no inherit walpost.outbox").await;
    rig.released().await;
    let relay = rig.streaming().await;
    stop(relay).await;
}

/// A day, a month ago.
const DAY: &str = "for values from ('2026-01-01 00:00Z') to ('2026-01-02 00:00Z')";

/// A table of that day with so many rows, and the statement that attaches it.
fn filled(name: &str, day: &str, rows: u32) -> (String, String) {
    let make = format!(
        "create table walpost.{name} (like walpost.outbox including all excluding identity); \
         insert into walpost.{name} (aggregatetype, aggregateid, type, payload, created_at, seq) \
         select 'order', 'late', 'Placed', to_jsonb(n), '2026-01-{day} 12:00Z', n \
         from generate_series(1, {rows}) n;"
    );
    let next: u32 = day.parse::<u32>().unwrap() + 1;
    let attach = format!(
        "alter table walpost.outbox attach partition walpost.{name} \
         for values from ('2026-01-{day} 00:00Z') to ('2026-01-{next:02} 00:00Z');"
    );
    (make, attach)
}

#[tokio::test]
async fn rows_of_a_partition_that_is_attached_filled_are_not_proven() {
    let rig = days(walpost_testkit::postgres(), &[]).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["900"]).await;
    proven(&rig, 1).await;
    let (make, attach) = filled("one", "01", 3);
    run(&rig, &format!("begin; {make} {attach} commit")).await;
    // Made and filled long before: an earlier transaction has its rows.
    let (make, attach) = filled("two", "02", 2);
    run(&rig, &make).await;
    rig.insert("a", &["901"]).await;
    proven(&rig, 5).await;
    run(&rig, &attach).await;
    // Attached empty, and filled by the stream.
    let (make, attach) = filled("three", "03", 0);
    run(&rig, &make).await;
    run(&rig, &attach).await;
    let noted = "select count(*) from walpost.checkpoint, jsonb_object_keys(relations -> 'parts') \
                 part where part::oid = 'walpost.three'::regclass";
    until(SOON, "the partition is noted", async || rig.count(noted).await == 1).await;
    let later = old("a", "902").replace("now() - interval '30 days'", "'2026-01-03 12:00Z'");
    run(&rig, &later).await;
    rig.landed(3).await;
    let visible = "select count(*) from walpost.outbox, walpost.checkpoint \
                   where pg_visible_in_snapshot(xid, (proven ->> 'snapshot')::pg_snapshot)";
    until(SOON, "all are visible", async || rig.count(visible).await == 8).await;
    assert_eq!(prunable_rows(&rig).await, (1, 5));
    let done = pruned(&rig, &retention()).await;
    assert_eq!((done.rows, done.partitions, done.held_partitions), (1, 1, 2), "{done:?}");
    assert_eq!(rig.world.values(), ["900", "901", "902"]);
    let results = check(&rig.database, &rig.config, &rig.router).await;
    let found: Vec<_> = results.iter().filter(|one| one.name == "attached partitions").collect();
    assert_eq!(found.len(), 2, "{results:?}");
    assert!(found.iter().all(|one| one.outcome == Outcome::Warn));
    contains(found[0].next_step.as_deref().unwrap(), &["detach walpost.one", "insert its rows"]);

    // As it says.
    let publish = format!(
        "begin; alter table walpost.outbox detach partition walpost.one; \
         create table walpost.empty partition of walpost.outbox {DAY}; \
         insert into walpost.outbox (id, aggregatetype, aggregateid, type, payload, created_at) \
         select id, aggregatetype, aggregateid, type, payload, created_at from walpost.one \
         order by seq; drop table walpost.one; commit"
    );
    run(&rig, &publish).await;
    assert_eq!(rig.landed(6).await[3..], ["1", "2", "3"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_partition_that_came_filled_while_nothing_ran_is_not_proven() {
    let rig = days(walpost_testkit::postgres(), &[]).await;
    stop(rig.streaming().await).await;
    rig.released().await;
    // The column says what an older table has had there.
    let (make, attach) = filled("copied", "01", 2);
    let make = make.replace("created_at, seq)", "created_at, seq, xid)");
    let make = make.replace("12:00Z', n ", "12:00Z', n, '3' ");
    run(&rig, &format!("begin; {make} {attach} commit")).await;
    let results = check(&rig.database, &rig.config, &rig.router).await;
    assert!(results.iter().any(|one| one.name == "attached partitions"), "{results:?}");
    let relay = rig.streaming().await;
    rig.insert("a", &["900"]).await;
    proven(&rig, 3).await;
    assert_eq!(prunable_rows(&rig).await, (0, 2));
    // Detached and attached once more: it is as new, also where it had a bound.
    run(&rig, &format!("alter table walpost.outbox detach partition walpost.copied; {attach}"))
        .await;
    rig.insert("a", &["901"]).await;
    proven(&rig, 4).await;
    assert_eq!(prunable_rows(&rig).await, (0, 2));
    assert_eq!(rig.world.values(), ["900", "901"]);
    stop(relay).await;
}

/// Its partitions have had their places in it for long, and not in the table.
#[tokio::test]
async fn a_filled_tree_of_partitions_is_not_proven() {
    let rig = days(walpost_testkit::postgres(), &[]).await;
    let relay = rig.streaming().await;
    rig.insert("a", &["900"]).await;
    proven(&rig, 1).await;
    let (filled, _) = filled("leaf", "01", 2);
    let (make, fill) = filled.split_once(';').unwrap();
    let bounds = "for values from ('2026-01-01 00:00Z') to ('2026-01-02 00:00Z')";
    run(
        &rig,
        &format!(
            "create table walpost.tree (like walpost.outbox including all excluding identity) \
             partition by range (created_at); {make} ; \
             alter table walpost.tree attach partition walpost.leaf {bounds}"
        ),
    )
    .await;
    run(&rig, "create table walpost.last (id int)").await;
    run(&rig, fill).await;
    run(&rig, &format!("alter table walpost.outbox attach partition walpost.tree {bounds}")).await;
    rig.insert("a", &["901"]).await;
    proven(&rig, 4).await;
    assert_eq!(prunable_rows(&rig).await, (0, 2));
    let results = check(&rig.database, &rig.config, &rig.router).await;
    assert!(results.iter().any(|one| one.name == "attached partitions"), "{results:?}");
    assert_eq!(rig.landed(2).await, ["900", "901"]);
    stop(relay).await;
}

#[tokio::test]
async fn what_was_inserted_while_a_table_was_unlogged_is_published_from_it() {
    let mut rig = Rig::new().await;
    rig.config.settle_ms = 0;
    // PostgreSQL refuses it for a table that a publication names.
    run(&rig, ALL_TABLES).await;
    let mut relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    proven(&rig, 1).await;
    run(&rig, "alter table walpost.outbox set unlogged").await;
    rig.insert("a", &["2"]).await;
    contains(&end(&mut relay).await, &["is unlogged", "set logged"]);
    run(&rig, "alter table walpost.outbox set logged").await;
    rig.insert("a", &["3"]).await;
    rig.released().await;
    contains(&rig.refusal().await, &["was unlogged for a while", "walpost slot recover"]);
    rig.config.on_lost_slot = LostSlot::Recover;
    let relay = rig.streaming().await;
    rig.insert("a", &["4"]).await;
    assert_eq!(rig.landed(4).await, ["1", "2", "3", "4"]);
    proven(&rig, 4).await;
    stop(relay).await;
    rig.released().await;
    stop(rig.streaming().await).await;
}

/// A table in partitions by what becomes of its rows.
async fn by_status() -> Rig {
    let mut rig = Rig::new().await;
    run(
        &rig,
        "create table public.events (like walpost.outbox including defaults including identity, \
         status text not null default 'NEW', primary key (id, status)) \
         partition by list (status); \
         create table public.events_new partition of public.events for values in ('NEW'); \
         create table public.events_done partition of public.events for values in ('DONE')",
    )
    .await;
    rig.config.tables = vec!["public.events".parse().unwrap()];
    rig.config.publication = "events".to_owned();
    rig
}

#[tokio::test]
async fn rows_that_an_update_moves_to_another_partition_are_published_once() {
    let rig = by_status().await;
    run(
        &rig,
        "create publication events for table public.events \
         with (publish = 'insert', publish_via_partition_root = true)",
    )
    .await;
    let refusal = rig.refusal().await;
    contains(&refusal, &["when \"status\" is updated", "publish = 'insert, delete'"]);
    assert_eq!(rig.checked("rows of the tables").await.0, Outcome::Fail);
    run(&rig, "drop publication events").await;
    // The one that is made then has what it takes.
    let relay = rig.streaming().await;
    for value in ["1", "2", "3"] {
        run(&rig, &insert("public.events", value)).await;
    }
    run(&rig, "update public.events set status = 'DONE'").await;
    let both = format!(
        "begin; {} update public.events set status = 'DONE'; commit",
        insert("public.events", "4")
    );
    run(&rig, &both).await;
    run(&rig, &insert("public.events", "5")).await;
    assert_eq!(rig.landed(5).await, ["1", "2", "3", "4", "5"]);
    run(&rig, "update public.events set status = 'NEW'; delete from public.events").await;
    run(&rig, &insert("public.events", "6")).await;
    assert_eq!(rig.landed(6).await.len(), 6);
    stop(relay).await;
    rig.released().await;

    run(&rig, "alter table public.events_new replica identity nothing").await;
    contains(&rig.refusal().await, &["events_new do not name the id", "replica identity full"]);
}

/// Of days a row moves only where its time is changed, so deletes are not asked for.
#[tokio::test]
async fn a_row_that_moves_to_another_day_ends_the_relay_before_it_is_published_again() {
    let mut rig = days(walpost_testkit::postgres(), &[10]).await;
    rig.config.settle_ms = 0;
    let mut relay = rig.streaming().await;
    rig.insert("a", &["1", "2"]).await;
    proven(&rig, 2).await;
    run(
        &rig,
        "update walpost.outbox set created_at = now() - interval '10 days' where payload = '1'",
    )
    .await;
    rig.insert("a", &["3"]).await;
    contains(&end(&mut relay).await, &["column xid", "publish = 'insert, delete'", "slot recover"]);
    run(&rig, "alter publication walpost set (publish = 'insert, delete')").await;
    rig.released().await;
    rig.config.on_lost_slot = LostSlot::Recover;
    let relay = rig.streaming().await;
    run(
        &rig,
        "update walpost.outbox set created_at = now() - interval '10 days' where payload = '2'",
    )
    .await;
    rig.insert("a", &["4"]).await;
    assert_eq!(rig.landed(4).await, ["1", "2", "3", "4"]);
    stop(relay).await;
}

/// A row that is loaded moves nowhere, whatever transaction it names.
#[tokio::test]
async fn rows_of_partitions_are_loaded_whatever_transaction_inserted_them() {
    let mut rig = days(walpost_testkit::postgres(), &[10]).await;
    rig.config.initial = Some(Initial::Publish);
    for xid in ["3000000000", "7", "9000000000"] {
        let row = format!(
            "insert into walpost.outbox (aggregatetype, aggregateid, type, payload, xid) \
             values ('order', 'a', 'Placed', '{xid}', '{xid}')"
        );
        run(&rig, &row).await;
    }
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    assert_eq!(rig.landed(4).await, ["3000000000", "7", "9000000000", "1"]);
    stop(relay).await;
}

#[tokio::test]
async fn a_table_that_the_filters_mean_is_an_outbox_from_its_first_row_on() {
    let mut rig = Rig::new().await;
    run(&rig, ALL_TABLES).await;
    let now = "select pg_snapshot_xmax(pg_current_snapshot())::text::int8";
    let looked_at = rig.count(now).await as u64;
    let passes = |table: &TableName| table.schema.starts_with("tenant_") && table.name == "outbox";
    rig.config.new_tables = Some(TableFilter::new(looked_at, passes));
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    let tenant = format!(
        "create schema tenant_b; create schema other; \
         create table other.outbox (like walpost.outbox including all); {} \
         create table tenant_b.outbox (like walpost.outbox including all); {}",
        insert("other.outbox", "100"),
        insert("tenant_b.outbox", "2")
    );
    run(&rig, &tenant).await;
    rig.landed(2).await;
    run(&rig, &insert("tenant_b.outbox", "3")).await;
    rig.insert("a", &["4"]).await;
    assert_eq!(rig.landed(4).await, ["1", "2", "3", "4"]);
    assert_eq!(relay.status().borrow().failed_sessions, 0);
    stop(relay).await;
    rig.released().await;
    // The next process finds it in the catalogue, and knows that it was read.
    rig.config.new_tables = None;
    rig.config.tables.push("tenant_b.outbox".parse().unwrap());
    let relay = rig.streaming().await;
    run(&rig, &insert("tenant_b.outbox", "5")).await;
    assert_eq!(rig.landed(5).await[4..], ["5"]);
    stop(relay).await;
}

/// Rows that came into a table before the publication had it are in no stream.
#[tokio::test]
async fn a_table_with_rows_of_before_is_not_taken_for_one_that_has_come() {
    let mut rig = Rig::new().await;
    let fill = format!(
        "create schema tenant_b; create table tenant_b.outbox (like walpost.outbox including all); {}",
        insert("tenant_b.outbox", "1")
    );
    run(&rig, &fill).await;
    rig.config.new_tables = Some(TableFilter::new(1, |table| table.schema == "tenant_b"));
    let mut relay = rig.streaming().await;
    run(&rig, "alter publication walpost add table tenant_b.outbox").await;
    run(&rig, &insert("tenant_b.outbox", "2")).await;
    contains(&end(&mut relay).await, &["tenant_b.outbox is new to pipeline"]);
    assert!(rig.world.values().is_empty());
}

/// What rewrites the table, or goes around its triggers, is the same to both.
#[tokio::test]
async fn whatever_else_is_done_to_the_table_its_rows_arrive() {
    let mut rig = Rig::new().await;
    rig.config.tables = vec!["public.outbox".parse().unwrap()];
    rig.config.publication = "other".to_owned();
    run(&rig, "create table public.outbox (like walpost.outbox including all)").await;
    let relay = rig.streaming().await;
    let rows = |value: &str| insert("public.outbox", value);
    for (value, before) in [
        ("1", "vacuum full public.outbox"),
        ("2", "cluster public.outbox using outbox_pkey"),
        ("3", "alter table public.outbox replica identity nothing"),
        ("4", "truncate public.outbox"),
        ("5", "alter table public.outbox add column more int default random() * 10"),
        ("6", "alter table public.outbox alter type type varchar"),
        ("7", "alter table public.outbox drop column tracestate"),
        ("8", "create role walpost_relations_probe; drop role walpost_relations_probe"),
        ("9", "alter table public.outbox disable trigger all"),
        ("10", "set session_replication_role = replica"),
        ("11", "alter table public.outbox alter payload set storage external"),
    ] {
        for statement in before.split("; ") {
            run(&rig, statement).await;
        }
        run(&rig, &rows(value)).await;
    }
    let copied = "create table public.source as select 'order' a, 'a' b, 'Placed' c, '12'::jsonb d";
    run(&rig, copied).await;
    let insert = "insert into public.outbox (aggregatetype, aggregateid, type, payload) \
                  select * from public.source; \
                  with gone as (delete from public.source returning *) \
                  insert into public.outbox (aggregatetype, aggregateid, type, payload) \
                  select a, b, c, '13' from gone";
    run(&rig, insert).await;
    let expected: Vec<String> = (1..14).map(|value: u32| value.to_string()).collect();
    assert_eq!(rig.landed(13).await, expected);
    assert_eq!(relay.status().borrow().failed_sessions, 0);
    stop(relay).await;
}
