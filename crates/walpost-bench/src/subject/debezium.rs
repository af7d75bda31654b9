use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::{Map, Value};
use walpost_local::{
    ChildGuard, DEBEZIUM_VERSION, KAFKA_VERSION, Launch, fetch_debezium, free_port,
};

use super::{Job, Output, PUBLICATION, Subject};
use crate::services::{DATABASE, Services};

const CONNECTOR: &str = include_str!("../../../../connectors/orders.json");

/// Larger and quicker than the defaults (queue 8,192, batch 2,048, poll 500
/// ms; linger 0, batches of 16 KiB, no compression), which are made for many
/// connectors on one worker. Compression as walpost has it by default.
const TUNING: [(&str, &str); 7] = [
    ("poll.interval.ms", "10"),
    ("max.batch.size", "8192"),
    ("max.queue.size", "32768"),
    ("producer.override.acks", "all"),
    ("producer.override.linger.ms", "5"),
    ("producer.override.batch.size", "262144"),
    ("producer.override.compression.type", "lz4"),
];

/// Those of Kafka's own start scripts, and half of their heap.
pub(crate) const JVM_ARGS: [&str; 7] = [
    "-Xms256m",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];

/// Debezium's PostgreSQL connector with the Outbox Event Router, in a Kafka
/// Connect worker of its own, tuned.
#[derive(Debug)]
pub(crate) struct Debezium {
    libraries: PathBuf,
}

impl Debezium {
    /// Fetches it if it is not there.
    pub(crate) fn fetched() -> Result<Self> {
        Ok(Self { libraries: fetch_debezium()? })
    }
}

impl Subject for Debezium {
    fn name(&self) -> &'static str {
        "debezium"
    }

    fn version(&self, _: &Services) -> Result<String> {
        Ok(format!("Debezium {DEBEZIUM_VERSION} in Kafka Connect {KAFKA_VERSION} standalone"))
    }

    fn output(&self) -> Output {
        Output::Topic
    }

    fn start(&self, job: &Job<'_>) -> Result<ChildGuard> {
        let worker = job.folder.join("worker.properties");
        let connector = job.folder.join("connector.json");
        fs::create_dir(job.folder.join("plugins")).context("creating the plugin folder")?;
        write(&worker, &worker_properties(job)?)?;
        write(&connector, &serde_json::to_string_pretty(&connector_config(job)?)?)?;
        Launch::new("Debezium", job.services.kafka.java(), job.log())
            .args(JVM_ARGS)
            .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"])
            .arg(self.libraries.join("*"))
            .arg("org.apache.kafka.connect.cli.ConnectStandalone")
            .args([&worker, &connector])
            .directory(job.folder)
            .disposable(Some(job.services.folder()))
            .spawn()
            .context("starting Debezium")
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn worker_properties(job: &Job<'_>) -> Result<String> {
    let port = free_port()?;
    let folder = job.folder.display();
    let bootstrap = job.services.kafka.bootstrap();
    Ok(format!(
        "bootstrap.servers={bootstrap}\n\
         key.converter=org.apache.kafka.connect.storage.StringConverter\n\
         value.converter=org.apache.kafka.connect.storage.StringConverter\n\
         offset.storage.file.filename={folder}/offsets\n\
         plugin.path={folder}/plugins\n\
         listeners=http://127.0.0.1:{port}\n"
    ))
}

/// `connectors/orders.json` with the places of this run.
fn connector_config(job: &Job<'_>) -> Result<Map<String, Value>> {
    let postgres = &job.services.postgres;
    let port = postgres.port().to_string();
    let places = [
        ("database.hostname", postgres.host()),
        ("database.port", &port),
        ("database.dbname", DATABASE),
        ("slot.name", job.slot),
        ("publication.name", PUBLICATION),
        ("transforms.outbox.route.topic.replacement", job.topic),
    ];
    let mut config = parse_connector()?;
    for (key, value) in places.into_iter().chain(TUNING) {
        config.insert(key.to_owned(), value.into());
    }
    Ok(config)
}

fn parse_connector() -> Result<Map<String, Value>> {
    serde_json::from_str(CONNECTOR).context("reading connectors/orders.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connector_is_flat_and_has_every_key_that_is_replaced() {
        let config = parse_connector().unwrap();
        assert!(config.values().all(Value::is_string));
        for key in ["database.hostname", "database.port", "database.dbname", "slot.name"] {
            assert!(config.contains_key(key), "{key}");
        }
        assert!(config.contains_key("transforms.outbox.route.topic.replacement"));
        assert!(TUNING.iter().all(|(key, _)| !config.contains_key(*key)));
    }
}
