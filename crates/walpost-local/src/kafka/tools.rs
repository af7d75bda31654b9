//! Kafka's own programs, for a broker of this process or any other.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::NAME;
use crate::{LocalError, command, fetch, java};

const OLDEST_JAVA: u32 = 17;
const TOOL_LIMIT: Duration = Duration::from_secs(120);

/// The programs of Kafka [`KAFKA_VERSION`](crate::KAFKA_VERSION), and a Java that
/// runs them.
#[derive(Debug, Clone)]
pub struct KafkaTools {
    java: PathBuf,
    libraries: PathBuf,
}

impl KafkaTools {
    /// Finds Java and fetches the programs if they are missing.
    ///
    /// # Errors
    ///
    /// When there is no Java 17 or newer, or the programs cannot be fetched.
    pub fn find() -> Result<Self, LocalError> {
        Ok(Self { java: java::find(NAME, OLDEST_JAVA)?, libraries: fetch::fetch_kafka()? })
    }

    /// What Java needs as `-cp` to find Kafka and its tools.
    #[must_use]
    pub fn classpath(&self) -> OsString {
        self.libraries.join("*").into_os_string()
    }

    /// The Java that runs them.
    #[must_use]
    pub fn java(&self) -> &Path {
        &self.java
    }

    /// Runs one of Kafka's own Java programs to its end and returns what it
    /// wrote to stdout. Known classes:
    ///
    /// | class | is known as |
    /// |---|---|
    /// | `org.apache.kafka.tools.consumer.group.ConsumerGroupCommand` | `kafka-consumer-groups.sh` |
    /// | `org.apache.kafka.tools.TopicCommand` | `kafka-topics.sh` |
    /// | `org.apache.kafka.tools.GroupsCommand` | `kafka-groups.sh` |
    /// | `org.apache.kafka.tools.TransactionsCommand` | `kafka-transactions.sh` |
    /// | `org.apache.kafka.tools.DumpLogSegments` | `kafka-dump-log.sh` |
    ///
    /// # Errors
    ///
    /// When it fails, or still runs after 2 minutes.
    pub fn run(
        &self,
        class: &str,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<String, LocalError> {
        let mut command = Command::new(&self.java);
        command
            .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"])
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
            .arg("-cp")
            .arg(self.classpath())
            .arg(class)
            .args(args);
        Ok(command::run(class, &mut command, TOOL_LIMIT)?.stdout)
    }
}
