use std::{
    fs,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use tempfile::TempDir;
use tokio::{task::block_in_place, time};
use tokio_postgres::Client;
use toml::{Table, Value};
use walpost_local::Postgres;
use walpost_migrate::Migrator;
use walpost_postgres::Database;
use walpost_relay::{Outcome, RelayConfig};
use walpost_router::RouterConfig;

use super::{Options, broker::Broker, child::Child, shop, topic::Topic};
use crate::{
    command::sql,
    failure::{Exit, Failure},
    output,
};

const SLOT_TRIES: u32 = 600;
const SLOT_INTERVAL: Duration = Duration::from_millis(100);

/// Name of the demo's pipeline.
const PIPELINE: &str = "demo";

/// Aggregate type of the demo's events.
pub(super) const AGGREGATE_TYPE: &str = "order";

/// The surroundings of the demo. [`strike`](Self::strike) removes them.
pub(super) struct Stage {
    pub(super) options: Options,
    /// Database, slot, topic, consumer and group.
    pub(super) name: String,
    folder: TempDir,
    postgres: Option<Postgres>,
    server: Option<Database>,
    database: Option<Database>,
    broker: Option<Broker>,
    pub(super) relay: Option<Child>,
    pub(super) consumer: Option<Child>,
}

impl Stage {
    /// An empty one.
    pub(super) fn new(options: Options) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new()
            .prefix("walpost-demo-")
            .tempdir()
            .map_err(|error| Failure::running(error).context("cannot create a temporary folder"))?;
        Ok(Self {
            // Not the process id, which other hosts of a server have as well.
            name: format!("walpost_demo_{:08x}", RandomState::new().hash_one("demo") as u32),
            options,
            folder,
            postgres: None,
            server: None,
            database: None,
            broker: None,
            relay: None,
            consumer: None,
        })
    }

    /// Starts or finds servers, creates database and topic, and writes the
    /// configuration of the children.
    pub(super) async fn set_up(&mut self) -> Result<(), Failure> {
        let given = self.options.postgres.as_deref().map(parse).transpose()?;
        let kafka = self.options.kafka.take();
        let broker = self.broker.insert(block_in_place(|| Broker::open(kafka))?);
        let (settings, shown) = (broker.settings(), broker.describe());
        let url = self.open_postgres()?;
        let server = given.map_or_else(|| parse(&url), Ok)?;
        let client = sql::connect(&server).await?;
        self.announce(&shown);
        self.server = Some(server);
        create_database(&client, &self.name).await?;
        let url = with_dbname(&url, &self.name);
        let database = Database::parse(&url).map_err(Failure::running)?;
        let mut client = sql::connect(&database).await?;
        Migrator::new().migrate(&mut client).await.map_err(Failure::postgres)?;
        client.batch_execute(shop::TABLES).await.map_err(Failure::postgres)?;
        self.check(&database).await?;
        self.database = Some(database);
        let broker = self.broker.as_ref().expect("opened above");
        broker.create_topic(&self.name).await?;
        self.write_config(&url, settings)
    }

    fn announce(&self, broker: &str) {
        let postgres = match &self.postgres {
            Some(postgres) => format!("{}, private and temporary", postgres.major()),
            None => format!("yours, in a database of its own, {}", self.name),
        };
        output::note(format_args!("PostgreSQL  {postgres}"));
        output::note(format_args!("broker      {broker}"));
    }

    /// What the relay would refuse, said before it is started.
    async fn check(&self, database: &Database) -> Result<(), Failure> {
        let mut relay = RelayConfig::new(PIPELINE);
        relay.slot.clone_from(&self.name);
        let results = walpost_relay::check(database, &relay, &RouterConfig::walpost()).await;
        let failed = results.into_iter().find(|result| result.outcome == Outcome::Fail);
        failed.map_or(Ok(()), |result| {
            let failure = Failure::found(Exit::Postgres, &result.detail);
            Err(failure.next_step(result.next_step.unwrap_or_default()))
        })
    }

    /// A session in the demo's database.
    pub(super) async fn client(&self) -> Result<Client, Failure> {
        sql::connect(self.database()).await
    }

    pub(super) fn database(&self) -> &Database {
        self.database.as_ref().expect("set up before")
    }

    pub(super) fn topic(&self) -> Topic {
        let broker = self.broker.as_ref().expect("set up before");
        Topic { settings: broker.settings(), name: self.name.clone() }
    }

    /// Both children; they run as far as they were started.
    pub(super) fn children(&mut self) -> (&mut Child, &mut Child) {
        let set_up = "set up before";
        (self.relay.as_mut().expect(set_up), self.consumer.as_mut().expect(set_up))
    }

    /// Ends the children and removes everything, in the order that works.
    pub(super) async fn strike(mut self) {
        for mut child in [self.consumer.take(), self.relay.take()].into_iter().flatten() {
            child.leave();
        }
        if self.options.keep {
            let folder = self.folder.keep();
            output::note(format_args!("kept        {} (configuration, logs)", folder.display()));
            return;
        }
        if self.postgres.is_none()
            && let Some(server) = &self.server
            && let Err(failure) = remove_database(server, &self.name).await
        {
            output::note(format_args!("could not remove slot and database {}", self.name));
            failure.note();
        }
        if let Some(broker) = self.broker.take() {
            broker.remove(&self.name, &self.name).await;
            block_in_place(|| drop(broker));
        }
        block_in_place(|| drop(self.postgres.take()));
    }

    fn open_postgres(&mut self) -> Result<String, Failure> {
        if let Some(url) = &self.options.postgres {
            return Ok(url.clone());
        }
        let postgres =
            block_in_place(|| Postgres::builder().throwaway().start()).map_err(|error| {
                Failure::postgres(error)
                    .context("cannot start a private PostgreSQL")
                    .next_step("mend that, or name a server: --postgres URL")
            })?;
        let url = postgres.socket_conninfo("postgres");
        self.postgres = Some(postgres);
        Ok(url)
    }

    fn write_config(
        &mut self,
        url: &str,
        kafka: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), Failure> {
        let path = self.folder.path().join("walpost.toml");
        let text = toml::to_string(&config(url, &self.name, kafka)).map_err(Failure::running)?;
        fs::write(&path, text).map_err(Failure::running)?;
        let config = path.display().to_string();
        let args = |more: &[&str]| {
            let base = ["--config", &config];
            base.iter().chain(more).map(|arg| (*arg).to_owned()).collect()
        };
        let program = &self.options.program;
        let folder = self.folder.path();
        let disposable = (!self.options.keep).then_some(folder);
        let relay = Child::new("relay", program, args(&["run"]), folder);
        self.relay = Some(relay.disposable(disposable));
        let consumer = args(&["demo-consumer", "--topic", &self.name, "--name", &self.name]);
        let consumer = Child::new("consumer", program, consumer, folder);
        self.consumer = Some(consumer.disposable(disposable));
        Ok(())
    }
}

