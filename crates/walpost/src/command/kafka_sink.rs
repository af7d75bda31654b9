//! The Kafka sink of a pipeline, whose transactional.id names its database.

use walpost_kafka::{KafkaConnector, KafkaSink};
use walpost_postgres::{
    Database,
    shown::{Author, chain},
};
use walpost_relay::RelayError;

use crate::config::Config;

/// What a standby that is promoted has too, and no other database.
const NAME: &str = "select system_identifier::text || '-' || d.oid::text \
                    from pg_control_system(), pg_database d where d.datname = current_database()";

/// Connects sinks of a pipeline.
pub(super) struct PipelineKafka {
    connector: KafkaConnector,
    database: Database,
    /// The transactional.id is not named by the configuration, and not complete yet.
    is_unnamed: bool,
}

impl PipelineKafka {
    pub(super) fn new(config: &Config, connector: KafkaConnector, database: &Database) -> Self {
        let is_derived = config.settings.sink.transactional_id.is_empty();
        let is_unnamed = is_derived && connector.transactional_id().is_some();
        Self { connector, database: database.clone(), is_unnamed }
    }

    /// Opens a producer and waits until a broker answers.
    pub(super) async fn connect(&mut self) -> Result<KafkaSink, RelayError> {
        if self.is_unnamed {
            let name = name(&self.database).await?;
            self.connector = self.connector.clone().named_after(&name);
            self.is_unnamed = false;
        }
        self.connector.connect().await
    }
}

async fn name(database: &Database) -> Result<String, RelayError> {
    let failed = |detail: String, transient| RelayError::Sink { detail, transient };
    let client = database.connect().await.map_err(|error| {
        let transient = error.is_transient();
        failed(chain(&error, Author::Walpost), transient)
    })?;
    let row = client.query_one(NAME, &[]).await;
    Ok(row.map_err(|error| failed(chain(&error, Author::Walpost), true))?.get(0))
}
