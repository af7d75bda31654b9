//! Debezium's PostgreSQL connector with the Outbox Event Router in a Kafka
//! Connect worker of its own, as the peer under the same kills.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};
use walpost_testkit::{
    Process,
    local::{fetch_debezium, free_port},
};

use super::stage::Servers;

const CONNECTOR: &str = include_str!("../../../connectors/orders.json");
pub(super) const SLOT: &str = "chaos_debezium";

/// Starts the worker of the folder, which keeps its offsets there.
pub(super) fn start(servers: &Servers, database: &str, folder: &Path) -> Process {
    let folder = folder.join("debezium");
    let (worker, connector) = (folder.join("worker.properties"), folder.join("connector.json"));
    fs::create_dir_all(folder.join("plugins")).unwrap();
    fs::write(&worker, worker_properties(servers, &folder)).unwrap();
    fs::write(&connector, Value::from(connector_config(servers, database)).to_string()).unwrap();
    let mut args: Vec<PathBuf> = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        .iter()
        .chain(&["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"])
        .map(PathBuf::from)
        .collect();
    args.push(fetch_debezium().unwrap().join("*"));
    args.push("org.apache.kafka.connect.cli.ConnectStandalone".into());
    args.extend([worker, connector]);
    Process::start(servers.kafka.java(), args, [("LC_ALL", "C.UTF-8")])
}

/// The defaults, but that offsets are kept every second and not every minute.
fn worker_properties(servers: &Servers, folder: &Path) -> String {
    let (bootstrap, port) = (servers.kafka.bootstrap(), free_port().unwrap());
    let folder = folder.display();
    format!(
        "bootstrap.servers={bootstrap}\n\
         key.converter=org.apache.kafka.connect.storage.StringConverter\n\
         value.converter=org.apache.kafka.connect.storage.StringConverter\n\
         offset.storage.file.filename={folder}/offsets\n\
         offset.flush.interval.ms=1000\n\
         plugin.path={folder}/plugins\n\
         listeners=http://127.0.0.1:{port}\n"
    )
}

/// `connectors/orders.json` with the places of this run.
fn connector_config(servers: &Servers, database: &str) -> Map<String, Value> {
    let mut config: Map<String, Value> = serde_json::from_str(CONNECTOR).unwrap();
    let port = servers.postgres.port().to_string();
    let places = [
        ("database.hostname", servers.postgres.host()),
        ("database.port", &port),
        ("database.dbname", database),
        ("slot.name", SLOT),
        ("transforms.outbox.route.topic.replacement", "chaos.${routedByValue}"),
    ];
    for (key, value) in places {
        let before = config.insert(key.to_owned(), value.into());
        assert!(before.is_some(), "the connector has {key}");
    }
    config
}
