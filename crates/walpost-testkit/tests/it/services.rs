use std::time::{Duration, Instant};

use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer},
};
use walpost_testkit::{
    Isolation, Proxy, Target, create_topic, end_offsets, fresh_database, fresh_topic, kafka,
    local::{Kafka, KafkaBuilder},
    postgres, postgres_of, read_all, read_all_with, read_decided, unique_name, until,
};

const LIMIT: Duration = Duration::from_secs(30);

fn producer(bootstrap: &str) -> BaseProducer {
    ClientConfig::new().set("bootstrap.servers", bootstrap).create().unwrap()
}

/// For brokers that nobody kills, so that they may be silent for a while.
fn patient_kafka() -> KafkaBuilder {
    Kafka::builder().property("broker.session.timeout.ms", "30000")
}

#[tokio::test]
async fn fresh_databases_are_apart_and_ready_for_logical_decoding() {
    let start = Instant::now();
    let (one, other) = (fresh_database().await, fresh_database().await);
    println!("two databases in {:?}", start.elapsed());
    assert_ne!(one.name(), other.name());
    let client = one.connect().await;
    client.batch_execute("create table only_here (n int)").await.unwrap();
    let row = client
        .query_one("select current_database(), current_setting('wal_level')", &[])
        .await
        .unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), (one.name(), "logical"));
    assert!(other.connect().await.batch_execute("select from only_here").await.is_err());
    assert_eq!(one.config().get_dbname(), Some(one.name()));
}

#[tokio::test]
async fn the_shared_server_is_started_once() {
    assert!(std::ptr::eq(postgres(), postgres()));
    assert!(std::ptr::eq(postgres_of(18), postgres_of(18)));
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn a_server_of_a_version_is_of_that_version_whatever_this_machine_has() {
    for major in [15, 18] {
        let client = postgres_of(major).fresh_database().await.connect().await;
        let row = client.query_one("show server_version", &[]).await.unwrap();
        let version: &str = row.get(0);
        assert!(version.starts_with(&format!("{major}.")), "{version}");
    }
}

#[tokio::test]
async fn what_was_produced_is_read_back_whole() {
    let start = Instant::now();
    let bootstrap = kafka().bootstrap();
    println!("Kafka in {:?}", start.elapsed());
    let topic = unique_name("whole");
    // Its records are older than any retention.
    create_topic(bootstrap, &topic, 3, &[("retention.ms", "-1")]).await;
    assert_eq!(read_all(bootstrap, &topic).await, []);
    let producer = producer(bootstrap);
    let headers = || {
        OwnedHeaders::new()
            .insert(Header { key: "id", value: Some("7") })
            .insert(Header::<&str> { key: "none", value: None })
    };
    for (partition, value) in [(2, "b"), (0, "a"), (2, "c")] {
        let record = BaseRecord::to(&topic)
            .partition(partition)
            .key("k")
            .payload(value)
            .timestamp(1_234)
            .headers(headers());
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.send(BaseRecord::<str, str>::to(&topic).partition(1).key("tomb")).unwrap();
    producer.flush(LIMIT).unwrap();

    let records = read_all(bootstrap, &topic).await;
    let places: Vec<_> = records.iter().map(|r| (r.partition, r.offset)).collect();
    assert_eq!(places, [(0, 0), (1, 0), (2, 0), (2, 1)]);
    assert_eq!((records[0].key_text(), records[0].value_text()), ("k", "a"));
    assert_eq!(records[0].header_text("id"), Some("7"));
    assert_eq!(records[0].headers[1], ("none".to_owned(), None));
    assert_eq!(records[0].timestamp_ms, Some(1_234));
    assert_eq!(records[1].value, None);
    assert_eq!(end_offsets(bootstrap, &topic).await, [1, 1, 2]);
}

#[tokio::test]
async fn records_of_an_aborted_transaction_are_read_only_when_asked_for() {
    let bootstrap = kafka().bootstrap();
    let topic = fresh_topic("aborted", 1).await;
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("transactional.id", unique_name("tx"))
        .create()
        .unwrap();
    producer.init_transactions(LIMIT).unwrap();
    for (value, commit) in [("dropped", false), ("kept", true)] {
        producer.begin_transaction().unwrap();
        producer.send(BaseRecord::<str, str>::to(&topic).payload(value)).unwrap();
        producer.flush(LIMIT).unwrap();
        match commit {
            true => producer.commit_transaction(LIMIT).unwrap(),
            false => producer.abort_transaction(LIMIT).unwrap(),
        }
    }
    let values = |records: Vec<walpost_testkit::ReadRecord>| -> Vec<String> {
        records.iter().map(|record| record.value_text().to_owned()).collect()
    };
    assert_eq!(values(read_decided(bootstrap, &topic).await), ["kept"]);
    let all = read_all_with(bootstrap, &topic, Isolation::ReadUncommitted).await;
    assert_eq!(values(all), ["dropped", "kept"]);
}

#[tokio::test]
#[ignore = "deep: a broker of its own"]
async fn kafkas_own_tool_sees_the_offset_of_a_group() {
    use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
    let local = patient_kafka().start().unwrap();
    let (topic, group) = (unique_name("grouped"), unique_name("group"));
    create_topic(&local.bootstrap(), &topic, 1, &[]).await;
    let producer = producer(&local.bootstrap());
    producer.send(BaseRecord::<str, str>::to(&topic).payload("x")).unwrap();
    producer.flush(LIMIT).unwrap();
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", local.bootstrap())
        .set("group.id", &group)
        .create()
        .unwrap();
    let mut offsets = rdkafka::TopicPartitionList::new();
    offsets.add_partition_offset(&topic, 0, rdkafka::Offset::Offset(1)).unwrap();
    until(LIMIT, "a coordinator", async || consumer.commit(&offsets, CommitMode::Sync).is_ok())
        .await;
    let class = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
    let bootstrap = local.bootstrap();
    let args =
        ["--bootstrap-server", &bootstrap, "--describe", "--group", &group, "--timeout", "60000"];
    let printed = local.run_tool(class, args).unwrap();
    let line = printed.lines().find(|line| line.contains(&topic)).expect(&printed);
    let columns: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(columns[..6], [&group, &topic, "0", "1", "1", "0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: a broker of its own"]
async fn clients_of_a_proxied_broker_stay_behind_the_proxy() {
    let listener = Proxy::listener();
    let port = listener.local_addr().unwrap().port();
    let kafka =
        tokio::task::spawn_blocking(move || patient_kafka().proxied_by(port).start().unwrap())
            .await
            .unwrap();
    let proxy = Proxy::start_with(listener, Target::Tcp(kafka.proxied_address().unwrap())).await;
    let front = proxy.address().to_string();
    create_topic(&front, "t", 1, &[("cleanup.policy", "compact")]).await;
    let producer = producer(&front);
    proxy.cut();
    until(LIMIT, "the cut", async || proxy.open() == 0).await;
    producer.send(BaseRecord::<str, str>::to("t").key("k").payload("x")).unwrap();
    assert!(producer.flush(Duration::from_millis(300)).is_err());
    assert_eq!(end_offsets(&kafka.bootstrap(), "t").await, [0]);
    proxy.restore();
    producer.flush(LIMIT).unwrap();
    assert_eq!(read_all(&kafka.bootstrap(), "t").await.len(), 1);
}
