//! A polled outbox without faults.

use walpost_relay::{Outcome, ParkMode, PollingConfig, PollingRelay, RelayError, Requeue};
use walpost_testkit::until;

use crate::{
    polling_rig::Polled,
    rig::{Rig, SOON, status, stop},
};

#[tokio::test]
async fn what_check_asks_for_makes_walposts_own_table_one_that_can_be_polled() {
    let polled = Polled::without_columns().await;
    let (outcome, detail, next_step) = polled.checked("outbox table").await;
    assert_eq!(outcome, Outcome::Fail, "{detail}");
    let ddl = next_step.unwrap();
    assert!(ddl.contains("alter table \"walpost\".\"outbox\" add \"status\" text"), "{ddl}");
    polled.mend().await;
    assert_eq!(polled.checked("outbox table").await.0, Outcome::Ok);
    polled.mend().await;
    assert_eq!(polled.checked("partial index").await.0, Outcome::Ok);
    let drop = "drop index walpost.outbox_unpublished_aggregate";
    polled.rig.client.batch_execute(drop).await.unwrap();
    let (outcome, _, next_step) = polled.checked("partial index").await;
    let ddl = next_step.unwrap();
    assert_eq!(outcome, Outcome::Warn);
    assert!(ddl.contains("(\"aggregatetype\", \"aggregateid\", \"seq\", \"id\")"), "{ddl}");
    assert!(!ddl.contains("outbox_unpublished\""), "that one is there: {ddl}");
}

#[tokio::test]
async fn a_state_that_the_enum_has_not_is_refused_with_those_that_it_has() {
    let mut polled = Polled::new().await;
    let alter = "create type state as enum ('NEW', 'FAILED', 'sent'); \
                 alter table walpost.outbox alter status drop default; \
                 drop index walpost.outbox_unpublished, walpost.outbox_unpublished_aggregate; \
                 alter table walpost.outbox alter status type state using status::state, \
                 alter status set default 'NEW'";
    polled.rig.client.batch_execute(alter).await.unwrap();
    let (outcome, detail, next_step) = polled.checked("outbox table").await;
    assert_eq!(outcome, Outcome::Fail);
    assert!(detail.contains("no value \"PUBLISHED\""), "{detail}");
    assert!(next_step.unwrap().contains("NEW, FAILED, sent"));
    polled.polling.published_value = "sent".to_owned();
    polled.mend().await;
    let relay = polled.polling().await;
    polled.rig.insert("a", &["1"]).await;
    polled.rig.landed(1).await;
    stop(relay).await;
    assert_eq!(polled.count("sent").await, 1);
}

#[tokio::test]
async fn an_id_that_is_not_unique_or_may_be_missing_is_refused() {
    let polled = Polled::new().await;
    let weaken = "alter table walpost.outbox drop constraint outbox_pkey; \
                  alter table walpost.outbox alter id drop not null; \
                  create unique index partial on walpost.outbox (id) where status = 'NEW'; \
                  create unique index other on walpost.outbox (id, aggregateid)";
    polled.rig.client.batch_execute(weaken).await.unwrap();
    for (lacks, then) in [
        ("unique", "create unique index whole on walpost.outbox (id)"),
        ("not null", "alter table walpost.outbox alter id set not null"),
    ] {
        let (outcome, detail, _) = polled.checked("outbox table").await;
        assert_eq!(outcome, Outcome::Fail);
        assert!(detail.contains(&format!("is not declared {lacks}")), "{detail}");
        let mut refused = polled.start();
        let ended = tokio::time::timeout(SOON, refused.finished()).await;
        let refusal = ended.expect("the start is refused").unwrap_err().to_string();
        assert!(refusal.contains(lacks), "{refusal}");
        polled.rig.client.batch_execute(then).await.unwrap();
    }
    let relay = polled.polling().await;
    polled.rig.insert("a", &["1"]).await;
    polled.reaches("PUBLISHED", 1).await;
    stop(relay).await;
}

