//! How rows of parked events are written: beside the pipeline, in batches, and
//! by the run that owns the pipeline alone.

use tokio_postgres::Client;
use walpost_testkit::{SharedPostgres, postgres, postgres_of, until};

use crate::{
    parking::{allow_no_type, parked},
    rig::{Rig, SOON, status, stop},
};

const WAL_NOW: &str = "select pg_current_wal_insert_lsn()::text";
const ROWS: &str = "select count(*) from walpost.parked";

/// Inserts an event that has no route.
async fn no_route(rig: &Rig, aggregate: &str) {
    let sql = format!(
        "insert into walpost.outbox (aggregateid, type, payload) values ('{aggregate}', 'x', '1')"
    );
    rig.client.batch_execute(&sql).await.unwrap();
}

/// Waits until a statement like this waits for a lock.
pub(crate) async fn waits_for_a_lock(rig: &Rig, statement: &str) -> i32 {
    let sql = "select pid from pg_stat_activity where datname = current_database() \
               and wait_event_type = 'Lock' and query like $1";
    let mut pid = None;
    until(SOON, &format!("{statement} waits for a lock"), async || {
        let row = rig.client.query_opt(sql, &[&statement]).await.unwrap();
        pid = row.map(|row| row.get(0));
        pid.is_some()
    })
    .await;
    pid.unwrap()
}

const PARKING: &str = "%insert into %parked%";

/// Keeps others from writing parked rows until it commits.
async fn locked(rig: &Rig) -> Client {
    let other = rig.database.connect().await.unwrap();
    other.batch_execute("begin; lock table walpost.parked in share mode").await.unwrap();
    other
}

#[tokio::test]
async fn while_rows_are_written_others_go_on_and_no_position_passes_the_event() {
    let rig = Rig::new().await;
    allow_no_type(&rig).await;
    let relay = rig.streaming().await;
    // The first event waits until its place is named.
    rig.insert("b", &["0"]).await;
    rig.landed(1).await;
    let other = locked(&rig).await;
    no_route(&rig, "a").await;
    let behind_it = rig.lsn(WAL_NOW).await;
    waits_for_a_lock(&rig, PARKING).await;
    rig.insert("b", &["1", "2"]).await;
    assert_eq!(rig.landed(3).await, ["0", "1", "2"]);
    let now = rig.lsn(WAL_NOW).await;
    status(&relay, "all of it received", |status| status.received >= now).await;
    assert!(relay.status().borrow().done < behind_it);
    let committed = rig.lsn("select confirmed_lsn::text from walpost.checkpoint").await;
    assert!(committed < behind_it && rig.slot_position().await < behind_it);

    other.batch_execute("commit").await.unwrap();
    until(SOON, "the slot follows", async || rig.slot_position().await >= now).await;
    assert_eq!(rig.count(ROWS).await, 1);
    assert_eq!((rig.world.sessions(), relay.status().borrow().parked), (1, 1));
    stop(relay).await;
}

