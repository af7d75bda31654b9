//! A slot goes from Debezium in Kafka Connect to Walpost and back, under load.

#![allow(clippy::unwrap_used, reason = "tests")]

mod connect;
mod shadow;

use std::time::Duration;

use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer},
};
use serde_json::Value;
use walpost_testkit::{Process, kafka, until};
use walpost_tests::{SETTLES, Shop, Writer, walpost_binary};

use crate::connect::{CONNECTOR, Connect, LIMIT, Worker};

/// Events between two changes of hands.
const SOME: usize = 300;

/// Runs `walpost take-over`, and says what it has told.
async fn take_over(
    shop: &Shop,
    connect: &Connect,
    to: &str,
    more: &[&str],
) -> Result<Value, Value> {
    let replacement = format!("{}.${{routedByValue}}", shop.name);
    let slot = format!("walpost_{}", shop.name);
    let env = [
        ("WALPOST_POSTGRES_URL", shop.database.url()),
        ("WALPOST_PIPELINE_NAME", shop.name.as_str()),
        ("WALPOST_PIPELINE_SLOT", slot.as_str()),
        SETTLES,
        ("WALPOST_ROUTER_TOPIC_REPLACEMENT", replacement.as_str()),
    ];
    let [option, place] = connect.offsets();
    let mut args = vec!["take-over", to, "--json", "--connector-name", CONNECTOR, &option, &place];
    args.extend_from_slice(more);
    args.extend(["--kafka", kafka().bootstrap()]);
    let process = Process::start(walpost_binary(), args, env);
    until(LIMIT, "the command's end", async || !process.is_running()).await;
    let log = process.log();
    let answer = log.lines().rev().find(|line| line.starts_with('{'));
    let answer =
        serde_json::from_str(answer.unwrap_or_else(|| panic!("no answer:\n{log}"))).unwrap();
    println!("{to} {more:?}: {answer}");
    if process.wait(LIMIT).success() { Ok(answer) } else { Err(answer) }
}

async fn from_debezium(shop: &Shop, connect: &Connect) -> Value {
    let plan = take_over(shop, connect, "from-debezium", &[]).await.unwrap();
    assert_eq!(plan["done"], false, "{plan}");
    let done = take_over(shop, connect, "from-debezium", &["--yes"]).await.unwrap();
    assert_eq!(done["done"], true, "{done}");
    assert_eq!(done["begins_at_lsn"], plan["begins_at_lsn"], "what was shown is what is done");
    done
}

async fn to_debezium(shop: &Shop, connect: &Connect) -> Value {
    let done = take_over(shop, connect, "to-debezium", &["--yes"]).await.unwrap();
    assert_eq!(done["done"], true, "{done}");
    done
}

async fn stop(relay: Process) {
    tokio::task::spawn_blocking(move || assert!(relay.terminate(LIMIT).success())).await.unwrap();
}

/// Waits for so many more records.
async fn more_records(shop: &Shop, more: usize) {
    let until_count = count(shop).await + more;
    records(shop, until_count).await;
}

async fn records(shop: &Shop, least: usize) {
    until(LIMIT, &format!("{least} records"), async || count(shop).await >= least).await;
}

/// How many records there are, by the ends of the partitions.
async fn count(shop: &Shop) -> usize {
    const ASK_LIMIT: Duration = Duration::from_secs(30);
    let topic = shop.topic.clone();
    let counted = tokio::task::spawn_blocking(move || {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", kafka().bootstrap());
        let client: BaseConsumer = config.create().unwrap();
        let metadata = client.fetch_metadata(Some(&topic), ASK_LIMIT).unwrap();
        let partitions = metadata.topics()[0].partitions().iter();
        let ends = partitions
            .map(|partition| client.fetch_watermarks(&topic, partition.id(), ASK_LIMIT).unwrap().1);
        usize::try_from(ends.sum::<i64>()).unwrap()
    });
    counted.await.unwrap()
}