#[tokio::test]
async fn a_right_that_is_missing_is_refused_with_its_grant() {
    let polled = Polled::new().await;
    let role = walpost_testkit::unique_name("poller").replace('-', "_");
    let sql = format!(
        "create role {role} login; grant usage on schema walpost to {role}; \
         grant select on all tables in schema walpost to {role}"
    );
    polled.rig.client.batch_execute(&sql).await.unwrap();
    let (host, port) = polled.rig.database.first_target();
    let url =
        format!("host={host} port={port} user={role} dbname={}", polled.rig.database.dbname());
    let polled = Polled { rig: polled.rig.connecting_to(&url), ..polled };
    let (outcome, _, next_step) = polled.checked("walpost's tables").await;
    assert_eq!(outcome, Outcome::Fail);
    let grant = next_step.unwrap();
    assert!(grant.contains("grant insert, update, delete on"), "{grant}");
    let (outcome, _, next_step) = polled.checked("outbox table").await;
    assert_eq!(outcome, Outcome::Fail);
    assert!(next_step.unwrap().contains("grant update on \"walpost\".\"outbox\""));
}

#[tokio::test]
async fn rows_are_published_once_and_in_order_whatever_the_bounds_of_a_claim() {
    let mut polled = Polled::new().await;
    polled.polling.claim_max_aggregates = 2;
    polled.polling.aggregate_max_events = 3;
    polled.polling.claim_max_events = 5;
    let values: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    for chunk in values.chunks(12) {
        let chunk: Vec<&str> = chunk.iter().map(String::as_str).collect();
        polled.rig.insert("a", &chunk[..6]).await;
        polled.rig.insert("b", &chunk[6..8]).await;
        polled.rig.insert("c", &chunk[8..]).await;
    }
    let relay = polled.polling().await;
    polled.reaches("PUBLISHED", 60).await;
    stop(relay).await;
    let landed = polled.rig.world.landed();
    assert_eq!(landed.len(), 60, "once each");
    for key in ["a", "b", "c"] {
        let of_key = landed.iter().filter(|message| message.key.as_deref() == Some(key.as_bytes()));
        let numbers: Vec<u32> =
            of_key.map(|message| crate::sink::value(message).parse().unwrap()).collect();
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
    }
    let stamped = "select count(*) from walpost.outbox where published_at is not null";
    assert_eq!(polled.rig.count(stamped).await, 60);
    let names: Vec<&str> = landed[0].headers.iter().map(|header| &*header.name).collect();
    assert_eq!(names, ["id", "walpost-source"], "a row has no position in the stream");
}

#[tokio::test]
async fn a_row_that_commits_late_is_not_passed_over() {
    let polled = Polled::new().await;
    let mut late = polled.rig.database.connect().await.unwrap();
    let open = late.transaction().await.unwrap();
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                  values ('order', 'late', 'Placed', '0')";
    open.batch_execute(insert).await.unwrap();
    let relay = polled.polling().await;
    polled.rig.insert("early", &["1", "2"]).await;
    polled.reaches("PUBLISHED", 2).await;
    polled.rig.insert("early", &["3"]).await;
    polled.reaches("PUBLISHED", 3).await;
    open.commit().await.unwrap();
    polled.reaches("PUBLISHED", 4).await;
    stop(relay).await;
    assert_eq!(polled.rig.world.values(), ["1", "2", "3", "0"]);
}

#[tokio::test]
async fn a_row_larger_than_it_may_be_fails_and_is_told() {
    let mut polled = Polled::new().await;
    polled.rig.config.max_event_bytes = 2_000;
    polled.polling.max_attempts = 1;
    let relay = polled.polling().await;
    let large = format!("\"{}\"", "x".repeat(4_000));
    polled.rig.insert("a", &[&large, "1"]).await;
    polled.rig.insert("b", &["2"]).await;
    polled.reaches("FAILED", 1).await;
    status(&relay, "the count of what failed", |status| {
        status.polling.is_some_and(|sight| sight.failed == 1 && sight.pending == 1)
    })
    .await;
    stop(relay).await;
    assert_eq!(polled.rig.world.values(), ["2"], "1 waits behind the large one");
    let told = "select count(*) from walpost.outbox where last_error like '%max_event_bytes%'";
    assert_eq!(polled.rig.count(told).await, 1);
}

