//! Consumers as operators see them: looked at, and followed by Kafka.
//!
//! Long because each command is tried on a consumer that really runs.

use std::{process::Output, time::Duration};

use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer},
};
use serde_json::Value;
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};
use tokio_postgres::Client;
use walpost_consumer::{
    Consumer, Database, Error, Event, Handler, HandlerError, PartitionState, PartitionStatus,
    SliceError, Status, tokio_postgres::Transaction,
};
use walpost_migrate::{Migrator, Set};
use walpost_testkit as testkit;

use crate::cli::{nowhere, stderr, stdout, walpost};

pub(crate) const LIMIT: Duration = Duration::from_secs(150);
/// Of the first event, in milliseconds since 1970: recent enough to be kept.
pub(crate) const SPACING_MS: i64 = 1_000;

/// A topic of one partition, a consumer's tables, and the table `effect`.
pub(crate) struct Rig {
    pub(crate) topic: String,
    pub(crate) name: String,
    pub(crate) database: testkit::Database,
    pub(crate) client: Client,
    pub(crate) first_ms: i64,
    /// Where commands look for Kafka.
    brokers: String,
    producer: ThreadedProducer<DefaultProducerContext>,
    published: i64,
    group_protocol: String,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let database = testkit::fresh_database().await;
        let mut client = database.connect().await;
        Migrator::new().set(Set::Consumer).migrate(&mut client).await.unwrap();
        let table = "create table effect (event_id text not null)";
        client.batch_execute(table).await.unwrap();
        let broker = testkit::kafka().bootstrap();
        let producer = ClientConfig::new().set("bootstrap.servers", broker).create().unwrap();
        let topic = testkit::fresh_topic("orders", 1).await;
        let name = testkit::unique_name("shipping");
        let now = "select floor(extract(epoch from now()) * 1000)::bigint - 3600000";
        let first_ms = client.query_one(now, &[]).await.unwrap().get(0);
        Self {
            topic,
            name,
            database,
            client,
            first_ms,
            brokers: broker.to_owned(),
            producer,
            published: 0,
            group_protocol: "classic".into(),
        }
    }

    /// Publishes so many events more. The n-th is a second younger than the one
    /// before, of type `even` or `odd`, of the aggregate n modulo 10.
    pub(crate) fn publish(&mut self, events: i64) {
        for number in self.published..self.published + events {
            self.send(number);
        }
        self.producer.flush(LIMIT).unwrap();
        self.published += events;
    }

    /// Publishes events a second time, at later offsets.
    pub(crate) fn publish_copies(&mut self, ids: &[&str]) {
        for id in ids {
            self.send(id.parse().unwrap());
        }
        self.producer.flush(LIMIT).unwrap();
        self.published += ids.len() as i64;
    }

    fn send(&self, number: i64) {
        let (id, key) = (number.to_string(), format!("k{}", number % 10));
        let kind = if number % 2 == 0 { "even" } else { "odd" };
        let header = |key, value| Header { key, value: Some(value) };
        let headers =
            OwnedHeaders::new().insert(header("id", &*id)).insert(header("eventType", kind));
        let record = BaseRecord::to(&self.topic)
            .partition(0)
            .key(&key)
            .payload(&id)
            .timestamp(self.first_ms + number * SPACING_MS)
            .headers(headers);
        self.producer.send(record).map_err(|(error, _)| error).unwrap();
    }

    /// Sets one setting of the topic, and waits until the broker knows it.
    pub(crate) async fn set_topic(&self, setting: &str, value: &str) {
        use rdkafka::{
            admin::{AdminClient, AdminOptions, AlterConfig, ResourceSpecifier},
            client::DefaultClientContext,
        };
        let broker = testkit::kafka().bootstrap();
        let client: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", broker).create().unwrap();
        let topic = ResourceSpecifier::Topic(&self.topic);
        let change = AlterConfig::new(topic).set(setting, value);
        let altered = client.alter_configs([&change], &AdminOptions::new()).await.unwrap();
        altered[0].as_ref().unwrap();
        testkit::until(LIMIT, setting, async || {
            let found = client.describe_configs([&topic], &AdminOptions::new()).await.unwrap();
            let entry = found[0].as_ref().unwrap().get(setting).unwrap();
            entry.value.as_deref() == Some(value)
        })
        .await;
    }

    pub(crate) fn start(
        &self,
        change: impl FnOnce(walpost_consumer::Builder) -> walpost_consumer::Builder,
    ) -> Running {
        let builder = Consumer::builder(&self.name)
            .kafka("bootstrap.servers", testkit::kafka().bootstrap())
            .kafka("group.protocol", &self.group_protocol)
            .topics([self.topic.clone()])
            .database(Database::config(self.database.config()))
            .session_timeout_ms(6_000);
        let consumer = change(builder).handler(Effects).unwrap();
        let status = consumer.status();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(consumer.run(async {
            let _ = stopped.await;
        }));
        Running { status, stop, task }
    }

    /// Runs the consumer until it is at the end of what was published; how many
    /// effects there are then.
    pub(crate) async fn drain(&self) -> i64 {
        let mut running = self.start(|builder| builder);
        running.until_at(self.published).await;
        running.stop().await;
        self.effects().await
    }

    pub(crate) async fn until_at(&self, offset: i64) {
        let query = "select count(*) from walpost.position where next_offset = $1";
        testkit::until(LIMIT, "the stored offset", async || {
            let row = self.client.query_one(query, &[&offset]).await.unwrap();
            row.get::<_, i64>(0) == 1
        })
        .await;
    }

    pub(crate) async fn number(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn effects(&self) -> i64 {
        self.number("select count(*) from effect").await
    }

    /// `walpost consumer`, with database and brokers.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let place = ["--postgres", self.database.url(), "--kafka", &self.brokers];
        tokio::task::block_in_place(|| walpost(&[&["consumer"], args, &place].concat(), &[]))
    }

    /// The same for one that succeeds with one JSON object.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        serde_json::from_str(&stdout(&output)).unwrap()
    }

    /// The same, asked again until Kafka has said this number as well: a command
    /// goes without it when brokers take too long.
    async fn json_with(&self, args: &[&str], number: &str) -> Value {
        testkit::until_some(LIMIT, number, async || {
            let told = self.json(args);
            told.pointer(number).is_some_and(Value::is_number).then_some(told)
        })
        .await
    }

    /// Resets the stopped group with Kafka's own tool.
    pub(crate) async fn reset_in_kafka(&self, how: &[&str]) {
        let kafka = testkit::kafka();
        let mut args =
            vec!["--bootstrap-server", kafka.bootstrap(), "--group", &self.name, "--topic"];
        args.extend([&*self.topic, "--reset-offsets", "--execute"]);
        args.extend(how);
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let ran = tokio::task::spawn_blocking(move || {
            kafka.run_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", args)
        });
        let output = ran.await.unwrap();
        assert!(output.contains(&self.topic), "the tool reset nothing: {output}");
    }

    /// Removes the records before `offset`, as retention would.
    pub(crate) async fn delete_records(&self, offset: i64) {
        use rdkafka::{
            Offset, TopicPartitionList,
            admin::{AdminClient, AdminOptions},
            client::DefaultClientContext,
        };
        let broker = testkit::kafka().bootstrap();
        let client: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", broker).create().unwrap();
        let mut before = TopicPartitionList::new();
        before.add_partition_offset(&self.topic, 0, Offset::Offset(offset)).unwrap();
        let options = AdminOptions::new().operation_timeout(Some(LIMIT));
        let deleted = client.delete_records(&before, &options).await.unwrap();
        deleted.elements()[0].error().unwrap();
    }

    /// A consumer whose commits to Kafka have stayed behind, killed; and its
    /// group without members.
    pub(crate) async fn killed(events: i64, group_protocol: &str) -> Self {
        let mut rig = Self::new().await;
        rig.group_protocol = group_protocol.to_owned();
        rig.publish(events);
        let running = rig.start(|builder| builder.commit_interval_ms(60_000));
        rig.until_at(events).await;
        running.kill().await;
        rig
    }
}

