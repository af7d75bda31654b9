//! What is there already where a service runs: the servers, the tables, the
//! topic and the relay. Nothing of this is to be copied: elsewhere it is
//! `walpost migrate` and `walpost run`.

use std::{collections::BTreeMap, env, time::Duration};

use rdkafka::{
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    types::RDKafkaErrorCode,
};
use stand::{Stand, folder, patiently};
use tokio::task::spawn_blocking;
use walpost_encode::{Encoder, Encoding};
use walpost_kafka::KafkaConnector;
use walpost_local::Kafka;
use walpost_migrate::{Migrator, Set};
use walpost_postgres::Database;
use walpost_relay::{Initial, Relay, RelayConfig, RunningRelay};
use walpost_router::RouterConfig;

use crate::{Failed, shipping};

const PARTITIONS: i32 = 3;
const KAFKA_LIMIT: Duration = Duration::from_secs(30);

const TABLES: &str = "
    create table if not exists orders (
        id bigint generated always as identity primary key,
        city text not null);
    create table if not exists shipment (
        order_id bigint not null,
        city text not null,
        event_id text not null,
        shipped_at timestamptz not null default now())";

/// Servers of our own end with this value, however it ends.
pub(crate) struct Surroundings {
    stand: Stand,
    brokers: String,
    _kafka: Option<Kafka>,
}

impl Surroundings {
    /// The servers that DATABASE_URL and KAFKA name, or private ones, whose
    /// data stay in the folder that FOLDER names.
    pub(crate) async fn open() -> Result<Self, Failed> {
        let stand = Stand::open("shipping-service").await?;
        let (brokers, kafka) = match env::var("KAFKA") {
            Ok(brokers) => (brokers, None),
            Err(_) => {
                println!("starting Kafka; the first time it is fetched, which takes a while");
                let home = folder("shipping-service").join("kafka");
                let start = move || Kafka::builder().home(&home).start();
                let kafka = spawn_blocking(|| patiently(start)).await??;
                (kafka.bootstrap(), Some(kafka))
            }
        };
        let all = Self { stand, brokers, _kafka: kafka };
        all.prepare().await?;
        Ok(all)
    }

    pub(crate) fn database(&self) -> &Database {
        self.stand.first()
    }

    pub(crate) fn brokers(&self) -> &str {
        &self.brokers
    }

    /// The same as `walpost run`, on a thread of this process.
    pub(crate) fn start_relay(&self) -> Result<RunningRelay, Failed> {
        let mut config = RelayConfig::new("shop");
        // What the shop has written before the relay's first start goes first.
        config.initial = Some(Initial::Publish);
        let encoding = Encoding { key: Encoder::Raw, value: Encoder::Raw };
        let router = RouterConfig::walpost();
        let relay = Relay::new(self.database().clone(), config, router, encoding)?;
        let connector = self.connector()?;
        Ok(relay.start(async move || connector.connect().await))
    }

    async fn prepare(&self) -> Result<(), Failed> {
        let mut client = self.database().connect().await?;
        Migrator::new().sets([Set::Relay, Set::Consumer]).migrate(&mut client).await?;
        client.batch_execute(TABLES).await?;
        let admin: AdminClient<DefaultClientContext> = self.connector()?.admin_config().create()?;
        let topic = shipping::topic();
        let topic = NewTopic::new(&topic, PARTITIONS, TopicReplication::Fixed(-1));
        let options = AdminOptions::new().operation_timeout(Some(KAFKA_LIMIT));
        for created in admin.create_topics([&topic], &options).await? {
            match created {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((topic, code)) => {
                    return Err(format!("creating the topic {topic}: {code}").into());
                }
            }
        }
        Ok(())
    }

    fn connector(&self) -> Result<KafkaConnector, Failed> {
        let settings = [("bootstrap.servers".to_owned(), self.brokers.clone())];
        Ok(KafkaConnector::new(BTreeMap::from(settings))?)
    }
}