#[tokio::test]
async fn failed_rows_are_requeued_by_id_by_aggregate_and_all_and_not_by_a_dry_run() {
    let mut polled = Polled::new().await;
    polled.rig.config.park = ParkMode::Event;
    polled.polling.max_attempts = 1;
    for value in ["1", "2", "3", "4"] {
        polled.rig.world.never(value);
    }
    let relay = polled.polling().await;
    polled.rig.insert("a", &["1", "2"]).await;
    polled.rig.insert("b", &["3", "4"]).await;
    polled.reaches("FAILED", 4).await;
    polled.rig.world.mend();
    assert_eq!(polled.requeue(Requeue::All, true).await.len(), 4);
    assert_eq!(polled.count("FAILED").await, 4, "a dry run changes nothing");
    let first: String = polled
        .rig
        .client
        .query_one("select id::text from walpost.outbox where payload = '4'", &[])
        .await
        .unwrap()
        .get(0);
    let requeued = polled.requeue(Requeue::Ids(vec![first.clone()]), false).await;
    assert_eq!(requeued[0].id, first);
    assert!(requeued[0].last_error.as_ref().unwrap().contains("too large"), "{requeued:?}");
    polled.reaches("PUBLISHED", 1).await;
    let aggregate = Requeue::Aggregate(vec!["order".to_owned(), "a".to_owned()]);
    assert_eq!(polled.requeue(aggregate, false).await.len(), 2);
    polled.reaches("PUBLISHED", 3).await;
    assert_eq!(polled.requeue(Requeue::All, false).await.len(), 1);
    polled.reaches("PUBLISHED", 4).await;
    stop(relay).await;
    assert_eq!(polled.rig.world.values(), ["4", "1", "2", "3"]);
    assert_eq!(polled.rig.count("select count(*) from walpost.polling_attempts").await, 0);
}

#[tokio::test]
async fn columns_that_a_table_has_not_are_kept_beside_it() {
    let mut polled = Polled::without_columns().await;
    for column in [
        &mut polled.polling.attempts_column,
        &mut polled.polling.next_attempt_at_column,
        &mut polled.polling.published_at_column,
        &mut polled.polling.last_error_column,
    ] {
        column.clear();
    }
    polled.mend().await;
    polled.polling.max_attempts = 3;
    polled.rig.world.never("1");
    let relay = polled.polling().await;
    polled.rig.insert("a", &["1", "2"]).await;
    polled.reaches("FAILED", 1).await;
    let kept = "select count(*) from walpost.polling_attempts where attempts = 3 and refused = 3 \
                and pipeline = 'shop'";
    assert_eq!(polled.rig.count(kept).await, 1);
    polled.rig.world.mend();
    assert_eq!(polled.requeue(Requeue::All, false).await.len(), 1);
    polled.reaches("PUBLISHED", 2).await;
    stop(relay).await;
    assert_eq!(polled.rig.world.values(), ["1", "2"]);
    assert_eq!(polled.rig.count("select count(*) from walpost.polling_attempts").await, 0);
}

#[tokio::test]
async fn two_tables_are_refused() {
    let mut rig = Rig::new().await;
    rig.config.tables.push("public.other".parse().unwrap());
    let encoding = rig_encoding();
    let refused = PollingRelay::new(
        rig.database.clone(),
        rig.config.clone(),
        PollingConfig::default(),
        rig.router.clone(),
        encoding,
    );
    assert!(matches!(refused, Err(RelayError::Config(text)) if text.contains("2 tables")));
}

fn rig_encoding() -> walpost_encode::Encoding {
    let raw = walpost_encode::Encoder::Raw;
    walpost_encode::Encoding { key: raw, value: raw }
}

