//! What the table says about retries, and what a run writes of them.

use std::slice;

use serde_json::Value as Json;
use tokio_postgres::{
    Row,
    types::{PgLsn, Type},
};
use walpost_event::{Generation, Lsn, Position};

use super::{
    Aggregate, ParkReason, Parking, Texts,
    sending::{Sending, SendingFloor},
    stored::{StoredContents, StoredEvent},
    table::{ParkedTable, is_of_data, parking_failed, position},
};
use crate::error::RelayError;

/// Rows that one statement discards.
const DISCARD_MAX_ROWS: i64 = 500;

/// A row that somebody wants to be sent on or discarded.
pub(super) struct Requested {
    pub(super) id: i64,
    pub(super) discard: bool,
    pub(super) aggregate: Option<Aggregate>,
    /// The committed position is behind it.
    pub(super) passed: bool,
    /// For the order of those of an aggregate: of this generation, and where.
    pub(super) place: (bool, Position),
}

/// The first row of an aggregate that is neither done nor discarded.
pub(super) struct Head {
    pub(super) id: i64,
    pub(super) open: bool,
    pub(super) behind: bool,
    pub(super) retry: bool,
    pub(super) discard: bool,
    /// The committed position is behind it.
    pub(super) passed: bool,
    /// Where its transaction's commit record begins.
    pub(super) commit_lsn: Lsn,
}

/// What became of a row.
pub(crate) struct Outcome {
    pub(crate) id: i64,
    pub(crate) position: Position,
    pub(crate) aggregate: Option<Aggregate>,
    pub(crate) verdict: Verdict,
}

/// How it went.
pub(crate) enum Verdict {
    /// It is durable in the sink.
    Done,
    /// It is parked as before, and what was asked for is answered.
    Refused { attempts: u32, parking: Parking },
    /// It did not land; it is tried again.
    Again,
}

impl ParkedTable {
    /// Rows that somebody asks something for, with ids above `after`.
    pub(super) async fn requested(
        &self,
        confirmed: Lsn,
        after: i64,
        limit: i64,
    ) -> Result<Vec<Requested>, RelayError> {
        #[cfg(test)]
        if self.sql.simulation().is_some() {
            return Ok(Vec::new());
        }
        let sql = format!(
            "select id, requested = 'discard', aggregate_type, aggregate_id, \
                 generation <> $2 or commit_lsn < $3, generation = $2, commit_lsn, ordinal \
             from {} where pipeline = $1 and requested is not null and state = 'open' and id > $4 \
             order by id limit $5",
            self.parked
        );
        let parameters = [
            (&self.pipeline as _, Type::TEXT),
            (&self.generation() as _, Type::INT8),
            (&PgLsn::from(u64::from(confirmed)) as _, Type::PG_LSN),
            (&after as _, Type::INT8),
            (&limit as _, Type::INT8),
        ];
        let rows = self.sql.query("reading what is asked for", &sql, &parameters).await?;
        let requested = |row: &Row| Requested {
            id: row.get(0),
            discard: row.get(1),
            aggregate: aggregate(row, 2),
            passed: row.get(4),
            place: (row.get(5), position(row, 6)),
        };
        Ok(rows.iter().map(requested).collect())
    }

    /// The first open row of each of these, in their order. Rows of other
    /// generations stand before those of this one.
    pub(super) async fn heads(
        &self,
        confirmed: Lsn,
        aggregates: &[Aggregate],
    ) -> Result<Vec<Option<Head>>, RelayError> {
        if aggregates.is_empty() {
            return Ok(Vec::new());
        }
        #[cfg(test)]
        if let Some(server) = self.sql.simulation() {
            return Self::heads_of(server, aggregates).await;
        }
        match self.first_of(confirmed, aggregates).await {
            Err(error) if is_of_data(&error) => {}
            heads => return heads,
        }
        // The encoding of the database may not have a character of one of them.
        let mut heads = Vec::with_capacity(aggregates.len());
        for aggregate in aggregates {
            let head = match self.first_of(confirmed, slice::from_ref(aggregate)).await {
                Err(error) if is_of_data(&error) => {
                    self.first_of(confirmed, &[aggregate.with(Texts::Ascii)]).await?
                }
                head => head?,
            };
            heads.extend(head);
        }
        Ok(heads)
    }

