//! What a connector has stored: its checkpoint, as Kafka Connect would show it.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::{Map, Value};
use tokio::time::timeout;
use tokio_postgres::{error::SqlState, types::PgLsn};
use walpost_connect::{ApiError, Sight};
use walpost_connector::Properties;
use walpost_event::Lsn;
use walpost_takeover::StoredOffset;

use super::pipelines::Pipelines;
use crate::{command::sql::quoted, config::Config, failure::Failure};

/// Bound on the look.
const LIMIT: Duration = Duration::from_secs(10);

impl Pipelines {
    /// Looks at the checkpoint of a connector; at none where it has none yet.
    pub(super) async fn sight(self: Arc<Self>, connector: Properties) -> Result<Sight, ApiError> {
        let server = connector.get("topic.prefix").unwrap_or_default().to_owned();
        let judge = self.clone();
        let config = self.looks.run(move || judge.config_of(&connector)).await?;
        let config = config.map_err(Failure::from);
        let config = config.map_err(|failure| ApiError::internal(failure.in_one_line()))?;
        let timed_out = || ApiError::internal("the connector's database does not answer");
        let found = timeout(LIMIT, look(&config)).await.map_err(|_| timed_out())?;
        let found = found.map_err(|failure| ApiError::internal(failure.in_one_line()))?;
        let Some((topics, at, updated)) = found else { return Ok(Sight::default()) };
        Ok(Sight { topics, offset: Some(offset(&server, at, updated)) })
    }
}

/// Topics, position, and when it was written.
type Checkpoint = (Vec<String>, Lsn, SystemTime);

async fn look(config: &Config) -> Result<Option<Checkpoint>, Failure> {
    let client = config.database()?.connect().await.map_err(Failure::of_connect)?;
    let section = &config.settings.pipeline;
    let sql = format!(
        "select array(select jsonb_object_keys(floors) order by 1), confirmed_lsn, updated_at \
         from {}.checkpoint where pipeline = $1",
        quoted(&section.schema)
    );
    match client.query_opt(&sql, &[&section.name]).await {
        Ok(row) => Ok(row.map(|row| {
            let at = Lsn::from(u64::from(row.get::<_, PgLsn>(1)));
            (row.get(0), at, row.get(2))
        })),
        // Nothing has run here yet.
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(None),
        Err(error) => Err(Failure::postgres(error).context("cannot read the checkpoint")),
    }
}

/// As Debezium stores it: everything below is published.
fn offset(server: &str, at: Lsn, updated: SystemTime) -> (Map<String, Value>, Map<String, Value>) {
    let since = updated.duration_since(UNIX_EPOCH).unwrap_or_default();
    let updated_us = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
    let offset = StoredOffset::at_end_of_transaction(at, updated_us);
    let offset = serde_json::from_slice(&offset).expect("it is an object");
    (Map::from_iter([("server".to_owned(), server.into())]), offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_shown_as_debezium_stores_it() {
        let updated = UNIX_EPOCH + Duration::from_micros(7);
        let (partition, offset) = offset("shop", Lsn::from(0x10_0000), updated);
        assert_eq!(Value::Object(partition), serde_json::json!({ "server": "shop" }));
        assert_eq!((&offset["lsn"], &offset["ts_usec"]), (&0x10_0000.into(), &7.into()));
        StoredOffset::parse(Value::Object(offset).to_string().as_bytes()).unwrap();
    }
}
