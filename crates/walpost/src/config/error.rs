use std::{io, path::PathBuf};

use super::origin::Origin;

/// Sets of tables, as `walpost migrate --set` takes them.
pub(crate) const SETS: &str = "relay, consumer, inbox, idempotency, webhook, connect, all";

/// The configuration cannot be used. Every text names the key and the place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read the configuration file {}", .path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{file} line {line} is no TOML: {problem}")]
    Syntax { file: String, line: usize, problem: String },
    #[error("{origin}: unknown key {key}{}", .nearest.as_ref().map(|key| format!(", did you mean {key}?")).unwrap_or_default())]
    UnknownKey { key: String, origin: Origin, nearest: Option<String> },
    #[error("{origin}: unknown section {section}{}", .nearest.as_ref().map(|name| format!(", did you mean {name}?")).unwrap_or_default())]
    UnknownSection { section: String, origin: Origin, nearest: Option<String> },
    #[error("{origin}: {key} is {found}, expected {expected}")]
    Type { key: String, origin: Origin, found: String, expected: &'static str },
    #[error("{}{problem}", place(origin))]
    Value { origin: Origin, problem: String },
    #[error("--set takes section.key=value, not {0:?}")]
    Assignment(String),
    #[error("--set takes section.key=value or one of {SETS}, not {0:?}")]
    NoSet(String),
    #[error("{key} is not set")]
    Missing { key: &'static str },
    #[error("cannot read the file that {key} names, {}", .path.display())]
    SecretFile {
        key: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{0} and {1} are both set")]
    Conflict(&'static str, &'static str),
    #[error("{}{key} cannot be used", place(origin))]
    Database {
        key: &'static str,
        origin: Origin,
        #[source]
        source: Box<walpost_postgres::SettingsError>,
    },
    #[error("cannot use the Kafka settings")]
    Kafka(#[from] walpost_kafka::ConfigError),
    #[error("cannot read {}", .path.display())]
    ConnectorFile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("--worker is a file beside a connector's, and no connector is named")]
    WorkerAlone,
    #[error("cannot read {file}")]
    Properties {
        file: String,
        #[source]
        source: walpost_connector::ReadError,
    },
    #[error("{file} has a provider that cannot be used")]
    Provider {
        file: String,
        #[source]
        source: walpost_connector::ProviderError,
    },
    #[error("--allow-env is no regular expression")]
    AllowedVariables(#[source] walpost_router::PatternError),
    #[error("{place}: {row}{}", more(*others))]
    Property { place: String, row: String, others: usize, file: String },
    #[error("the tables that the connector's filters mean were not looked for")]
    NoTables,
}

/// Where a value was set; nowhere where it is the default.
fn place(origin: &Origin) -> String {
    match origin {
        Origin::Default => String::new(),
        origin => format!("{origin}: "),
    }
}

fn more(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => "; and one more".to_owned(),
        others => format!("; and {others} more"),
    }
}

impl ConfigError {
    /// What to do, where the text alone does not say it.
    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::Missing { key: "postgres.url" } => {
                "name the database: --postgres URL, WALPOST_POSTGRES_URL, or url under [postgres] \
                 in walpost.toml"
                    .to_owned()
            }
            Self::Kafka(walpost_kafka::ConfigError::NoBootstrap) => {
                "name a broker: --kafka HOST:PORT, WALPOST_KAFKA_BOOTSTRAP_SERVERS, or \
                 \"bootstrap.servers\" under [kafka] in walpost.toml; of a Debezium connector \
                 the worker's file has them, which --worker names"
                    .to_owned()
            }
            Self::SecretFile { key, .. } => {
                format!("make the file readable for this user, or set {key} to another one")
            }
            Self::Conflict(first, second) => format!("remove {first} or {second}"),
            Self::Property { file, .. } => {
                format!("see `walpost check {file}` for every property with its verdict")
            }
            Self::ConnectorFile { .. } => "name a file that can be read".to_owned(),
            Self::WorkerAlone => "name the connector too, with --connector FILE".to_owned(),
            Self::Properties { .. } | Self::Provider { .. } | Self::AllowedVariables(_) => {
                "see docs/from-debezium.md for the forms of files and their placeholders".to_owned()
            }
            Self::Unreadable { .. } => "name a file that exists with --config".to_owned(),
            _ => "see `walpost config` for every key with its meaning".to_owned(),
        }
    }
}
