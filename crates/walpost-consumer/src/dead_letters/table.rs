//! Which parked events have no dead letter, and which have.

use std::{collections::BTreeMap, time::SystemTime};

use bytes::Bytes;
use postgres_protocol::escape::escape_identifier;
use tokio_postgres::{
    Client, Row,
    types::{ToSql, Type},
};

use super::letter::Letter;
use crate::{
    partition::start,
    settings::Settings,
    sql::{ClaimKey, Sql},
};

/// Events that are read together.
const PIECE_MAX_EVENTS: i64 = 100;
/// Bytes of keys, values and headers that are read together; one larger event
/// goes alone.
const PIECE_MAX_BYTES: i64 = 1 << 20;
/// After which a letter that the topic has refused is tried again.
pub(super) const REFUSED_AGAIN_MINUTES: i32 = 10;

/// Of a letter by the id of its row: which time it was parked, and why the topic
/// takes none.
pub(super) type Unnoted = BTreeMap<i64, (i32, Option<String>)>;

/// The table `consumer_parked`, as far as dead letters go.
#[derive(Debug)]
pub(super) struct Table {
    sql: Sql,
    topic: String,
    /// $1 position: its epoch, and the server's clock.
    look: String,
    /// $1 position, $2 since when a refused letter is tried again at once, $3
    /// minutes after which in any case, $4 ids that are left out, $5 most rows:
    /// ids, and how many bytes each has.
    missing: String,
    /// $1 position, $2 ids.
    contents: String,
    /// $1 ids, $2 parkings, $3 errors, $4 topic: those that somebody has locked.
    note: String,
}

impl Table {
    pub(super) fn new(sql: &Sql, settings: &Settings, topic: &str) -> Self {
        let schema = escape_identifier(&settings.schema);
        let parked = format!("{schema}.consumer_parked");
        Self {
            sql: sql.clone(),
            topic: topic.to_owned(),
            look: format!("select epoch, clock_timestamp() from {schema}.position where id = $1"),
            missing: format!(
                "select id, coalesce(octet_length(key), 0)::bigint \
                 + coalesce(octet_length(value), 0) \
                 + (select coalesce(sum(octet_length(n) + coalesce(octet_length(v), 0)), 0) \
                 from unnest(header_names, header_values) h(n, v)) from {parked} \
                 where pos_id = $1 and state = 'parked' \
                 and (dead_letter_at is null or dead_letter_error is not null) \
                 and (dead_letter_at is null or dead_letter_at < \
                 greatest($2, clock_timestamp() - make_interval(mins => $3))) \
                 and id <> all ($4) order by id limit $5"
            ),
            contents: format!(
                "select id, parking, topic, part, off, event_id, key, value, \
                 header_names, header_values, timestamp_ms, reason, attempts, \
                 to_char(parked_at at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') \
                 from {parked} where pos_id = $1 and id = any ($2) and state = 'parked' \
                 order by id"
            ),
            note: format!(
                "with letter as (select * from unnest($1::bigint[], $2::int[], $3::text[]) \
                 l(id, parking, error)), \
                 found as materialized (select p.id from {parked} p join letter l \
                 on l.id = p.id and l.parking = p.parking for no key update of p skip locked), \
                 noted as (update {parked} p set dead_letter_topic = $4, \
                 dead_letter_at = clock_timestamp(), dead_letter_error = l.error \
                 from letter l join found f on f.id = l.id where p.id = l.id returning p.id) \
                 select p.id from {parked} p join letter l \
                 on l.id = p.id and l.parking = p.parking \
                 where p.id not in (select id from noted)"
            ),
        }
    }

    /// The server's clock, `None` if the claim has ended.
    pub(super) async fn look(
        &self,
        client: &Client,
        key: ClaimKey,
    ) -> Result<Option<SystemTime>, tokio_postgres::Error> {
        let position: [(&(dyn ToSql + Sync), Type); 1] = [(&key.position, Type::INT4)];
        let row = client.query_typed_opt(&self.look, &position).await?;
        Ok(row.filter(|row| row.get::<_, i64>(0) == key.epoch).map(|row| row.get(1)))
    }

