//! Parked events in their topic of dead letters, on the whole chain.

use std::{collections::BTreeMap, process::Command};

use serde_json::Value;
use walpost_testkit::{
    Committed, Process, Published, ReadRecord, create_topic, judge, kafka, postgres, read_all,
    until,
};
use walpost_tests::{LIMIT, Shop, Writer, walpost_binary};

/// A shop whose events may be without a route and without a key, and the topic
/// of its dead letters, which is not there yet.
async fn shop() -> (Shop, String) {
    let shop = Shop::without_topic(postgres()).await;
    // A compacted topic takes no record without a key.
    create_topic(kafka().bootstrap(), &shop.topic, 2, &[("cleanup.policy", "compact")]).await;
    let loose = "alter table walpost.outbox alter aggregatetype drop not null, \
                 alter aggregateid drop not null";
    shop.connect().await.batch_execute(loose).await.unwrap();
    let dead = format!("{}-dead", shop.name);
    (shop, dead)
}

fn relay(shop: &Shop, dead: &str, more: &[(&str, &str)]) -> Process {
    let mut settings =
        vec![("WALPOST_PIPELINE_DEAD_LETTER_TOPIC", dead), ("WALPOST_PIPELINE_PARK", "event")];
    settings.extend_from_slice(more);
    shop.relay_with(&settings)
}

async fn dead_letters(topic: &str) -> Vec<ReadRecord> {
    read_all(kafka().bootstrap(), topic).await
}

async fn count(shop: &Shop, sql: &str) -> i64 {
    shop.connect().await.query_one(sql, &[]).await.unwrap().get(0)
}

/// An event that nobody can route; its id.
async fn lose_one(shop: &Shop, payload: &str) -> String {
    let insert = "insert into walpost.outbox (aggregateid, type, payload) \
                  values ('lost', 'Placed', $1::text::jsonb) returning id::text";
    shop.connect().await.query_one(insert, &[&payload]).await.unwrap().get(0)
}

const NOTED: &str = "select count(*) from walpost.parked \
                     where dead_letter_at is not null and dead_letter_error is null";

/// What the shop committed and can be routed is in its topic exactly once.
async fn the_others_are_published_once(shop: &Shop) {
    let client = shop.connect().await;
    let sql = "select id::text, aggregateid from walpost.outbox \
               where aggregatetype is not null and id::text not in \
                   (select event_id from walpost.parked where state <> 'done') order by seq";
    let rows = client.query(sql, &[]).await.unwrap();
    let committed: Vec<Committed> =
        rows.iter().map(|row| Committed { id: row.get(0), aggregate: row.get(1) }).collect();
    until(LIMIT, "the others", async || shop.records().await.len() >= committed.len()).await;
    let published: Vec<Published> = shop.published().await;
    judge(&committed, &published, None).assert_exactly_once();
}

