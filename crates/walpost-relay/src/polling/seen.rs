//! Rows that the WAL has brought are marked as published, before anybody polls.

use std::{sync::Arc, time::Duration};

use walpost_postgres::Database;

use super::{
    config::PollingConfig,
    gate::Gate,
    statements::{Shape, Text, of},
    table::{PolledTable, describe, polled},
};
use crate::{
    checkpoint::Cut,
    config::RelayConfig,
    error::RelayError,
    sql::Sql,
    wal::snapshot::{SESSION_SETTINGS, begin_behind},
};

/// Rows of one transaction.
const BATCH_ROWS: usize = 1_000;

/// Marks the pending rows that the cut sees as published, in bounded
/// transactions; how many rows. What an earlier attempt has marked stays so.
pub(crate) async fn publish_seen(
    database: &Database,
    config: &RelayConfig,
    polling: &PollingConfig,
    cut: &Cut,
) -> Result<u64, RelayError> {
    let attempt = "looking for rows that the WAL has brought";
    let limit = Duration::from_millis(config.statement_timeout_ms);
    let slow = Duration::from_millis(config.slot_timeout_ms);
    let reader = Sql::new(Arc::new(database.connect().await?), slow);
    reader.batch(attempt, SESSION_SETTINGS).await?;
    begin_behind(&reader, &cut.snapshot, slow).await?;
    let selection = selection(&reader, config, polling, cut).await?;
    let declare = format!("declare walpost_seen no scroll cursor for {selection}");
    reader.batch(attempt, &declare).await?;
    let client = Arc::new(database.connect().await?);
    Sql::new(client.clone(), limit).batch(attempt, SESSION_SETTINGS).await?;
    let table = PolledTable::open(database, client, config, polling, &Gate::Relays).await?;
    let mut marked = 0;
    let fetch = format!("fetch {BATCH_ROWS} from walpost_seen");
    loop {
        let rows = reader.query(attempt, &fetch, &[]).await?;
        let ids: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
        if ids.is_empty() {
            return Ok(marked);
        }
        table.begin().await?;
        table.publish(&ids).await?;
        table.commit().await?;
        marked += ids.len() as u64;
    }
}

/// Their ids.
async fn selection(
    sql: &Sql,
    config: &RelayConfig,
    polling: &PollingConfig,
    cut: &Cut,
) -> Result<String, RelayError> {
    let table = polled(config)?;
    let (relation, types) = describe(sql, config, table).await?;
    let seen_by = Some(cut.snapshot.as_str());
    let text = Text {
        config,
        polling,
        shape: &Shape { table, relation: &relation, types: &types, seen_by, charset: None },
    };
    Ok(format!(
        "select {}::text from {} t where {}{}",
        of("t", &polling.id_column),
        table.quoted(),
        text.has_pending_value("t"),
        text.within("t")
    ))
}
