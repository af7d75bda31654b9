//! The outbox row of a parked event, read from its table anew: for an event whose parked row does
//! not have what its record needs, or no longer what the row has.

use std::{sync::Arc, time::Duration};

use tokio_postgres::SimpleQueryMessage;
use uuid::Uuid;
use walpost_event::{Column, Row, Value};
use walpost_postgres::Database;

use super::{Contents, Parking, StoredEvent};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    event_id::{Place, printed},
    id_space,
    sql::Sql,
    wal::{
        charset::Charset,
        quote_identifier, quote_literal, row_filter,
        snapshot::{SESSION_SETTINGS, describe},
    },
};

const ATTEMPT: &str = "reading the outbox row of a parked event";

/// The outbox tables of a pipeline.
#[derive(Clone)]
pub(crate) struct OutboxRows {
    database: Database,
    config: RelayConfig,
    /// The column of the events' ids.
    id_column: String,
}

impl OutboxRows {
    pub(crate) fn new(database: &Database, config: &RelayConfig, id_column: &str) -> Self {
        let (database, config) = (database.clone(), config.clone());
        Self { database, config, id_column: id_column.to_owned() }
    }

    /// The row of an event as it is now, with the columns that the stream brings.
    pub(super) async fn read(
        &self,
        event: &StoredEvent,
    ) -> Result<Result<Row, Parking>, RelayError> {
        let none = |why: &str| {
            let detail = format!("its row cannot be read from the outbox table: {why}");
            Ok(Err(Parking { reason: event.reason, detail }))
        };
        let of_event = |table: &&TableName| table.to_string() == event.source;
        let Some(table) = self.config.tables.iter().find(of_event) else {
            return none("it is of no outbox table of the pipeline");
        };
        let Some(id) = &event.event_id else { return none("its id is not known") };
        let client = Arc::new(self.database.connect().await?);
        let limit = Duration::from_millis(self.config.statement_timeout_ms);
        let sql = Sql::new(client.clone(), limit);
        // The server ends the wait for a lock before the client's own bound does.
        let lock_ms = (self.config.statement_timeout_ms / 2).max(1);
        let settings = format!("{SESSION_SETTINGS}; set lock_timeout = {lock_ms}");
        sql.batch("setting up the session", &settings).await?;
        let relation = Arc::new(describe(&sql, &self.config, table).await?);
        if !self.is_its_table(&sql, table, event).await? {
            return none("the table has another id space than the event: it is another table now");
        }
        let rows = self.rows(&sql, table, id).await?;
        let size = "select count(*), coalesce(max(size), 0) from";
        let columns = relation.columns.iter().map(octets).collect::<Vec<_>>().join(" + ");
        let size = format!("{size} (select {columns} as size {rows} limit 2) found");
        let found = match sql.one(ATTEMPT, &size, &[]).await {
            // The id is of another column, as before router.event_id was changed.
            Err(RelayError::Sql { source, .. })
                if source.code().is_some_and(|code| code.code().starts_with("22")) =>
            {
                return none("its id is none that the column takes");
            }
            found => found?,
        };
        match (found.get::<_, i64>(0), usize::try_from(found.get::<_, i64>(1))) {
            (0, _) => return none("it has no row of the pipeline with this id"),
            (1, Ok(size)) if size <= self.config.max_event_bytes => {}
            (1, size) => {
                let size = size.unwrap_or_default() as u64;
                return Ok(Err(Parking::too_large(size, self.config.max_event_bytes)));
            }
            _ => return none("it has several rows with this id"),
        }
        let mut charset = Charset::find(&sql, &self.database).await?;
        let selected = |column: &Column| charset.selected(&quote_identifier(&column.name));
        let columns = relation.columns.iter().map(selected).collect::<Vec<_>>().join(", ");
        let select = format!("select {columns} {rows} limit 1");
        let answer = tokio::time::timeout(limit, client.simple_query(&select)).await;
        let answer = answer.map_err(|_| RelayError::SqlTimeout { attempt: ATTEMPT, limit })?;
        for message in answer.map_err(RelayError::sql(ATTEMPT))? {
            if let SimpleQueryMessage::Row(row) = message {
                let values = charset.values(&row, relation.columns.len());
                return Ok(Ok(charset.row(&relation, &values, |_| true).await?));
            }
        }
        none("it has no row of the pipeline with this id")
    }

    /// The table has the id space of the event, in which its id is unique: one that was dropped
    /// and made again under its name has another. An event of an earlier version has none.
    async fn is_its_table(
        &self,
        sql: &Sql,
        table: &TableName,
        event: &StoredEvent,
    ) -> Result<bool, RelayError> {
        let Some(space) = event.id_space else { return Ok(true) };
        let query = format!("select {}", id_space::of_table(&self.config, table));
        let now: Option<Uuid> = sql.one(ATTEMPT, &query, &[]).await?.get(0);
        Ok(now == Some(space))
    }

    /// From where the rows with this id are selected, of those of the pipeline.
    async fn rows(&self, sql: &Sql, table: &TableName, id: &str) -> Result<String, RelayError> {
        let own = row_filter::condition(sql, &self.config, table).await?;
        let place = Place::find(sql, table, &self.id_column).await?;
        let is_it = place.map_or("false".to_owned(), |place| place.is(&quote_literal(id)));
        let own = own.as_deref().unwrap_or("true");
        Ok(format!("from {} where {is_it} and {own}", table.quoted()))
    }
}

impl StoredEvent {
    /// Whether the parked row lacks what the outbox row may have.
    pub(super) fn is_incomplete(&self) -> bool {
        match &self.contents {
            Some(Contents::LeftOut) => true,
            Some(Contents::Row(row)) => {
                let values = (0..row.relation().columns.len()).map(|index| row.value(index));
                let is_missing =
                    |value| matches!(value, Value::Unchanged | Value::Undecodable { .. });
                values.into_iter().any(is_missing)
            }
            Some(Contents::Record(_) | Contents::Message(_)) | None => false,
        }
    }
}

fn octets(column: &Column) -> String {
    format!("coalesce(octet_length({})::bigint, 0)", printed(&quote_identifier(&column.name)))
}
