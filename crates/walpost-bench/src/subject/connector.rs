//! One connector's file and one worker's, the same for whoever reads them.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use anyhow::{Context, Result};
use serde_json::{Map, Value};
use walpost_local::{fetch_apicurio_converter, free_port};

use super::{Job, PUBLICATION};
use crate::services::DATABASE;

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

/// Where they are.
pub(super) struct Files {
    pub(super) connector: PathBuf,
    pub(super) worker: PathBuf,
}

/// Writes both into the folder of the job, and what the worker needs beside.
///
/// # Errors
/// When a file cannot be written, or the converter not be fetched.
pub(super) fn write(job: &Job<'_>) -> Result<Files> {
    let plugins = job.folder.join("plugins");
    fs::create_dir(&plugins).context("creating the plugin folder")?;
    if job.encoding.has_registry() {
        symlink(fetch_apicurio_converter()?, plugins.join("apicurio"))
            .context("adding the converter to the plugins")?;
    }
    let file = |name: &str, text: String| {
        let path = job.folder.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        anyhow::Ok(path)
    };
    Ok(Files {
        connector: file("connector.json", serde_json::to_string_pretty(&connector_config(job)?)?)?,
        worker: file("worker.properties", worker_properties(job)?)?,
    })
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
        ("name", job.slot),
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
    for (key, value) in job.encoding.properties(job.services)? {
        config.insert(key, value.into());
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
