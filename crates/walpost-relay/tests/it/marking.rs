//! Rows that say themselves that they are published.

use walpost_relay::Outcome;
use walpost_testkit::until;

use crate::rig::{Rig, SOON, stop};

const COLUMNS: &str = "alter table walpost.outbox add column status text, \
                       add column published_at timestamptz; \
                       create index on walpost.outbox (seq) where published_at is null";
const MARKED: &str = "select count(*) from walpost.outbox \
                      where status = 'published' and published_at is not null";

async fn marking_rig() -> Rig {
    let mut rig = Rig::new().await;
    rig.config.mark_published = true;
    rig
}

async fn run(rig: &Rig, sql: &str) {
    rig.client.batch_execute(sql).await.unwrap();
}

#[tokio::test]
async fn published_rows_are_marked_behind_the_position_and_that_is_no_event() {
    let rig = marking_rig().await;
    run(&rig, COLUMNS).await;
    let relay = rig.streaming().await;
    let values: Vec<String> = (0..2500).map(|n: u32| n.to_string()).collect();
    rig.insert("a", &values.iter().map(String::as_str).collect::<Vec<_>>()).await;
    until(SOON, "all are marked", async || rig.count(MARKED).await == 2500).await;
    assert_eq!(rig.world.count(), 2500);
    rig.world.never("-1");
    rig.insert("b", &["-1"]).await;
    rig.insert("c", &["7"]).await;
    until(SOON, "the next is marked", async || rig.count(MARKED).await == 2501).await;
    let unmarked = "select count(*) from walpost.outbox where published_at is null \
                    and payload = '-1' and id::text in (select event_id from walpost.parked)";
    assert_eq!(rig.count(unmarked).await, 1);
    stop(relay).await;
    // What the updates have left in the WAL is not an event after a restart.
    let landed = rig.world.count();
    rig.released().await;
    let relay = rig.streaming().await;
    rig.insert("d", &["8"]).await;
    rig.landed(landed + 1).await;
    assert_eq!(rig.world.count(), landed + 1);
    stop(relay).await;
}

#[tokio::test]
async fn what_it_needs_is_named_with_the_statements() {
    let rig = marking_rig().await;
    let refusal = rig.refusal().await;
    for part in ["add column status text", "where published_at is null", "mark_published = false"] {
        assert!(refusal.contains(part), "expected {part:?} in: {refusal}");
    }
    run(&rig, COLUMNS).await;
    for (spoil, told) in [
        ("alter column status type boolean using true", "cannot be marked: trying to mark"),
        (
            "alter column status type text, alter column published_at type bigint using null",
            "type bigint but",
        ),
    ] {
        run(&rig, &format!("alter table walpost.outbox {spoil}")).await;
        let refusal = rig.refusal().await;
        assert!(refusal.contains(told), "{refusal}");
        let (outcome, found) = rig.checked("marking").await;
        assert!(outcome == Outcome::Fail && found.contains(told), "{found}");
    }
    run(&rig, "alter table walpost.outbox drop column published_at, drop column status").await;
    run(&rig, COLUMNS).await;
    run(&rig, "alter publication walpost set (publish = 'insert, update')").await;
    let refusal = rig.refusal().await;
    assert!(refusal.contains("publishes updates"), "{refusal}");
    assert!(refusal.contains("set (publish = 'insert')"), "{refusal}");
}