async fn every_kind_arrives(mode: &str) {
    let (shop, dead) = shop().await;
    create_topic(kafka().bootstrap(), &dead, 2, &[]).await;
    let relay = relay(
        &shop,
        &dead,
        &[("WALPOST_SINK_PUBLISH", mode), ("WALPOST_PIPELINE_MAX_EVENT_BYTES", "4096")],
    );
    shop.slot_made().await;
    let writer = Writer::start(&shop, 0).await;
    let lost = lose_one(&shop, "{\"lost\": true}").await;
    let client = shop.connect().await;
    let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                  values ('order', $1, 'Placed', jsonb_build_object('x', repeat('y', $2))) \
                  returning id::text";
    let place = async |key: Option<&str>, bytes: i32| -> String {
        client.query_one(insert, &[&key, &bytes]).await.unwrap().get(0)
    };
    let keyless = place(None, 1).await;
    let large = place(Some("a"), 9_000).await;
    until(LIMIT, "three letters", async || count(&shop, NOTED).await == 3).await;
    let written = writer.stop().await;
    assert!(written > 0);

    let letters = dead_letters(&dead).await;
    let by_id: BTreeMap<&str, &ReadRecord> =
        letters.iter().map(|one| (one.header_text("id").unwrap(), one)).collect();
    assert_eq!((letters.len(), by_id.len()), (3, 3), "{mode}");
    for (id, reason, stage, value) in [
        (&lost, "unroutable", "TRANSFORMATION", Some("{\"lost\": true}")),
        (&keyless, "rejected", "KAFKA_PRODUCE", Some("{\"x\": \"y\"}")),
        (&large, "oversize", "TASK_POLL", None),
    ] {
        let letter = by_id[id.as_str()];
        let says = |name: &str| letter.header_text(name).unwrap().to_owned();
        assert_eq!(letter.value.as_deref(), value.map(str::as_bytes), "{mode} {reason}");
        assert_eq!(says("walpost-dead-letter-reason"), reason);
        assert_eq!(says("__connect.errors.stage"), stage);
        assert_eq!(says("__connect.errors.connector.name"), shop.name);
        assert!(says("walpost-dead-letter").starts_with("parked:"));
        assert!(!says("__connect.errors.exception.message").is_empty());
    }
    let keyless = by_id[keyless.as_str()];
    assert_eq!(keyless.header_text("__connect.errors.topic"), Some(shop.topic.as_str()));
    let attempts = "select attempts::text from walpost.parked where reason = 'rejected'";
    let attempts: String = client.query_one(attempts, &[]).await.unwrap().get(0);
    assert_eq!(keyless.header_text("walpost-dead-letter-attempts"), Some(attempts.as_str()));
    the_others_are_published_once(&shop).await;

    let output = Command::new(walpost_binary())
        .args(["parked", "list", "--json"])
        .env("WALPOST_POSTGRES_URL", shop.database.url())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let told: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told.len(), 3, "{text}");
    assert!(told.iter().all(|one| one["dead_letter"] == "written"), "{text}");
    assert!(told.iter().all(|one| one["dead_letter_topic"] == dead.as_str()), "{text}");
    // What was on its way at an orderly stop is not written again.
    assert!(relay.terminate(LIMIT).success());
    assert_eq!(dead_letters(&dead).await.len(), 3);
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn parked_events_of_every_kind_are_in_the_topic_of_dead_letters_with_their_reasons() {
    every_kind_arrives("idempotent").await;
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn in_transactions_their_dead_letters_arrive_likewise() {
    every_kind_arrives("transactional").await;
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn dead_letters_wait_for_their_topic_over_a_kill_and_hold_up_nothing() {
    let (shop, dead) = shop().await;
    let first = relay(&shop, &dead, &[]);
    shop.slot_made().await;
    let writer = Writer::start(&shop, 0).await;
    let lost = lose_one(&shop, "1").await;
    first.wait_for_log("dead letters cannot be written for the moment", LIMIT);
    let orders_go_on = async || {
        let target = usize::try_from(writer.written()).unwrap() + 100;
        until(LIMIT, "orders beside it", async || shop.records().await.len() >= target).await;
    };
    orders_go_on().await;
    assert_eq!(count(&shop, "select count(*) from walpost.parked").await, 1);
    // Parked, and without its letter.
    first.kill();
    let _second = relay(&shop, &dead, &[]);
    let lost_meanwhile = lose_one(&shop, "2").await;
    orders_go_on().await;
    assert_eq!(count(&shop, NOTED).await, 0);
    create_topic(kafka().bootstrap(), &dead, 1, &[]).await;
    until(LIMIT, "both letters", async || count(&shop, NOTED).await == 2).await;
    let letters = dead_letters(&dead).await;
    let ids: Vec<&str> = letters.iter().map(|one| one.header_text("id").unwrap()).collect();
    assert_eq!(ids, [&lost, &lost_meanwhile]);
    writer.stop().await;
    the_others_are_published_once(&shop).await;
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn kills_at_any_moment_leave_no_parked_event_without_its_letter() {
    let (shop, dead) = shop().await;
    create_topic(kafka().bootstrap(), &dead, 2, &[]).await;
    let mut running = relay(&shop, &dead, &[]);
    shop.slot_made().await;
    let writer = Writer::start(&shop, 0).await;
    let mut lost = Vec::new();
    for round in 0..4 {
        for number in 0..20 {
            lost.push(lose_one(&shop, &format!("{}", 100 * round + number)).await);
        }
        // Some of them have their letters, and some not.
        let some = lost.len() as i64 - 15;
        until(LIMIT, "some letters", async || count(&shop, NOTED).await >= some).await;
        running.kill();
        running = relay(&shop, &dead, &[]);
    }
    let all = lost.len() as i64;
    until(LIMIT, "all letters", async || count(&shop, NOTED).await == all).await;
    let letters = dead_letters(&dead).await;
    let mut found: Vec<&str> = letters.iter().map(|one| one.header_text("id").unwrap()).collect();
    found.sort_unstable();
    found.dedup();
    lost.sort_unstable();
    assert_eq!(found, lost);
    writer.stop().await;
    the_others_are_published_once(&shop).await;
}

#[tokio::test]
async fn an_event_with_a_dead_letter_is_sent_on_in_its_place() {
    let (shop, dead) = shop().await;
    create_topic(kafka().bootstrap(), &dead, 1, &[]).await;
    let aggregate = ("WALPOST_PIPELINE_PARK", "aggregate");
    let first = relay(&shop, &dead, &[aggregate]);
    shop.slot_made().await;
    let client = shop.connect().await;
    let insert = "insert into walpost.outbox (aggregateid, type, payload) \
                  select 'a', 'order', to_jsonb(n) from generate_series(1, 3) n";
    client.batch_execute(insert).await.unwrap();
    until(LIMIT, "three letters", async || count(&shop, NOTED).await == 3).await;
    drop(first);

    let _second = relay(&shop, &dead, &[aggregate, ("WALPOST_ROUTER_ROUTE_BY_FIELD", "type")]);
    let output = Command::new(walpost_binary())
        .args(["parked", "retry", "--all", "--wait-seconds", "60"])
        .env("WALPOST_POSTGRES_URL", shop.database.url())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    until(LIMIT, "their records", async || shop.records().await.len() == 3).await;
    let records = shop.records().await;
    let values: Vec<&str> = records.iter().map(ReadRecord::value_text).collect();
    assert_eq!(values, ["1", "2", "3"]);
    assert!(records.iter().all(|one| one.header_text("walpost-replay").is_some()));
    assert!(records.iter().all(|one| one.header_text("walpost-dead-letter").is_none()));
    let letters = dead_letters(&dead).await;
    let values: Vec<&str> = letters.iter().map(ReadRecord::value_text).collect();
    assert_eq!(values, ["1", "2", "3"], "each once");
}
