use std::path::PathBuf;

use anyhow::{Context, Result};
use walpost_local::{
    APICURIO_CONVERTER_VERSION, ChildGuard, DEBEZIUM_VERSION, KAFKA_VERSION, Launch, fetch_debezium,
};

use super::{Job, Output, Subject, connector};
use crate::{encoding::Encoding, services::Services};

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
    encoding: Encoding,
}

impl Debezium {
    /// Fetches it if it is not there.
    pub(crate) fn fetched(encoding: Encoding) -> Result<Self> {
        Ok(Self { libraries: fetch_debezium()?, encoding })
    }
}

impl Subject for Debezium {
    fn name(&self) -> &'static str {
        "debezium"
    }

    fn version(&self, _: &Services) -> Result<String> {
        let worker =
            format!("Debezium {DEBEZIUM_VERSION} in Kafka Connect {KAFKA_VERSION} standalone");
        Ok(match self.encoding {
            Encoding::Avro => {
                format!("{worker}, Avro by Apicurio's converter {APICURIO_CONVERTER_VERSION}")
            }
            Encoding::Text | Encoding::JsonWithSchemas => worker,
        })
    }

    fn output(&self) -> Output {
        Output::Topic
    }

    fn start(&self, job: &Job<'_>) -> Result<ChildGuard> {
        let files = connector::write(job)?;
        Launch::new("Debezium", job.services.kafka.java(), job.log())
            .args(JVM_ARGS)
            .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"])
            .arg(self.libraries.join("*"))
            .arg("org.apache.kafka.connect.cli.ConnectStandalone")
            .args([&files.worker, &files.connector])
            .directory(job.folder)
            .disposable(Some(job.services.folder()))
            .spawn()
            .context("starting Debezium")
    }
}
