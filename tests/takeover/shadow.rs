//! `walpost shadow` beside a Debezium that runs.

use serde_json::Value;
use walpost_testkit::{Process, local::Registry, until};
use walpost_tests::{Shop, Writer, walpost_binary};

use crate::{
    connect::{Connect, LIMIT, Worker},
    records, until_all,
};

/// Records that are compared.
const COMPARED: usize = 300;
/// What is written until Debezium is known to publish.
const FIRST: usize = 20;

/// A shop with a connector that publishes, under load.
struct Live {
    shop: Shop,
    connect: Connect,
    writer: Writer,
}

impl Live {
    async fn start() -> Self {
        Self::with(&[]).await
    }

    /// With settings of the connector beside those of its file.
    async fn with(more: &[(&str, &str)]) -> Self {
        let shop = Shop::open(6).await;
        // It needs none of them.
        let of_walpost = "drop table walpost.checkpoint, walpost.parked, walpost.move cascade";
        shop.connect().await.batch_execute(of_walpost).await.unwrap();
        let connect = Connect::start(&shop, Worker::Standalone, more).await;
        let writer = Writer::start(&shop, 0).await;
        records(&shop, FIRST).await;
        Self { shop, connect, writer }
    }

    /// Starts a shadow of the connector with these options.
    fn shadow(&self, file: &str, more: &[&str]) -> Process {
        let worker = self.connect.worker_file();
        let mut args = vec!["shadow", file, "--worker", &worker, "--grace", "300s"];
        args.extend_from_slice(more);
        // Its slot is gone with its session.
        let patient = [("WALPOST_PIPELINE_WAL_SENDER_TIMEOUT_MS", "60000")];
        Process::start(walpost_binary(), args, patient)
    }

    async fn compares(&self, shadow: &Process) {
        until(LIMIT, "the shadow's start", async || {
            assert!(shadow.is_running(), "{}", shadow.log());
            shadow.log().contains("comparing what is committed from")
        })
        .await;
    }

    /// Waits until the shadow has ended: its exit code, and what it has printed.
    async fn ended(&self, shadow: Process) -> (Option<i32>, Vec<Value>) {
        until(LIMIT, "the shadow's end", async || !shadow.is_running()).await;
        let log = shadow.log();
        println!("{log}");
        let lines = log.lines().filter(|line| line.starts_with('{'));
        let told = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        (shadow.wait(LIMIT).code(), told)
    }

    async fn slots(&self) -> Vec<String> {
        slots(&self.shop).await
    }

