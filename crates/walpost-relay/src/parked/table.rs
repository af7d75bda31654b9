#[cfg(test)]
mod simulated;

use std::collections::HashMap;

use tokio_postgres::{
    Row,
    types::{PgLsn, Type},
};
use uuid::Uuid;
use walpost_event::{Generation, Lsn, Message, Position};

use super::{
    Aggregate, ParkedEvent, ParkedId, Texts, Waiting, aggregates::WAITING_MAX, column_text,
};
use crate::{
    config::{RelayConfig, TableName},
    error::RelayError,
    sql::Sql,
};

/// The table `parked`, as one run of one pipeline sees it.
#[derive(Clone)]
pub(super) struct ParkedTable {
    pub(super) sql: Sql,
    pub(super) parked: String,
    pub(super) checkpoint: String,
    pub(super) pipeline: String,
    generation: Generation,
    pub(super) token: Uuid,
}

impl ParkedTable {
    pub(super) fn new(sql: Sql, config: &RelayConfig, generation: Generation, token: Uuid) -> Self {
        let table = |name: &str| {
            TableName { schema: config.schema.clone(), name: name.to_owned() }.quoted()
        };
        Self {
            sql,
            parked: table("parked"),
            checkpoint: table("checkpoint"),
            pipeline: config.pipeline.clone(),
            generation,
            token,
        }
    }

    /// Commits rows for events, if the pipeline still belongs to this run. An event that has its
    /// row already keeps it.
    pub(super) async fn insert(&self, events: &[ParkedEvent]) -> Result<(), RelayError> {
        match self.insert_with(events, Texts::Whole).await {
            Err(error) if is_of_data(&error) => {}
            inserted => return inserted,
        }
        // The encoding of the database may not have a character of one of them.
        for event in events.chunks(1) {
            match self.insert_with(event, Texts::Whole).await {
                Err(error) if is_of_data(&error) => self.insert_with(event, Texts::Ascii).await?,
                inserted => inserted?,
            }
        }
        Ok(())
    }

    /// All of them or none.
    async fn insert_with(&self, events: &[ParkedEvent], texts: Texts) -> Result<(), RelayError> {
        #[cfg(test)]
        if let Some(server) = self.sql.simulation() {
            return self.insert_into(server, events).await;
        }
        fn column<'a, T>(
            events: &'a [ParkedEvent],
            value: impl Fn(&'a ParkedEvent) -> T,
        ) -> Vec<T> {
            events.iter().map(value).collect()
        }
        fn of_record<'a, T>(
            events: &'a [ParkedEvent],
            value: impl Fn(&'a Message) -> Option<T>,
        ) -> Vec<Option<T>> {
            events.iter().map(|event| event.contents.record().and_then(&value)).collect()
        }
        let lsn = |event: &ParkedEvent| PgLsn::from(u64::from(event.position.commit_lsn));
        let kept = |text: Option<String>| text.map(|text| texts.of(&text));
        let event_id = |event: &ParkedEvent| kept(column_text(event.identity.event_id.as_ref()));
        let aggregate = |event: &ParkedEvent| Aggregate::new(&event.identity);
        let attempts = |event: &ParkedEvent| i32::try_from(event.attempts).unwrap_or(i32::MAX);
        let rows = self
            .sql
            .query(
                "parking events",
                &self.insertion(),
                &[
                    (&self.pipeline, Type::TEXT),
                    (&self.token, Type::UUID),
                    (&self.generation(), Type::INT8),
                    (&column(events, lsn), Type::PG_LSN_ARRAY),
                    (&column(events, |one| i64::from(one.position.ordinal)), Type::INT8_ARRAY),
                    (&column(events, |one| texts.of(&one.source)), Type::TEXT_ARRAY),
                    (&column(events, event_id), Type::TEXT_ARRAY),
                    (&column(events, |one| kept(aggregate(one).kind)), Type::TEXT_ARRAY),
                    (&column(events, |one| kept(aggregate(one).id)), Type::TEXT_ARRAY),
                    (&column(events, |one| one.parking.reason.as_str()), Type::TEXT_ARRAY),
                    (&column(events, |one| texts.of(&one.parking.detail)), Type::TEXT_ARRAY),
                    (&column(events, attempts), Type::INT4_ARRAY),
                    (&of_record(events, |record| Some(texts.of(&record.topic))), Type::TEXT_ARRAY),
                    (&of_record(events, |record| record.partition), Type::INT4_ARRAY),
                    (&of_record(events, |record| record.key.as_deref()), Type::BYTEA_ARRAY),
                    (&of_record(events, |record| record.value.as_deref()), Type::BYTEA_ARRAY),
                    (&column(events, |one| one.contents.record_headers(texts)), Type::JSONB_ARRAY),
                    (&of_record(events, |record| record.timestamp_ms), Type::INT8_ARRAY),
                    (&column(events, |one| one.contents.row_columns(texts)), Type::JSONB_ARRAY),
                    (&column(events, |one| one.contents.message_content()), Type::BYTEA_ARRAY),
                    (&column(events, |one| one.id_space), Type::UUID_ARRAY),
                ],
            )
            .await
            .map_err(parking_failed)?;
        if rows.is_empty() {
            return Err(self.taken_over());
        }
        Ok(())
    }

