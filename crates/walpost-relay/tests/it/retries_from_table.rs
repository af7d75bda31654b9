//! Parked events that are published from their rows in the outbox table.

use walpost_testkit::until;

use crate::{
    encodings::database_in,
    parking::{allow_no_type, parked},
    retries::{replay, states},
    rig::{Rig, SOON, stop},
};

async fn run(rig: &Rig, sql: &str) {
    rig.client.batch_execute(sql).await.unwrap();
}

/// Asks for open events of this reason.
async fn retry(rig: &Rig, reason: &str, from_table: bool) {
    let sql = format!(
        "update walpost.parked set requested = 'retry', requested_at = now(), \
         retry_from_table = {from_table} where state = 'open' and reason = '{reason}'"
    );
    assert!(rig.client.execute(&sql, &[]).await.unwrap() > 0, "{reason}");
}

/// Waits until nothing is asked for, and returns the detail of the first event.
async fn answered(rig: &Rig) -> String {
    let asked =
        "select count(*) from walpost.parked where requested is not null or retry_from_table";
    until(SOON, "the answer", async || rig.count(asked).await == 0).await;
    let sql = "select detail from walpost.parked order by commit_lsn, ordinal limit 1";
    rig.client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn what_was_too_large_is_published_from_its_row_before_what_it_blocks() {
    let mut rig = Rig::new().await;
    rig.config.max_event_bytes = 10_000;
    let relay = rig.streaming().await;
    let large = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                 select 'order', 'a', 'Placed', to_jsonb(repeat('x', 20000))";
    run(&rig, large).await;
    rig.insert("a", &["2"]).await;
    parked(&rig, "oversize behind").await;
    // Without the option too: there is nothing else to be sent.
    retry(&rig, "oversize", false).await;
    assert!(answered(&rig).await.contains("max_event_bytes is 10000"));
    stop(relay).await;

    rig.config.max_event_bytes = 100_000;
    let relay = rig.streaming().await;
    retry(&rig, "oversize", true).await;
    let values = rig.landed(2).await;
    assert_eq!((values[0].len(), &*values[1]), (20_002, "2"));
    states(&rig, "done done").await;
    assert!(replay(&rig.world.landed()[0]).unwrap().starts_with("parked:1:"));
    let id: String = rig
        .client
        .query_one("select event_id from walpost.parked order by ordinal limit 1", &[])
        .await
        .unwrap()
        .get(0);
    let message = &rig.world.landed()[0];
    let header = message.headers.iter().find(|header| &*header.name == "id").unwrap();
    assert_eq!(header.value.as_deref(), Some(id.as_bytes()));
    stop(relay).await;

    // Read from the WAL once more it is neither sent nor parked.
    let relay = rig.streaming().await;
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.landed(3).await[2], "3");
    stop(relay).await;
}

#[tokio::test]
async fn a_row_that_was_corrected_is_published_from_the_table_alone() {
    let rig = Rig::new().await;
    allow_no_type(&rig).await;
    let relay = rig.streaming().await;
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                  values (null, 'a', 'Placed', '1')";
    run(&rig, insert).await;
    parked(&rig, "unroutable").await;
    run(&rig, "update walpost.outbox set aggregatetype = 'order'").await;
    retry(&rig, "unroutable", false).await;
    assert!(answered(&rig).await.contains("NULL"), "the parked row is as it was");
    retry(&rig, "unroutable", true).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    states(&rig, "done").await;
    stop(relay).await;
}

#[tokio::test]
async fn a_table_that_is_locked_costs_the_event_that_is_asked_for_its_retry_alone() {
    let mut rig = Rig::new().await;
    rig.config.statement_timeout_ms = 1_000;
    allow_no_type(&rig).await;
    let relay = rig.streaming().await;
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                  values (null, 'a', 'Placed', '1')";
    run(&rig, insert).await;
    parked(&rig, "unroutable").await;
    run(&rig, "update walpost.outbox set aggregatetype = 'order'").await;
    let mut locking = rig.database.connect().await.unwrap();
    let lock = locking.transaction().await.unwrap();
    lock.batch_execute("lock table walpost.outbox in access exclusive mode").await.unwrap();
    retry(&rig, "unroutable", true).await;
    let detail = answered(&rig).await;
    assert!(detail.contains("its row cannot be read from the outbox table"), "{detail}");
    lock.rollback().await.unwrap();
    retry(&rig, "unroutable", true).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    assert_eq!(relay.status().borrow().failed_sessions, 0);
    stop(relay).await;
}

