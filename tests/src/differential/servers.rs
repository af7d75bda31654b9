//! One PostgreSQL, and a broker for each engine, so that both may publish to
//! topics of the same names; for Avro one schema registry, so that ids are the same.

use std::{path::Path, thread};

use tokio_postgres::{Client, NoTls};
use walpost_testkit::local::{Kafka, Postgres, Registry};

/// More than one, so that it shows to which a key belongs.
const PARTITIONS: &str = "3";

/// The servers of a run. They end with this value.
#[derive(Debug)]
pub(super) struct Servers {
    pub(super) postgres: Postgres,
    /// Where a case asks one.
    pub(super) registry: Option<Registry>,
    brokers: [Kafka; 2],
}

impl Servers {
    /// Starts them side by side.
    pub(super) fn start(with_registry: bool) -> Self {
        thread::scope(|scope| {
            let registry = with_registry.then(|| scope.spawn(|| Registry::start_new().unwrap()));
            let broker = || {
                Kafka::builder()
                    .property("auto.create.topics.enable", "true")
                    .property("num.partitions", PARTITIONS)
                    // Columns give records times that are long gone.
                    .property("log.retention.ms", "-1")
                    .start()
                    .unwrap()
            };
            let [one, other] = [scope.spawn(broker), scope.spawn(broker)];
            let postgres = Postgres::builder()
                .throwaway()
                .setting("max_wal_senders", "100")
                .setting("max_replication_slots", "100")
                .setting("max_connections", "300")
                .start()
                .unwrap();
            let registry = registry.map(|registry| registry.join().unwrap());
            Self { postgres, registry, brokers: [one.join().unwrap(), other.join().unwrap()] }
        })
    }

    /// Of the first engine's broker and the second one's.
    pub(super) fn bootstraps(&self) -> [String; 2] {
        self.brokers.each_ref().map(Kafka::bootstrap)
    }

    pub(super) fn java(&self) -> &Path {
        self.brokers[0].java()
    }

    /// A connection to a database.
    pub(super) async fn connect(&self, database: &str) -> Client {
        let url = self.postgres.url(database);
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        // It ends with the client; what it says before, the client's calls say too.
        tokio::spawn(async move { drop(connection.await) });
        client
    }

    /// Their logs, for evidence.
    pub(super) fn keep_logs(&self, folder: &Path) {
        let [one, other] = &self.brokers;
        let logs = [
            ("postgres.log", self.postgres.log()),
            ("kafka-1.log", one.log()),
            ("kafka-2.log", other.log()),
        ];
        for (name, log) in logs {
            if let Err(error) = std::fs::copy(log, folder.join(name)) {
                eprintln!("debezium: cannot keep {name}: {error}");
            }
        }
    }
}
