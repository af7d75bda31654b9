//! A part of a pass that fails keeps the others from nothing.

use walpost_relay::{
    Outcome, RelayError, RetentionConfig, TableName, check_retention, prune, prune_parked,
};
use walpost_testkit::{postgres, postgres_of};

use crate::{
    partitions::{days, event, partitions},
    proven::proven,
    retention::{old, pruned, retention, run, was_ended},
    rig::{Rig, stop},
};

const NULLABLE: &str = "alter table walpost.outbox alter aggregateid drop not null";
const REMEDY: &str = "alter table \"walpost\".\"outbox_archive\" alter column \"aggregateid\" \
                      drop not null";

fn archiving() -> RetentionConfig {
    let mut retention = retention();
    retention.archive_days = 30;
    retention
}

async fn refused(rig: &Rig) -> (String, String) {
    // Where nobody says anything for a second while a partition is locked, the
    // server ends the session.
    for _ in 0..5 {
        let refused = prune(&rig.database, &rig.config, "id", &archiving(), |_| {}).await;
        match refused.unwrap_err() {
            RelayError::Prerequisite { problem, remedy } => return (problem, remedy),
            error => assert!(was_ended(&error), "{error:?}"),
        }
    }
    panic!("no pass came to its end");
}

async fn checked(rig: &Rig) -> (Outcome, String, Option<String>) {
    let found = check_retention(&rig.database, &rig.config, "id", &archiving()).await;
    (found.outcome, found.detail, found.next_step)
}

#[tokio::test]
async fn a_row_that_the_archive_does_not_take_holds_its_day_and_nothing_else() {
    let rig = days(postgres_of(18), &[46, 45, 44]).await;
    let relay = rig.streaming().await;
    assert_eq!(checked(&rig).await.0, Outcome::Ok);
    run(&rig, NULLABLE).await;
    let (outcome, detail, next_step) = checked(&rig).await;
    assert_eq!(outcome, Outcome::Warn);
    assert!(detail.contains("takes no null in column aggregateid"), "{detail}");
    assert_eq!(next_step, Some(format!("run `{REMEDY}`")));
    // So that the days come one by one, the one with a null first.
    run(&rig, &event("a", "1", 46).replace("'a'", "null")).await;
    for (value, days_ago) in [("2", 45), ("3", 44), ("4", 60)] {
        run(&rig, &event("a", value, days_ago)).await;
    }
    let key = "insert into walpost.outbox_key values \
               ('gone', gen_random_uuid(), now() - interval '45 days')";
    run(&rig, key).await;
    run(
        &rig,
        "insert into walpost.outbox_archive (id, aggregatetype, aggregateid, type, created_at, \
         xid, seq, archived_at) values (gen_random_uuid(), 'order', 'a', 'Placed', \
         now() - interval '90 days', '1', 1, now() - interval '40 days')",
    )
    .await;
    proven(&rig, 4).await;
    let (problem, remedy) = refused(&rig).await;
    assert!(problem.contains("has a null in column \"aggregateid\""), "{problem}");
    assert_eq!(remedy, format!("run `{REMEDY}`"));
    let left = "select string_agg(payload::text, ' ') from walpost.outbox";
    let left: String = rig.client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, "1");
    assert_eq!(rig.count("select count(*) from walpost.outbox_key").await, 0);
    assert_eq!(rig.count("select count(*) from walpost.outbox_archive").await, 3);
    prune_parked(&rig.database, &rig.config, "id", &archiving()).await.unwrap();
    run(&rig, REMEDY).await;
    assert_eq!(checked(&rig).await.0, Outcome::Ok);
    pruned(&rig, &archiving()).await;
    // As long as a null was not taken, no day became one of the archive.
    assert_eq!(partitions(&rig, "outbox", &[46, 45, 44]).await, 0);
    assert_eq!(partitions(&rig, "outbox_archive", &[46, 45, 44]).await, 1);
    assert_eq!(rig.count("select count(*) from walpost.outbox_archive").await, 4);
    stop(relay).await;
}

/// One table without what it takes, one with a row that its archive does not
/// take, and one that is as it should be.
#[tokio::test]
async fn each_table_is_gone_through_and_all_that_went_wrong_is_told() {
    let mut rig = Rig::on(postgres()).await;
    for name in ["second", "third"] {
        let create = format!(
            "create table walpost.{name} (like walpost.outbox including all); \
             create table walpost.{name}_archive (like walpost.{name}, \
             archived_at timestamptz not null default clock_timestamp()); \
             alter publication walpost add table walpost.{name}"
        );
        run(&rig, &create).await;
        rig.config.tables.push(TableName { schema: "walpost".into(), name: name.into() });
    }
    run(&rig, NULLABLE).await;
    let relay = rig.streaming().await;
    // Many blocks, of which the first ones have a row that stays.
    run(&rig, &old("a", "1").replace("'a'", "null")).await;
    let wide = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload, created_at) \
                select 'order', 'a', 'Placed', \
                    to_jsonb((select string_agg(md5(random()::text), '') \
                        from generate_series(1, 50) where n > 0)), \
                    now() - interval '30 days' from generate_series(1, 2000) n";
    run(&rig, wide).await;
    for (name, value) in [("second", "2"), ("third", "3")] {
        run(&rig, &old("a", value).replace("walpost.outbox", &format!("walpost.{name}"))).await;
    }
    rig.landed(2003).await;
    proven(&rig, 2001).await;
    run(&rig, "drop table walpost.second_archive").await;
    let (problem, remedy) = refused(&rig).await;
    let missing = "there is no table walpost.second_archive with a column archived_at";
    for told in [missing, "; also ", "has a null in column \"aggregateid\""] {
        assert!(problem.contains(told), "{told:?} is not in {problem}");
    }
    assert!(remedy.contains(REMEDY) && remedy.contains("create table"), "{remedy}");
    assert_eq!(rig.count("select count(*) from walpost.third").await, 0);
    assert_eq!(rig.count("select count(*) from walpost.third_archive").await, 1);
    let stays = "select count(*) from walpost.outbox where aggregateid is null";
    assert_eq!(rig.count(stays).await, 1);
    let gone = 2001 - rig.count("select count(*) from walpost.outbox").await;
    assert!(gone > 0, "rows of other blocks have left");
    stop(relay).await;
}
