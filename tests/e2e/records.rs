//! What arrives in Kafka, seen by Kafka's own Java programs.

use std::collections::HashMap;

use walpost_testkit::{
    Process, create_topic, kafka, local::KafkaTools, postgres_of, read_all, unique_name, until,
};
use walpost_tests::{LIMIT, Shop, Writer};

const CONSOLE_CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const CONSOLE_PRODUCER: &str = "org.apache.kafka.tools.ConsoleProducer";
const PARTITIONS: i32 = 7;

fn java(class: &str, args: &[&str]) -> String {
    kafka().run_tool(class, args)
}

#[tokio::test]
async fn topic_key_value_headers_and_partition_are_as_java_has_them() {
    let shop = Shop::open(PARTITIONS).await;
    let _relay = shop.relay();
    shop.slot_made().await;
    let client = shop.connect().await;
    let keys: Vec<String> = (0..40).map(|n| format!("kunde-{n}-ä{}", "x".repeat(n))).collect();
    for (n, key) in keys.iter().enumerate() {
        client
            .execute(
                "insert into walpost.outbox (id, aggregatetype, aggregateid, type, payload) \
                 values (('00000000-0000-7000-8000-' || lpad($1::text, 12, '0'))::uuid, 'order', \
                 $2, 'Placed', jsonb_build_object('n', $1::int))",
                &[&n.to_string(), key],
            )
            .await
            .unwrap();
    }
    until(LIMIT, "40 records", async || shop.records().await.len() == 40).await;

    let space = "select id::text from walpost.id_space where outbox is not null";
    let id_space: String = client.query_one(space, &[]).await.unwrap().get(0);

    let bootstrap = kafka().bootstrap();
    let printed = java(
        CONSOLE_CONSUMER,
        &[
            "--bootstrap-server",
            bootstrap,
            "--topic",
            &shop.topic,
            "--from-beginning",
            "--max-messages",
            "40",
            "--timeout-ms",
            "100000",
            "--property",
            "print.key=true",
            "--property",
            "print.headers=true",
            "--property",
            "print.partition=true",
            "--property",
            "key.separator=|",
        ],
    );
    let by_java = partitions_by_java(&keys).await;
    for (n, key) in keys.iter().enumerate() {
        let line = printed.lines().find(|line| line.contains(&format!("|{key}|")));
        let line = line.unwrap_or_else(|| panic!("no record of {key} in:\n{printed}"));
        let fields: Vec<&str> = line.split('|').collect();
        assert_eq!(fields[0], format!("Partition:{}", by_java[key]), "{line}");
        assert!(fields[1].starts_with(&format!("id:00000000-0000-7000-8000-{n:012},")), "{line}");
        assert!(fields[1].contains(",walpost-position:"), "{line}");
        let (_, source) = fields[1].rsplit_once(",walpost-source:").expect("the last header");
        assert_eq!(source, id_space, "{line}");
        assert_eq!(fields[3], format!("{{\"n\": {n}}}"), "{line}");
    }
}

/// Where Kafka's Java producer puts records with these keys.
async fn partitions_by_java(keys: &[String]) -> HashMap<String, i32> {
    let topic = unique_name("by-java");
    let bootstrap = kafka().bootstrap();
    create_topic(bootstrap, &topic, PARTITIONS, &[]).await;
    let lines: String = keys.iter().map(|key| format!("{key}|v\n")).collect();
    let tools = KafkaTools::find().unwrap();
    let folder = unique_name("keys");
    let file = std::env::temp_dir().join(folder);
    std::fs::write(&file, lines).unwrap();
    let command = format!(
        "exec '{}' -Dfile.encoding=UTF-8 -cp '{}' {CONSOLE_PRODUCER} --bootstrap-server {bootstrap} \
         --topic {topic} --property parse.key=true --property 'key.separator=|' < '{}'",
        tools.java().display(),
        tools.classpath().display(),
        file.display()
    );
    let producer = Process::start("/bin/sh", ["-c", &command], [("LC_ALL", "C.UTF-8")]);
    assert!(producer.wait(LIMIT).success());
    std::fs::remove_file(&file).unwrap();
    let records = read_all(bootstrap, &topic).await;
    records.iter().map(|record| (record.key_text().to_owned(), record.partition)).collect()
}

/// On a server of exactly this version, whichever this machine has.
async fn every_event_is_applied_once_and_in_order(major: u32) {
    let shop = Shop::open_on(postgres_of(major), 6).await;
    let version: i32 = shop
        .connect()
        .await
        .query_one("select current_setting('server_version_num')::int4", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(version / 10_000, major.cast_signed());
    let _relay = shop.relay();
    let _consumer = shop.consumer(crate::CONSUMER, &[]);
    shop.slot_made().await;
    let writers = [Writer::start(&shop, 0).await, Writer::start(&shop, 1).await];
    until(LIMIT, "2,000 orders", async || writers.iter().all(|w| w.written() >= 1_000)).await;
    let mut written = 0;
    for writer in writers {
        written += writer.stop().await;
    }
    shop.effects_reach(written).await;
    shop.judge().await.assert_exactly_once();
    shop.assert_effects_in_order().await;
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn the_whole_chain_on_postgres_15() {
    every_event_is_applied_once_and_in_order(15).await;
}

#[tokio::test]
async fn the_whole_chain_on_postgres_18() {
    every_event_is_applied_once_and_in_order(18).await;
}
