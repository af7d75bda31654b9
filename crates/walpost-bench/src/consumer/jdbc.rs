//! Debezium's JDBC sink connector in a Kafka Connect worker of its own, as a
//! peer: at least once, repeated records being absorbed by upserts.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use walpost_local::{ChildGuard, Launch, fetch_debezium_jdbc, free_port};

use super::Outcome;
use crate::{
    database::Database,
    measure::Meter,
    services::{DATABASE, Services},
    subject::JVM_ARGS,
};

/// Its records carry their schemas.
pub(super) const TOPIC: &str = "bench.jdbc";
/// Where its rows go; see `TABLES`.
pub(super) const TABLE: &str = "bench.upsert";
const USER: &str = "postgres";
const TASKS: u32 = 4;
const BATCH_EVENTS: u32 = 3_000;
const LIMIT: Duration = Duration::from_secs(900);
const POLL_LEAST: Duration = Duration::from_millis(100);
/// Counting takes no more than one part in so many of the time.
const COUNT_SHARE: u32 = 10;

/// Fetches it if it is not there.
pub(super) fn fetched() -> Result<PathBuf> {
    Ok(fetch_debezium_jdbc()?)
}

/// Lets it apply the topic.
pub(super) fn apply(services: &Services, database: &Database, events: u64) -> Result<Outcome> {
    let start = Instant::now();
    let child = start_worker(services, &fetched()?)?;
    let mut meter = Meter::new(child.pid());
    let mut first = None;
    loop {
        let asked = Instant::now();
        let seen = u64::try_from(database.number(&format!("select count(*) from {TABLE}"))?)?;
        let (now, counting) = (start.elapsed().as_secs_f64(), asked.elapsed());
        let usage = meter.sample()?;
        if seen > 0 && first.is_none() {
            first = Some((now, seen));
        }
        if let (Some((first, seen_at_first)), true) = (first, seen >= events) {
            let (cpu, rss_peak_bytes) = (usage.cpu.as_secs_f64(), usage.rss_peak_bytes);
            return Ok(Outcome { first, seen_at_first, done: now, cpu, rss_peak_bytes });
        }
        if usage.ended || start.elapsed() > LIMIT {
            bail!("{seen} of {events} rows; its log ends with: {}", child.log_tail());
        }
        thread::sleep(POLL_LEAST.max(counting * COUNT_SHARE));
    }
}

fn start_worker(services: &Services, libraries: &Path) -> Result<ChildGuard> {
    let folder = services.new_folder("debezium_jdbc_sink")?;
    fs::create_dir(folder.join("plugins")).context("creating the plugin folder")?;
    let (worker, connector) = (folder.join("worker.properties"), folder.join("connector.json"));
    write(&worker, &worker_properties(services, &folder)?)?;
    write(&connector, &serde_json::to_string_pretty(&connector_config(services))?)?;
    Launch::new("Debezium's JDBC sink", services.kafka.java(), folder.join("log"))
        .args(JVM_ARGS)
        .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"])
        .arg(libraries.join("*"))
        .arg("org.apache.kafka.connect.cli.ConnectStandalone")
        .args([&worker, &connector])
        .directory(&folder)
        .disposable(Some(services.folder()))
        .spawn()
        .context("starting Debezium's JDBC sink")
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn worker_properties(services: &Services, folder: &Path) -> Result<String> {
    let (port, folder) = (free_port()?, folder.display());
    let bootstrap = services.kafka.bootstrap();
    Ok(format!(
        "bootstrap.servers={bootstrap}\n\
         key.converter=org.apache.kafka.connect.storage.StringConverter\n\
         value.converter=org.apache.kafka.connect.json.JsonConverter\n\
         value.converter.schemas.enable=true\n\
         offset.storage.file.filename={folder}/offsets\n\
         plugin.path={folder}/plugins\n\
         listeners=http://127.0.0.1:{port}\n"
    ))
}

/// Batches of 3,000, which it was fastest with of those tried.
fn connector_config(services: &Services) -> Value {
    let postgres = &services.postgres;
    let url = format!("jdbc:postgresql://{}:{}/{DATABASE}", postgres.host(), postgres.port());
    json!({
        "name": "bench-jdbc",
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": TASKS.to_string(),
        "topics": TOPIC,
        "connection.url": url,
        "connection.username": USER,
        "connection.password": "",
        "insert.mode": "upsert",
        "primary.key.mode": "record_value",
        "primary.key.fields": "event_id",
        "field.include.list": format!("{TOPIC}:event_id,{TOPIC}:total_cents"),
        "collection.name.format": TABLE,
        "schema.evolution": "none",
        "batch.size": BATCH_EVENTS.to_string(),
        "consumer.override.max.poll.records": BATCH_EVENTS.to_string(),
        "consumer.override.auto.offset.reset": "earliest",
    })
}