/// The configuration of relay and consumer.
fn config(url: &str, name: &str, kafka: impl IntoIterator<Item = (String, String)>) -> Table {
    let section = |pairs: &[(&str, Value)]| {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        Value::Table(pairs.collect())
    };
    let kafka: Table = kafka.into_iter().map(|(key, value)| (key, Value::from(value))).collect();
    let sections = [
        ("postgres", section(&[("url", url.into())])),
        ("pipeline", section(&[("name", PIPELINE.into()), ("slot", name.into())])),
        ("router", section(&[("topic_replacement", name.into())])),
        ("kafka", Value::Table(kafka)),
        ("http", section(&[("listen", "".into())])),
    ];
    sections.into_iter().map(|(name, section)| (name.to_owned(), section)).collect()
}

fn parse(url: &str) -> Result<Database, Failure> {
    Database::parse(url).map_err(|error| {
        Failure::new(Exit::Configuration, error)
            .context("--postgres")
            .next_step("write it as postgres://user@host:5432/database")
    })
}

async fn create_database(client: &Client, name: &str) -> Result<(), Failure> {
    client.batch_execute(&format!("create database {}", sql::quoted(name))).await.map_err(|error| {
        Failure::postgres(error)
            .context("cannot create a database for the demo")
            .next_step("use a role with CREATEDB and REPLICATION, or no --postgres")
    })
}

/// Slot first: a database with a slot cannot be dropped.
async fn remove_database(server: &Database, name: &str) -> Result<(), Failure> {
    let client = sql::connect(server).await?;
    let drop_slot = "select pg_drop_replication_slot(slot_name) from pg_replication_slots
        where slot_name = $1 and not active";
    let there = "select 1 from pg_replication_slots where slot_name = $1";
    for _ in 0..SLOT_TRIES {
        client.execute(drop_slot, &[&name]).await.map_err(Failure::postgres)?;
        if client.query_opt(there, &[&name]).await.map_err(Failure::postgres)?.is_none() {
            break;
        }
        time::sleep(SLOT_INTERVAL).await;
    }
    let drop_database = format!("drop database if exists {} with (force)", sql::quoted(name));
    client.batch_execute(&drop_database).await.map_err(Failure::postgres)
}

/// A connection string of either form, for another database.
fn with_dbname(url: &str, name: &str) -> String {
    match (url.contains("://"), url.contains('?')) {
        (false, _) => format!("{url} dbname={name}"),
        (true, false) => format!("{url}?dbname={name}"),
        (true, true) => format!("{url}&dbname={name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_of_a_connection_string_is_replaced() {
        for url in [
            "postgres://app@h/shop",
            "postgres://app@h",
            "postgres://app@h/shop?sslmode=disable",
            "host=h user=app dbname=shop",
        ] {
            let database = Database::parse(&with_dbname(url, "walpost_demo_1")).unwrap();
            assert_eq!(database.dbname(), "walpost_demo_1", "{url}");
        }
    }
}