#[tokio::test]
async fn several_pollers_share_the_work_and_publish_each_row_once() {
    let mut polled = Polled::new().await;
    polled.polling.claim_max_aggregates = 3;
    let relays = [polled.polling().await, polled.polling().await, polled.polling().await];
    for round in 0..20 {
        for aggregate in 0..12 {
            let values = [2 * round, 2 * round + 1].map(|n| (1_000 * aggregate + n).to_string());
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            polled.rig.insert(&format!("a{aggregate}"), &values).await;
        }
    }
    polled.reaches("PUBLISHED", 480).await;
    let mut shares = Vec::new();
    for relay in relays {
        let status = relay.status();
        stop(relay).await;
        shares.push(status.borrow().published);
    }
    let mut numbers: Vec<u32> =
        polled.rig.world.values().iter().map(|value| value.parse().unwrap()).collect();
    for aggregate in 0..12 {
        let of_it = numbers.iter().filter(|number| *number / 1_000 == aggregate);
        assert!(of_it.is_sorted(), "aggregate {aggregate}");
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!((numbers.len(), polled.rig.world.count()), (480, 480));
    assert_eq!(shares.iter().sum::<u64>(), 480, "{shares:?}");
    assert!(shares.iter().filter(|share| **share > 0).count() > 1, "{shares:?}");
}

#[tokio::test]
async fn a_claim_locks_no_more_than_it_may() {
    let mut polled = Polled::new().await;
    polled.polling.claim_max_aggregates = 2;
    polled.rig.world.hold(true);
    for aggregate in ["a", "b", "c"] {
        polled.rig.insert(aggregate, &["1", "2"]).await;
    }
    let relay = polled.polling().await;
    until(SOON, "a claim", async || polled.rig.world.queued() == 4).await;
    let free = "select count(*) from (select from walpost.outbox for update skip locked) free";
    assert_eq!(polled.rig.count(free).await, 4, "the first rows of two aggregates are locked");
    polled.rig.world.hold(false);
    polled.reaches("PUBLISHED", 6).await;
    stop(relay).await;
}

#[tokio::test]
async fn a_notification_finds_a_row_at_once_also_after_its_session_was_ended() {
    let mut polled = Polled::new().await;
    polled.polling.poll_interval_ms = 60_000;
    polled.polling.notify_channel = "Outbox rows".to_owned();
    let relay = polled.polling().await;
    let listener = "select coalesce(max(pid), 0)::int8 from pg_stat_activity \
                    where datname = current_database() and query like '%listen%' \
                    and state = 'idle' and pid <> pg_backend_pid()";
    until(SOON, "the session that listens", async || polled.rig.count(listener).await > 0).await;
    let first = polled.rig.count(listener).await;
    status(&relay, "a first look", |status| status.polling.is_some()).await;
    polled.rig.insert("a", &["1"]).await;
    polled.rig.client.batch_execute("notify \"Outbox rows\"").await.unwrap();
    polled.reaches("PUBLISHED", 1).await;
    let end = format!("select pg_terminate_backend({first})::int4::int8");
    assert_eq!(polled.rig.count(&end).await, 1);
    until(SOON, "another one", async || ![0, first].contains(&polled.rig.count(listener).await))
        .await;
    polled.rig.insert("a", &["2"]).await;
    polled.rig.client.batch_execute("notify \"Outbox rows\"").await.unwrap();
    polled.reaches("PUBLISHED", 2).await;
    stop(relay).await;
}

/// Of two first rows of an aggregate nobody could say which one goes first.
#[tokio::test]
async fn a_row_without_a_place_in_the_order_is_named() {
    let mut polled = Polled::new().await;
    polled.polling.order_columns = vec!["created_at".to_owned()];
    polled.rig.insert("a", &["1", "2"]).await;
    let no_place = "alter table walpost.outbox alter column created_at drop not null; \
                    update walpost.outbox set created_at = null where payload = '2'";
    polled.rig.client.batch_execute(no_place).await.unwrap();
    let mut relay = polled.start();
    let ended = tokio::time::timeout(SOON, relay.finished()).await.expect("it ends");
    let refusal = ended.unwrap_err().to_string();
    for part in ["has null in a column of its order (created_at)", "not null"] {
        assert!(refusal.contains(part), "expected {part:?} in: {refusal}");
    }
    assert_eq!(polled.rig.world.count(), 0);
}
