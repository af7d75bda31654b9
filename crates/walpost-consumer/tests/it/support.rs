//! A topic, a database with a table of effects, and consumers on them.

use std::{
    cell::Cell,
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer},
};
use tokio_postgres::Client;
use walpost_consumer::{
    Builder, Consumer, Database, Event, Handler, HandlerError, Park, PartitionStatus, SliceError,
    tokio_postgres::Transaction,
};
use walpost_migrate::{Migrator, Set};
use walpost_testkit as testkit;
pub(crate) use walpost_testkit::{Running, each, ids, run};

/// Longest wait for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(150);

/// Session of members that nobody has to miss.
pub(crate) const SESSION_MS: u64 = 30_000;

/// Session of a member that is killed, paused or dropped, and whose partitions are
/// waited for.
pub(crate) const BRIEF_SESSION_MS: u64 = 6_000;

/// What handlers of these tests write to.
pub(crate) const EFFECT_TABLE: &str = "create table effect (n bigint generated always as identity, \
    event_id text not null, part int not null, off bigint not null, value text)";

thread_local! {
    /// Major version of the server for tests on this thread, `None` for the
    /// one that all share.
    static SERVER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Runs a test on a server of this major version.
pub(crate) fn on_postgres(major: u32, test: fn()) {
    SERVER.set(Some(major));
    test();
    SERVER.set(None);
}

/// What a test works on. Nothing of it is shared with another test but the
/// servers.
pub(crate) struct World {
    pub(crate) topic: String,
    pub(crate) name: String,
    pub(crate) database: testkit::Database,
    pub(crate) client: Client,
    broker: String,
    producer: ThreadedProducer<DefaultProducerContext>,
}

impl World {
    /// A topic of `partitions`, the consumer's tables, and the table `effect`.
    pub(crate) async fn new(partitions: i32) -> Self {
        Self::on(testkit::kafka().bootstrap(), partitions).await
    }

    /// The same on another broker.
    pub(crate) async fn on(broker: &str, partitions: i32) -> Self {
        trace();
        let server = SERVER.get();
        let database = match server {
            Some(major) => testkit::postgres_of(major).fresh_database().await,
            None => testkit::fresh_database().await,
        };
        let mut client = database.connect().await;
        if let Some(major) = server {
            let version: String =
                client.query_one("show server_version_num", &[]).await.unwrap().get(0);
            assert_eq!(version.parse::<u32>().unwrap() / 10_000, major);
        }
        Migrator::new().set(Set::Consumer).migrate(&mut client).await.unwrap();
        client.batch_execute(EFFECT_TABLE).await.unwrap();
        let producer = producer(broker);
        let topic = testkit::unique_name("orders");
        testkit::create_topic(broker, &topic, partitions, &[]).await;
        let (name, broker) = (testkit::unique_name("shipping"), broker.to_owned());
        Self { topic, name, database, client, broker, producer }
    }

    /// The same topic name on another broker, which has it.
    pub(crate) fn at(self, broker: &str) -> Self {
        let (producer, broker) = (producer(broker), broker.to_owned());
        Self { broker, producer, ..self }
    }

    /// A consumer of the topic, not yet with a handler. An event that it parks
    /// holds nothing back, as all have one key.
    pub(crate) fn consumer(&self) -> Builder {
        self.consumer_named(&self.name)
    }

    /// The same with settings of librdkafka.
    pub(crate) fn consumer_as(&self, kafka: &[(&str, &str)]) -> Builder {
        kafka.iter().fold(self.consumer(), |builder, (name, value)| builder.kafka(*name, *value))
    }

    /// The same under another name.
    pub(crate) fn consumer_named(&self, name: &str) -> Builder {
        Consumer::builder(name)
            .kafka("bootstrap.servers", &self.broker)
            .topics([self.topic.clone()])
            .database(Database::config(self.database.config()))
            .session_timeout_ms(SESSION_MS)
            .park(Park::Event)
            .retry_schedule(
                walpost_consumer::RetrySchedule::new([Duration::from_millis(10)]).repeating_last(),
            )
    }

    /// Publishes events with these ids to one partition.
    pub(crate) async fn publish(
        &self,
        partition: i32,
        ids: impl IntoIterator<Item = impl AsRef<str>>,
    ) {
        self.publish_at(partition, now_ms(), ids).await;
    }

    /// The same with a timestamp, in milliseconds since 1970.
    pub(crate) async fn publish_at(
        &self,
        partition: i32,
        timestamp_ms: i64,
        ids: impl IntoIterator<Item = impl AsRef<str>>,
    ) {
        for id in ids {
            self.send_event(partition, timestamp_ms, "key", id.as_ref()).await;
        }
        self.flush();
    }

    /// Publishes events `(key, id)` to one partition.
    pub(crate) async fn publish_keyed(&self, partition: i32, events: &[(&str, &str)]) {
        for (key, id) in events {
            self.send_event(partition, now_ms(), key, id).await;
        }
        self.flush();
    }

    async fn send_event(&self, partition: i32, timestamp_ms: i64, key: &str, id: &str) {
        let headers = OwnedHeaders::new().insert(Header { key: "id", value: Some(id) });
        let record = BaseRecord::to(&self.topic)
            .partition(partition)
            .key(key)
            .payload(id)
            .timestamp(timestamp_ms)
            .headers(headers);
        self.send(record).await;
    }

    /// Publishes one event in a transaction, whose marker stands behind it.
    pub(crate) async fn publish_in_transaction(&self, partition: i32, id: &str) {
        commit_transaction(self.open_transaction(partition, id).await).await;
    }

    /// The same in one that is still open.
    pub(crate) async fn open_transaction(
        &self,
        partition: i32,
        id: &str,
    ) -> ThreadedProducer<DefaultProducerContext> {
        let (broker, topic, id) = (self.broker.clone(), self.topic.clone(), id.to_owned());
        let published = tokio::task::spawn_blocking(move || {
            let mut config = ClientConfig::new();
            config.set("bootstrap.servers", broker).set("transactional.id", &topic);
            config.set("transaction.timeout.ms", "600000");
            let producer: ThreadedProducer<DefaultProducerContext> = config.create().unwrap();
            producer.init_transactions(LIMIT).unwrap();
            producer.begin_transaction().unwrap();
            let headers = OwnedHeaders::new().insert(Header { key: "id", value: Some(&id) });
            let record = BaseRecord::to(&topic).partition(partition).key("key").payload(&id);
            producer.send(record.headers(headers)).map_err(|(error, _)| error).unwrap();
            producer.flush(LIMIT).unwrap();
            producer
        });
        published.await.unwrap()
    }

    /// Publishes one record with these headers; the text is key and value.
    pub(crate) async fn publish_with_headers(
        &self,
        partition: i32,
        text: &str,
        headers: OwnedHeaders,
    ) {
        let record = BaseRecord::to(&self.topic).partition(partition).key(text).payload(text);
        self.send(record.headers(headers)).await;
        self.flush();
    }

    /// Publishes one event with this value, or none.
    pub(crate) async fn publish_value(&self, partition: i32, id: &str, value: Option<&str>) {
        let headers = OwnedHeaders::new().insert(Header { key: "id", value: Some(id) });
        let record = BaseRecord::to(&self.topic).partition(partition).key("key").headers(headers);
        self.send(BaseRecord { payload: value, ..record }).await;
        self.flush();
    }

    /// Publishes events with these ids to the first partition of another topic.
    pub(crate) async fn publish_to(&self, topic: &str, ids: &[String]) {
        for id in ids {
            let headers = OwnedHeaders::new().insert(Header { key: "id", value: Some(id) });
            let record = BaseRecord::to(topic).partition(0).key("key").payload(id.as_str());
            self.send(record.headers(headers)).await;
        }
        self.flush();
    }

    /// Publishes one record without headers.
    pub(crate) async fn publish_without_id(&self, partition: i32, value: &str) {
        self.send(BaseRecord::<str, str>::to(&self.topic).partition(partition).payload(value))
            .await;
        self.flush();
    }

    async fn send(&self, mut record: BaseRecord<'_, str, str>) {
        while let Err((error, rejected)) = self.producer.send(record) {
            assert_eq!(
                error.rdkafka_error_code(),
                Some(rdkafka::types::RDKafkaErrorCode::QueueFull)
            );
            tokio::task::yield_now().await;
            record = rejected;
        }
    }

    fn flush(&self) {
        self.producer.flush(LIMIT).unwrap();
    }

    /// What the group holds for a partition of the topic.
    pub(crate) async fn committed(&self, partition: i32) -> (Option<i64>, Vec<u8>) {
        let (group, topic) = (self.name.clone(), self.topic.clone());
        let broker = self.broker.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let consumer: rdkafka::consumer::BaseConsumer = ClientConfig::new()
                .set("bootstrap.servers", broker)
                .set("group.id", group)
                .create()
                .unwrap();
            walpost_librdkafka::committed(&consumer, &[(&topic, partition)], LIMIT).unwrap()
        });
        let found = asked.await.unwrap().pop().unwrap().unwrap();
        (found.offset, found.metadata)
    }

    /// Resets the stopped group's offsets with Kafka's own tool.
    pub(crate) async fn reset(&self, how: &[&str]) {
        self.reset_topic(&self.topic, how).await;
    }

    /// The same for `topic:partition`.
    pub(crate) async fn reset_topic(&self, topic: &str, how: &[&str]) {
        let mut args = vec!["--topic", topic, "--reset-offsets", "--execute"];
        args.extend(how);
        let output = self.group_tool(&args).await;
        assert!(output.contains(&self.topic), "the tool reset nothing: {output}");
    }

    /// Runs Kafka's tool for groups on the one of this world.
    pub(crate) async fn group_tool(&self, how: &[&str]) -> String {
        let kafka = testkit::kafka();
        let mut args = vec!["--bootstrap-server", kafka.bootstrap(), "--group", &self.name];
        args.extend(how);
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let ran = tokio::task::spawn_blocking(move || {
            kafka.run_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", args)
        });
        ran.await.unwrap()
    }

    /// Removes the records before `offset`, as retention would.
    pub(crate) async fn delete_records(&self, partition: i32, offset: i64) {
        use rdkafka::{
            Offset, TopicPartitionList,
            admin::{AdminClient, AdminOptions},
            client::DefaultClientContext,
        };
        let client: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", &self.broker).create().unwrap();
        let mut before = TopicPartitionList::new();
        before.add_partition_offset(&self.topic, partition, Offset::Offset(offset)).unwrap();
        let options = AdminOptions::new().operation_timeout(Some(LIMIT));
        let deleted = client.delete_records(&before, &options).await.unwrap();
        deleted.elements()[0].error().unwrap();
    }

    /// Deletes the topic, and creates another one of its name.
    pub(crate) async fn create_anew(&self, partitions: i32) {
        use rdkafka::{
            admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
            client::DefaultClientContext,
        };
        let client: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", &self.broker).create().unwrap();
        let options = AdminOptions::new().operation_timeout(Some(LIMIT));
        let deleted = client.delete_topics(&[&self.topic], &options).await.unwrap();
        assert!(deleted[0].is_ok(), "{deleted:?}");
        let topic = NewTopic::new(&self.topic, partitions, TopicReplication::Fixed(1));
        testkit::until(LIMIT, "the topic anew", async || {
            client.create_topics([&topic], &options).await.unwrap()[0].is_ok()
        })
        .await;
    }

    /// Commits an offset for the group from outside, with `metadata`.
    pub(crate) async fn commit(&self, partition: i32, offset: i64, metadata: &[u8]) {
        use rdkafka::{
            Offset, TopicPartitionList,
            consumer::{BaseConsumer, CommitMode, Consumer as _},
        };
        let metadata = String::from_utf8(metadata.to_vec()).unwrap();
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.broker)
            .set("group.id", &self.name)
            .create()
            .unwrap();
        let mut list = TopicPartitionList::new();
        let mut one = list.add_partition(&self.topic, partition);
        one.set_offset(Offset::Offset(offset)).unwrap();
        one.set_metadata(metadata);
        let commit = move || consumer.commit(&list, CommitMode::Sync).unwrap();
        tokio::task::spawn_blocking(commit).await.unwrap();
    }

    /// What `walpost consumer reset` does to partition 0; `chosen` chooses the
    /// one event at the offset.
    pub(crate) async fn operate(&self, mode: &str, to: i64) -> Result<(), tokio_postgres::Error> {
        let chosen = (mode == "chosen").then(|| vec![to]);
        let call = "select walpost.operator_reset($1, $2, 0, $3, $4, $5, null, null, null, 'me', \
                    null)";
        let (name, topic) = (&self.name, &self.topic);
        self.client.query_one(call, &[name, topic, &to, &mode, &chosen]).await.map(|_| ())
    }

    /// How often each event took effect.
    pub(crate) async fn effects(&self) -> BTreeMap<String, i64> {
        let rows = self.client.query("select event_id, count(*) from effect group by 1", &[]);
        rows.await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Ends all other sessions; new ones can write, or not.
    pub(crate) async fn rejects_writes(&self, rejects: bool) {
        let name = self.database.name();
        let setting = if rejects { "= on" } else { "= default" };
        let sql = format!(
            "alter database {name} set default_transaction_read_only {setting}; \
             select pg_terminate_backend(pid) from pg_stat_activity \
             where datname = current_database() and pid <> pg_backend_pid()"
        );
        self.client.batch_execute(&sql).await.unwrap();
    }

    /// One number.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Waits until `query` returns `expected`.
    pub(crate) async fn until_number(&self, query: &str, expected: i64) {
        testkit::until(LIMIT, query, async || self.number(query).await == expected).await;
    }

    /// Changes rows of `position` behind the consumer's back.
    pub(crate) async fn tamper(&self, set: &str) {
        let sql = format!(
            "begin; select set_config('walpost.end', 'test', true); \
             update walpost.position set {set}; commit"
        );
        self.client.batch_execute(&sql).await.unwrap();
    }

    /// The sum of the stored offsets.
    pub(crate) async fn stored(&self) -> i64 {
        self.number("select coalesce(sum(next_offset), 0)::bigint from walpost.position").await
    }
}