/// A consumer that runs.
pub(crate) struct Running {
    status: watch::Receiver<Status>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Error>>,
}

impl Running {
    /// Waits until its one partition runs and is there.
    async fn until_at(&mut self, offset: i64) {
        let what = format!("offset {offset}");
        let is_there = |one: &PartitionStatus| {
            one.state == PartitionState::Running && one.next_offset == Some(offset)
        };
        self.until(&what, is_there).await;
    }

    /// Waits until Kafka holds the offset of its one partition, which a stop does
    /// not wait for long.
    async fn until_committed(&mut self, offset: i64) {
        let what = format!("a commit of offset {offset}");
        self.until(&what, |one| one.committed_offset == Some(offset)).await;
    }

    async fn until(&mut self, what: &str, wanted: impl Fn(&PartitionStatus) -> bool) {
        let is_so = |status: &Status| status.partitions.values().any(&wanted);
        let waiting = async { self.status.wait_for(is_so).await.map(drop) };
        let Ok(waited) = tokio::time::timeout(LIMIT, waiting).await else {
            panic!("waited in vain for {what}: {:?}", self.status.borrow());
        };
        waited.unwrap();
    }

    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        tokio::time::timeout(LIMIT, self.task).await.unwrap().unwrap().unwrap();
    }

    /// Ends by itself, with an error.
    pub(crate) async fn end(self) -> String {
        let ended = tokio::time::timeout(LIMIT, self.task).await.unwrap().unwrap();
        ended.unwrap_err().to_string()
    }

    /// Dropped half-way, so that it commits nothing.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