/// Debezium, Walpost, Debezium, Walpost: nothing is lost and nothing comes twice.
async fn there_and_back_again(worker: Worker) {
    let shop = Shop::open(6).await;
    let mut connect = Connect::start(&shop, worker, &[]).await;
    let writer = Writer::start(&shop, 0).await;
    records(&shop, SOME).await;
    connect.stop().await;
    from_debezium(&shop, &connect).await;
    let relay = shop.relay();
    more_records(&shop, SOME).await;
    stop(relay).await;
    to_debezium(&shop, &connect).await;
    connect.start_again().await;
    more_records(&shop, SOME).await;
    connect.stop().await;
    let again = from_debezium(&shop, &connect).await;
    assert!(again["stood_at_lsn"].is_string(), "{again}");
    let relay = shop.relay();
    more_records(&shop, SOME).await;
    let written = usize::try_from(writer.stop().await).unwrap();
    records(&shop, written).await;
    stop(relay).await;
    let report = shop.judge_published().await;
    println!("{report}");
    report.assert_exactly_once();
}

#[tokio::test]
#[ignore = "deep: needs Debezium"]
async fn a_standalone_worker_hands_over_and_goes_on_without_loss_or_repeat() {
    there_and_back_again(Worker::Standalone).await;
}

#[tokio::test]
#[ignore = "deep: needs Debezium"]
async fn a_connector_of_a_cluster_hands_over_and_goes_on_without_loss_or_repeat() {
    there_and_back_again(Worker::Distributed).await;
}

#[tokio::test]
#[ignore = "deep: needs Debezium"]
async fn a_killed_debezium_loses_nothing() {
    let shop = Shop::open(6).await;
    let mut connect = Connect::start(&shop, Worker::Standalone, &[]).await;
    let writer = Writer::start(&shop, 0).await;
    let is_running = |answer: Value| answer["error"].as_str().unwrap().contains("in use");
    let has_offset = async || {
        let told = take_over(&shop, &connect, "from-debezium", &[]).await;
        told.is_err_and(is_running)
    };
    // Past a first offset, which comes within a second.
    until(LIMIT, "an offset", has_offset).await;
    more_records(&shop, SOME).await;
    // A worker that is killed while it writes its file leaves an empty one.
    until(LIMIT, "a moment between two writes", async || {
        connect.pause();
        let is_whole = has_offset().await;
        if !is_whole {
            connect.resume();
        }
        is_whole
    })
    .await;
    connect.kill();
    from_debezium(&shop, &connect).await;
    let relay = shop.relay();
    more_records(&shop, SOME).await;
    writer.stop().await;
    let report = until_all(&shop).await;
    stop(relay).await;
    println!("{report}");
    report.assert_at_least_once();
}

/// Consumers know what Debezium has published by its topic, Walpost's events by their
/// table.
#[tokio::test]
#[ignore = "deep: needs Debezium"]
async fn ids_that_are_not_globally_unique_are_handed_over_only_where_duplicates_are_accepted() {
    let shop = Shop::open(1).await;
    let client = shop.connect().await;
    client
        .batch_execute(
            "alter table walpost.outbox alter column id drop default, \
             alter column id type text using id::text",
        )
        .await
        .unwrap();
    let mut connect = Connect::start(&shop, Worker::Standalone, &[]).await;
    let row = "insert into walpost.outbox (id, aggregatetype, aggregateid, type, payload) \
               values ('17', 'order', 'a', 'Placed', '1')";
    client.batch_execute(row).await.unwrap();
    records(&shop, 1).await;
    connect.stop().await;
    let told = take_over(&shop, &connect, "from-debezium", &["--yes"]).await.unwrap_err();
    assert!(told.to_string().contains("are not globally unique"), "{told}");
    let position = "select count(*) from walpost.checkpoint";
    assert_eq!(client.query_one(position, &[]).await.unwrap().get::<_, i64>(0), 0);
    let accepted = ["--yes", "--accept-duplicates"];
    let done = take_over(&shop, &connect, "from-debezium", &accepted).await.unwrap();
    assert_eq!(done["done"], true, "{done}");
}