    /// The lock is the one that a take-over needs. Either it waits for these
    /// rows, and reads them, or they wait for it, look at the token again, and
    /// are not written.
    fn insertion(&self) -> String {
        let Self { parked, checkpoint, .. } = self;
        format!(
            "with owner as materialized (
                select pipeline from {checkpoint} where pipeline = $1 and token = $2
                for no key update
            ), inserted as (
                insert into {parked} (pipeline, generation, commit_lsn, ordinal, source, event_id,
                    aggregate_type, aggregate_id, reason, detail, attempts, topic,
                    record_partition, record_key, record_value, record_headers,
                    record_timestamp_ms, row_columns, message_content, id_space)
                select $1, $3, commit_lsn, ordinal, source, event_id, aggregate_type,
                    aggregate_id, reason, detail, attempts, topic, record_partition, record_key,
                    record_value, record_headers, record_timestamp_ms, row_columns,
                    message_content, id_space
                from unnest($4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                    $19, $20, $21) with ordinality as event (commit_lsn, ordinal, source, event_id,
                    aggregate_type, aggregate_id, reason, detail, attempts, topic,
                    record_partition, record_key, record_value, record_headers,
                    record_timestamp_ms, row_columns, message_content, id_space, number)
                where exists (select from owner)
                order by number
                on conflict (pipeline, generation, commit_lsn, ordinal,
                    coalesce(hashtextextended(event_id, 0), 0),
                    coalesce(id_space, '00000000-0000-0000-0000-000000000000')) do nothing
            )
            select 1 from owner"
        )
    }

    /// The ids of the events that have a row and may come again after
    /// `confirmed`, by position.
    pub(super) async fn read_events(
        &self,
        confirmed: Lsn,
    ) -> Result<HashMap<Position, Vec<ParkedId>>, RelayError> {
        // Commit records end behind where they start: a page of slack keeps
        // the transaction that ends at the confirmed position.
        let from = u64::from(confirmed).saturating_sub(1 << 16);
        #[cfg(test)]
        if let Some(server) = self.sql.simulation() {
            return server.parked_events(from.into()).await;
        }
        let sql = format!(
            "select commit_lsn, ordinal, event_id, id_space from {} \
             where pipeline = $1 and generation = $2 and commit_lsn >= $3",
            self.parked
        );
        let rows = self
            .sql
            .query(
                "reading the parked events",
                &sql,
                &[
                    (&self.pipeline, Type::TEXT),
                    (&self.generation(), Type::INT8),
                    (&PgLsn::from(from), Type::PG_LSN),
                ],
            )
            .await?;
        let mut events: HashMap<Position, Vec<_>> = HashMap::new();
        for row in rows {
            let id = ParkedId { space: row.get(3), id: row.get(2) };
            events.entry(position(&row, 0)).or_default().push(id);
        }
        Ok(events)
    }

    /// The aggregates whose later events have to wait, with the first that they
    /// wait for: for one of another generation, all of them.
    pub(super) async fn read_aggregates(
        &self,
        config: &RelayConfig,
    ) -> Result<Waiting, RelayError> {
        #[cfg(test)]
        if let Some(server) = self.sql.simulation() {
            return Self::aggregates_of(server).await;
        }
        let sql = format!(
            "select distinct on (aggregate_type, aggregate_id) \
                 aggregate_type, aggregate_id, generation = $2, commit_lsn, ordinal from {} \
             where pipeline = $1 and state in ('open', 'sending') and aggregate_id is not null \
             order by aggregate_type, aggregate_id, generation = $2, commit_lsn, ordinal limit $3",
            self.parked
        );
        let parameters = [
            (&self.pipeline as _, Type::TEXT),
            (&self.generation() as _, Type::INT8),
            // One more says that there are too many.
            (&(WAITING_MAX as i64 + 1) as _, Type::INT8),
        ];
        // Has to read all open rows, once.
        let slow = self.sql.within_ms(config.slot_timeout_ms);
        let rows = slow.query("reading the parked aggregates", &sql, &parameters).await?;
        let mut waiting = Waiting::default();
        for row in rows {
            let first = if row.get(2) { position(&row, 3) } else { Position::default() };
            waiting.load(Aggregate { kind: row.get(0), id: row.get(1) }, first)?;
        }
        Ok(waiting)
    }

    /// Another run owns the pipeline.
    pub(super) fn taken_over(&self) -> RelayError {
        RelayError::TakenOver { pipeline: self.pipeline.clone() }
    }

    pub(super) fn generation(&self) -> i64 {
        u32::from(self.generation).into()
    }
}

/// Whether the server takes no value of this kind.
pub(super) fn is_of_data(error: &RelayError) -> bool {
    match error {
        RelayError::Parking(error) => error.code.starts_with("22"),
        RelayError::Sql { source, .. } => {
            source.code().is_some_and(|code| code.code().starts_with("22"))
        }
        _ => false,
    }
}

/// A statement about parked events has failed.
pub(super) fn parking_failed(error: RelayError) -> RelayError {
    let RelayError::Sql { source, .. } = &error else { return error };
    let Some(refused) = source.as_db_error() else { return error };
    RelayError::Parking(refused.into())
}

/// LSN and ordinal, from column `first` on.
pub(crate) fn position(row: &Row, first: usize) -> Position {
    Position {
        commit_lsn: Lsn::from(u64::from(row.get::<_, PgLsn>(first))),
        ordinal: u32::try_from(row.get::<_, i64>(first + 1)).unwrap_or(u32::MAX),
    }
}