pub(crate) async fn commit_transaction(producer: ThreadedProducer<DefaultProducerContext>) {
    let committed = tokio::task::spawn_blocking(move || producer.commit_transaction(LIMIT));
    committed.await.unwrap().unwrap();
}

fn producer(broker: &str) -> ThreadedProducer<DefaultProducerContext> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", broker).set("linger.ms", "1").create().unwrap()
}

/// Stops it when Kafka has said that it holds each partition's offset. A stop does
/// not wait long for that, and a number that Kafka may hold is no reset.
pub(crate) async fn stop_committed(mut running: Running) {
    running
        .until("commits", |status| {
            let holds = |one: &PartitionStatus| {
                one.next_offset.is_some() && one.committed_offset == one.next_offset
            };
            !status.partitions.is_empty() && status.partitions.values().all(holds)
        })
        .await;
    running.stop().await.unwrap();
}

/// Writes effects, many with one statement.
pub(crate) struct Effects;

impl Handler for Effects {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        self.handle_slice(tx, std::slice::from_ref(event)).await.map_err(SliceError::into_inner)
    }

    async fn handle_slice(&self, tx: &Transaction<'_>, events: &[Event]) -> Result<(), SliceError> {
        let ids: Vec<&str> = events.iter().map(Event::id).collect();
        let parts: Vec<i32> = events.iter().map(Event::partition).collect();
        let offsets: Vec<i64> = events.iter().map(Event::offset).collect();
        tx.execute(
            "insert into effect (event_id, part, off) \
             select * from unnest($1::text[], $2::int[], $3::bigint[])",
            &[&ids, &parts, &offsets],
        )
        .await?;
        Ok(())
    }
}

/// Writes an effect after asking a function about the event.
pub(crate) struct Ask<F>(pub(crate) F);

impl<F> Handler for Ask<F>
where
    F: Fn(&Event) -> Result<(), HandlerError> + Send + Sync + 'static,
{
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        effect(tx, event).await?;
        (self.0)(event)
    }
}

/// Writes one effect.
pub(crate) async fn effect(tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
        [&event.id(), &event.partition(), &event.offset()];
    tx.execute("insert into effect (event_id, part, off) values ($1, $2, $3)", &values).await?;
    Ok(())
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// Logs of the consumer, shown by RUST_LOG.
fn trace() {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_test_writer()
        .try_init();
}
