//! Which parked events have no dead letter, and which have.

use std::{collections::BTreeMap, time::SystemTime};

use tokio_postgres::types::Type;
use walpost_event::Generation;

use super::letter::Letter;
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    parked::{StoredContents, position},
    sql::Sql,
};

/// Bytes of the contents that are read together; the event that goes beyond is
/// in it.
const MAX_BYTES: usize = 4 << 20;
/// After which a letter that the topic has refused is tried again.
const REFUSED_AGAIN_MINUTES: i32 = 10;

/// The table `parked`, as far as dead letters go.
pub(super) struct Table {
    sql: Sql,
    parked: String,
    pipeline: String,
}

impl Table {
    pub(super) fn new(sql: Sql, config: &RelayConfig) -> Self {
        let parked = TableName { schema: config.schema.clone(), name: "parked".to_owned() };
        Self { sql, parked: parked.quoted(), pipeline: config.pipeline.clone() }
    }

    /// The server's clock.
    pub(super) async fn now(&self) -> Result<SystemTime, RelayError> {
        let row = self.sql.one("reading the clock", "select clock_timestamp()", &[]).await?;
        Ok(row.get(0))
    }

    /// The first of those that have none, without those of `unnoted`, which have
    /// one. A letter that was refused is tried again once for whoever began
    /// `since`, and then now and then.
    pub(super) async fn next(
        &self,
        since: SystemTime,
        max_events: i64,
        unnoted: &BTreeMap<i64, Option<String>>,
    ) -> Result<Vec<Letter>, RelayError> {
        let sql = format!(
            "select id from {} where pipeline = $1 and state in ('open', 'sending') \
             and (dead_letter_at is null or dead_letter_error is not null) \
             and (dead_letter_at is null or dead_letter_at < \
                 greatest($2, clock_timestamp() - make_interval(mins => $3))) \
             and id <> all ($4) order by id limit $5",
            self.parked
        );
        let unnoted: Vec<i64> = unnoted.keys().copied().collect();
        let parameters = [
            (&self.pipeline as _, Type::TEXT),
            (&since as _, Type::TIMESTAMPTZ),
            (&REFUSED_AGAIN_MINUTES as _, Type::INT4),
            (&unnoted as _, Type::INT8_ARRAY),
            (&max_events as _, Type::INT8),
        ];
        let rows = self.sql.query("looking for missing dead letters", &sql, &parameters).await?;
        let (mut letters, mut bytes) = (Vec::new(), 0);
        for row in rows {
            if bytes > MAX_BYTES {
                break;
            }
            // One at a time, as each may be large.
            if let Some(letter) = self.letter(row.get(0)).await? {
                bytes += letter.size_bytes();
                letters.push(letter);
            }
        }
        Ok(letters)
    }

    async fn letter(&self, id: i64) -> Result<Option<Letter>, RelayError> {
        let sql = format!(
            "select generation, commit_lsn, ordinal, source, event_id, aggregate_type, \
                 aggregate_id, reason, detail, attempts, topic, record_partition, record_key, \
                 record_value, record_headers, record_timestamp_ms, row_columns, message_content, \
                 id_space \
             from {} where pipeline = $1 and id = $2 and state in ('open', 'sending')",
            self.parked
        );
        let parameters = [(&self.pipeline as _, Type::TEXT), (&id as _, Type::INT8)];
        let row = self.sql.opt("reading a parked event", &sql, &parameters).await?;
        Ok(row.map(|row| {
            let source: String = row.get(3);
            let contents = StoredContents {
                topic: row.get(10),
                partition: row.get(11),
                key: row.get(12),
                value: row.get(13),
                headers: row.get(14),
                timestamp_ms: row.get(15),
                row: row.get(16),
                message: row.get(17),
            };
            Letter {
                id,
                generation: Generation::from(u32::try_from(row.get::<_, i64>(0)).unwrap_or(0)),
                position: position(&row, 1),
                event_id: row.get(4),
                aggregate_type: row.get(5),
                aggregate_id: row.get(6),
                reason: row.get(7),
                detail: row.get(8),
                attempts: row.get(9),
                contents: contents.read(&source),
                source,
                id_space: row.get(18),
            }
        }))
    }

    /// Notes that these letters were written, or why the topic takes none.
    /// Whoever notes it has written them, so nobody is asked whether the
    /// pipeline is still ours. Waits for nobody who has locked a row: returns
    /// which are left.
    pub(super) async fn note(
        &self,
        topic: &str,
        letters: &BTreeMap<i64, Option<String>>,
    ) -> Result<Vec<i64>, RelayError> {
        let sql = format!(
            "with found as materialized ( \
                 select id from {parked} where pipeline = $1 and id = any ($2) \
                 for no key update skip locked \
             ), noted as ( \
                 update {parked} p set dead_letter_topic = $4, dead_letter_error = letter.error, \
                     dead_letter_at = clock_timestamp() \
                 from unnest($2, $3) as letter (id, error) \
                 where p.id = letter.id and p.id in (select id from found) returning p.id \
             ) \
             select id from {parked} where pipeline = $1 and id = any ($2) \
                 and id not in (select id from noted)",
            parked = self.parked
        );
        let ids: Vec<i64> = letters.keys().copied().collect();
        let errors: Vec<Option<&str>> = letters.values().map(Option::as_deref).collect();
        let parameters = [
            (&self.pipeline as _, Type::TEXT),
            (&ids as _, Type::INT8_ARRAY),
            (&errors as _, Type::TEXT_ARRAY),
            (&topic as _, Type::TEXT),
        ];
        let rows = self.sql.query("noting dead letters", &sql, &parameters).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}
