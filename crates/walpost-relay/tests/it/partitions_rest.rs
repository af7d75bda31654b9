//! What else there is to an outbox in partitions: the archive, tables of one's
//! own, and whatever else works on an outbox.

use std::time::Duration;

use tokio::sync::watch;
use walpost_relay::{
    ReplayFilter, ReplayOrder, ReplayState, Replayer, RetentionConfig, TableName, make_days, prune,
};
use walpost_router::RouterConfig;
use walpost_testkit::{SharedPostgres, postgres, postgres_of, until};

use crate::{
    partitions::{counted, days, event, partitions},
    polling_rig::Polled,
    proven::proven,
    retention::{add, pruned, retention, run},
    rig::{Rig, SOON, raw, stop},
};

const OUTBOX: &str = "select count(*) from walpost.outbox";
const ARCHIVE: &str = "select count(*) from walpost.outbox_archive";
const BOTH: &str = "select (select count(*) from walpost.outbox) + \
                    (select count(*) from walpost.outbox_archive)";

fn archiving() -> RetentionConfig {
    let mut retention = retention();
    retention.archive_days = 30;
    retention
}

/// Where the rows of each table with rows of this schema lie on disk.
async fn files(rig: &Rig) -> Vec<i64> {
    let sql = "select pg_relation_filenode(c.oid)::int8 from pg_class c where c.relkind = 'r' \
               and c.relname ~ '^outbox_[0-9]+$' and pg_relation_size(c.oid) > 0 order by 1";
    let rows = rig.client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

async fn days_become_days_of_the_archive(server: &'static SharedPostgres) {
    let rig = days(server, &[46, 45, 44]).await;
    let relay = rig.streaming().await;
    for (value, days_ago) in [("1", 46), ("2", 46), ("3", 45), ("4", 60), ("5", 0)] {
        run(&rig, &event("a", value, days_ago)).await;
    }
    proven(&rig, 5).await;
    let before = files(&rig).await;
    let found = counted(&rig, &archiving()).await;
    assert_eq!((found.partitions, found.rows), (3, 4), "{found:?}");
    let done = pruned(&rig, &archiving()).await;
    assert_eq!((done.partitions, done.rows, done.archived_partitions), (3, 4, 0), "{done:?}");
    assert_eq!(files(&rig).await, before, "no row was copied");
    assert_eq!((rig.count(OUTBOX).await, rig.count(ARCHIVE).await), (1, 4));
    assert_eq!(partitions(&rig, "outbox_archive", &[46, 45]).await, 2);
    let default = "select count(*) from walpost.outbox_archive_default";
    assert_eq!(rig.count(default).await, 1, "the row of a day without a partition");
    let since = "select count(*) from walpost.outbox_archive \
                 where archived_at between now() - interval '10 minutes' and clock_timestamp()";
    assert_eq!(rig.count(since).await, 4);
    // They are back for nobody, and days leave the archive as they came.
    let past = "update walpost.outbox_archive set archived_at = now() - interval '31 days' \
                where payload in ('1', '3', '4')";
    run(&rig, past).await;
    let found = counted(&rig, &archiving()).await;
    assert_eq!((found.archived_partitions, found.archived_rows), (1, 2), "{found:?}");
    let mut done = pruned(&rig, &archiving()).await;
    // A partition that cannot be dropped at once is left to the next pass.
    until(SOON, "a day less", async || {
        let is_gone = partitions(&rig, "outbox_archive", &[46, 45]).await == 1;
        if !is_gone {
            add(&mut done, &pruned(&rig, &archiving()).await);
        }
        is_gone
    })
    .await;
    assert_eq!((done.archived_partitions, done.archived_rows), (1, 2), "{done:?}");
    run(&rig, "update walpost.outbox_archive set archived_at = now() - interval '31 days'").await;
    assert_eq!(pruned(&rig, &archiving()).await.archived_rows, 2);
    rig.insert("a", &["6"]).await;
    assert_eq!(rig.landed(6).await, ["1", "2", "3", "4", "5", "6"]);
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn days_go_to_the_archive_and_no_row_is_copied_on_postgres_14() {
    days_become_days_of_the_archive(postgres_of(14)).await;
}

#[tokio::test]
async fn days_go_to_the_archive_and_no_row_is_copied_on_postgres_18() {
    days_become_days_of_the_archive(postgres_of(18)).await;
}

#[tokio::test]
async fn a_row_is_in_the_outbox_or_in_the_archive_whenever_it_is_interrupted() {
    let all: Vec<u32> = (45..65).collect();
    let rig = days(postgres(), &all).await;
    let relay = rig.streaming().await;
    let rows = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload, created_at) \
                select 'order', 'a', 'Placed', to_jsonb(n), \
                now() - interval '45 days' - (n % 20) * interval '1 day' \
                from generate_series(1, 2000) n";
    run(&rig, rows).await;
    proven(&rig, 2000).await;
    for round in 0.. {
        let retention = archiving();
        let pass = prune(&rig.database, &rig.config, "id", &retention, |_| {});
        let whole = tokio::time::timeout(Duration::from_millis(20 + 8 * round), pass).await;
        rig.unlocked("walpost retention").await;
        assert_eq!(rig.count(BOTH).await, 2000);
        if let Ok(done) = whole
            && rig.count(OUTBOX).await == 0
        {
            done.unwrap();
            break;
        }
    }
    let same = "select count(distinct id) from walpost.outbox_archive where payload is not null";
    assert_eq!(rig.count(same).await, 2000);
    stop(relay).await;
}

#[tokio::test]
async fn a_day_of_which_the_archive_has_rows_leaves_one_by_one() {
    let rig = days(postgres(), &[45]).await;
    let relay = rig.streaming().await;
    run(&rig, &event("a", "1", 45)).await;
    let there = "insert into walpost.outbox_archive (id, aggregatetype, aggregateid, type, \
                 created_at, xid, seq) select gen_random_uuid(), 'order', 'a', 'Placed', \
                 created_at, xid, 0 from walpost.outbox";
    run(&rig, there).await;
    proven(&rig, 1).await;
    let done = pruned(&rig, &archiving()).await;
    assert_eq!((done.partitions, done.rows), (0, 1), "{done:?}");
    assert_eq!((rig.count(OUTBOX).await, rig.count(ARCHIVE).await), (0, 2));
    let done = pruned(&rig, &archiving()).await;
    assert_eq!((done.partitions, done.rows), (1, 0), "it is empty by now: {done:?}");
    stop(relay).await;
}

const OWN: &str = "create table public.events (id uuid default gen_random_uuid(), \
     aggregatetype text, aggregateid text, type text, payload jsonb, \
     created_at timestamptz not null, xid xid8 not null default pg_current_xact_id(), \
     seq bigint not null generated always as identity) partition by range (created_at); \
     create publication own for table public.events \
         with (publish = 'insert', publish_via_partition_root = true);";

/// Weeks, an open beginning, a range of years, and one on which a view depends.
#[tokio::test]
async fn of_a_table_of_ones_own_ranges_leave_whole_where_they_may_and_else_row_by_row() {
    let mut rig = Rig::on(postgres()).await;
    run(&rig, OWN).await;
    let of = |name: &str, from: &str, to: &str| {
        format!("create table {name} partition of events for values from ({from}) to ({to});")
    };
    for partition in [
        of("first", "minvalue", "'2020-01-01'"),
        of("week", "'2020-01-01'", "'2020-01-08'"),
        of("seen", "'2020-01-08'", "'2020-01-15'"),
        of("years", "'2020-01-15'", "'2400-01-01'"),
    ] {
        run(&rig, &partition).await;
    }
    run(&rig, "create view look as select * from seen").await;
    rig.config.tables = vec![TableName { schema: "public".to_owned(), name: "events".to_owned() }];
    rig.config.publication = "own".to_owned();
    let relay = rig.streaming().await;
    for (value, day) in
        [("1", "2019-05-05"), ("2", "2020-01-02"), ("3", "2020-01-09"), ("4", "2020-02-01")]
    {
        let insert = format!(
            "insert into events (aggregatetype, aggregateid, type, payload, created_at) \
             values ('order', 'a', 'Placed', '{value}', '{day}')"
        );
        run(&rig, &insert).await;
    }
    let proven = "select count(*) from events, walpost.checkpoint \
                  where pg_visible_in_snapshot(xid, (proven ->> 'snapshot')::pg_snapshot)";
    until(SOON, "all are proven", async || rig.count(proven).await == 4).await;
    let done = pruned(&rig, &retention()).await;
    assert_eq!((done.partitions, done.rows), (2, 4), "{done:?}");
    let left = "select string_agg(inhrelid::regclass::text, ' ' order by 1) from pg_inherits \
                where inhparent = 'events'::regclass";
    let left: String = rig.client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, "seen years");
    // Of tables that are not Walpost's it makes none.
    let days = make_days(&rig.database, "walpost").await.unwrap();
    assert!(days.made.is_empty() && days.busy.is_empty(), "{days:?}");
    stop(relay).await;
}

