//! Where a switch of the source could lose or repeat events, it is refused, and
//! nothing has changed.

use walpost_relay::{SwitchStep, SwitchTo};
use walpost_testkit::until;

use crate::{
    polling_rig::Polled,
    rig::{SOON, stop},
    switching::{die_at, switch, switch_of},
};

async fn refused(polled: &Polled, to: SwitchTo, parts: &[&str]) {
    let text = switch(polled, to).await.unwrap_err().to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

#[tokio::test]
async fn while_a_relay_runs() {
    let polled = Polled::new().await;
    let relay = polled.rig.streaming().await;
    // One that has made its first start holds the lock of that, too.
    refused(&polled, SwitchTo::Polling, &["is in use", "stop"]).await;
    stop(relay).await;
    let relay = polled.rig.streaming().await;
    refused(&polled, SwitchTo::Polling, &["slot", "is in use", "stop it"]).await;
    polled.rig.insert("a", &["1"]).await;
    polled.rig.landed(1).await;
    stop(relay).await;
}

#[tokio::test]
async fn with_parked_events_also_those_that_come_at_the_end() {
    let polled = Polled::new().await;
    let rig = &polled.rig;
    let relay = rig.streaming().await;
    stop(relay).await;
    rig.world.never("1");
    rig.insert("a", &["1", "2"]).await;
    let parts = ["2 events", "are parked", "walpost parked list"];
    refused(&polled, SwitchTo::Polling, &parts).await;
    refused(&polled, SwitchTo::Polling, &parts).await;
    // The relay is as before.
    let relay = rig.streaming().await;
    rig.insert("b", &["3"]).await;
    assert_eq!(rig.landed(1).await, ["3"]);
    let ask = "update walpost.parked set requested = 'discard', requested_at = now()";
    rig.client.batch_execute(ask).await.unwrap();
    let open = "select count(*) from walpost.parked where state = 'open'";
    until(SOON, "none parked", async || rig.count(open).await == 0).await;
    stop(relay).await;
    assert!(!switch(&polled, SwitchTo::Polling).await.unwrap().is_already);
    assert_eq!(polled.count("NEW").await, 0);
}

#[tokio::test]
async fn with_failed_rows_also_those_that_fail_at_the_end() {
    let mut polled = Polled::new().await;
    polled.polling.max_attempts = 1;
    polled.rig.world.never("1");
    polled.rig.insert("a", &["1", "2"]).await;
    let parts = ["1 rows", "have failed", "walpost requeue"];
    refused(&polled, SwitchTo::Wal, &parts).await;
    refused(&polled, SwitchTo::Wal, &parts).await;
    polled.rig.world.mend();
    polled.requeue(walpost_relay::Requeue::All, false).await;
    switch(&polled, SwitchTo::Wal).await.unwrap();
    assert_eq!(polled.rig.world.values(), ["1", "2"]);
}

#[tokio::test]
async fn where_no_column_tells_the_transaction() {
    let polled = Polled::new().await;
    let relay = polled.rig.streaming().await;
    stop(relay).await;
    polled.rig.client.batch_execute("alter table walpost.outbox drop xid").await.unwrap();
    refused(&polled, SwitchTo::Polling, &["no column xid", "add column xid xid8"]).await;
    let polled = Polled::new().await;
    polled.rig.client.batch_execute("alter table walpost.outbox drop xid").await.unwrap();
    refused(&polled, SwitchTo::Wal, &["no column xid", "add column xid xid8"]).await;
}

#[tokio::test]
async fn with_transaction_ids_of_another_cluster() {
    let polled = Polled::new().await;
    polled.rig.insert("a", &["1"]).await;
    let foreign = "update walpost.outbox set xid = '1000000000000'";
    polled.rig.client.batch_execute(foreign).await.unwrap();
    refused(&polled, SwitchTo::Wal, &["of another cluster"]).await;
}

#[tokio::test]
async fn where_messages_were_published_that_nobody_can_poll() {
    let mut polled = Polled::new().await;
    let relay = polled.rig.streaming().await;
    let emit = "select pg_logical_emit_message(true, 'walpost', \
                '{\"id\":\"0191f0c4-7a11-7c3e-9d55-2f1f6f0c1a2b\",\"aggregatetype\":\"order\",\
                \"aggregateid\":\"a\",\"type\":\"Placed\",\"payload\":1}')";
    polled.rig.client.batch_execute(emit).await.unwrap();
    let noted = "select count(*) from walpost.checkpoint where has_messages";
    until(SOON, "it is noted", async || polled.rig.count(noted).await == 1).await;
    stop(relay).await;
    refused(&polled, SwitchTo::Polling, &["pg_logical_emit_message", "message_prefixes = []"])
        .await;
    polled.rig.config.message_prefixes.clear();
    assert!(!switch(&polled, SwitchTo::Polling).await.unwrap().is_already);
}

#[tokio::test]
async fn where_messages_come_at_the_end() {
    let polled = Polled::new().await;
    stop(polled.rig.streaming().await).await;
    let emit = "select pg_logical_emit_message(true, 'walpost', \
                '{\"id\":\"0191f0c4-7a11-7c3e-9d55-2f1f6f0c1a2b\",\"aggregatetype\":\"order\",\
                \"aggregateid\":\"a\",\"type\":\"Placed\",\"payload\":1}')";
    polled.rig.client.batch_execute(emit).await.unwrap();
    refused(&polled, SwitchTo::Polling, &["pg_logical_emit_message"]).await;
    // The relay goes on, and has sent it once.
    let relay = polled.rig.streaming().await;
    polled.rig.insert("a", &["2"]).await;
    assert_eq!(polled.rig.landed(2).await, ["1", "2"]);
    stop(relay).await;
}

/// Rows that were committed meanwhile are in no stream, and not published.
#[tokio::test]
async fn where_the_publication_is_another_behind_the_cut() {
    let polled = Polled::new().await;
    stop(polled.rig.streaming().await).await;
    polled.rig.insert("a", &["1"]).await;
    let client = polled.rig.database.connect().await.unwrap();
    let change = async |step| {
        if step == SwitchStep::CutMade {
            let gap = "alter publication walpost drop table walpost.outbox; \
                       alter publication walpost add table walpost.outbox";
            client.batch_execute(gap).await.unwrap();
        }
    };
    let world = polled.rig.world.clone();
    let switched =
        switch_of(&polled).run(SwitchTo::Polling, async || world.connect().await, change).await;
    let text = switched.unwrap_err().to_string();
    assert!(text.contains("publication"), "{text}");
    let wal = "select count(*) from walpost.checkpoint where source = 'wal' and switch is null";
    assert_eq!(polled.rig.count(wal).await, 1);
    refused(&polled, SwitchTo::Polling, &["walpost slot recover"]).await;
}

#[tokio::test]
async fn a_relay_of_the_other_source_also_where_it_was_never_switched() {
    let polled = Polled::new().await;
    stop(polled.polling().await).await;
    let text = polled.rig.refusal().await;
    assert!(text.contains("polls its outbox table") && text.contains("--to wal"), "{text}");
    switch(&polled, SwitchTo::Wal).await.unwrap();
    stop(polled.rig.streaming().await).await;
}

#[tokio::test]
async fn where_the_slot_is_somebody_elses_or_lost() {
    let polled = Polled::new().await;
    let slot = &polled.rig.config.slot;
    let create = format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')");
    polled.rig.client.batch_execute(&create).await.unwrap();
    refused(&polled, SwitchTo::Wal, &["is there already"]).await;
    let drop = format!("select pg_drop_replication_slot('{slot}')");
    polled.rig.client.batch_execute(&drop).await.unwrap();
    let relay = polled.rig.streaming().await;
    stop(relay).await;
    polled.rig.released().await;
    polled.rig.client.batch_execute(&drop).await.unwrap();
    refused(&polled, SwitchTo::Polling, &["walpost slot recover"]).await;
}

#[tokio::test]
async fn where_only_a_part_of_the_table_is_the_pipelines() {
    let polled = Polled::new().await;
    let relay = polled.rig.streaming().await;
    stop(relay).await;
    let filter = "alter publication walpost set table walpost.outbox where (aggregatetype = 'a')";
    polled.rig.client.batch_execute(filter).await.unwrap();
    let text = switch(&polled, SwitchTo::Polling).await.unwrap_err().to_string();
    assert!(text.contains("row filter"), "{text}");
}

#[tokio::test]
async fn back_before_the_switch_has_come_to_its_end() {
    let polled = Polled::new().await;
    let relay = polled.rig.streaming().await;
    stop(relay).await;
    die_at(&polled, SwitchTo::Polling, &|step| *step == SwitchStep::WalLeft).await;
    refused(&polled, SwitchTo::Wal, &["is being switched to polling", "finish it with"]).await;
}
