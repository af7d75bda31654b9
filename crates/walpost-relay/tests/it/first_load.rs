//! Rows of which nothing tells later whether they belong to the first load, as
//! in an outbox of Debezium's form: their load is not begun where it could not
//! come to its end.

use walpost_relay::{Initial, Phase, TableName};

use crate::{
    first_start::slot_waits,
    proven::open_transaction,
    rig::{Rig, SLOTS, phase, status, stop},
};

async fn without_xid() -> Rig {
    let mut rig = Rig::new().await;
    rig.config.initial = Some(Initial::Publish);
    rig.config.start_timeout_ms = None;
    rig.client.batch_execute("alter table walpost.outbox drop column xid").await.unwrap();
    rig
}

#[tokio::test]
async fn it_waits_for_the_sink_before_there_is_a_slot() {
    let rig = without_xid().await;
    rig.world.be_away(true);
    rig.insert("a", &["1", "2"]).await;
    let relay = rig.start();
    status(&relay, "sessions that wait", |status| status.failed_sessions > 2).await;
    assert_eq!(rig.count(SLOTS).await, 0);
    rig.insert("a", &["3"]).await;
    rig.world.be_away(false);
    assert_eq!(rig.landed(3).await, ["1", "2", "3"]);
    phase(&relay, &Phase::Streaming).await;
    assert_eq!(rig.world.sessions(), 2, "one for the load, which was there first");
    rig.insert("a", &["4"]).await;
    assert_eq!(rig.landed(4).await, ["1", "2", "3", "4"]);
    stop(relay).await;
}

#[tokio::test]
async fn an_empty_table_has_its_slot_before_the_sink_answers() {
    let rig = without_xid().await;
    rig.world.be_away(true);
    let relay = rig.start();
    status(&relay, "sessions that wait", |status| status.failed_sessions > 2).await;
    assert_eq!(rig.count(SLOTS).await, 1);
    let gone_at_once = "begin; insert into walpost.outbox \
        (aggregatetype, aggregateid, type, payload) values ('order', 'a', 'Placed', '1'); \
        delete from walpost.outbox; commit";
    rig.client.batch_execute(gone_at_once).await.unwrap();
    rig.world.be_away(false);
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;
}

#[tokio::test]
async fn rows_that_come_while_the_slot_is_made_have_it_made_again_with_the_sink() {
    for initial in [Some(Initial::Publish), None] {
        let mut rig = without_xid().await;
        rig.config.initial = initial;
        rig.world.be_away(true);
        let writer = open_transaction(&rig, "a", "1").await;
        let relay = rig.start();
        slot_waits(&rig).await;
        writer.batch_execute("commit").await.unwrap();
        status(&relay, "sessions that wait", |status| status.failed_sessions > 2).await;
        rig.insert("a", &["2"]).await;
        rig.world.be_away(false);
        assert_eq!(rig.landed(2).await, ["1", "2"]);
        phase(&relay, &Phase::Streaming).await;
        rig.insert("a", &["3"]).await;
        assert_eq!(rig.landed(3).await, ["1", "2", "3"]);
        stop(relay).await;
    }
}

#[tokio::test]
async fn a_relay_that_stands_by_has_no_sink_that_would_fence_off_the_one_that_starts() {
    let rig = without_xid().await;
    rig.insert("a", &["1"]).await;
    let writer = open_transaction(&rig, "a", "2").await;
    let first = rig.start();
    slot_waits(&rig).await;
    let second = rig.start();
    phase(&second, &Phase::Standby).await;
    assert_eq!(rig.world.sessions(), 1);
    writer.batch_execute("commit").await.unwrap();
    assert_eq!(rig.landed(2).await, ["1", "2"]);
    phase(&first, &Phase::Streaming).await;
    stop(first).await;
    phase(&second, &Phase::Streaming).await;
    rig.insert("a", &["3"]).await;
    assert_eq!(rig.landed(3).await, ["1", "2", "3"]);
    stop(second).await;
}

#[tokio::test]
async fn one_table_of_several_that_tells_nothing_is_enough_also_an_empty_one() {
    let mut rig = Rig::new().await;
    rig.config.initial = Some(Initial::Publish);
    rig.config.start_timeout_ms = None;
    let other = "create table walpost.other (like walpost.outbox including all); \
                 alter table walpost.other drop column xid";
    rig.client.batch_execute(other).await.unwrap();
    rig.config.tables.push(TableName { schema: "walpost".into(), name: "other".into() });
    let publication = format!(
        "drop publication if exists {name}; create publication {name} for table walpost.outbox, \
         walpost.other with (publish = 'insert')",
        name = rig.config.publication
    );
    rig.client.batch_execute(&publication).await.unwrap();
    rig.world.be_away(true);
    rig.insert("a", &["1"]).await;
    let relay = rig.start();
    status(&relay, "sessions that wait", |status| status.failed_sessions > 2).await;
    assert_eq!(rig.count(SLOTS).await, 0);
    rig.world.be_away(false);
    assert_eq!(rig.landed(1).await, ["1"]);
    stop(relay).await;
}
