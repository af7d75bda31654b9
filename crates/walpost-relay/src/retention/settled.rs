//! Parked events that are settled leave their table as well.

use std::{collections::HashSet, time::Duration};

use tokio_postgres::{Row, types::Type};
use walpost_postgres::Database;

use super::{RetentionConfig, archive_of, connect, rights};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    event_id::Place,
    sql::Sql,
    wal::quote_identifier,
};

/// Parked events that are looked at together: each table is asked for all of
/// them at once, as an archive has no index over its ids.
const AT_ONCE: i64 = 10_000;

/// Counts what [`prune_parked`] would do. Changes nothing.
///
/// # Errors
/// As [`prune_parked`].
pub async fn prunable_parked(
    database: &Database,
    relay: &RelayConfig,
    id_column: &str,
    retention: &RetentionConfig,
) -> Result<u64, RelayError> {
    let (settled, mut count) = (settled(database, relay, id_column, retention).await?, 0);
    let mut behind = 0;
    while let Some(slice) = settled.slice(behind).await? {
        (behind, count) = (slice.last, count + slice.leave.len() as u64);
    }
    Ok(count)
}

/// Deletes the pipeline's parked events that were sent on or discarded
/// [`parked_days`](RetentionConfig::parked_days) ago, in short transactions,
/// and returns how many.
///
/// One stays as long as the stream may bring its event once more, and as long
/// as its row is in the outbox or in the archive: without it a row that
/// somebody had discarded would count as published.
///
/// It may be given up at any await.
///
/// # Errors
/// [`RelayError::Config`] for settings out of bounds, and what the database
/// refuses.
pub async fn prune_parked(
    database: &Database,
    relay: &RelayConfig,
    id_column: &str,
    retention: &RetentionConfig,
) -> Result<u64, RelayError> {
    let (settled, mut deleted) = (settled(database, relay, id_column, retention).await?, 0);
    rights::expect(&settled.sql, relay, retention).await?;
    let mut behind = 0;
    while let Some(slice) = settled.slice(behind).await? {
        behind = slice.last;
        for batch in slice.leave.chunks(retention.batch_rows as usize) {
            deleted += settled.delete(batch).await?;
            tokio::time::sleep(Duration::from_millis(retention.pause_ms)).await;
        }
    }
    Ok(deleted)
}

async fn settled(
    database: &Database,
    relay: &RelayConfig,
    id_column: &str,
    retention: &RetentionConfig,
) -> Result<Settled, RelayError> {
    retention.validate().map_err(RelayError::Config)?;
    let sql = connect(database, relay).await?;
    let mut rows = Vec::new();
    for table in &relay.tables {
        for place in [table.clone(), archive_of(table)] {
            if let Some(place) = Place::find(&sql, &place, id_column).await? {
                rows.push(Rows { source: table.to_string(), place });
            }
        }
    }
    let known = relay.tables.iter().map(TableName::to_string);
    Ok(Settled {
        parked: format!("{}.parked", quote_identifier(&relay.schema)),
        checkpoint: format!("{}.checkpoint", quote_identifier(&relay.schema)),
        pipeline: relay.pipeline.clone(),
        sources: known.chain(relay.message_prefixes.iter().cloned()).collect(),
        days: retention.parked_days,
        rows,
        slow: sql.within_ms(relay.slot_timeout_ms),
        sql,
    })
}

/// Where the row of a parked event may be.
struct Rows {
    source: String,
    place: Place,
}

struct Settled {
    sql: Sql,
    /// For statements that read whole tables.
    slow: Sql,
    parked: String,
    checkpoint: String,
    pipeline: String,
    /// Tables and prefixes that the pipeline takes: of others nobody knows here
    /// where their rows are.
    sources: Vec<String>,
    days: u32,
    rows: Vec<Rows>,
}

/// Settled events next to each other.
struct Slice {
    last: i64,
    /// Those that may leave.
    leave: Vec<i64>,
}

struct Candidate {
    id: i64,
    source: String,
    event_id: Option<String>,
}

impl Settled {
    /// The next ones; none where there are no more.
    async fn slice(&self, behind: i64) -> Result<Option<Slice>, RelayError> {
        let mut candidates = self.candidates(behind).await?;
        let Some(last) = candidates.last().map(|last| last.id) else { return Ok(None) };
        for rows in &self.rows {
            let there = self.there(rows, &candidates).await?;
            candidates.retain(|one| {
                one.source != rows.source
                    || one.event_id.as_ref().is_none_or(|id| !there.contains(id))
            });
        }
        Ok(Some(Slice { last, leave: candidates.iter().map(|one| one.id).collect() }))
    }

    async fn candidates(&self, behind: i64) -> Result<Vec<Candidate>, RelayError> {
        let Self { parked, checkpoint, days, .. } = self;
        let query = format!(
            "select p.id, p.source, p.event_id from {parked} p \
             join {checkpoint} c using (pipeline) \
             where p.pipeline = $1 and p.id > $2 and p.state in ('done', 'discarded') \
             and p.updated_at < clock_timestamp() - interval '{days} days' \
             and p.source = any ($3) and c.initial = 'done' \
             and (p.generation <> c.generation or p.commit_lsn < c.confirmed_lsn) \
             order by p.id limit {AT_ONCE}"
        );
        let parameters = [
            (&self.pipeline as _, Type::TEXT),
            (&behind as _, Type::INT8),
            (&self.sources as _, Type::TEXT_ARRAY),
        ];
        let rows = self.sql.query("looking for settled parked events", &query, &parameters).await?;
        let candidate =
            |row: &Row| Candidate { id: row.get(0), source: row.get(1), event_id: row.get(2) };
        Ok(rows.iter().map(candidate).collect())
    }

    /// Which of the events have their row there.
    async fn there(
        &self,
        rows: &Rows,
        candidates: &[Candidate],
    ) -> Result<HashSet<String>, RelayError> {
        let of_rows = candidates.iter().filter(|one| one.source == rows.source);
        let ids: Vec<&str> = of_rows.filter_map(|one| one.event_id.as_deref()).collect();
        rows.place.there(&self.slow, &ids).await
    }

    async fn delete(&self, ids: &[i64]) -> Result<u64, RelayError> {
        let query = format!(
            "with gone as (delete from {} where id = any ($1) and state in ('done', 'discarded') \
                 returning 1) select count(*) from gone",
            self.parked
        );
        let ids = [(&ids as _, Type::INT8_ARRAY)];
        let row = self.sql.one("deleting settled parked events", &query, &ids).await?;
        Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or(0))
    }
}