    async fn publications(&self) -> String {
        let sql = "select (select jsonb_agg(p order by oid) from pg_publication p)::text \
                   || (select jsonb_agg(r order by oid) from pg_publication_rel r)::text";
        self.shop.connect().await.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Every event is in the topic, and no record of anybody else.
    async fn nothing_was_written(self, slots: &[String], publications: &str) {
        assert_eq!(self.slots().await, slots);
        assert_eq!(self.publications().await, publications);
        let written = usize::try_from(self.writer.stop().await).unwrap();
        records(&self.shop, written).await;
        let report = self.shop.judge_published().await;
        println!("{report}");
        report.assert_exactly_once();
        drop(self.connect);
    }
}

async fn slots(shop: &Shop) -> Vec<String> {
    let sql = "select slot_name::text from pg_replication_slots \
               where database = current_database() order by 1";
    let rows = shop.connect().await.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
#[ignore = "deep: needs Debezium"]
async fn beside_a_live_debezium_every_record_is_alike_and_nothing_is_written() {
    let live = Live::start().await;
    let (slots, publications) = (live.slots().await, live.publications().await);
    let count = COMPARED.to_string();
    let file = live.connect.connector_file();
    let shadow = live.shadow(&file, &["--json", "--records", &count]);
    let (code, told) = live.ended(shadow).await;
    let [summary] = &told[..] else { panic!("differences: {told:?}") };
    assert_eq!(code, Some(0), "{summary}");
    assert_eq!((&summary["kind"], &summary["ended_by"]), (&"summary".into(), &"records".into()));
    assert!(summary["equal"].as_u64().unwrap() >= COMPARED as u64, "{summary}");
    assert_eq!((&summary["differs"], &summary["pending"]), (&false.into(), &0.into()));
    live.nothing_was_written(&slots, &publications).await;
}

#[tokio::test]
#[ignore = "deep: needs Debezium"]
async fn records_in_avro_have_the_ids_that_a_live_debezium_has_registered() {
    let registry = tokio::task::spawn_blocking(|| Registry::start_new().unwrap()).await.unwrap();
    let live = Live::with(&[
        ("schema.name.adjustment.mode", "avro"),
        ("transforms.outbox.table.expand.json.payload", "true"),
        ("value.converter", "io.apicurio.registry.utils.converter.AvroConverter"),
        ("value.converter.apicurio.registry.url", &registry.own_url()),
        ("value.converter.apicurio.registry.auto-register", "true"),
        ("value.converter.apicurio.registry.as-confluent", "true"),
        ("value.converter.apicurio.registry.use-id", "contentId"),
        ("value.converter.apicurio.registry.headers.enabled", "false"),
    ])
    .await;
    let count = COMPARED.to_string();
    let file = live.connect.connector_file();
    let shadow = live.shadow(&file, &["--json", "--records", &count]);
    let (code, told) = live.ended(shadow).await;
    let [summary] = &told[..] else { panic!("differences: {told:?}") };
    assert_eq!((code, &summary["differs"]), (Some(0), &false.into()), "{summary}");
    assert!(summary["equal"].as_u64().unwrap() >= COMPARED as u64, "{summary}");
    drop((live, registry));
}

#[tokio::test]
#[ignore = "deep: needs Debezium"]
async fn an_option_that_differs_is_told_beside_a_live_debezium_without_contents() {
    let live = Live::start().await;
    let (slots, publications) = (live.slots().await, live.publications().await);
    let key = ("transforms.outbox.table.field.event.key", "type");
    let file = live.connect.changed_file(&[key]);
    let count = FIRST.to_string();
    let shadow = live.shadow(&file, &["--json", "--records", &count]);
    let (code, told) = live.ended(shadow).await;
    assert_eq!(code, Some(6));
    let (summary, differences) = told.split_last().unwrap();
    assert_eq!((&summary["equal"], &summary["differs"]), (&0.into(), &true.into()));
    let first = &differences[0];
    assert_eq!(first["kind"], "different", "{first}");
    let mut members = first["differences"].as_array().unwrap().iter();
    let key = members.find(|member| member["member"] == "key").unwrap();
    assert_eq!((&key["walpost"]["bytes"], &key["walpost"]["text"]), (&6.into(), &Value::Null));

    let shadow = live.shadow(&file, &["--show-payloads", "--records", &count]);
    until(LIMIT, "the shadow's end", async || !shadow.is_running()).await;
    let log = shadow.log();
    println!("{log}");
    assert!(log.contains("key of Walpost   6 bytes: Placed"), "{log}");
    live.nothing_was_written(&slots, &publications).await;
}

#[tokio::test]
#[ignore = "deep: needs Debezium"]
async fn a_killed_shadow_leaves_no_slot_and_a_killed_debezium_repeats_without_a_difference() {
    let live = Live::start().await;
    let slots_before = live.slots().await;
    let file = live.connect.connector_file();
    let shadow = live.shadow(&file, &["--json"]);
    live.compares(&shadow).await;
    assert_eq!(live.slots().await.len(), slots_before.len() + 1);
    shadow.kill();
    until(LIMIT, "the slot's end", async || live.slots().await == slots_before).await;

    let shadow = live.shadow(&file, &["--json"]);
    live.compares(&shadow).await;
    // By its own count: what Debezium publishes may be older than the shadow for long.
    let alike = async || alike(&shadow) >= COMPARED;
    until(LIMIT, "records that are alike", alike).await;
    // It would have said so before it compared anything.
    assert!(!shadow.log().contains("nobody reads the connector's slot"), "{}", shadow.log());
    let Live { shop, mut connect, writer } = live;
    connect.kill();
    connect.start_again().await;
    // What it repeats may be older than the shadow: all that was written is not.
    writer.stop().await;
    until_all(&shop).await;
    let status = shadow.terminate(LIMIT);
    let log = shadow_log(&shadow);
    println!("{log}");
    let summary: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(status.code(), Some(0), "{summary}");
    assert_eq!((&summary["differs"], &summary["ended_by"]), (&false.into(), &"signal".into()));
    assert!(summary["equal"].as_u64().unwrap() >= COMPARED as u64, "{summary}");
    assert_eq!(slots(&shop).await, slots_before);
}

/// How many records were alike by the last line of its progress.
fn alike(shadow: &Process) -> usize {
    let log = shadow.log();
    let progress = log.lines().rev().find_map(|line| line.split_once(" equal, "));
    let count = progress.and_then(|(before, _)| before.rsplit(' ').next()).unwrap_or("0");
    count.replace(',', "").parse().unwrap()
}

/// What it has printed as JSON.
fn shadow_log(shadow: &Process) -> String {
    let log = shadow.log();
    log.lines().filter(|line| line.starts_with('{')).collect::<Vec<_>>().join("\n")
}