/// As after a publication with a column list.
#[tokio::test]
async fn what_was_parked_without_a_column_is_published_with_it() {
    let rig = Rig::new().await;
    allow_no_type(&rig).await;
    let relay = rig.streaming().await;
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                  values (null, 'a', 'Placed', '1'), (null, 'b', 'Placed', '2')";
    run(&rig, insert).await;
    parked(&rig, "unroutable unroutable").await;
    let narrow = "update walpost.parked set row_columns = ( \
                  select jsonb_agg(case c ->> 'name' when 'aggregatetype' \
                  then c || '{\"text\": \"order\"}' else c end) \
                  from jsonb_array_elements(row_columns) c where c ->> 'name' <> 'payload'); \
                  update walpost.outbox set aggregatetype = 'order'; \
                  delete from walpost.outbox where aggregateid = 'b'";
    run(&rig, narrow).await;
    retry(&rig, "unroutable", false).await;
    let detail = answered(&rig).await;
    assert!(detail.contains("at column payload"), "{detail}");
    assert!(detail.contains("then retry from the table"), "{detail}");
    retry(&rig, "unroutable", true).await;
    assert_eq!(rig.landed(1).await, ["1"]);
    states(&rig, "done open").await;
    let gone = "select count(*) from walpost.parked where detail like '%no row of the pipeline%'";
    until(SOON, "the reason", async || rig.count(gone).await == 1).await;
    stop(relay).await;
}

/// As of a table that was dropped and made again: its ids may be other events'.
#[tokio::test]
async fn a_row_of_a_table_with_another_id_space_is_another_event() {
    let rig = Rig::new().await;
    rig.world.never("1");
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    parked(&rig, "rejected").await;
    run(&rig, "update walpost.outbox set payload = '2'").await;
    let (kept, other) = (
        "update walpost.parked p set id_space = s.id from walpost.id_space s \
         where s.outbox = 'walpost.outbox'::regclass",
        "update walpost.parked set id_space = gen_random_uuid()",
    );
    run(&rig, other).await;
    retry(&rig, "rejected", true).await;
    assert!(answered(&rig).await.contains("another id space"));
    run(&rig, kept).await;
    retry(&rig, "rejected", true).await;
    assert_eq!(rig.landed(1).await, ["2"]);
    states(&rig, "done").await;
    stop(relay).await;
}

#[tokio::test]
async fn a_row_of_another_aggregate_is_not_taken_for_a_refused_event() {
    let rig = Rig::new().await;
    rig.world.never("1");
    let relay = rig.streaming().await;
    rig.insert("a", &["1"]).await;
    parked(&rig, "rejected").await;
    run(&rig, "update walpost.outbox set aggregateid = 'b', payload = '2'").await;
    retry(&rig, "rejected", true).await;
    assert!(answered(&rig).await.contains("of another aggregate now"));
    run(&rig, "update walpost.outbox set aggregateid = 'a'").await;
    retry(&rig, "rejected", true).await;
    assert_eq!(rig.landed(1).await, ["2"]);
    states(&rig, "done").await;
    stop(relay).await;
}

#[tokio::test]
async fn a_value_without_a_utf8_form_is_published_once_it_has_one() {
    for encoding in ["SQL_ASCII", "WIN1252"] {
        let rig = database_in(encoding).await;
        let relay = rig.streaming().await;
        let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                      values ('order', 'a', 'Placed', E'\"caf\\x81\"'), ('order', 'a', 'Placed', '2')";
        run(&rig, insert).await;
        parked(&rig, "undecodable behind").await;
        retry(&rig, "undecodable", false).await;
        assert!(answered(&rig).await.contains("at column payload"));
        run(&rig, "update walpost.outbox set payload = '\"café\"' where payload <> '2'").await;
        retry(&rig, "undecodable", false).await;
        assert_eq!(rig.landed(2).await, ["\"café\"", "2"], "{encoding}");
        states(&rig, "done done").await;
        stop(relay).await;
    }
}