    async fn first_of(
        &self,
        confirmed: Lsn,
        aggregates: &[Aggregate],
    ) -> Result<Vec<Option<Head>>, RelayError> {
        let kinds: Vec<_> = aggregates.iter().map(|one| &one.kind).collect();
        let ids: Vec<_> = aggregates.iter().map(|one| &one.id).collect();
        let parameters = [
            (&self.pipeline as _, Type::TEXT),
            (&self.generation() as _, Type::INT8),
            (&PgLsn::from(u64::from(confirmed)) as _, Type::PG_LSN),
            (&kinds as _, Type::TEXT_ARRAY),
            (&ids as _, Type::TEXT_ARRAY),
        ];
        let attempt = "looking at the parked aggregates";
        let rows = self.sql.query(attempt, &self.first_rows(), &parameters).await?;
        let head = |row: &Row| {
            Some(Head {
                id: row.get::<_, Option<i64>>(0)?,
                open: row.get(1),
                behind: row.get(2),
                retry: row.get(3),
                discard: row.get(4),
                passed: row.get(5),
                commit_lsn: Lsn::from(u64::from(row.get::<_, PgLsn>(6))),
            })
        };
        Ok(rows.iter().map(head).collect())
    }

    fn first_rows(&self) -> String {
        let columns = "id, generation, commit_lsn, ordinal, state, reason, requested";
        let of_it = format!(
            "from {} where pipeline = $1 and state in ('open', 'sending') \
             and hashtextextended(aggregate_id, 0) = hashtextextended(a.id, 0) \
             and coalesce(hashtextextended(aggregate_type, 0), 0) \
                 = coalesce(hashtextextended(a.kind, 0), 0) \
             and aggregate_id = a.id and aggregate_type is not distinct from a.kind",
            self.parked
        );
        format!(
            "select p.id, p.state = 'open', p.reason = 'behind', \
                 coalesce(p.requested = 'retry', false), coalesce(p.requested = 'discard', false), \
                 p.generation <> $2 or p.commit_lsn < $3, p.commit_lsn \
             from unnest($4, $5) with ordinality as a (kind, id, number) left join lateral ( \
                 select * from ( \
                     (select 0 as rank, * from ( \
                         select {columns} {of_it} and generation < $2 \
                         union all select {columns} {of_it} and generation > $2) earlier \
                     order by min(id) over (partition by generation), commit_lsn, ordinal limit 1) \
                     union all (select 1, {columns} {of_it} and generation = $2 \
                     order by generation, commit_lsn, ordinal limit 1)) first \
                 order by rank limit 1) p on true \
             order by a.number"
        )
    }

    /// A row that is open, with its event.
    pub(super) async fn event(&self, id: i64) -> Result<Option<StoredEvent>, RelayError> {
        let sql = format!(
            "select generation, commit_lsn, ordinal, source, aggregate_type, aggregate_id, topic, \
                 record_partition, record_key, record_value, record_headers, record_timestamp_ms, \
                 row_columns, message_content, id_space, event_id, reason, retry_from_table from {} \
             where pipeline = $1 and id = $2 and state = 'open'",
            self.parked
        );
        let parameters = [(&self.pipeline as _, Type::TEXT), (&id as _, Type::INT8)];
        let row = self.sql.opt("reading a parked event", &sql, &parameters).await?;
        Ok(row.map(|row| {
            let source: String = row.get(3);
            let contents = StoredContents {
                topic: row.get(6),
                partition: row.get(7),
                key: row.get(8),
                value: row.get(9),
                headers: row.get(10),
                timestamp_ms: row.get(11),
                row: row.get(12),
                message: row.get(13),
            };
            StoredEvent {
                id,
                generation: generation(&row, 0),
                position: position(&row, 1),
                aggregate: aggregate(&row, 4),
                contents: contents.read(&source),
                source,
                id_space: row.get(14),
                event_id: row.get(15),
                reason: ParkReason::of(row.get(16)),
                from_table: row.get(17),
                row: None,
            }
        }))
    }