    /// The first of those that have none, without those of `unnoted`, which have
    /// one. A letter that was refused is tried again once for whoever began
    /// `since`, and then now and then.
    pub(super) async fn next(
        &self,
        client: &Client,
        key: ClaimKey,
        since: SystemTime,
        unnoted: &Unnoted,
    ) -> Result<Vec<Letter>, tokio_postgres::Error> {
        let unnoted: Vec<i64> = unnoted.keys().copied().collect();
        let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
            (&key.position, Type::INT4),
            (&since, Type::TIMESTAMPTZ),
            (&REFUSED_AGAIN_MINUTES, Type::INT4),
            (&unnoted, Type::INT8_ARRAY),
            (&PIECE_MAX_EVENTS, Type::INT8),
        ];
        let rows = client.query_typed(&self.missing, &parameters).await?;
        let sizes = rows.iter().map(|row| (row.get(0), row.get(1)));
        let ids = piece(sizes, PIECE_MAX_BYTES);
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&key.position, Type::INT4), (&ids, Type::INT8_ARRAY)];
        let rows = client.query_typed(&self.contents, &parameters).await?;
        Ok(rows.iter().map(letter).collect())
    }

    /// Notes behind the fence that these letters were written, or why the topic
    /// takes none. Waits for nobody who has locked a row: returns which are left.
    pub(super) async fn note(
        &self,
        client: &mut Client,
        key: ClaimKey,
        letters: &Unnoted,
    ) -> Result<Vec<i64>, tokio_postgres::Error> {
        let ids: Vec<i64> = letters.keys().copied().collect();
        let (parkings, errors): (Vec<i32>, Vec<Option<&str>>) =
            letters.values().map(|(parking, error)| (*parking, error.as_deref())).unzip();
        let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
            (&ids, Type::INT8_ARRAY),
            (&parkings, Type::INT4_ARRAY),
            (&errors, Type::TEXT_ARRAY),
            (&self.topic, Type::TEXT),
        ];
        let tx = start(client).await?;
        tx.batch_execute(&self.sql.lane_begin(&key)).await?;
        let left = tx.query_typed(&self.note, &parameters).await?;
        tx.batch_execute(&self.sql.lane_end(&key)).await?;
        tx.commit().await?;
        Ok(left.iter().map(|row| row.get(0)).collect())
    }
}

/// The first ids, within so many bytes, and one at least.
fn piece(sizes: impl Iterator<Item = (i64, i64)>, max_bytes: i64) -> Vec<i64> {
    let mut bytes = 0_i64;
    let mut ids = Vec::new();
    for (id, size) in sizes {
        bytes = bytes.saturating_add(size);
        if bytes > max_bytes && !ids.is_empty() {
            break;
        }
        ids.push(id);
    }
    ids
}

fn letter(row: &Row) -> Letter {
    let bytes = |value: Option<Vec<u8>>| value.map(Bytes::from);
    let (names, values): (Vec<String>, Vec<Option<Vec<u8>>>) = (row.get(8), row.get(9));
    Letter {
        id: row.get(0),
        parking: row.get(1),
        topic: row.get(2),
        partition: row.get(3),
        offset: row.get(4),
        event_id: row.get(5),
        key: bytes(row.get(6)),
        value: bytes(row.get(7)),
        headers: names.into_iter().zip(values.into_iter().map(bytes)).collect(),
        timestamp_ms: row.get(10),
        reason: row.get(11),
        attempts: row.get(12),
        parked_at: row.get(13),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_bounded_by_bytes_and_has_one_event_at_least() {
        let of = |sizes: &[i64]| piece((0..).zip(sizes.iter().copied()), 100);
        assert_eq!(of(&[40, 60, 1]), [0, 1]);
        assert_eq!(of(&[40, 61, 1]), [0]);
        assert_eq!(of(&[5_000, 1]), [0]);
        assert_eq!(of(&[1, i64::MAX, 1]), [0]);
        assert_eq!(of(&[]), [0_i64; 0]);
    }
}