#[tokio::test]
async fn days_that_come_are_made_with_every_pass_and_say_why_one_is_not() {
    let rig = Rig::partitioned(postgres_of(18)).await;
    let relay = rig.streaming().await;
    let tomorrow = "select to_char(now() at time zone 'UTC' + interval '1 day', 'YYYYMMDD')";
    let tomorrow: String = rig.client.query_one(tomorrow, &[]).await.unwrap().get(0);
    run(&rig, &format!("drop table walpost.outbox_{tomorrow}")).await;
    let there = format!("select count(to_regclass('walpost.outbox_{tomorrow}'))");
    // One that is not made at once is left to the next pass.
    until(SOON, "the day", async || {
        pruned(&rig, &retention()).await;
        rig.count(&there).await == 1
    })
    .await;
    run(&rig, &format!("drop table walpost.outbox_{tomorrow}")).await;
    let early = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload, \
                 created_at) values ('order', 'a', 'Placed', '1', now() + interval '1 day')";
    run(&rig, early).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    until(SOON, "a look at every day", async || {
        let days = make_days(&rig.database, "walpost").await.unwrap();
        assert_eq!(days.made.len(), 0, "{days:?}");
        days.busy.is_empty() && days.in_default.len() == 1
    })
    .await;
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn an_outbox_in_partitions_can_be_polled() {
    for major in [14, 18] {
        let polled = Polled::on(days(postgres_of(major), &[30]).await).await;
        for (value, days_ago) in [("1", 0), ("2", 30), ("3", 50), ("4", 1)] {
            run(&polled.rig, &event("a", value, days_ago)).await;
        }
        let relays = [polled.polling().await, polled.polling().await];
        for value in 5..60 {
            run(&polled.rig, &event("a", &value.to_string(), value % 3)).await;
        }
        polled.reaches("PUBLISHED", 59).await;
        let values: Vec<String> = (1..60).map(|value| value.to_string()).collect();
        assert_eq!(polled.rig.world.values(), values);
        for relay in relays {
            stop(relay).await;
        }
    }
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn rows_in_partitions_are_marked_and_their_days_leave() {
    let mut rig = days(postgres_of(14), &[30, 29]).await;
    rig.config.mark_published = true;
    let columns = "alter table walpost.outbox add column status text, \
                   add column published_at timestamptz; \
                   create index on walpost.outbox (seq) where published_at is null";
    run(&rig, columns).await;
    let relay = rig.streaming().await;
    for (value, days_ago) in [("1", 30), ("2", 29), ("3", 0)] {
        run(&rig, &event("a", value, days_ago)).await;
    }
    let marked = "select count(*) from walpost.outbox where status = 'published'";
    until(SOON, "all are marked", async || rig.count(marked).await == 3).await;
    until(SOON, "old days leave beside it", async || {
        drop(prune(&rig.database, &rig.config, "id", &retention(), |_| {}).await);
        partitions(&rig, "outbox", &[30, 29]).await == 0
    })
    .await;
    run(&rig, &event("a", "4", 0)).await;
    until(SOON, "marking goes on", async || rig.count(marked).await == 2).await;
    stop(relay).await;
}

#[tokio::test]
async fn what_is_in_partitions_is_loaded_and_replayed_and_days_leave_in_between() {
    let mut rig = days(postgres_of(18), &[30, 10]).await;
    rig.config.initial = Some(walpost_relay::Initial::Publish);
    for (value, days_ago) in [("1", 30), ("2", 10), ("3", 0)] {
        run(&rig, &event("a", value, days_ago)).await;
    }
    let relay = rig.streaming().await;
    assert_eq!(rig.landed(3).await, ["1", "2", "3"]);
    proven(&rig, 3).await;
    let replayer =
        Replayer::open(&rig.database, rig.config.clone(), RouterConfig::walpost(), raw());
    let replayer = replayer.await.unwrap();
    assert_eq!(pruned(&rig, &retention()).await.partitions, 1);
    let filter = ReplayFilter { event_types: vec!["Placed".to_owned()], ..ReplayFilter::default() };
    let found = replayer.find(None, filter, None).await.unwrap();
    assert_eq!(found.survey.events, 2);
    let order = ReplayOrder { to_topic: None, rate_per_s: 1_000, wait: SOON, asked_from: None };
    let sink = rig.world.connect().await.unwrap();
    let replay = replayer.begin(found, order, sink).await.unwrap();
    let (_stop, stopped) = watch::channel(false);
    assert_eq!(replay.run(stopped, |_| {}).await.state, ReplayState::Done);
    assert_eq!(rig.world.values(), ["1", "2", "3", "2", "3"]);
    stop(relay).await;
}