/// The slot alone says it as well, under `snapshot.mode` `no_data`.
#[tokio::test]
#[ignore = "deep: needs Debezium"]
async fn without_an_offset_debezium_goes_on_where_the_slot_was_moved_to() {
    let shop = Shop::open(6).await;
    let mut connect = Connect::start(&shop, Worker::Standalone, &[]).await;
    let writer = Writer::start(&shop, 0).await;
    records(&shop, SOME).await;
    connect.stop().await;
    from_debezium(&shop, &connect).await;
    let relay = shop.relay();
    more_records(&shop, SOME).await;
    // What it has published is read back, and nothing is handed over before that.
    relay.kill();
    to_debezium(&shop, &connect).await;
    connect.forget_offset();
    connect.start_again().await;
    more_records(&shop, SOME).await;
    writer.stop().await;
    let report = until_all(&shop).await;
    println!("{report}");
    report.assert_exactly_once();
}

/// Why the offset is written: Debezium refuses the one from before.
#[tokio::test]
#[ignore = "deep: needs Debezium"]
async fn an_offset_that_the_slot_has_passed_is_refused_by_debezium_and_mended_by_the_command() {
    let shop = Shop::open(6).await;
    let mut connect = Connect::start(&shop, Worker::Standalone, &[]).await;
    let writer = Writer::start(&shop, 0).await;
    records(&shop, SOME).await;
    connect.stop().await;
    let before = connect.offsets_file();
    from_debezium(&shop, &connect).await;
    let relay = shop.relay();
    slot_passes(&shop).await;
    stop(relay).await;
    to_debezium(&shop, &connect).await;
    let mended = connect.offsets_file();
    connect.set_offsets_file(&before);
    connect.start_again().await;
    let refusal = "this is no longer available on the server";
    until(LIMIT, "a refusal", async || connect.log().contains(refusal)).await;
    connect.stop().await;
    connect.set_offsets_file(&mended);
    connect.start_again().await;
    more_records(&shop, SOME).await;
    writer.stop().await;
    let report = until_all(&shop).await;
    println!("{report}");
    report.assert_exactly_once();
}

/// The server forgets the WAL from before now, once that is confirmed.
async fn slot_passes(shop: &Shop) {
    let client = shop.connect().await;
    let now = "select pg_current_wal_insert_lsn()::text";
    let now: String = client.query_one(now, &[]).await.unwrap().get(0);
    let passed = format!(
        "select restart_lsn > '{now}' from pg_replication_slots where slot_name = 'walpost_{}'",
        shop.name
    );
    until(LIMIT, "the slot's restart", async || {
        // Writes where decoding may begin anew.
        client.batch_execute("checkpoint").await.unwrap();
        client.query_one(&passed, &[]).await.unwrap().get(0)
    })
    .await;
}

/// Waits until nothing is missing.
async fn until_all(shop: &Shop) -> walpost_testkit::Report {
    until(LIMIT, "all events", async || shop.judge_published().await.lost == 0).await;
    shop.judge_published().await
}

/// One record at a time, so that a stop meets the connector in the transaction.
const SLOWLY: [(&str, &str); 3] =
    [("max.batch.size", "1"), ("max.queue.size", "2"), ("poll.interval.ms", "1")];

/// Of `COPY` many rows are in one WAL record, so their position alone does not tell
/// them apart.
#[tokio::test]
#[ignore = "deep: needs Debezium"]
async fn a_stop_in_the_middle_of_a_copy_neither_loses_nor_repeats_a_row() {
    const ROWS: usize = 60_000;
    let shop = Shop::open(1).await;
    let mut connect = Connect::start(&shop, Worker::Standalone, &SLOWLY).await;
    let client = shop.connect().await;
    // With a default that is computed for each row the server would insert one by one.
    let copy = format!(
        "copy walpost.outbox (id, aggregatetype, aggregateid, type, payload, created_at) from \
         program 'seq -f 00000000-0000-4000-8000-%012.0f,order,a-1,Placed,1,2026-01-01 {ROWS}' \
         with (format csv)"
    );
    client.batch_execute(&copy).await.unwrap();
    records(&shop, 500).await;
    connect.stop().await;
    let done = from_debezium(&shop, &connect).await;
    let part = &done["partly_published"];
    assert_eq!(part["events"], ROWS, "stopped in the middle: {done}");
    assert_eq!(part["published_events"], count(&shop).await, "{done}");
    let relay = shop.relay();
    records(&shop, ROWS).await;
    stop(relay).await;
    let report = shop.judge_published().await;
    println!("{report}");
    report.assert_exactly_once();
}