    /// Commits that these events may be in the sink from now on, at or above
    /// their floors; those of them that were open and that nobody wants to
    /// discard. The position is at or behind that commit.
    pub(super) async fn begin(
        &self,
        events: &[(i64, SendingFloor)],
    ) -> Result<(Vec<i64>, Lsn), RelayError> {
        let sql = format!(
            "with owner as materialized ({}), begun as ( \
                 update {} p set state = 'sending', sending_floor = event.floor, \
                     updated_at = clock_timestamp() \
                 from unnest($3, $4) as event (id, floor) \
                 where exists (select from owner) and p.id = event.id and p.pipeline = $1 \
                     and p.state = 'open' and p.requested is distinct from 'discard' \
                 returning p.id) \
             select coalesce((select array_agg(id) from begun), '{{}}') from owner",
            self.owner(),
            self.parked
        );
        let ids: Vec<i64> = events.iter().map(|(id, _)| *id).collect();
        let floors: Vec<Json> = events.iter().map(|(_, floor)| floor.to_json()).collect();
        let parameters = [
            (&self.pipeline as _, Type::TEXT),
            (&self.token as _, Type::UUID),
            (&ids as _, Type::INT8_ARRAY),
            (&floors as _, Type::JSONB_ARRAY),
        ];
        let row = self.sql.opt("noting what is sent on", &sql, &parameters).await?;
        let begun = row.ok_or_else(|| self.taken_over())?.get(0);
        Ok((begun, self.sql.flushed().await?))
    }

    /// Commits what became of these events.
    pub(super) async fn settle(&self, outcomes: &[Outcome]) -> Result<(), RelayError> {
        match self.settle_with(outcomes, Texts::Whole).await {
            Err(error) if is_of_data(&error) => self.settle_with(outcomes, Texts::Ascii).await,
            settled => settled,
        }
    }

    async fn settle_with(&self, outcomes: &[Outcome], texts: Texts) -> Result<(), RelayError> {
        let sql = format!(
            "with owner as materialized ({}), settled as ( \
                 update {} p set state = outcome.state, sending_floor = null, \
                     requested = case when outcome.again then p.requested end, \
                     requested_at = case when outcome.again then p.requested_at end, \
                     retry_from_table = outcome.again and p.retry_from_table, \
                     attempts = p.attempts + outcome.attempts, \
                     reason = coalesce(outcome.reason, p.reason), \
                     detail = coalesce(outcome.detail, p.detail), updated_at = clock_timestamp() \
                 from unnest($3, $4, $5, $6, $7, $8) \
                     as outcome (id, state, again, attempts, reason, detail) \
                 where exists (select from owner) and p.id = outcome.id and p.pipeline = $1 \
                     and (p.state = 'sending' or p.state = 'open' \
                         and p.requested is distinct from 'discard')) \
             select 1 from owner",
            self.owner(),
            self.parked
        );
        fn column<T>(outcomes: &[Outcome], value: impl Fn(&Outcome) -> T) -> Vec<T> {
            outcomes.iter().map(value).collect()
        }
        let state = |one: &Outcome| match one.verdict {
            Verdict::Done => "done",
            Verdict::Refused { .. } | Verdict::Again => "open",
        };
        let refusal = |one: &Outcome| match &one.verdict {
            Verdict::Refused { attempts, parking } => {
                let attempts = i32::try_from(*attempts).unwrap_or(i32::MAX);
                (attempts, Some(parking.reason.as_str()), Some(texts.of(&parking.detail)))
            }
            Verdict::Done | Verdict::Again => (0, None, None),
        };
        let again = |one: &Outcome| matches!(one.verdict, Verdict::Again);
        let parameters = [
            (&self.pipeline as _, Type::TEXT),
            (&self.token as _, Type::UUID),
            (&column(outcomes, |one| one.id) as _, Type::INT8_ARRAY),
            (&column(outcomes, state) as _, Type::TEXT_ARRAY),
            (&column(outcomes, again) as _, Type::BOOL_ARRAY),
            (&column(outcomes, |one| refusal(one).0) as _, Type::INT4_ARRAY),
            (&column(outcomes, |one| refusal(one).1) as _, Type::TEXT_ARRAY),
            (&column(outcomes, |one| refusal(one).2) as _, Type::TEXT_ARRAY),
        ];
        let attempt = "noting what became of parked events";
        let rows = self.sql.query(attempt, &sql, &parameters).await.map_err(parking_failed)?;
        if rows.is_empty() { Err(self.taken_over()) } else { Ok(()) }
    }