#[tokio::test]
async fn thousands_behind_one_are_few_statements_and_keep_their_order() {
    let rig = Rig::new().await;
    let count = "create table statements (n int); \
                 create function note() returns trigger language plpgsql as \
                 $$begin insert into statements values (1); return null; end$$; \
                 create trigger note after insert on walpost.parked \
                 for each statement execute function note()";
    rig.client.batch_execute(count).await.unwrap();
    let relay = rig.streaming().await;
    rig.world.never("0");
    rig.insert("a", &["0"]).await;
    let sql = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
               select 'order', 'a', 'Placed', to_jsonb(n) from generate_series(1, 5000) n";
    rig.client.batch_execute(sql).await.unwrap();
    until(SOON, "all rows", async || rig.count(ROWS).await >= 5001).await;
    let statements = rig.count("select count(*) from statements").await;
    assert!(statements <= 100, "{statements}");
    let out_of_order = "select count(*) from (select id, row_number() over \
                        (order by commit_lsn, ordinal) as place from walpost.parked) p \
                        where id <> place";
    assert_eq!(rig.count(out_of_order).await, 0);
    let value = "select count(*) from walpost.parked where convert_from(record_value, 'UTF8')::int \
                 = ordinal + 1 and reason = 'behind'";
    assert_eq!(rig.count(value).await, 5000);
    rig.insert("b", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;
}

#[tokio::test]
async fn an_orderly_stop_waits_for_the_rows_that_are_being_written() {
    let rig = Rig::new().await;
    allow_no_type(&rig).await;
    let relay = rig.streaming().await;
    let other = locked(&rig).await;
    no_route(&rig, "a").await;
    let behind_it = rig.lsn(WAL_NOW).await;
    waits_for_a_lock(&rig, PARKING).await;
    no_route(&rig, "b").await;
    let now = rig.lsn(WAL_NOW).await;
    status(&relay, "all of it received", |status| status.received >= now).await;
    relay.stop();
    other.batch_execute("commit").await.unwrap();
    stop(relay).await;
    assert_eq!(rig.count(ROWS).await, 2);
    assert!(rig.lsn("select confirmed_lsn::text from walpost.checkpoint").await >= behind_it);

    let relay = rig.streaming().await;
    rig.insert("b", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    parked(&rig, "unroutable unroutable").await;
    stop(relay).await;
}

#[tokio::test]
async fn a_session_that_fails_while_it_writes_rows_loses_and_repeats_none() {
    let rig = Rig::new().await;
    allow_no_type(&rig).await;
    let relay = rig.streaming().await;
    let other = locked(&rig).await;
    no_route(&rig, "a").await;
    let writer = waits_for_a_lock(&rig, PARKING).await;
    no_route(&rig, "b").await;
    rig.client.query("select pg_terminate_backend($1)", &[&writer]).await.unwrap();
    other.batch_execute("commit").await.unwrap();
    parked(&rig, "unroutable unroutable").await;
    rig.insert("c", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    assert_eq!((rig.count(ROWS).await, rig.world.sessions()), (2, 2));
    stop(relay).await;
}

#[tokio::test]
async fn an_event_whose_row_is_committed_and_that_comes_again_is_neither_parked_nor_sent() {
    let rig = Rig::new().await;
    rig.world.never("2");
    rig.world.hold(true);
    let relay = rig.streaming().await;
    rig.insert("a", &["1", "2", "3"]).await;
    parked(&rig, "rejected behind").await;
    // The first one is on its way still, so no checkpoint is behind any of them.
    let kill = "select pg_terminate_backend(active_pid) from pg_replication_slots \
                where slot_name = $1";
    rig.client.query(kill, &[&rig.config.slot]).await.unwrap();
    until(SOON, "a second session", async || rig.world.sessions() == 2).await;
    rig.world.hold(false);
    rig.insert("b", &["4"]).await;
    assert_eq!(rig.landed(2).await, ["1", "4"]);
    parked(&rig, "rejected behind").await;
    stop(relay).await;
}

/// A relay on its way to write a row when another takes the pipeline over, and
/// has not committed that yet.
async fn a_take_over_under_way_wins(server: &'static SharedPostgres) {
    let mut rig = Rig::on(server).await;
    // No checkpoint comes before the statement and waits in its stead.
    rig.config.checkpoint_interval_ms = 60_000;
    allow_no_type(&rig).await;
    let mut relay = rig.streaming().await;
    let other = rig.database.connect().await.unwrap();
    // The other slot name keeps this relay from taking the pipeline back.
    let take = "begin; update walpost.checkpoint set token = gen_random_uuid(), slot = 'other'";
    other.batch_execute(take).await.unwrap();
    no_route(&rig, "a").await;
    waits_for_a_lock(&rig, PARKING).await;
    other.batch_execute("commit").await.unwrap();
    let ended = tokio::time::timeout(SOON, relay.finished()).await.expect("the relay ends");
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("was started on slot \"other\""), "{error}");
    assert_eq!(rig.count(ROWS).await, 0);
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn a_relay_that_was_taken_over_writes_no_row() {
    for server in [postgres_of(14), postgres(), postgres_of(18)] {
        a_take_over_under_way_wins(server).await;
    }
}

#[tokio::test]
async fn a_take_over_waits_for_the_rows_that_are_being_written_and_sees_them() {
    let rig = Rig::new().await;
    allow_no_type(&rig).await;
    let linger = "select pg_advisory_lock(7); \
                  create function linger() returns trigger language plpgsql as \
                  $$begin perform pg_advisory_xact_lock(7); return new; end$$; \
                  create trigger linger before insert on walpost.parked \
                  for each row execute function linger()";
    rig.client.batch_execute(linger).await.unwrap();
    let relay = rig.streaming().await;
    no_route(&rig, "a").await;
    waits_for_a_lock(&rig, PARKING).await;
    let other = rig.database.connect().await.unwrap();
    let taken = tokio::spawn(async move {
        let take = "update walpost.checkpoint set token = gen_random_uuid()";
        other.batch_execute(take).await.unwrap();
        other.query_one(ROWS, &[]).await.unwrap().get::<_, i64>(0)
    });
    waits_for_a_lock(&rig, "update walpost.checkpoint set token%").await;
    rig.client.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
    assert_eq!(taken.await.unwrap(), 1);
    stop(relay).await;
}

#[tokio::test]
async fn what_the_server_says_about_a_row_that_it_refuses_quotes_nothing_of_it() {
    let rig = Rig::new().await;
    allow_no_type(&rig).await;
    let refuse =
        "alter table walpost.parked add constraint no_cards check (aggregate_id <> '4929')";
    rig.client.batch_execute(refuse).await.unwrap();
    let mut relay = rig.streaming().await;
    no_route(&rig, "4929").await;
    let ended = tokio::time::timeout(SOON, relay.finished()).await.expect("the relay ends");
    let error = walpost_event::error_chain(&ended.unwrap_err());
    assert!(error.contains("parking events failed") && error.contains("no_cards"), "{error}");
    assert!(!error.contains("4929"), "{error}");
}

/// Of the aggregates that wait, as of many parked rows.
#[tokio::test]
async fn a_start_that_reads_parked_rows_for_long_keeps_its_slot() {
    let mut rig = Rig::new().await;
    rig.config.statement_timeout_ms = 2_000;
    rig.config.start_timeout_ms = None;
    let gate = "insert into walpost.parked (pipeline, generation, commit_lsn, ordinal, source, \
                aggregate_type, aggregate_id, reason) \
                values ('shop', 7, '0/5', 0, 's', 'order', 'a', 'unroutable'); \
                create function walpost.gate() returns boolean language plpgsql as $$ begin \
                if current_query() like '%distinct on (aggregate_type%' then \
                perform pg_advisory_xact_lock_shared(7); end if; return true; end $$; \
                alter table walpost.parked rename to parked_rows; \
                create view walpost.parked as select * from walpost.parked_rows where walpost.gate()";
    rig.client.batch_execute(gate).await.unwrap();
    let other = rig.database.connect().await.unwrap();
    other.batch_execute("select pg_advisory_lock(7)").await.unwrap();
    let relay = rig.start();
    // Longer than a statement may take, and the server hears of the same session.
    let lasts = format!(
        "select count(*) from pg_stat_activity r, pg_replication_slots s \
         join pg_stat_replication w on w.pid = s.active_pid where s.slot_name = '{}' \
         and r.datname = current_database() and r.wait_event = 'advisory' \
         and r.query like '%distinct on (aggregate_type%' and w.backend_start < r.query_start \
         and w.reply_time > r.query_start + interval '2500 ms'",
        rig.config.slot
    );
    until(3 * SOON, "a sign of life", async || rig.count(&lasts).await == 1).await;
    other.batch_execute("select pg_advisory_unlock(7)").await.unwrap();
    rig.insert("b", &["1"]).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;
}
