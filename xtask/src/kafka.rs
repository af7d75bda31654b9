//! Kafka's own tools, without an installation of Kafka.

use std::{env, path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};
use walpost_local::fetch_kafka;

/// What the tool is called, and its class.
const TOOLS: [(&str, &str); 3] = [
    ("topics", "org.apache.kafka.tools.TopicCommand"),
    ("consumer-groups", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
    ("console-consumer", "org.apache.kafka.tools.consumer.ConsoleConsumer"),
];

/// Runs a tool as `kafka-<tool>.sh` does, with its own arguments.
///
/// # Errors
/// If there is no such tool, if it cannot be fetched or run, or if it fails.
pub(crate) fn run(tool: &str, arguments: &[&str]) -> Result<()> {
    let class = TOOLS.iter().find(|(name, _)| *name == tool).map(|(_, class)| *class);
    let known = TOOLS.map(|(name, _)| name).join(", ");
    let class = class.with_context(|| format!("no tool is called {tool:?}; there are {known}"))?;
    let jars = fetch_kafka()?.join("*");
    let java = env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let status = Command::new(java.unwrap_or_else(|| "java".into()))
        .args([
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn".as_ref(),
            "-cp".as_ref(),
            jars.as_os_str(),
        ])
        .arg(class)
        .args(arguments)
        .status()
        .context("cannot run java")?;
    ensure!(status.success(), "kafka-{tool} failed: {status}");
    Ok(())
}