    /// Discards some of those that somebody wants to be: which, and of which
    /// aggregates. Until there are none.
    pub(super) async fn discard(&self) -> Result<Vec<(i64, Option<Aggregate>)>, RelayError> {
        #[cfg(test)]
        if self.sql.simulation().is_some() {
            return Ok(Vec::new());
        }
        let sql = format!(
            "with owner as materialized ({}), discarded as ( \
                 update {parked} p set state = 'discarded', requested = null, requested_at = null, \
                     updated_at = clock_timestamp() \
                 where exists (select from owner) and p.state = 'open' and p.id = any (array( \
                     select id from {parked} where pipeline = $1 and requested = 'discard' \
                     and state = 'open' order by id limit $3)) \
                 returning p.id, p.aggregate_type, p.aggregate_id) \
             select id, aggregate_type, aggregate_id from owner left join discarded on true",
            self.owner(),
            parked = self.parked
        );
        let parameters = [
            (&self.pipeline as _, Type::TEXT),
            (&self.token as _, Type::UUID),
            (&DISCARD_MAX_ROWS as _, Type::INT8),
        ];
        let rows = self.sql.query("discarding parked events", &sql, &parameters).await?;
        if rows.is_empty() {
            return Err(self.taken_over());
        }
        let discarded = |row: &Row| Some((row.get::<_, Option<i64>>(0)?, aggregate(row, 1)));
        Ok(rows.iter().filter_map(discarded).collect())
    }

    /// What a run before this one was sending on when it ended.
    pub(super) async fn sending(&self) -> Result<Vec<Sending>, RelayError> {
        #[cfg(test)]
        if self.sql.simulation().is_some() {
            return Ok(Vec::new());
        }
        let sql = format!(
            "select id, generation, commit_lsn, ordinal, sending_floor, aggregate_type, \
                 aggregate_id from {} where pipeline = $1 and state = 'sending' order by id",
            self.parked
        );
        let parameters = [(&self.pipeline as _, Type::TEXT)];
        let rows = self.sql.query("reading what was sent on", &sql, &parameters).await?;
        let sending = |row: &Row| {
            let (id, floor): (i64, Json) = (row.get(0), row.get(4));
            let corrupt =
                || RelayError::Config(format!("parked event {id} has a floor of another form"));
            Ok(Sending {
                id,
                generation: generation(row, 1),
                position: position(row, 2),
                aggregate: aggregate(row, 5),
                floor: SendingFloor::from_json(&floor).ok_or_else(corrupt)?,
            })
        };
        rows.iter().map(sending).collect()
    }

    fn owner(&self) -> String {
        format!(
            "select pipeline from {} where pipeline = $1 and token = $2 for no key update",
            self.checkpoint
        )
    }
}

/// Type and id, from column `first` on, where there is an id.
fn aggregate(row: &Row, first: usize) -> Option<Aggregate> {
    let id: String = row.get::<_, Option<String>>(first + 1)?;
    Some(Aggregate { kind: row.get(first), id: Some(id) })
}

fn generation(row: &Row, index: usize) -> Generation {
    Generation::from(u32::try_from(row.get::<_, i64>(index)).unwrap_or(u32::MAX))
}
