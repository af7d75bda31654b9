//! Where nothing tells what is published, no row leaves.

use walpost_relay::prune;

use crate::{
    proven::proven,
    retention::{old, pruned, retention, run},
    rig::{Rig, stop},
};

async fn refusal(rig: &Rig, archive_days: u32) -> String {
    let mut retention = retention();
    retention.archive_days = archive_days;
    let done = prune(&rig.database, &rig.config, "id", &retention, |_| {}).await;
    done.unwrap_err().to_string()
}

async fn refused(rig: &Rig, archive_days: u32, expected: &[&str]) {
    let text = refusal(rig, archive_days).await;
    for part in expected {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
    assert_eq!(rig.count("select count(*) from walpost.outbox").await, 1);
}

#[tokio::test]
async fn each_reason_is_named_with_the_way_on() {
    let rig = Rig::new().await;
    run(&rig, &old("a", "1")).await;
    refused(&rig, 0, &["no pipeline has read table walpost.outbox yet", "walpost run"]).await;
    run(&rig, "delete from walpost.outbox").await;
    let relay = rig.streaming().await;
    run(&rig, &old("a", "1")).await;
    proven(&rig, 1).await;
    stop(relay).await;
    for (break_it, archive_days, expected, mend_it) in [
        (
            "alter table walpost.outbox rename column xid to xid_",
            0,
            ["no column xid", "add column xid xid8"],
            "alter table walpost.outbox rename column xid_ to xid",
        ),
        (
            "alter table walpost.outbox rename column created_at to at",
            0,
            ["has no column created_at, by", "add column created_at"],
            "alter table walpost.outbox rename column at to created_at",
        ),
        (
            "alter table walpost.outbox_archive rename to kept",
            30,
            ["no table walpost.outbox_archive", "create table"],
            "alter table walpost.kept rename to outbox_archive",
        ),
        (
            "alter table walpost.outbox add column mine int",
            30,
            ["walpost.outbox_archive has no column mine", "archive_days = 0"],
            "alter table walpost.outbox drop column mine",
        ),
        (
            "insert into walpost.checkpoint (pipeline, token, generation, system_id, timeline, \
             slot, confirmed_lsn, initial) select 'second', token, 1, system_id, 1, 'x', '0/0', \
             'done' from walpost.checkpoint",
            0,
            ["pipeline \"second\" has proven nothing", "delete its row"],
            "delete from walpost.checkpoint where pipeline = 'second'",
        ),
        (
            "update walpost.checkpoint set system_id = '1' || system_id",
            0,
            ["has proven nothing", "delete its row"],
            "update walpost.checkpoint set system_id = substr(system_id, 2)",
        ),
        (
            "select pg_advisory_lock(hashtext('walpost retention'), hashtext('walpost'))",
            0,
            ["another process prunes", "retention.enabled"],
            "select pg_advisory_unlock_all()",
        ),
    ] {
        run(&rig, break_it).await;
        refused(&rig, archive_days, &expected).await;
        run(&rig, mend_it).await;
    }
    assert_eq!(pruned(&rig, &retention()).await.rows, 1);
}

/// A table with another column for the id: nothing is said of that, and all that it
/// lacks at once.
#[tokio::test]
async fn all_that_a_table_lacks_is_told_at_once() {
    let mut rig = Rig::new().await;
    let table = "create table public.ev2 (event_uuid uuid primary key, kind text, payload text)";
    run(&rig, table).await;
    rig.config.tables = vec!["public.ev2".parse().unwrap()];
    let refused = async |id_column: &str| {
        let done = prune(&rig.database, &rig.config, id_column, &retention(), |_| {}).await;
        done.unwrap_err().to_string()
    };
    let text = refused("event_uuid").await;
    for part in
        ["no column created_at", "no column xid", "add column created_at", "add column xid xid8"]
    {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
    assert!(!text.contains("event_id") && !text.contains("event_uuid"), "{text}");
    let text = refused("id").await;
    for part in [
        "no column created_at",
        "no column \"id\", which router.event_id names",
        "it has event_uuid, kind, payload",
        "no column xid",
    ] {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
}

#[tokio::test]
async fn a_row_stays_until_every_pipeline_of_its_table_has_proven_it() {
    let rig = Rig::new().await;
    let relay = rig.streaming().await;
    run(&rig, &old("a", "1")).await;
    proven(&rig, 1).await;
    stop(relay).await;
    // As a second one has it that began before the row and got nowhere, and a
    // third of another table.
    let others = "insert into walpost.checkpoint (pipeline, token, generation, system_id, timeline, \
                  slot, confirmed_lsn, initial, tables, proven) \
                  select pipeline, token, 1, system_id, 1, pipeline, '0/0', 'done', \
                  array[other], jsonb_build_object('snapshot', snapshot) \
                  from (select token, system_id from walpost.checkpoint) c, (values \
                      ('second', '\"walpost\".\"outbox\"', '3:3:'), \
                      ('third', '\"walpost\".\"parked\"', '3:3:')) o (pipeline, other, snapshot)";
    run(&rig, others).await;
    assert_eq!(pruned(&rig, &retention()).await.rows, 0);
    run(&rig, "delete from walpost.checkpoint where pipeline = 'second'").await;
    assert_eq!(pruned(&rig, &retention()).await.rows, 1);
}