struct Effects;

impl Handler for Effects {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        self.handle_slice(tx, std::slice::from_ref(event)).await.map_err(SliceError::into_inner)
    }

    async fn handle_slice(&self, tx: &Transaction<'_>, events: &[Event]) -> Result<(), SliceError> {
        let ids: Vec<&str> = events.iter().map(Event::id).collect();
        tx.execute("insert into effect select unnest($1::text[])", &[&ids]).await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_are_listed_and_shown_with_their_lag_and_without_kafka() {
    let mut rig = Rig::new().await;
    let (name, topic) = (rig.name.clone(), rig.topic.clone());
    assert_eq!(stdout(&rig.run(&["list"])), "no consumer has read anything\n");
    assert_eq!(rig.run(&["show", &name]).status.code(), Some(5));
    rig.publish(100);
    let mut running = rig.start(|builder| builder);
    running.until_committed(100).await;
    running.stop().await;
    rig.publish(20);

    let listed = rig.json_with(&["list"], "/lag_seconds").await;
    assert_eq!(
        (&listed["consumer"], &listed["topic"]),
        (&name.clone().into(), &topic.clone().into())
    );
    assert_eq!((&listed["partitions"], &listed["lag_events"]), (&1.into(), &20.into()));
    // Event 100 is 3,500 s old, and the test no older than its limit.
    let behind = listed["lag_seconds"].as_f64().unwrap();
    assert!((3_499.0..3_800.0).contains(&behind), "{behind}");
    let table = stdout(&rig.run(&["list"]));
    assert!(table.starts_with("consumer") && table.contains(&topic), "{table}");

    let shown = rig.json_with(&["show", &name], "/partitions/0/kafka_offset").await;
    let partition = &shown["partitions"][0];
    for (field, expected) in [
        ("next_offset", 100),
        ("log_start", 0),
        ("log_end", 120),
        ("kafka_offset", 100),
        ("run", 0),
        ("again_events", 0),
        ("parked_events", 0),
    ] {
        assert_eq!(partition[field], expected, "{field}: {shown}");
    }
    assert_eq!(partition["kafka_marker"], "marked");
    assert_eq!((&partition["last_reset"], &shown["resets"]), (&Value::Null, &Value::Array(vec![])));

    // The database alone.
    let args = ["consumer", "show", &name, "--json", "--postgres", rig.database.url()];
    let output = tokio::task::block_in_place(|| walpost(&args, &[]));
    let shown: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(shown["partitions"][0]["next_offset"], 100);
    assert_eq!(shown["partitions"][0]["lag_events"], Value::Null);
    assert!(stderr(&output).contains("no brokers are named"), "{}", stderr(&output));
    // Brokers that do not answer are told, and the rest is shown.
    let kafka = nowhere().rsplit_once('@').unwrap().1.trim_end_matches("/db").to_owned();
    let args = ["consumer", "list", "--postgres", rig.database.url(), "--kafka", &kafka];
    let output = tokio::task::block_in_place(|| walpost(&args, &[]));
    assert!(output.status.success() && stdout(&output).contains(&name), "{}", stderr(&output));
    assert!(stderr(&output).contains("without what Kafka knows"), "{}", stderr(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halted_partition_is_listed_and_shown_with_its_reason() {
    let mut rig = Rig::new().await;
    rig.publish(10);
    rig.drain().await;
    let before = rig.json(&["list"]);
    assert_eq!(before["halted"], Value::Array(vec![]), "{before}");
    let halt = "insert into walpost.consumer_halted (pos_id, epoch, reason, at) \
                select id, epoch, E'at offset 10: no tariff\\x1b[2J', '2026-05-01T12:00Z' \
                from walpost.position";
    rig.client.execute(halt, &[]).await.unwrap();
    let line = format!("{}: {}[0] halted at 2026-05-01T12:00:00Z: ", rig.name, rig.topic);
    let name = rig.name.clone();
    for args in [&["list"][..], &["show", &name]] {
        let table = stdout(&rig.run(args));
        assert!(table.contains(&line) && table.contains("at offset 10: no tariff"), "{table}");
        assert!(!table.contains('\x1b'), "{table}");
    }
    let listed = &rig.json(&["list"])["halted"];
    let shown = &rig.json(&["show", &name])["partitions"][0]["halted"];
    for halted in [&listed[0], shown] {
        assert_eq!(halted["at"], "2026-05-01T12:00:00Z", "{halted}");
        assert!(halted["reason"].as_str().unwrap().starts_with("at offset 10"), "{halted}");
    }
    assert_eq!(listed[0]["partition"], 0);
    // A member that claims the partition goes on.
    rig.publish(1);
    assert_eq!(rig.drain().await, 11);
    assert_eq!(rig.json(&["list"])["halted"], Value::Array(vec![]));
}

/// librdkafka tells of each as if it were an error of the reading.
#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_are_away_fail_no_command_while_another_one_answers() {
    let mut rig = Rig::new().await;
    rig.publish(20);
    rig.drain().await;
    rig.publish(10);
    let away = (1..=4).map(|port| format!("127.0.0.1:{port},"));
    rig.brokers = away.chain([rig.brokers.clone()]).collect();
    // Records may take too long to come, and then nothing is said of it.
    testkit::until(LIMIT, "a lag", async || {
        let output = rig.run(&["list", "--json"]);
        let noted = stderr(&output);
        assert!(output.status.success() && !noted.contains("without what Kafka knows"), "{noted}");
        let listed: Value = serde_json::from_str(&stdout(&output)).unwrap();
        listed["lag_seconds"].is_number()
    })
    .await;
    let looked = rig.json(&["reset", &rig.name, "--to-earliest", "--event-type", "even"]);
    assert_eq!(looked["effects_again"], 10, "{looked}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn after_a_kill_kafka_follows_the_stored_offset_and_its_tools_count_from_there() {
    follows("classic").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn after_a_kill_kafka_follows_the_stored_offset_also_in_a_group_of_the_new_protocol() {
    follows("consumer").await;
}

async fn follows(group_protocol: &str) {
    let rig = Rig::killed(100, group_protocol).await;
    let name = rig.name.clone();
    let compared = rig.json(&["sync-offsets", &name]);
    assert_eq!((&compared["stored_offset"], &compared["kafka_offset"]), (&100.into(), &0.into()));
    assert_eq!(
        (&compared["kafka_holds"], &compared["done"]),
        (&"an earlier commit".into(), &false.into())
    );
    rig.sync().await;
    let synced = rig.json(&["sync-offsets", &name]);
    assert_eq!(
        (&synced["kafka_offset"], &synced["kafka_holds"]),
        (&100.into(), &"the same".into())
    );
    assert_eq!(
        rig.number("select known[1] from walpost.position where known = '{100}'").await,
        100
    );
    assert_eq!(rig.drain().await, 100, "no reset");

    rig.reset_in_kafka(&["--shift-by", "-10"]).await;
    assert_eq!(rig.json(&["sync-offsets", &name])["kafka_holds"], "without a marker");
    assert_eq!(rig.drain().await, 110);

    // A wish that was not meant is taken back.
    rig.reset_in_kafka(&["--to-offset", "5"]).await;
    rig.sync().await;
    assert_eq!(rig.drain().await, 110);
}

/// Another state of the database than the one that the group followed.
const KEPT: [&str; 4] = ["effect", "walpost.position", "walpost.done", "walpost.consumer_reset"];

#[tokio::test(flavor = "multi_thread")]
async fn a_group_newer_than_the_database_is_shown_and_set_back() {
    let mut rig = Rig::new().await;
    rig.publish(100);
    assert_eq!(rig.drain().await, 100);
    for (index, table) in KEPT.iter().enumerate() {
        let copy = format!("create table kept{index} as table {table}");
        rig.client.batch_execute(&copy).await.unwrap();
    }
    rig.publish(100);
    rig.reset_in_kafka(&["--to-earliest"]).await;
    assert_eq!(rig.drain().await, 300);
    rig.sync().await;
    for (index, table) in KEPT.iter().enumerate() {
        let back = format!(
            "delete from {table}; insert into {table} overriding system value table kept{index}"
        );
        rig.client.batch_execute(&back).await.unwrap();
    }
    let name = rig.name.clone();
    let compared = rig.json(&["sync-offsets", &name]);
    assert_eq!(compared["kafka_holds"], "newer than the database", "{compared}");
    let looked = rig.run(&["reset", &name, "--to-offset", "60"]);
    assert!(looked.status.success(), "{}", stderr(&looked));
    rig.sync().await;
    let synced = rig.json(&["sync-offsets", &name]);
    assert_eq!(
        (&synced["kafka_offset"], &synced["kafka_holds"]),
        (&100.into(), &"the same".into())
    );
    assert_eq!(rig.drain().await, 200, "each event once");
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_of_a_group_with_members_are_left_to_them() {
    let mut rig = Rig::new().await;
    rig.publish(10);
    let running =
        rig.start(|builder| builder.commit_interval_ms(60_000).session_timeout_ms(60_000));
    rig.until_at(10).await;
    let name = rig.name.clone();
    let output = rig.run(&["sync-offsets", &name, "--yes"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("has members") && text.contains("stop all of them"), "{text}");
    running.stop().await;
    rig.sync().await;
    assert_eq!(rig.json(&["sync-offsets", &name])["kafka_offset"], 10);
}

impl Rig {
    /// Once the group is without members, which after a kill takes as long as a
    /// session.
    pub(crate) async fn sync(&self) {
        testkit::until(LIMIT, "a group without members", async || {
            let output = self.run(&["sync-offsets", &self.name, "--yes"]);
            let has_members = stderr(&output).contains("has members");
            assert!(output.status.success() || has_members, "{}", stderr(&output));
            output.status.success()
        })
        .await;
    }
}
