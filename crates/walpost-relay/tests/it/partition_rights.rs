//! Days of a partitioned outbox are reached through it alone.

use walpost_relay::{Initial, RetentionConfig, make_days, prunable};
use walpost_testkit::{postgres_of, until};

use crate::{
    partitions::{days, event, partitions},
    proven::proven,
    refusals::as_newcomer,
    retention::{pruned, retention, run},
    rig::{SOON, stop},
};

fn archiving() -> RetentionConfig {
    let mut retention = retention();
    retention.archive_days = 30;
    retention
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn a_day_in_the_archive_is_its_owners_whoever_might_read_it_before() {
    for major in [14, 18] {
        let rig = days(postgres_of(major), &[45, 44]).await;
        let relay = rig.streaming().await;
        let role = walpost_testkit::unique_name("app").replace('-', "_");
        let grants = format!(
            "create role {role}; grant usage on schema walpost to {role}, public; \
             grant all on all tables in schema walpost to {role} with grant option; \
             grant select on walpost.outbox to public; do $$ declare day regclass; begin \
             for day in select inhrelid::regclass from pg_inherits \
                 where inhparent = 'walpost.outbox'::regclass loop \
             execute format('grant select, delete on %s to public', day); \
             execute format('grant update (payload) on %s to {role}', day); end loop; end $$; \
             revoke all on walpost.outbox_archive, walpost.outbox_archive_default from {role}"
        );
        run(&rig, &grants).await;
        run(&rig, &event("a", "1", 45)).await;
        run(&rig, &event("a", "2", 44)).await;
        proven(&rig, 2).await;
        assert_eq!(pruned(&rig, &archiving()).await.partitions, 2);
        assert_eq!(partitions(&rig, "outbox_archive", &[45, 44]).await, 2);
        let may = format!(
            "select count(*) from pg_inherits \
             where inhparent = 'walpost.outbox_archive'::regclass and \
             (has_table_privilege('{role}', inhrelid, 'select, insert, update, delete') \
             or has_any_column_privilege('{role}', inhrelid, 'select, update'))"
        );
        assert_eq!(rig.count(&may).await, 0);
        assert_eq!(rig.count("select count(*) from walpost.outbox_archive").await, 2);
        stop(relay).await;
        run(&rig, &format!("drop owned by {role}; drop role {role}")).await;
    }
}

/// The grants that the documentation asks for are on whole tables.
#[tokio::test]
async fn a_role_that_owns_nothing_has_rows_leave_through_the_table() {
    let mut rig = days(postgres_of(18), &[45, 44, 1]).await;
    let columns = "alter table walpost.outbox add column status text, \
                   add column published_at timestamptz; \
                   alter table walpost.outbox_archive add column status text, \
                   add column published_at timestamptz; \
                   create index on walpost.outbox (seq) where published_at is null";
    run(&rig, columns).await;
    make_days(&rig.database, "walpost").await.unwrap();
    let (mut rig, role) = {
        (rig.config.initial, rig.config.mark_published) = (Some(Initial::Skip), true);
        as_newcomer(rig).await
    };
    rig.config.settle_ms = 0;
    let grants = format!(
        "grant usage on schema walpost to {role}; \
         grant select, insert, update on walpost.checkpoint to {role}; \
         grant select, insert, update, delete on walpost.parked to {role}; \
         grant select, update on walpost.move to {role}; \
         grant select, insert, update on walpost.id_space to {role}; \
         grant select, update, delete on walpost.outbox to {role}; \
         grant select, insert, update, delete on walpost.outbox_archive to {role}"
    );
    run(&rig, &grants).await;
    let relay = rig.streaming().await;
    // In days, and in the partition of what no day takes.
    for (value, days_ago) in [("1", 45), ("2", 45), ("3", 44), ("4", 60), ("5", 1), ("6", 0)] {
        run(&rig, &event("a", value, days_ago)).await;
    }
    proven(&rig, 6).await;
    let marked = "select count(*) from walpost.outbox where status = 'published'";
    until(SOON, "rows are marked", async || rig.count(marked).await == 6).await;
    let found = prunable(&rig.database, &rig.config, "id", &archiving()).await.unwrap().remove(0);
    assert_eq!((found.rows, found.partitions, found.is_not_owner), (4, 0, true), "{found:?}");
    let done = pruned(&rig, &archiving()).await;
    assert_eq!((done.rows, done.partitions, done.is_not_owner), (4, 0, true), "{done:?}");
    let left = "select string_agg(payload::text, ' ' order by seq) from walpost.outbox";
    let left: String = rig.client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, "5 6");
    run(&rig, "update walpost.outbox_archive set archived_at = now() - interval '31 days'").await;
    assert_eq!(pruned(&rig, &archiving()).await.archived_rows, 4);
    stop(relay).await;
}
