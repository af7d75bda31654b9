//! A topic, a database with a table of effects, a pool, and consumers on them.

use std::{collections::BTreeMap, time::Duration};

use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer},
};
use tokio_postgres::Client;
use walpost_consumer::{Builder, Consumer, Database, Event, HandlerError, Park, RetrySchedule};
use walpost_consumer_sqlx::{
    Failed, Sqlx, SqlxHandler,
    sqlx::{
        self, PgPool, PgTransaction,
        postgres::{PgConnectOptions, PgPoolOptions},
    },
};
use walpost_migrate::{Migrator, Set};
use walpost_testkit as testkit;
pub(crate) use walpost_testkit::{each, ids, run};

/// Longest wait for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(150);

/// What a test works on.
pub(crate) struct World {
    pub(crate) topic: String,
    pub(crate) name: String,
    pub(crate) database: testkit::Database,
    pub(crate) client: Client,
    pub(crate) pool: PgPool,
    producer: ThreadedProducer<DefaultProducerContext>,
}

impl World {
    /// A topic of `partitions`, the consumer's tables, and the table `effect`.
    pub(crate) async fn new(partitions: i32) -> Self {
        let broker = testkit::kafka().bootstrap();
        let database = testkit::fresh_database().await;
        let mut client = database.connect().await;
        Migrator::new().set(Set::Consumer).migrate(&mut client).await.unwrap();
        let effect =
            "create table effect (event_id text not null, off bigint not null, value text)";
        client.batch_execute(effect).await.unwrap();
        let producer = ClientConfig::new()
            .set("bootstrap.servers", broker)
            .set("linger.ms", "1")
            .create()
            .unwrap();
        let topic = testkit::unique_name("orders");
        testkit::create_topic(broker, &topic, partitions, &[]).await;
        let pool = pool(&database).await;
        Self { topic, name: testkit::unique_name("shipping"), database, client, pool, producer }
    }

    /// A consumer of the topic, not yet with a handler. An event that it parks
    /// holds nothing back, as all have one key.
    pub(crate) fn builder(&self) -> Builder {
        Consumer::builder(&self.name)
            .kafka("bootstrap.servers", testkit::kafka().bootstrap())
            .topics([self.topic.clone()])
            .database(Database::config(self.database.config()))
            .session_timeout_ms(30_000)
            .park(Park::Event)
            .retry_schedule(RetrySchedule::new([Duration::from_millis(10)]).repeating_last())
    }

    /// A handler with the pool.
    pub(crate) fn sqlx<H: SqlxHandler>(&self, handler: H) -> Sqlx<H> {
        Sqlx::new(self.pool.clone(), handler)
    }

    /// Publishes events with these ids to one partition.
    pub(crate) async fn publish(
        &self,
        partition: i32,
        ids: impl IntoIterator<Item = impl AsRef<str>>,
    ) {
        for id in ids {
            let id = id.as_ref();
            let headers = OwnedHeaders::new().insert(Header { key: "id", value: Some(id) });
            let record = BaseRecord::to(&self.topic).partition(partition).key("key").payload(id);
            self.producer.send(record.headers(headers)).map_err(|(error, _)| error).unwrap();
        }
        self.producer.flush(LIMIT).unwrap();
    }

    /// How often each event took effect.
    pub(crate) async fn effects(&self) -> BTreeMap<String, i64> {
        let rows = self.client.query("select event_id, count(*) from effect group by 1", &[]);
        rows.await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// One number.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Raises the epoch of the one position, as another owner does.
    pub(crate) async fn claim(&self) {
        let sql = "select q.epoch from walpost.position p, \
                   walpost.claim(p.id, p.group_id, p.cluster_id, p.topic_id) q";
        self.client.query_one(sql, &[]).await.unwrap();
    }
}

/// Connections to `database` by sqlx.
pub(crate) async fn pool(database: &testkit::Database) -> PgPool {
    let options: PgConnectOptions = database.url().parse().unwrap();
    PgPoolOptions::new().max_connections(4).connect_with(options).await.unwrap()
}

/// Writes an effect after asking a function about the event.
pub(crate) struct Ask<F>(pub(crate) F);

impl<F> SqlxHandler for Ask<F>
where
    F: Fn(&Event) -> Result<(), HandlerError> + Send + Sync + 'static,
{
    async fn handle(&self, tx: &mut PgTransaction<'_>, event: &Event) -> Result<(), Failed> {
        effect(tx, event).await?;
        Ok((self.0)(event)?)
    }
}

/// Writes one effect.
pub(crate) async fn effect(tx: &mut PgTransaction<'_>, event: &Event) -> Result<(), Failed> {
    let insert = sqlx::query("insert into effect (event_id, off) values ($1, $2)");
    insert.bind(event.id()).bind(event.offset()).execute(&mut **tx).await?;
    Ok(())
}
